"""The loop that runs rounds of upkeep when enough commits were made or enough time has passed.

Once a period `Upkeeper.run` checks whether a round is due (a *look*), and runs a round that is due. A look reads the
newest version numbers of three tables, and the record of the last round if it may have changed: three requests on an
object store, or more if there are new log files. `rules.upkeep` says when a round is due, and
`store.delta.verbs.rounds` how the record and the lease work.

**One at a time.** Before a round an Upkeeper takes the upkeep lease. (`Ledger.upkeep` by itself takes none.) If another
process holds the lease, the Upkeeper leaves the round to that process. A killed holder never gives the lease back.
Therefore an Upkeeper that has seen the same lease held for LEASE_SECONDS, by the machine's uptime, takes the next
lease. A process that looks only once (a cron job) takes the next lease if the held one is older than OLD_LEASE_SECONDS
by the clocks. If the holder was only slow, two rounds run at once, which is safe.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from ledger.clock import UPTIME, Passing
from ledger.errors import (
    ForkedProcess,
    InvalidParameterValue,
    LedgerDamaged,
    LedgerError,
    LedgerIsReadOnly,
    LedgerTooNew,
    SparkIsNeeded,
    TableAltered,
    UnsafeStorage,
)
from ledger.rules.limits import MILLISECONDS, parse_seconds
from ledger.rules.upkeep import Round, why_due

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from ledger.store.delta.verbs.rounds import Look
    from ledger.store.delta.verbs.upkeep import UpkeepReport

log = logging.getLogger("ledger.upkeep")
#: Waits for a number of seconds. Returns True as soon as the process is told to end.
Wait = Callable[[float], bool]
LEASE_SECONDS = 900.0
OLD_LEASE_SECONDS = 3_600.0
#: If the period is longer, the longest pause is the period.
LONGEST_PAUSE_SECONDS = 3_600.0
#: Each pause is up to this fraction longer or shorter, so that processes do not look at the same time.
JITTER_FRACTION = 0.1
#: The errors that no retry mends, only a person.
UNMENDED_ERRORS = (
    ForkedProcess,
    InvalidParameterValue,
    LedgerDamaged,
    LedgerIsReadOnly,
    LedgerTooNew,
    SparkIsNeeded,
    TableAltered,
    UnsafeStorage,
)
SHORTEST_PERIOD, LONGEST_PERIOD = 1.0, 86_400.0


def parse_period(name: str, text: str) -> float:
    """Return a period in seconds, from a text such as 90, 90s, 5m or 1h.

    Raises InvalidParameterValue, about the option `name`, unless the period is from 1 s to 24 h.
    """
    seconds = parse_seconds(text, "smh") or 0.0
    if not SHORTEST_PERIOD <= seconds <= LONGEST_PERIOD:
        raise InvalidParameterValue(name, text, "Must be a time from 1s to 24h", "Such as 90s, 5m or 1h.")
    return seconds


def format_period(period: float) -> str:
    sizes = (("h", 3_600), ("m", 60), ("s", 1))
    unit, size = next((unit, size) for unit, size in sizes if size == 1 or period % size == 0)
    return f"{period / size:g}{unit}"


class _Ended(Exception):
    """The process was told to end."""


class Upkeeper:
    """Runs upkeep of one ledger when it is due. Not thread-safe."""

    def __init__(
        self,
        ledger: Ledger,
        period: float,
        *,
        vacuum: bool = True,
        report: Callable[[UpkeepReport], None] | None = None,
        passing: Passing = UPTIME,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Prepare the upkeep of a ledger on Delta tables.

        About every `period` seconds the loop looks, after failures less often. `vacuum` is as in `Ledger.upkeep`.
        `report` gets the report of each round that did something (default: log it). `jitter` returns a random number
        from 0 to 1.
        """
        self._ledger, self._period, self._vacuum = ledger, period, vacuum
        self._report, self._passing, self._jitter = report or _log_report, passing, jitter
        self._rounds = ledger.rounds()
        self._failures = 0
        #: The round that was last on record, and for how many seconds `visibility` then kept commits.
        self._retention: tuple[Round | None, int] | None = None
        #: The number of the lease that was last seen held, and when it was first seen, as a value of `passing`.
        self._seen: tuple[int, float] | None = None

    def run(self, wait: Wait, is_ended: Callable[[], bool], *, first: float = 0.0) -> None:
        """Look again and again, with a pause after each look, until `wait` returns True.

        If `is_ended` returns True before a step of a round, the round stops and its lease is given back. The first look
        comes after `first` seconds.
        """
        pause = first
        while not wait(pause):
            pause = self.look(is_ended)

    def look(self, is_ended: Callable[[], bool] = lambda: False) -> float:
        """Look once, run a round if one is due, log what failed, and return the seconds until the next look."""
        try:
            self.run_if_due(is_ended, once=False)
        except _Ended:
            log.info("the round of upkeep ends before it is done: the process was told to end")
        except Exception as error:
            self._failures += 1
            self._log_failure(error, pause := self._choose_pause())
            return pause
        else:
            self._failures = 0
        return self._choose_pause()

    def run_if_due(self, is_ended: Callable[[], bool] = lambda: False, *, once: bool = True) -> UpkeepReport | None:
        """Run a round if one is due and this process gets the lease. Return its report, or None if no round ran.

        `once`: this process does not look again. Raises what `Ledger.upkeep` raises, and _Ended if `is_ended` returns
        True during the round.
        """
        looked, now = self._rounds.look(), self._ledger.clock()
        over = self._is_over(looked, now if once else None)
        why = why_due(looked.load(now), self._read_log_retention(looked))
        if why is None:
            log.debug("no round of upkeep is due")
            return None
        if not over:
            log.debug("a round of upkeep is due (%s), and another process runs one", why)
            return None
        if not self._rounds.take(looked, now):
            log.debug("a round of upkeep is due (%s), and another process was first", why)
            return None
        if looked.is_held:
            log.warning("the holder of upkeep's lease %d has not ended its round: this process does it", looked.lease)
        log.info("a round of upkeep begins: %s", why)
        try:
            done = self._ledger.upkeep(self._vacuum, lambda step: _check_step(step, is_ended))
        finally:
            self._give_back()
        if any(vars(done).values()):
            self._report(done)
        return done

    def _is_over(self, looked: Look, now: int | None) -> bool:
        """Return whether this process may take the next lease. `now` is None if the process looks again."""
        if not looked.is_held:
            self._seen = None
            return True
        passed = self._passing()
        if self._seen is None or self._seen[0] != looked.lease:
            self._seen = looked.lease, passed
        age = 0 if now is None or looked.leased_at is None else now - looked.leased_at
        return age > OLD_LEASE_SECONDS * MILLISECONDS or passed - self._seen[1] >= LEASE_SECONDS

    def _read_log_retention(self, looked: Look) -> int:
        if self._retention is None or self._retention[0] != looked.last:
            self._retention = looked.last, self._rounds.log_retention()
        return self._retention[1]

    def _give_back(self) -> None:
        try:
            self._rounds.give_back(self._ledger.clock())
        except LedgerError as error:
            log.warning("upkeep's lease could not be given back, and is over in %d s: %s", LEASE_SECONDS, error)

    def _choose_pause(self) -> float:
        pause: float = min(self._period * 2.0**self._failures, max(self._period, LONGEST_PAUSE_SECONDS))
        return pause * (1 + JITTER_FRACTION * (2 * self._jitter() - 1))

    def _log_failure(self, error: Exception, pause: float) -> None:
        if isinstance(error, UNMENDED_ERRORS):
            log.error("upkeep failed, which no retry mends; the next look is in %.0f s: %s", pause, error)
        elif isinstance(error, LedgerError):
            log.warning("upkeep failed, and is tried again in %.0f s: %s", pause, error)
        else:
            log.error("upkeep failed, and is tried again in %.0f s", pause, exc_info=error)


def _check_step(step: str, is_ended: Callable[[], bool]) -> None:
    if is_ended():
        raise _Ended
    log.debug("%s", step)


def _log_report(done: UpkeepReport) -> None:
    log.info("a round of upkeep did: %s", describe_round(done))


def describe_round(done: UpkeepReport) -> str:
    """Return in words what a round did, without work whose count is 0."""
    counts = {name.replace("_", " "): count for name, count in vars(done).items() if count}
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "nothing"
