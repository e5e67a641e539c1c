"""The ledger's clock, checked against elapsed time and against the storage's clock.

*An unexplained step of the clock is refused.* Each reading is compared with an earlier one and the uptime since. A
reading that agrees replaces the earlier one after RENEWED seconds, so NTP's small corrections do not add up to a step.
A new process believes its clock.

*All drivers of a ledger share the storage's clock.* A driver whose clock is behind fails at its next verb on a lane
with a later commit. A driver whose clock is ahead sees every deadline pass too early, and nothing else shows this.
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
from ledger.delta_log.failures import translating_errors
from ledger.errors import StorageFailed
from ledger.rules.instants import require_alike, require_steady
from ledger.rules.limits import MILLISECONDS
from ledger.store.delta.commit.storage_safety import PROBES

if TYPE_CHECKING:
    from ledger.delta_log.object_store import ObjectStore

log = logging.getLogger("ledger.opening")
RENEWED = 10.0
#: In seconds: two readings in a row take less, unless the process is suspended.
AT_ONCE = 0.1


class _Reading(NamedTuple):
    at: int
    passed: float


class ClockLook(NamedTuple):
    """The instant, and for how many seconds this process has seen no step of the clock."""

    at: int
    steady_for: float


class SteadyClock:
    """A Clock that refuses steps that nothing explains. Threads may share it.

    Args:
        clock: The wall clock.
        passing: The uptime, or another number of seconds that only grows.
        maximum_skew: The most seconds that are no step.
    """

    def __init__(self, clock: Clock, passing: Passing, maximum_skew: float) -> None:
        self._clock, self.passing, self._maximum_skew = clock, passing, maximum_skew
        self._bound = round(maximum_skew * MILLISECONDS)
        self._last = _Reading(clock(), passing())
        self._steady_since = self._last.passed
        #: Returns whether others' commits confirm a step from `expected` to `now`.
        self.explained_by: Callable[[int, int], bool] = lambda now, expected: False

    def __call__(self) -> int:
        """Return the instant. Raises ClocksDisagree."""
        return self.look().at

    def look(self) -> ClockLook:
        """Return a ClockLook. Raises ClocksDisagree."""
        last, passed = self._last, self.passing()
        now = self._clock()
        earliest = self._expect_reading(last, passed)
        if abs(now - earliest) <= self._bound:
            if passed - last.passed > RENEWED and self.passing() - passed < AT_ONCE:
                self._last = _Reading(now, passed)
            return ClockLook(now, passed - self._steady_since)
        # The process may have been suspended before it read the clock.
        again = self.passing()
        latest = max(earliest, self._expect_reading(last, again))
        if earliest - self._bound <= now <= latest + self._bound:
            return ClockLook(now, passed - self._steady_since)
        expected = earliest if now < earliest else latest
        if not self.explained_by(now, expected):
            require_steady(now, expected, self._maximum_skew)
        log.warning("the clock was set by %.1f s; others' commits confirm it", (now - expected) / MILLISECONDS)
        self._last, self._steady_since = _Reading(now, again), again
        return ClockLook(now, 0.0)

    @staticmethod
    def _expect_reading(last: _Reading, passed: float) -> int:
        return last.at + round((passed - last.passed) * MILLISECONDS)


#: The seconds between two successful comparisons.
INTERVAL = 600.0
#: In seconds: a smaller difference proves nothing, as some storage keeps whole seconds.
RESOLUTION = 1.0


class StorageClock:
    """Compares `clock` with the clock `storage` (None: never), at most every INTERVAL seconds of `passing`.

    The bound is RESOLUTION, or half of the setting maximum_clock_skew if that is more: then two drivers' clocks differ
    by the setting at most.
    """

    def __init__(
        self, clock: Clock, storage: Clock | None, maximum_skew: float, passing: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._storage, self._passing = clock, storage, passing
        self._bound = max(maximum_skew / 2, RESOLUTION)
        self._due: float | None = None

    def check(self) -> None:
        """Raise ClocksDisagree if the two clocks are too far apart. After a failure, the next call compares again."""
        if self._storage is None or (self._due is not None and self._passing() < self._due):
            return
        before = self._clock()
        stored = self._storage()
        # The storage read its clock between `before` and now.
        nearest = min(max(stored, before), self._clock())
        self._due = None
        half = "half of the setting maximum_clock_skew, as another driver may be as far off the other way"
        require_alike(nearest, stored, self._bound, "the storage's clock says", bound=half)
        self._due = self._passing() + INTERVAL


def make_object_probe(files: ObjectStore) -> Clock:
    """Return an object store's clock: the time of a small file, written and removed."""

    def read() -> int:
        path = f"{PROBES}/clock-{secrets.token_hex(8)}"
        files.put(path, b"?")
        try:
            return files.find_write_time(path)
        finally:
            with contextlib.suppress(StorageFailed):
                files.delete(path)

    return read


def make_probe(folder: Path) -> Clock:
    """Return a local path's clock: the modification time of a small file, written and removed.

    On a shared file system (NFS) this is the server's clock. Storage to which only Spark commits has no probe: pass a
    `storage_clock` to Ledger.open, or set the drivers' clocks by a time server.
    """

    def read() -> int:
        with translating_errors(str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, prefix="clock-") as file:
                file.write(b"?")
                file.flush()
                return Path(file.name).stat().st_mtime_ns // (1_000_000_000 // MILLISECONDS)

    return read
