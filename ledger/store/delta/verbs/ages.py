"""The instant by which upkeep may judge that messages are old.

A clock that is days ahead makes every message look old, and dropped messages are gone. Upkeep therefore drops messages
for their age only after two looks at the clock, at least `mark_seconds` apart (a setting; 0: one look is enough):

- A process that has had the ledger open for that long, without a step of its clock, needs nothing else.
- Otherwise the first look is the *mark* of an earlier round: the property MARK of the table `tasks`. Until
  `mark_seconds` are over, a round drops nothing for its age. A missing or refuted mark is made anew. A future instant
  refutes the mark. So does a later commit with a much earlier instant, or a drift between the wall clock and the
  passing time.
- On another machine, or after a restart, passing time cannot be compared. Then a round drops only messages that were
  old at the instant of the mark, and marks anew.
- The storage's own clock (of an object store, or Ledger.open's `storage_clock`) replaces the mark and the wait.
"""

from __future__ import annotations

import json
import logging
import secrets
from functools import partial
from typing import Any, NamedTuple

from ledger.clock import Clock, boot_of
from ledger.rules import instants
from ledger.rules.limits import MILLISECONDS
from ledger.settings import Settings
from ledger.store.delta.commit.clocks import SteadyClock
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.engine import Engine
from ledger.store.delta.verbs.tidying import try_commit

log = logging.getLogger("ledger.upkeep")
MARK = "ledger.marked"
#: The tables whose newest commits are evidence of the time.
WITNESSES, MOST_COMMITS = ("messages", "visibility"), 20


#: The seconds that an unconfirmed clock may be ahead: far less than the 7 days for which a new ledger keeps files.
NEAR = 86_400


class JudgedAges(NamedTuple):
    """The instant by which ages may be judged (None: no age may be judged), and whether the clock itself was confirmed.

    If the clock was not confirmed, `at` also replaces it for the time of a queue's lanes.
    """

    at: int | None
    is_confirmed: bool

    def is_near(self, now: int) -> bool:
        """Return whether upkeep may do work by the machine's clock, such as the engines' vacuum."""
        return self.is_confirmed or (self.at is not None and now - self.at <= NEAR * MILLISECONDS)


UNCONFIRMED = JudgedAges(None, is_confirmed=False)


class _Mark(NamedTuple):
    """A look at the clock: the instant, the milliseconds `passed` since the machine's start `boot`, and the versions of
    WITNESSES."""

    at: int
    passed: int
    boot: str
    versions: dict[str, int]


class Ages:
    def __init__(
        self,
        engine: Engine,
        transactions: Transactions,
        clock: SteadyClock,
        settings: Settings,
        storage: Clock | None = None,
    ) -> None:
        self._engine, self._transactions, self._clock, self._storage = engine, transactions, clock, storage
        self._wait, self._skew = settings.mark_seconds * MILLISECONDS, settings.maximum_clock_skew

    def judge(self) -> JudgedAges:
        """Return the instant by which this round may judge ages. If it may judge none, make sure that there is a mark.

        Raises StorageFailed. Raises ClocksDisagree if the clock made a step, or differs from the storage's clock.
        """
        now, steady_for = self._clock.look()
        if self._storage is not None:
            instants.require_alike(now, self._storage(), self._skew, "the storage's clock says")
            return JudgedAges(now, is_confirmed=True)
        mark, skew = self._read_mark(), round(self._skew * MILLISECONDS)
        if steady_for * MILLISECONDS >= self._wait:
            if mark is not None and mark.at > now + skew:
                # This mark must not confirm the clock ahead that made it.
                self._mark(now)
            return JudgedAges(now, is_confirmed=True)
        if mark is None:
            return self._mark_and_refuse(now, "there is no mark of an earlier round")
        elapsed, passed = now - mark.at, self._passed() - mark.passed
        if elapsed < -skew:
            log.warning(
                "this machine's clock is %.0f s behind the clock of an earlier upkeep: one of the two is wrong. As "
                "long as both run upkeep, each marks anew, and nothing is dropped for its age",
                -elapsed / MILLISECONDS,
            )
            return self._mark_and_refuse(now, "the mark of an earlier round is in the future")
        here = mark.boot != "" and mark.boot == boot_of(self._clock.passing)
        if here and abs(elapsed - passed) > skew:
            return self._mark_and_refuse(now, f"the clock moved by {elapsed} ms while {passed} ms passed")
        since = (commit.metadata.get("at") for name in WITNESSES for commit in self._newest(name, mark.versions[name]))
        if instants.contradicts((at for at in since if at is not None), mark.at, self._skew):
            return self._mark_and_refuse(now, "a commit that came after the mark is from before it")
        if elapsed < self._wait:
            log.info("messages may be dropped for their age by a round at least %d ms after the mark", self._wait)
            return UNCONFIRMED
        if here:
            return JudgedAges(now, is_confirmed=True)
        # The next round has no more evidence than this one: it needs a newer mark.
        self._mark(now)
        return JudgedAges(mark.at, is_confirmed=False)

    def explain(self, now: int, expected: int) -> bool:
        """Return whether the storage's clock, or else commits of other owners, confirm a step of the clock to `now`."""
        if self._storage is not None:
            return abs(self._storage() - now) <= self._skew * MILLISECONDS
        owner = self._transactions.owner
        commits = (commit.metadata for name in WITNESSES for commit in self._newest(name))
        others = [metadata["at"] for metadata in commits if metadata.get("owner", owner) != owner and "at" in metadata]
        return instants.explains(others, now, expected, self._skew)

    def _newest(self, table: str, since: int = -1) -> list[Any]:
        return self._engine.history(table, max(since, self._engine.version(table) - MOST_COMMITS))

    def _passed(self) -> int:
        return round(self._clock.passing() * MILLISECONDS)

    def _read_mark(self) -> _Mark | None:
        content = self._engine.layout("tasks").properties.get(MARK)
        try:
            return None if content is None else _Mark(**json.loads(content))
        except (TypeError, ValueError):
            # A mark that this release cannot read confirms nothing.
            return None

    def _mark_and_refuse(self, now: int, why: str) -> JudgedAges:
        log.info("this round drops nothing for its age, and makes a mark for a later round: %s", why)
        self._mark(now)
        return UNCONFIRMED

    def _mark(self, now: int) -> None:
        versions = {name: self._engine.version(name) for name in WITNESSES}
        content = json.dumps(_Mark(now, self._passed(), boot_of(self._clock.passing), versions)._asdict())
        metadata = self._transactions.metadata(secrets.token_hex(8), "upkeep", "", now, [])
        try_commit(self._transactions, "tasks", partial(self._engine.configure, "tasks", {MARK: content}, metadata))
