"""The clock of an open ledger, held against the time that passes and against the storage's clock.

*A step that nothing explains is refused.* A wall clock can be set; the time that passes since the machine was started
cannot. Each reading is compared with the one before it. Readings that agree become the next to compare with, so that a
clock which is slowed or hurried a little (as NTP does) is never refused. A process that has just started has no reading
to compare with: it believes its clock.

*All drivers of a ledger share the storage's clock.* Lanes remember the time of their last commit, so a driver whose
clock is behind is noticed there at once. A driver whose clock is ahead is not noticed until another follows it: it sees
every deadline pass too early. The storage's clock tells both.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ledger.clock import Clock, Passing
from ledger.delta_log.failures import naming
from ledger.errors import StorageFailed
from ledger.rules.instants import require_alike, require_steady
from ledger.rules.limits import MILLISECONDS
from ledger.store.delta.commit.storage_safety import PROBES

if TYPE_CHECKING:
    from ledger.delta_log.object_store import ObjectStore

log = logging.getLogger("ledger.opening")
#: A reading is compared with one that is older than this, in seconds, if there is such.
RENEWED = 10.0
#: Between two readings that are made at once passes less than this, in seconds, unless the process stands still.
AT_ONCE = 0.1


class _Reading(NamedTuple):
    at: int
    passed: float


class ClockLook(NamedTuple):
    """A look at the clock: the instant, and for how many seconds the clock has made no step by then."""

    at: int
    steady_for: float


class SteadyClock:
    """A Clock. Threads share it.

    Args:
        clock: the wall clock.
        passing: the time that passes.
        maximum_skew: how large a step may be, in seconds.
    """

    def __init__(self, clock: Clock, passing: Passing, maximum_skew: float) -> None:
        self._clock, self.passing, self._maximum_skew = clock, passing, maximum_skew
        self._bound = round(maximum_skew * MILLISECONDS)
        self._last = _Reading(clock(), passing())
        self._steady_since = self._last.passed
        #: Tells of a step to `now`, where `expected` was expected, whether something else confirms it.
        self.explained_by: Callable[[int, int], bool] = lambda now, expected: False

    def __call__(self) -> int:
        """Return the instant. Raise ClocksDisagree for a step that nothing explains."""
        return self.look().at

    def look(self) -> ClockLook:
        """Return the instant, and for how long the clock has been steady. Raise ClocksDisagree as a call does.

        Only what passed before this look counts. A process that stands still after it has not looked again.
        """
        last, passed = self._last, self.passing()
        now = self._clock()
        earliest = self._expected(last, passed)
        if abs(now - earliest) <= self._bound:
            if passed - last.passed > RENEWED and self.passing() - passed < AT_ONCE:
                self._last = _Reading(now, passed)
            return ClockLook(now, passed - self._steady_since)
        # The process may have stood still between the two.
        again = self.passing()
        latest = max(earliest, self._expected(last, again))
        if earliest - self._bound <= now <= latest + self._bound:
            return ClockLook(now, passed - self._steady_since)
        expected = earliest if now < earliest else latest
        if not self.explained_by(now, expected):
            require_steady(now, expected, self._maximum_skew)
        log.warning("the clock was set by %.1f s; others confirm it", (now - expected) / MILLISECONDS)
        self._last, self._steady_since = _Reading(now, again), again
        return ClockLook(now, 0.0)

    @staticmethod
    def _expected(last: _Reading, passed: float) -> int:
        return last.at + round((passed - last.passed) * MILLISECONDS)


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
