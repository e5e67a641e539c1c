"""Checks whether commits of several drivers are safe on a storage."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from ledger.delta_log.protocol import Layout
from ledger.errors import StorageFailed, UnsafeStorage
from ledger.rules.location import S3, recorded
from ledger.settings import Settings
from ledger.store.delta.model.tables import COMMITS

if TYPE_CHECKING:
    from ledger.delta_log.object_store import ObjectStore

#: The folder for the files of the checks. Only the file KEPT stays.
PROBES = "_probes"
KEPT = "conditional-put"
#: In seconds: how long a check is trusted, with and without an answer of the storage.
TRUSTED_SECONDS, UNKNOWN_SECONDS = 3_600.0, 60.0
log = logging.getLogger("ledger.storage")


def require_safe(scheme: str, engine: str) -> None:
    if scheme in S3 and engine == "spark":
        raise UnsafeStorage(
            "On S3 two drivers that commit through Spark can silently lose each other's commits, and delta-rs ignores "
            "Spark's lock (S3DynamoDBLogStore). So only delta-rs may commit to a ledger on S3. Leave out "
            'engine="spark": with a session, Spark moves the rows of DataFrames all the same'
        )


def require_safe_output(location: str, settings: Settings, why: str) -> None:
    """Raise UnsafeStorage for an output table on S3 to which Spark would commit, unless only one driver writes."""
    if recorded(location).scheme in S3 and not settings.single_driver:
        raise UnsafeStorage(
            f"{why}. On S3 two drivers that commit through Spark can silently lose each other's commits, whatever lock "
            "they have. Take a table to which delta-rs can publish (in a catalog, make the table first). Or put the "
            "output elsewhere. If only one driver ever writes, open the ledger with Settings(single_driver=True)"
        )


def require_conditional_puts(files: ObjectStore, effect: str = "") -> None:
    """Raise UnsafeStorage if a conditional put overwrites a file. `effect` is a sentence for the error.

    Raises StorageFailed.
    """
    path = f"{PROBES}/put-{secrets.token_hex(8)}"
    try:
        files.put(path, b"first")
        if files.put_new(path, b"second"):
            raise UnsafeStorage(
                f"The storage at {files.place} writes over a file that a put with If-None-Match must leave alone: two "
                f"writers would silently lose each other's commits. {effect}Take a store that honours "
                "conditional puts (AWS, MinIO, Ceph and R2 do today; older releases need an upgrade), or a path or HDFS"
            )
    finally:
        with contextlib.suppress(StorageFailed):
            files.delete(path)


class PutTrust:
    """Checks whether a ledger's storage still honours conditional puts.

    A process checks once in TRUSTED_SECONDS, before a commit, with a put of a file that exists. The first check makes
    the file.
    """

    #: For each store's address, the monotonic second from which TRUSTED_SECONDS count.
    _asked: ClassVar[dict[tuple[str, ...], float]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, files: ObjectStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._files, self._clock = files, clock

    def check(self) -> None:
        """Raise UnsafeStorage if a conditional put overwrites a file. If the storage does not answer, only log this."""
        if self._is_recent():
            return
        with self._lock:
            if self._is_recent():
                return
            try:
                if all(self._files.put_new(f"{PROBES}/{KEPT}", b"kept") for _ in range(2)):
                    raise UnsafeStorage(
                        f"The storage at {self._files.place} wrote over a file that a put with If-None-Match must "
                        "leave alone: two writers would silently lose each other's commits. It did not when the ledger "
                        "was made, so a gateway or a setting has changed. Nothing was committed. Restore conditional "
                        "puts, and run `ledger doctor`"
                    )
            except StorageFailed as error:
                log.warning("whether %s still honours conditional puts is not known: %s", self._files.place, error)
                self.trust(TRUSTED_SECONDS - UNKNOWN_SECONDS)
                return
            self.trust()

    def trust(self, seconds_ago: float = 0.0) -> None:
        self._asked[self._files.address] = self._clock() - seconds_ago

    def _is_recent(self) -> bool:
        checked_at = self._asked.get(self._files.address)
        return checked_at is not None and self._clock() - checked_at < TRUSTED_SECONDS


def require_committer(root: str, layout: Layout, engine: str) -> None:
    """Raise UnsafeStorage if COMMITS, in the `layout` of the table `queues`, names another engine."""
    committer = layout.properties.get(COMMITS)
    if committer is not None and committer != engine:
        raise UnsafeStorage(
            f"The ledger at {root} records that {committer} commits to it ({COMMITS}), and this process would commit "
            f'through {engine}: commits could be lost. Open it with engine="{committer}". If this is a copy that '
            f"nobody else commits to, remove the property {COMMITS} from its table queues"
        )
