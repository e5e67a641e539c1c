"""The clock of an open ledger, held against the time that passes: a step that nothing explains is refused.

A wall clock can be set; the time that passes since the machine was started cannot. Each reading is compared with the
one before it. Readings that agree become the next to compare with, so that a clock which is slowed or hurried a little
(as NTP does) is never refused. A process that has just started has no reading to compare with: it believes its clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ledger.clock import Clock, Passing
from ledger.rules.instants import require_steady
from ledger.rules.limits import MILLISECONDS

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
