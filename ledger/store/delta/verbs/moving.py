"""Moves between queues: dead letters, redrives and their tasks, without copying a body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from ledger.clock import Clock
from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION
from ledger.errors import QueueDoesNotExist
from ledger.rules import redrive, visibility
from ledger.rules.attributes import is_fifo
from ledger.rules.redrive import MoveTask
from ledger.rules.visibility import Record
from ledger.store.delta.commit.transactions import Plan, Transactions
from ledger.store.delta.engine import Tables
from ledger.store.delta.model.message_runs import ABSENT, Ordered, Runs, positions
from ledger.store.delta.model.tables import TASKS, Where, instant_column
from ledger.store.delta.state.choosing import find_receivable, take_first
from ledger.store.delta.state.fifo_groups import Groups
from ledger.store.delta.state.lane_records import UNKNOWN, Lanes
from ledger.store.delta.state.listing import Listing
from ledger.store.delta.state.snapshot import Decision, Events, Loaded, OpenTables
from ledger.store.delta.verbs.granting import require_apart
from ledger.store.delta.verbs.output_writes import Outputs
from ledger.store.delta.verbs.queues import Queues, dead_letter_queues, load_with_destinations
from ledger.store.delta.verbs.sharing import GroupedCall, SharedVerbs
from ledger.store.protocol import Action, QueueRecord

EDITS = pa.schema([*TASKS, (OPERATION, pa.string()), (EXPECTED_REVISION, pa.int64())])


class Tasks:
    def __init__(self, tables: Tables, transactions: Transactions) -> None:
        self._tables, self._transactions = tables, transactions

    def all(self) -> list[MoveTask]:
        return _tasks(self._tables.load("tasks", Where()).rows)

    def put(self, task: MoveTask) -> bool:
        """See Store.put_task.

        With Spark's MERGE, only a commit to the same row makes this call decide again. That is enough: two tasks that
        start at once have the same id (`redrive.new_task`).
        """

        def decide(losses: int) -> Plan[bool]:
            snapshot = self._tables.load("tasks", Where())
            tasks = _tasks(snapshot.rows)
            if not redrive.is_next_revision(task, tasks):
                return Plan(snapshot, Where(), EDITS.empty_table(), [], lambda version: False, task.updated_at)
            expected = task.revision - 1 or None
            row: dict[str, Any] = {name: [value] for name, value in zip(MoveTask._fields, task)}
            row |= {name: instant_column(row[name]) for name in ("started_at", "updated_at")}
            row |= {OPERATION: ["update" if expected else "insert"], EXPECTED_REVISION: [expected]}
            edits = pa.table([row[name] for name in EDITS.names], schema=EDITS)
            return Plan(snapshot, Where(), edits, [], lambda version: True, task.updated_at)

        return self._transactions.run("move_task", "tasks", task.source, decide)


def _tasks(rows: pa.Table) -> list[MoveTask]:
    tasks = []
    for row in rows.to_pylist():
        row |= {name: round(row[name].timestamp() * 1_000) for name in ("started_at", "updated_at")}
        tasks.append(MoveTask(**row))
    return tasks


class Rejecter:
    """One commit that releases messages and moves them to the dead-letter queue, at any receive count.

    The messages get the same records as after a release and a later receive that moves them.
    """

    def __init__(self, opened: OpenTables, queues: Queues, shared: SharedVerbs) -> None:
        self._opened, self._queues, self._shared = opened, queues, shared

    def reject(self, queue: QueueRecord, actions: Sequence[Action], clock: Clock) -> int | None:
        def decide(loaded: Loaded, losses: int) -> Decision[int | None]:
            events = Events()
            # The queue may be its own dead-letter queue.
            others = [target for target in loaded.targets if target.id != queue.id]
            if not others:
                return Decision(Runs.empty(), events, lambda version: None)
            given_back = [self._give_back(loaded, action, events) for action in actions]
            runs = Runs.concatenate([Runs.empty(), *given_back]).in_order()
            if not len(runs):
                return Decision(Runs.empty(), events, lambda version: 0)
            listing, target = loaded.classify(self._opened.listings).listing, others[0]
            require_apart(loaded.lanes, runs, listing.doubled(queue.id))
            fifo, origin = is_fifo(queue.attributes), queue.id
            arrives = partial(redrive.make_dead_letter, origin=origin, now=loaded.now, fifo=fifo, target=target.id)
            sides = move(loaded, listing, target, runs, arrives, events)
            arriving = {target.id: sides.arriving}
            return Decision(sides.leaving, events, lambda version: runs.count, arriving=arriving)

        targets = partial(dead_letter_queues, self._queues, queue)
        return self._shared.run(GroupedCall("reject", queue, clock, decide, targets=targets))

    @staticmethod
    def _give_back(loaded: Loaded, action: Action, events: Events) -> Runs:
        """Return the action's messages that its receipt holds, with their records after a release. Note the release."""
        lanes = loaded.lanes
        pieces = lanes.cut(action.runs)

        def released(record: Record) -> int:
            given_back = visibility.reject(record, action.receipt_id, loaded.now, action.mark)
            return ABSENT if given_back is None else lanes.code(given_back)

        code = lanes.per_code(pieces.code, released, np.int64)
        runs = pieces.recode(code).where(code != ABSENT).in_order()
        events.note_action(action, lanes, runs)
        return runs


@dataclass(frozen=True)
class Move:
    """The two sides of a move: new records in the old queue, and in the new one."""

    leaving: Runs
    arriving: Runs


def move(
    loaded: Loaded,
    listing: Listing,
    target: QueueRecord,
    runs: Runs,
    arrives: Callable[[Record], Record],
    events: Events,
) -> Move:
    """Return the records of a move of `runs` to `target`, and note the move in `events`.

    `arrives` makes the records in `target`. The lanes of both queues are loaded. The lane in `target` follows from the
    lane that the segment was sent to. So two moves of the segment's messages to one queue change the same head row.
    """
    lanes, count = loaded.lanes, runs.count
    # After the move, no record of the queue shows that these receipts expired.
    events.expired(lanes, runs)
    events.note("moved", loaded.queue.id, count)
    events.note("arrived", target.id, count)
    if target.id == loaded.queue.id:
        kept_code = lanes.per_code(runs.code, lambda r: lanes.code(arrives(r)), np.int64)
        return Move(runs.recode(kept_code), Runs.empty())
    target_lanes = loaded.others[target.id]
    away = lanes.per_code(runs.code, lambda r: lanes.code(redrive.mark_moved(r, target.id)), np.int64)
    arrived = lanes.per_code(runs.code, lambda r: target_lanes.code(arrives(r)), np.int64)
    _, segment, _, _ = lanes.to_arrow(runs)
    segment = segment.dictionary_encode()
    names, lane_count = segment.dictionary.to_pylist(), int(target.attributes["Lanes"])
    sent_to = listing.find_home_lanes(names)
    lane = np.array([sent_to[name] % lane_count for name in names])[segment.indices.to_numpy()]
    first = positions(target_lanes.register(segment, lane), runs.first_seq)
    return Move(runs.recode(away), Runs(first, first + runs.lengths - 1, arrived).in_order())


class Redriver:
    def __init__(self, opened: OpenTables, groups: Groups, queues: Queues, outputs: Outputs) -> None:
        self._opened, self._groups, self._queues, self._outputs = opened, groups, queues, outputs

    def redrive(
        self,
        source: QueueRecord,
        target: QueueRecord | None,
        maximum: int | None,
        chosen: pa.Table | None,
        clock: Clock,
    ) -> int:
        def decide(losses: int) -> Plan[int]:
            others = partial(self._destinations, source, target)
            loaded = load_with_destinations(self._opened, self._queues, source, clock, others)
            lanes, events = loaded.lanes, Events()
            self._outputs.fence_doubts(loaded, events)
            classified = loaded.classify(self._opened.listings)
            dead_letters = find_receivable(loaded, classified, self._groups)
            if chosen is not None:
                dead_letters = _keep_chosen(loaded.lanes, dead_letters, chosen)
            to = lanes.per_code(dead_letters.code, lambda r: _index(r, target, loaded), np.int64)
            runs = take_first(dead_letters.where(to >= 0), maximum)
            to = lanes.per_code(runs.code, lambda r: _index(r, target, loaded), np.int64)
            leaving, arriving = [Runs.empty()], {}

            def arrives(record: Record) -> Record:
                return redrive.make_redriven(loaded.now, source.id)

            for index, queue in enumerate(loaded.targets):
                runs_to_queue = runs.where(to == index)
                if len(runs_to_queue):
                    sides = move(loaded, classified.listing, queue, runs_to_queue, arrives, events)
                    leaving.append(sides.leaving)
                    arriving[queue.id] = sides.arriving
            replacement = Runs.concatenate(leaving).in_order()
            return loaded.plan(replacement, events, lambda version: runs.count, arriving=arriving)

        return self._opened.transactions.run("redrive", "visibility", source.id, decide)

    def _destinations(self, source: QueueRecord, target: QueueRecord | None) -> list[QueueRecord]:
        queues_by_id = {queue.id: queue for queue in self._queues.all() if queue.id != source.id}
        if target is not None:
            redrive.require_destination(source, target)
            if target.id not in queues_by_id:
                raise QueueDoesNotExist(target.name)
            return [target]
        origins = set(
            self._opened.tables.load("visibility", Where(source.id)).rows["origin_queue"].unique().to_pylist()
        )
        origin_queues = [queues_by_id[origin] for origin in sorted(origins - {None}) if origin in queues_by_id]
        return [queue for queue in origin_queues if redrive.explain_unfit_destination(source, queue) is None]


def _index(record: Record, target: QueueRecord | None, loaded: Loaded) -> int:
    queue = target.id if target is not None else record.origin_queue
    return list(loaded.others).index(queue) if queue in loaded.others else -1


def _keep_chosen(lanes: Lanes, runs: Ordered, chosen: pa.Table) -> Ordered:
    """Return the parts of `runs` that are also in `chosen` (RUNS), with their ranks."""
    segment = lanes.look_up(chosen["segment"])
    chosen_runs = Runs.from_arrow(chosen, segment, np.zeros(len(segment), dtype=np.int64)).where(segment != UNKNOWN)
    pieces = chosen_runs.where(np.argsort(chosen_runs.first, kind="stable")).cut(runs.first, runs.last)
    inside = pieces.where(pieces.code != ABSENT)
    return Ordered(inside.first, inside.last, runs.code[inside.query], runs.order[inside.query])
