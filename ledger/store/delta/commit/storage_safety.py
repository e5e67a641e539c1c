"""Whether the commits of several drivers are safe on a kind of storage, by the engine that would commit."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from ledger.delta_log.spec import Layout
from ledger.errors import StorageFailed, UnsafeStorage
from ledger.rules.location import recorded
from ledger.rules.storage import S3
from ledger.settings import Settings
from ledger.store.delta.model.tables import COMMITS

if TYPE_CHECKING:
    from ledger.delta_log.object_store import ObjectStore

#: Where, beside the tables, what is only there for a moment is written. Folders of this name are no tables' to anybody.
PROBES = "_probes"
#: The one file there that stays.
KEPT = "conditional-put"
#: For so long a process takes a storage to be as it found it; and where it could not be asked, for so long.
TRUSTED_SECONDS, UNKNOWN_SECONDS = 3_600.0, 60.0
log = logging.getLogger("ledger.storage")


def require_safe(scheme: str, engine: str) -> None:
    """Raises UnsafeStorage for Spark on S3."""
    if scheme in S3 and engine == "spark":
        raise UnsafeStorage(
            "On S3 two drivers that commit through Spark can silently lose each other's commits, and a lock of theirs "
            "(S3DynamoDBLogStore) is not kept by delta-rs: what commits to a ledger there is delta-rs. Leave out "
            'engine="spark": with a session, Spark moves the rows of DataFrames all the same'
        )


def require_safe_output(location: str, settings: Settings, why: str) -> None:
    """Raises UnsafeStorage for an output table on S3 that Spark would commit to, unless one driver alone ever writes.

    Spark's puts have no condition, and what is in doubt is fenced off by delta-rs, which keeps none of Spark's locks:
    either could write over the other's commit. `why`: what makes Spark commit there.
    """
    if recorded(location).scheme in S3 and not settings.single_driver:
        raise UnsafeStorage(
            f"{why}. On S3 two drivers that commit through Spark can silently lose each other's commits, whatever lock "
            "they have. Take a table to which delta-rs can publish what Spark wrote (made before, for a name of the "
            "catalog), say that only one driver ever writes, Settings(single_driver=True), or take an output elsewhere"
        )


def require_conditional_puts(files: ObjectStore) -> None:
    """Raises UnsafeStorage where a file is written over by a put that asked for there being none: so are commits.

    Raises StorageFailed. What it writes below PROBES it removes.
    """
    path = f"{PROBES}/put-{secrets.token_hex(8)}"
    try:
        files.put(path, b"first")
        if files.put_new(path, b"second"):
            raise UnsafeStorage(
                f"The storage at {files.place} writes over a file that a put with If-None-Match must leave alone: two "
                "writers would silently lose each other's commits. No ledger was made. Take a store that honours "
                "conditional puts (AWS, MinIO, Ceph and R2 of now do; ask for an upgrade), or a path or HDFS"
            )
    finally:
        with contextlib.suppress(StorageFailed):
            files.delete(path)


class PutTrust:
    """Whether the storage of a ledger that is there still honours conditional puts: a gateway may be changed under it.

    A process that commits asks once in TRUSTED_SECONDS, before its next commit, by one request: a conditional put of a
    file that is there. The file lies below PROBES for good and always has the same bytes, so that a store that ignores
    the condition does no harm to it. Where it is not there yet, the first put makes it, and a second one asks.
    """

    #: When each place was asked last, by this process's monotonic clock.
    _asked: ClassVar[dict[tuple[str, ...], float]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, files: ObjectStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._files, self._clock = files, clock

    def check(self) -> None:
        """Raise UnsafeStorage where the storage writes over a file that a conditional put must leave alone. A storage
        that does not answer is asked again a minute later: the commit itself meets what is wrong with it."""
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

    def trust(self, since: float = 0.0) -> None:
        """Take the storage to have been asked so many seconds ago."""
        self._asked[self._files.address] = self._clock() - since

    def _is_recent(self) -> bool:
        asked = self._asked.get(self._files.address)
        return asked is not None and self._clock() - asked < TRUSTED_SECONDS


def require_committer(root: str, layout: Layout, engine: str) -> None:
    """Raise UnsafeStorage when the ledger's own record, in the `layout` of its table `queues`, says that another engine
    commits."""
    recorded = layout.properties.get(COMMITS)
    if recorded is not None and recorded != engine:
        raise UnsafeStorage(
            f"The ledger at {root} records that {recorded} commits to it ({COMMITS}), and this process would through "
            f'{engine}: commits could be lost. Open it with engine="{recorded}"; if this is a copy of a ledger, which '
            f"nobody commits to elsewhere, remove the property {COMMITS} from its table queues"
        )
