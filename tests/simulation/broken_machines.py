"""Repairs about machines, clocks that jump and power that is cut, taken out again: see `broken`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

from ledger.store.delta.commit import locks
from ledger.store.delta.commit.clocks import SteadyClock
from ledger.store.delta.state.listing import Listing, Listings
from ledger.store.delta.verbs import sharing, tidying
from ledger.store.delta.verbs.output_writes import OutputTables
from ledger.store.delta.verbs.sending import OpenSegments
from ledger.store.delta.verbs.tidying import Ages, JudgedAges, Tidying
from tests.simulation import engine
from tests.simulation.engine import SimulatedEngine
from tests.simulation.forking import Forking


def steps_are_believed(stack: contextlib.ExitStack) -> None:
    """A process went by its wall clock, whatever somebody set it to."""
    stack.enter_context(mock.patch.object(SteadyClock, "__call__", lambda self: self._clock()))


def one_look_is_enough(stack: contextlib.ExitStack) -> None:
    """Upkeep dropped for its age what looked old, without a mark of an earlier round."""
    stack.enter_context(mock.patch.object(Ages, "judge", lambda self: JudgedAges(self._clock(), is_confirmed=True)))


def upkeep_moves_time(stack: contextlib.ExitStack) -> None:
    """An upkeep whose clock nothing confirmed set the time of the lanes that it tidied."""
    right = Tidying.__init__

    def broken(self: Any, store: Any, clock: Any, before: int, not_beyond: int | None, generation: int) -> None:
        right(self, store, clock, before, None, generation)

    stack.enter_context(mock.patch.object(Tidying, "__init__", broken))


def answered_before_synced(stack: contextlib.ExitStack) -> None:
    """A verb answered what was not on the disk."""
    right = SimulatedEngine.make_durable

    def broken(self: Any, table: str | None = None, version: int = -1) -> None:
        if table is None:
            right(self)

    stack.enter_context(mock.patch.object(SimulatedEngine, "make_durable", broken))


def relied_on_what_may_be_lost(stack: contextlib.ExitStack) -> None:
    """A verb committed to one table what it had decided by commits to others, which were not on the disk."""
    right = SimulatedEngine.make_durable

    def broken(self: Any, table: str | None = None, version: int = -1) -> None:
        if table is not None:
            right(self, table, version)

    stack.enter_context(mock.patch.object(SimulatedEngine, "make_durable", broken))


def relied_on_rows_that_may_be_lost(stack: contextlib.ExitStack) -> None:
    """Messages were acknowledged because an output table had their rows, which were not on the disk."""
    stack.enter_context(mock.patch.object(OutputTables, "_make_durable", lambda self, table, version: None))


def two_writers_of_one_segment(stack: contextlib.ExitStack) -> None:
    """A send extended a segment wherever the log says that it ends."""
    stack.enter_context(mock.patch.object(engine, "require_ends", lambda files, ends: None))


def children_go_on_with_segments(stack: contextlib.ExitStack) -> None:
    """A child appended to its parent's segments, and nobody looked where they end. (No machine has a twin then: a twin
    is told of nothing.)"""
    two_writers_of_one_segment(stack)
    stack.enter_context(mock.patch.object(Forking, "twins_are_told", True))
    stack.enter_context(mock.patch.object(OpenSegments, "_renew", lambda self: None))


def children_wait_for_threads(stack: contextlib.ExitStack) -> None:
    """A child waited for a turn to end that a thread of its parent's had."""
    stack.enter_context(mock.patch.object(locks, "renew_in_child", lambda owner, renew: None))


def logs_are_taken_for_the_same(stack: contextlib.ExitStack) -> None:
    """A process took whatever log it found for the one that it had read."""
    stack.enter_context(mock.patch.object(engine.Known, "is_in", lambda self, table: True))


def listings_outlive_their_ledger(stack: contextlib.ExitStack) -> None:
    """A listing of messages was kept while the version of the table was the same one, of whatever log."""

    def broken(self: Any) -> Any:
        version = self._engine.version("messages")
        if self._kept is None or self._kept.version != version:
            self._kept = Listing(self._engine, *self._engine.files(), self._engine.generation())
        return self._kept

    stack.enter_context(mock.patch.object(Listings, "newest", broken))


def queues_are_of_any_ledger(stack: contextlib.ExitStack) -> None:
    """A send was answered in whatever ledger it landed, also in one that has no such queue."""
    stack.enter_context(mock.patch.object(sharing, "_OneLedger", AnyLedger))


class AnyLedger:
    """Stands for sharing._OneLedger."""

    def __init__(self, opened: Any, queues: Any) -> None:
        pass

    @staticmethod
    def of(queue: Any, verb: str) -> contextlib.AbstractContextManager[None]:
        """Whatever ledger there is."""
        return contextlib.nullcontext()


def upkeep_of_any_ledger(stack: contextlib.ExitStack) -> None:
    """Upkeep removed from a ledger what was finished in the one that it had read, and filled receipts so."""
    for module in (engine, tidying):
        stack.enter_context(mock.patch.object(module, "require_generation", lambda table, expected, current: None))


#: As in `broken`: how each is taken out, what the judge then says, and the world that is about it.
REPAIRS: dict[str, tuple[Callable[[contextlib.ExitStack], None], str, str | None]] = {
    "a step of the clock is refused": (steps_are_believed, "is done by a clock", "clocks"),
    "what is old is marked before it is dropped": (one_look_is_enough, "too late for it", "clocks"),
    "what is answered is on the disk": (answered_before_synced, "which is not in the table", "power"),
    "what a verb relied on is on the disk": (relied_on_what_may_be_lost, "there is no such message", "power"),
    "rows are on the disk before messages are done": (relied_on_rows_that_may_be_lost, "output is not in", "power"),
    "a segment has one writer": (two_writers_of_one_segment, "is stored twice", "forks"),
    "a child begins segments of its own": (children_go_on_with_segments, "is stored twice", "forks"),
    "a child waits for no thread of its parent's": (children_wait_for_threads, "wait for each other", "forks"),
    "a log that was replaced is noticed": (logs_are_taken_for_the_same, "never was", "replaced"),
    "a listing is of one ledger": (listings_outlive_their_ledger, "cannot receive", "replaced"),
    "a send is answered by the ledger that has its queue": (queues_are_of_any_ledger, "never was there", "replaced"),
    "an upkeep is of one ledger": (upkeep_of_any_ledger, "no commit did so", "replaced"),
    "an unconfirmed clock moves no lane's time": (upkeep_moves_time, "into the future", "clocks"),
}
