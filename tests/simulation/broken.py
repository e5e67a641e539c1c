"""Repairs taken out again, each by a patch: the product as it was when it broke a promise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc

from ledger.errors import OutputUnreadable
from ledger.rules import output_doubts, redrive, visibility
from ledger.store.delta.state import fifo_groups, snapshot
from ledger.store.delta.verbs import actions, moving, output_writes, queues, receiving, sharing, upkeep
from ledger.store.delta.verbs.upkeep import Upkeep
from tests.simulation import broken_machines, broken_rows, engine

Patches = Callable[[contextlib.ExitStack], None]


def _patch(stack: contextlib.ExitStack, where: Any, name: str, broken: Any) -> None:
    stack.enter_context(mock.patch.object(where, name, broken))


def lane_by_the_way_taken(stack: contextlib.ExitStack) -> None:
    """A moved segment's lane followed from the lane that it was in, and not from the one that it was sent to."""
    right = moving.move

    class Listing:
        def __init__(self, lanes: Any) -> None:
            self._lanes = lanes

        def find_home_lanes(self, segments: list[str]) -> dict[str, int]:
            return {name: self._lanes.lane_of_segment(name) for name in segments}

    def broken(loaded: Any, listing: Any, *others: Any) -> Any:
        return right(loaded, Listing(loaded.lanes), *others)

    for module in (moving, receiving):
        _patch(stack, module, "move", broken)


def groups_forgotten(stack: contextlib.ExitStack) -> None:
    """A thread with an older listing dropped the segments that it did not know from what all threads share."""
    right = fifo_groups.Groups._members

    def broken(self: Any, queue: str, seen: Any) -> Any:
        known = self._own.get(queue)
        if known is not None and known[0] > seen.listing.version:
            there = seen.files.segment.unique()
            rows = known[1].filter(pc.is_in(known[1]["segment"].cast(pa.string()), there.cast(pa.string())))
            self._own[queue] = known[0], rows.unify_dictionaries().combine_chunks()
            self._kept[queue] = known[0], (), fifo_groups._members_of(rows)
        return right(self, queue, seen)

    _patch(stack, fifo_groups.Groups, "_members", broken)


def clock_read_once(stack: contextlib.ExitStack) -> None:
    """The clock was read before the wait for the turn, and before all tries."""

    def once(right: Callable[..., Any]) -> Callable[..., Any]:
        def broken(*arguments: Any) -> Any:
            now = arguments[-1]()
            return right(*arguments[:-1], lambda: now)

        return broken

    _patch(stack, receiving.Receiver, "receive", once(receiving.Receiver.receive))
    _patch(stack, actions.Applier, "apply", once(actions.Applier.apply))


def settings_read_before(stack: contextlib.ExitStack) -> None:
    """A change of a queue started from what was read before its commit."""
    right = queues.Queues.change

    def broken(self: Any, queue: Any, change: Any, clock: Any) -> Any:
        known = next((one for one in self.all() if one.name == queue.name), queue)
        return right(self, queue, lambda there, others: change(known, others), clock)

    _patch(stack, queues.Queues, "change", broken)


def dead_letters_to_any_lanes(stack: contextlib.ExitStack) -> None:
    """Whether a dead-letter queue can take a FIFO queue's messages was looked at when the policy was set, and never
    again."""

    def broken(queues: Any, queue: Any) -> Any:
        policy = redrive.policy_of(queue.attributes)
        named = [record for record in queues.all() if policy and record.name == policy.target]
        return [record for record in named if record.id != queue.id]

    _patch(stack, receiving, "dead_letter_queues", broken)


def lane_met_twice(stack: contextlib.ExitStack) -> None:
    """A receive that met others on lane 0, for the quota, met them there twice: the lane's first head row is two."""
    right = snapshot.Loaded.commit_of

    def broken(self: Any, decisions: Any, answer: Any) -> Any:
        plan = right(self, decisions, answer)
        if plan.edits.num_rows and 0 not in self.lanes.heads.revisions and any(0 in one.meeting for one in decisions):
            return replace(plan, edits=pa.concat_tables([self.lanes.heads.edits([0], self.now), plan.edits]))
        return plan

    _patch(stack, snapshot.Loaded, "commit_of", broken)
    _patch(stack, engine, "require_expected", lambda snapshot, table, edits: None)


def upkeep_by_an_old_list(stack: contextlib.ExitStack) -> None:
    """Upkeep asked the queues that it had listed before it read what is recorded, and no other one. What was moved into
    a queue made in between counted for nobody."""
    right = Upkeep._find_finished

    class Engine:
        """An engine whose `visibility` tells of those queues only."""

        def __init__(self, engine: Any, queues: Any) -> None:
            self._engine, self._queues = engine, pa.array(list(queues), pa.string())

        def load(self, table: str, where: Any) -> Any:
            found = self._engine.load(table, where)
            return replace(found, rows=found.rows.filter(pc.is_in(found.rows["queue"], self._queues)))

    def broken(self: Any, droppable: Any, queues: Any, before: int) -> Any:
        blind = copy(self)
        blind._engine = Engine(self._engine, queues)
        return right(blind, droppable, queues, before)

    _patch(stack, Upkeep, "_find_finished", broken)


def drops_what_looks_finished(stack: contextlib.ExitStack) -> None:
    """Upkeep dropped what was deleted, although its receipt could restore it yet."""

    def broken(record: Any, before: int) -> bool:
        return record.deleted_at is not None or record.moved_to is not None

    _patch(stack, upkeep, "is_final", broken)


def asks_for_any_receipt(stack: contextlib.ExitStack) -> None:
    """Whoever began to write asked about every write in doubt, also the holder's when its own receipt was stale."""
    right = output_doubts.classify_part

    def part(record: Any, receipt_id: str, now: int, *, written: bool) -> Any:
        return right(record, receipt_id, now, written=written and record.receipt_id == receipt_id)

    _patch(stack, output_doubts, "must_ask", lambda record, receipt_id: output_doubts.is_in_doubt(record))
    _patch(stack, output_doubts, "classify_part", part)


def unseen_is_absent(stack: contextlib.ExitStack) -> None:
    """A table that whoever took over could not see counted as one that was never written to."""
    right = output_writes.OutputTables.confirm_or_fence_for_others

    def broken(self: Any, table: str, write_id: str) -> bool:
        try:
            return right(self, table, write_id)
        except OutputUnreadable:
            return False

    _patch(stack, output_writes.OutputTables, "confirm_or_fence_for_others", broken)


def decisions_of_one_snapshot(stack: contextlib.ExitStack) -> None:
    """What shares a commit was decided on what is committed, and not on what was decided before it."""
    committed: list[Any] = []

    right = sharing.CommitDecisions.add_one

    def broken(self: Any, verb: Any) -> None:
        decide = verb.decide

        def decide_blindly(loaded: Any, losses: int) -> Any:
            before = loaded.taken()
            # The first decision of a commit is made on what is committed.
            if not committed or committed[0] is not loaded:
                committed[:] = [loaded, before]
            loaded.take_back(committed[1])
            try:
                return decide(loaded, losses)
            finally:
                loaded.take_back(before)

        with mock.patch.object(verb, "decide", decide_blindly):
            right(self, verb)

    _patch(stack, sharing.CommitDecisions, "add_jointly", lambda self, verbs: False)
    _patch(stack, sharing.CommitDecisions, "_can_grant", lambda self, decision: True)
    _patch(stack, sharing.CommitDecisions, "add_one", broken)


#: What a repair is for: how it is taken out, what the judge then says, and the world that is about it, if there is one.
def rejected_by_whoever_held_it(stack: contextlib.ExitStack) -> None:
    """A message became a dead letter by a receipt that another one had replaced."""
    _patch(stack, visibility, "is_held", lambda record, receipt_id, now: record.deleted_at is None)


REPAIRS: dict[str, tuple[Patches, str, str | None]] = {
    "a segment has one lane in a queue": (lane_by_the_way_taken, "is in lanes", None),
    "threads share what is known of groups": (groups_forgotten, "cannot receive", "threads"),
    "the clock is read at each decision": (clock_read_once, "decided by a clock read", None),
    "changes of a queue are not lost": (settings_read_before, "unasked", None),
    "a group has one lane in a dead-letter queue made anew": (dead_letters_to_any_lanes, "is in lanes", None),
    "a lane has one head row": (lane_met_twice, "head rows", None),
    "upkeep knows the queues that are made meanwhile": (upkeep_by_an_old_list, "was dropped, and is", None),
    "upkeep drops what is final": (drops_what_looks_finished, "can restore it", None),
    "a receipt ends its own writes only": (asks_for_any_receipt, "is fenced off", None),
    "a table out of sight decides nothing": (unseen_is_absent, "is in 2 times", None),
    "what shares a commit builds on what came before": (decisions_of_one_snapshot, "while receipt", None),
    "only its holder makes a dead letter of a message": (rejected_by_whoever_held_it, "by reject", "rejecting"),
    **broken_rows.REPAIRS,
    **broken_machines.REPAIRS,
}


@contextlib.contextmanager
def without(repair: str) -> Iterator[str]:
    """The product without a repair; answers what the judge says of it."""
    patches, expected, _ = REPAIRS[repair]
    with contextlib.ExitStack() as stack:
        patches(stack)
        yield expected
