"""This driver's clock against the storage's, which all drivers of a ledger share.

Lanes remember the time of their last commit, so a driver whose clock is behind is noticed there at once. One whose
clock is ahead is not, until another follows it: it sees every deadline pass too early. The storage's clock tells both.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.clock import Clock
from ledger.delta_log.failures import naming
from ledger.errors import StorageFailed
from ledger.rules.instants import require_alike
from ledger.rules.limits import MILLISECONDS
from ledger.store.delta.commit.storage_safety import PROBES

if TYPE_CHECKING:
    from ledger.delta_log.object_store import ObjectStore

#: How often the two are compared, in seconds.
INTERVAL = 600.0
#: Some file systems keep times in whole seconds: closer than this a clock is not told, in seconds.
RESOLUTION = 1.0


class StorageClock:
    """Compares `clock` with `storage` (None: never), at most every INTERVAL seconds of `passing`.

    Each driver keeps to half of the setting maximum_clock_skew from the storage, so any two keep to all of it.
    """

    def __init__(
        self, clock: Clock, storage: Clock | None, maximum_skew: float, passing: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._storage, self._passing = clock, storage, passing
        self._bound = max(maximum_skew / 2, RESOLUTION)
        self._due: float | None = None

    def check(self) -> None:
        """Raises ClocksDisagree when the two are too far apart; asks only when it is time to, and again after that."""
        if self._storage is None or (self._due is not None and self._passing() < self._due):
            return
        before = self._clock()
        stored = self._storage()
        # The storage told its time between these two, however long it took.
        nearest = min(max(stored, before), self._clock())
        self._due = None
        half = "half of the setting maximum_clock_skew, as another driver may be as far off the other way"
        require_alike(nearest, stored, self._bound, "the storage's clock says", bound=half)
        self._due = self._passing() + INTERVAL


def probe_of(files: ObjectStore) -> Clock:
    """The clock of an object store: when it says that a small file was written, which is removed again."""

    def read() -> int:
        path = f"{PROBES}/clock-{secrets.token_hex(8)}"
        files.put(path, b"?")
        try:
            return files.written_at(path)
        finally:
            with contextlib.suppress(StorageFailed):
                files.delete(path)

    return read


def probe(folder: Path) -> Clock:
    """The clock of a local path's storage: the modification time of a small file written there and removed again.

    On a disk of this machine that is this machine's own clock; on a shared file system (NFS) it is the server's. Where
    only Spark commits there is no such probe: pass Ledger.open a `storage_clock` of your own, or keep drivers to a time
    server.
    """

    def read() -> int:
        with naming(str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, prefix="clock-") as file:
                file.write(b"?")
                file.flush()
                return Path(file.name).stat().st_mtime_ns // (1_000_000_000 // MILLISECONDS)

    return read
