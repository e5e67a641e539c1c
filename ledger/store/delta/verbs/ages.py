"""How old things are, for what upkeep destroys because of their age: only what a second look at the clock confirms.

A clock that is days ahead makes everything look old. A verb that goes by it can be put right later, but what upkeep has
dropped is gone. So one look at the clock is never enough. Upkeep *marks* the instant of its first look, and drops in a
later round, when the wall clock and the time that passed agree that the setting `mark_seconds` is over:

- A process that has been open for so long without a step of its clock needs no mark: its opening was the first look.
- Else the mark is the property MARK of the table `tasks`: the instant, and how long the machine had been running. A
  round that finds the two further apart than they were, or the mark in the future, marks anew and drops nothing.
- On another machine, or after a restart, no time that passed can be compared. Then only what was old at the instant of
  the mark is dropped, and only if no commit since then is from before it.
- A storage with a clock of its own (an object store, or Ledger.open's `storage_clock`) is the second look itself.

The mark is a fact about looks. It says nothing about messages: what is old follows from it and from when they came.
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
from ledger.store.delta.verbs.tidying import retried

log = logging.getLogger("ledger.upkeep")
#: The property of the table `tasks` that holds the mark.
MARK = "ledger.marked"
#: The tables that verbs commit to all the time, and how many of their newest commits are asked for the time.
WITNESSES, MOST_COMMITS = ("messages", "visibility"), 20


#: In seconds, see Judged.is_near.
NEAR = 86_400


class Judged(NamedTuple):
    """By which instant ages may be judged (None: by none), and whether the clock itself was confirmed. Where it was
    not, no queue's time is moved beyond that instant."""

    at: int | None
    is_confirmed: bool

    def is_near(self, now: int) -> bool:
        """Whether a clock that says `now` may be ahead by no more than NEAR, far less than files are kept for: what
        goes by the machine's clock, as the engines do, may be done. Rounds may each be on another machine."""
        return self.is_confirmed or (self.at is not None and now - self.at <= NEAR * MILLISECONDS)


#: A first look.
UNCONFIRMED = Judged(None, is_confirmed=False)


class _Mark(NamedTuple):
    """A look at the clock: the instant, the milliseconds that had passed since the machine's start `boot`, and the
    versions of WITNESSES then."""

    at: int
    passed: int
    boot: str
    versions: dict[str, int]


class Ages:
    """Tells upkeep by which instant it may judge ages. `storage`: the storage's own clock, if it has one."""

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

    def judge(self) -> Judged:
        """Return by which instant this round may judge ages; a round that may judge none leaves a mark.

        Raises ClocksDisagree where the clock made a step, or is not the storage's; StorageFailed.
        """
        now, steady_for = self._clock.look()
        if self._storage is not None:
            instants.require_alike(now, self._storage(), self._skew, "the storage's clock says")
            return Judged(now, is_confirmed=True)
        mark, skew = self._marked(), round(self._skew * MILLISECONDS)
        if steady_for * MILLISECONDS >= self._wait:
            if mark is not None and mark.at > now + skew:
                # By a clock that was ahead: it is not to be confirmed by that clock, should it come back.
                self._mark(now)
            return Judged(now, is_confirmed=True)
        if mark is None:
            return self._none_yet(now, "there is no mark of an earlier round")
        elapsed, passed = now - mark.at, self._passed() - mark.passed
        if elapsed < -skew:
            log.warning(
                "this machine's clock is %.0f s behind the clock of an earlier upkeep: one of the two is wrong. As "
                "long as both run upkeep, each marks anew, and nothing is dropped for its age",
                -elapsed / MILLISECONDS,
            )
            return self._none_yet(now, "the mark of an earlier round is in the future")
        here = mark.boot != "" and mark.boot == boot_of(self._clock.passing)
        if here and abs(elapsed - passed) > skew:
            return self._none_yet(now, f"the clock moved by {elapsed} ms while {passed} ms passed")
        since = (commit.metadata.get("at") for name in WITNESSES for commit in self._newest(name, mark.versions[name]))
        if instants.contradicts((at for at in since if at is not None), mark.at, self._skew):
            return self._none_yet(now, "a commit that came after the mark is from before it")
        if elapsed < self._wait:
            log.info("what is to be dropped for its age is marked; a round after %d ms more may drop it", self._wait)
            return UNCONFIRMED
        if here:
            return Judged(now, is_confirmed=True)
        # By the next round's time there will be no more evidence: so this round marks what that one drops.
        self._mark(now)
        return Judged(mark.at, is_confirmed=False)

    def explain(self, now: int, expected: int) -> bool:
        """Return whether the storage's clock, or what others committed, confirms a step of the clock."""
        if self._storage is not None:
            return abs(self._storage() - now) <= self._skew * MILLISECONDS
        owner = self._transactions.owner
        commits = (commit.metadata for name in WITNESSES for commit in self._newest(name))
        others = [said["at"] for said in commits if said.get("owner", owner) != owner and "at" in said]
        return instants.explains(others, now, expected, self._skew)

    def _newest(self, table: str, since: int = -1) -> list[Any]:
        """The newest commits to a table with a version > `since`, some at most."""
        return self._engine.history(table, max(since, self._engine.version(table) - MOST_COMMITS))

    def _passed(self) -> int:
        return round(self._clock.passing() * MILLISECONDS)

    def _marked(self) -> _Mark | None:
        content = self._engine.layout("tasks").properties.get(MARK)
        try:
            return None if content is None else _Mark(**json.loads(content))
        except (TypeError, ValueError):
            # A later release may mark in another way: what this one does not know confirms nothing.
            return None

    def _none_yet(self, now: int, why: str) -> Judged:
        log.info("nothing is dropped for its age in this round, but marked for a later one: %s", why)
        self._mark(now)
        return UNCONFIRMED

    def _mark(self, now: int) -> None:
        versions = {name: self._engine.version(name) for name in WITNESSES}
        content = json.dumps(_Mark(now, self._passed(), boot_of(self._clock.passing), versions)._asdict())
        metadata = self._transactions.metadata(secrets.token_hex(8), "upkeep", "", now, [])
        retried(self._transactions, "tasks", partial(self._engine.configure, "tasks", {MARK: content}, metadata))
