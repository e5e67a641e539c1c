"""Repair of a queue's time after a commit by a clock ahead.

A lane's time is the instant of its last commit, and no verb sets it back. While a lane is ahead by more than
maximum_clock_skew, verbs by right clocks raise ClocksDisagree. For each queue, one commit to `visibility` sets the
lanes' times to about now. It also moves the records' instants and deadlines out of the future (see
`instants.put_back`). Message rows never change: a message that the wrong clock sent becomes visible at its
`available_at`. Further commits put right the instants of the queue and of its message move tasks.

No send to a FIFO queue may be earlier than the send before it. After a send by a clock far ahead, sends by right clocks
are therefore refused. Then the commit to `visibility` also records a new arrival for the messages that were sent ahead
(see `_Order`). Another commit, to `messages`, notes that the instants of all earlier sends do not count
(`state.send_history`). This commit counts as a send, so it conflicts with a send at the same time. Messages therefore
keep the same order by number and by arrival.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.clock import Clock
from ledger.delta_log.statements import to_milliseconds
from ledger.rules import fifo, redrive
from ledger.rules.attributes import is_fifo
from ledger.rules.instants import put_back
from ledger.rules.limits import MILLISECONDS
from ledger.rules.visibility import Record
from ledger.store.delta.commit.transactions import Plan
from ledger.store.delta.model.message_runs import Runs
from ledger.store.delta.model.tables import Where, sort_distinct
from ledger.store.delta.state.lane_records import NO_EDITS, Lanes
from ledger.store.delta.state.send_history import choose_slot, find_last_send, repairs
from ledger.store.delta.verbs.store import DeltaStore
from ledger.store.protocol import RUNS, QueueRecord


@dataclass(frozen=True)
class ClockRepair:
    """The changes that a repair makes in a queue. "Ahead" means: by more than maximum_clock_skew.

    Attributes:
        ahead: How many seconds the latest wrong time was ahead: the time of a lane, the last send, the queue, or a
            task.
        lanes: How many lanes were ahead.
        messages: The number of messages in these lanes whose records change (without the new arrivals of messages sent
            ahead).
        sent_ahead: The number of messages in files with messages that a clock ahead sent.
        refused_sends: Whether sends to this FIFO queue were refused because of messages sent ahead.
        changed_ahead: Whether a clock ahead made or changed the queue, or noted what had expired.
        tasks: How many running message move tasks of the queue a clock ahead started or continued.
    """

    queue: str
    ahead: float
    lanes: int
    messages: int
    sent_ahead: int
    refused_sends: bool = False
    changed_ahead: bool = False
    tasks: int = 0

    def __bool__(self) -> bool:
        """Return whether there is anything to put right. Messages sent ahead alone need no repair."""
        return bool(self.lanes or self.refused_sends or self.changed_ahead or self.tasks)


def find_wrong_times(store: DeltaStore, clock: Clock) -> list[ClockRepair]:
    """Return what a repair would find in each queue that has wrong times or messages sent ahead."""
    return [one for one in (_repair(store, queue, clock, dry_run=True) for queue in store.queues()) if one is not None]


def repair_clock(store: DeltaStore, clock: Clock) -> list[ClockRepair]:
    """Put the times of all queues right, and return what `find_wrong_times` would have returned.

    Raises ContentionOutlastedRetries, StorageFailed.
    """
    return [one for one in (_repair(store, queue, clock, dry_run=False) for queue in store.queues()) if one is not None]


def _repair(store: DeltaStore, queue: QueueRecord, clock: Clock, *, dry_run: bool) -> ClockRepair | None:
    repair = _set_queues_time(store, queue, clock, dry_run=dry_run)
    now, skew = clock(), store.settings.skew
    is_changed = queue.put_back(now, skew) is not queue
    running = [one for one in store.tasks() if one.source == queue.id and one.is_running]
    tasks = [one for one in running if max(one.started_at, one.updated_at) > now + skew]
    if not is_changed and not tasks:
        return repair
    if not dry_run and is_changed:
        store.put_back_queue(queue, clock)
    for task in tasks if not dry_run else ():
        store.put_task(redrive.put_back(task, clock()))
    repair = repair or ClockRepair(queue.name, 0.0, 0, 0, 0)
    latest = max([queue.latest, *(max(one.started_at, one.updated_at) for one in tasks)])
    ahead = max(repair.ahead, (latest - now) / MILLISECONDS)
    return replace(repair, ahead=ahead, changed_ahead=is_changed, tasks=len(tasks))


def _set_queues_time(store: DeltaStore, queue: QueueRecord, clock: Clock, *, dry_run: bool) -> ClockRepair | None:
    if not is_fifo(queue.attributes):
        return _set_times(store, queue, clock, dry_run=dry_run)[0]
    engine, transactions = store.engine, store.transactions
    attempts = transactions.attempts("repair_clock")
    for losses in attempts:
        with transactions.turn("messages", queue.id, losses):
            sent, now = engine.transaction_version("messages", fifo.sends_application(queue.id)) or 0, clock()
            last = _last_send(store, queue, now)
            ahead = last if last > now + store.settings.skew else 0
            repair, arrived_at = _set_times(store, queue, clock, ahead, dry_run=dry_run)
            if dry_run or not ahead:
                return repair
            since = engine.version("messages")
            metadata = transactions.metadata(secrets.token_hex(8), "repair_clock", queue.id, clock(), [])
            transactions.step("chosen")
            slot = choose_slot(repairs(engine, queue.id))
            marks = (
                (fifo.sends_application(queue.id), sent + 1),
                (fifo.clock_repairs_application(queue.id, slot), sent),
                (fifo.repair_time_application(queue.id, slot), max(clock(), arrived_at)),
            )
            mark = partial(engine.mark, "messages", metadata, *marks)
            if transactions.commit("messages", metadata, since, mark, attempts) is not None:
                return repair
    raise attempts.give_up()


def _last_send(store: DeltaStore, queue: QueueRecord, now: int) -> int:
    skew = store.settings.maximum_clock_skew
    return find_last_send(store.engine, queue.id, store.listings.newest().find_last_send_time(queue.id), now, skew)


def _set_times(
    store: DeltaStore, queue: QueueRecord, clock: Clock, refusing_send: int = 0, *, dry_run: bool
) -> tuple[ClockRepair | None, int]:
    """Put a queue's time right in one commit to `visibility`. Return the change, and the new time of its lanes.

    `refusing_send` is the instant of the last message if FIFO sends are refused because of it, else 0.
    """
    skew = store.settings.skew

    def decide(losses: int) -> Plan[tuple[ClockRepair | None, int]]:
        snapshot = store.engine.load("visibility", Where(queue.id))
        lanes, now = Lanes(queue.id, snapshot.rows), clock()
        times = {lane: at for lane, at in lanes.heads.times.items() if at > now + skew}
        latest, sent_ahead = max([*times.values(), refusing_send or now]), _count_sent_ahead(store, queue, now + skew)
        order = _Order.of(store, queue, lanes, now) if is_fifo(queue.attributes) and (times or refusing_send) else None
        right_code = partial(_right_code, lanes, queue, now, skew, {} if order is None else order.moved)
        changed = _find_changed(lanes, times, right_code)
        ahead, at = (latest - now) / MILLISECONDS, now if order is None else order.last
        repair = ClockRepair(queue.name, ahead, len(times), changed.count, sent_ahead, bool(refusing_send))
        result = repair if times or sent_ahead else None
        edits = NO_EDITS
        if not dry_run:
            if refusing_send and order is not None:
                lanes.supersede(_record_arrivals(order, lanes, now + skew))
            lanes.supersede(_find_changed(lanes, times, right_code))
            if times and lanes.heads.purged_at is not None:
                lanes.heads.purged_at = min(lanes.heads.purged_at, now)
            edits = lanes.edits(Runs.empty(), at)
            # Counting up a lane sets its time.
            others = set(times) - set(edits["lane"].unique().to_pylist())
            edits = pa.concat_tables([lanes.heads.edits(sorted(others), at), edits])
        reason = f"the queue's time was {repair.ahead:.1f} s ahead"
        events = [{"event": "clock repaired", "messages": changed.count, "reason": reason}]
        where = Where(queue.id, sort_distinct(edits["lane"].unique().to_pylist()))
        return Plan(snapshot, where, edits, events, lambda version: (result, at), now)

    if dry_run:
        return decide(0).answer(0)
    result = store.transactions.run("repair_clock", "visibility", queue.id, decide)
    store.times.forget(queue.id)
    return result


class _Order(NamedTuple):
    """New arrivals for messages that arrived at a FIFO queue in the future: about now, and in the same order.

    Messages with the same arrival are in the order of their send instants. Where the sequence numbers have another
    order, the arrivals are a millisecond apart. Messages that were moved to the queue between two sends arrive between
    these sends.

    Attributes:
        sent: The messages that were sent ahead, in the order of their numbers, each with its `arrived_at` in
            milliseconds.
        moved: By the future instant of a move to this queue, the new arrival of its messages.
        last: The latest new arrival. Without new arrivals: now, or the latest other arrival if that is later.
    """

    sent: pa.Table
    moved: dict[int, int]
    last: int

    @staticmethod
    def of(store: DeltaStore, queue: QueueRecord, lanes: Lanes, now: int) -> _Order:
        latest = now + store.settings.skew
        columns = ["lane", "segment", "seq", "sent_at", "sequence_number"]
        rows = store.engine.messages(Where(queue.id), columns, sent_after=now).sort_by("sequence_number")
        instants = to_milliseconds(rows["sent_at"]).to_numpy()
        right, sent = instants[instants <= latest], instants[instants > latest]
        recorded = lanes.records.numbers("enqueued_at")
        first, moved = max([now, *right, *recorded[recorded <= latest]]), np.unique(recorded[recorded > latest])
        places, between = _places(sent, moved)
        last = max([0, *places[-1:], *between[-1:]])
        # Without a bound on the spread, a right clock could seem to be behind.
        longest_spread = store.settings.skew // 2
        if last > longest_spread:
            places, between, last = places * longest_spread // last, between * longest_spread // last, longest_spread
        arrived_at = pa.array(first + places, pa.int64())
        rows = rows.filter(pa.array(instants > latest)).append_column("arrived_at", arrived_at)
        return _Order(rows, dict(zip(moved.tolist(), (first + between).tolist())), int(first + last))


def _places(sent: np.ndarray, moved: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of sends and of moves in one common order.

    `sent` holds the send instants in the order of the messages' numbers, and `moved` the sorted instants of moves. A
    move comes after all sends up to its instant.
    """
    if not len(sent):
        return np.zeros(0, dtype=np.int64), np.arange(len(moved))
    steps = np.append(0, np.cumsum(sent[1:] < sent[:-1]))
    by = np.maximum.accumulate(sent)
    before = np.searchsorted(by, moved, "right")
    return steps + 2 * np.searchsorted(moved, by, "left"), np.append(0, steps)[before] + 2 * np.arange(len(moved)) + 1


def _record_arrivals(order: _Order, lanes: Lanes, latest: int) -> Runs:
    """Return the messages that were sent ahead, as runs with the codes of their new records.

    A message whose record has an arrival no later than `latest` keeps that arrival.
    """

    def right_code(at: int, record: Record) -> int:
        is_known = record.enqueued_at is not None and record.enqueued_at <= latest
        return lanes.code(record if is_known else record._replace(enqueued_at=at))

    rows, parts = order.sent, [Runs.empty()]
    for at in rows["arrived_at"].unique().to_pylist():
        arriving = rows.filter(pc.equal(rows["arrived_at"], at))
        runs = pa.table([arriving["lane"], arriving["segment"], arriving["seq"], arriving["seq"]], schema=RUNS)
        pieces = lanes.cut(runs)
        parts.append(pieces.recode(lanes.per_code(pieces.code, partial(right_code, at), np.int64)))
    return Runs.concatenate(parts).in_order()


def _find_changed(lanes: Lanes, times: Mapping[int, int], right_code: Callable[[int, Record], int]) -> Runs:
    parts = [Runs.empty()]
    lane_of = lanes.lanes(lanes.runs)
    for lane, latest in times.items():
        runs_of_lane = lanes.runs.where(lane_of == lane)
        code = lanes.per_code(runs_of_lane.code, partial(right_code, latest), np.int64)
        parts.append(runs_of_lane.recode(code).where(code != runs_of_lane.code))
    return Runs.concatenate(parts).in_order()


def _right_code(
    lanes: Lanes, queue: QueueRecord, now: int, skew: int, arrivals: Mapping[int, int], latest: int, record: Record
) -> int:
    longest = int(queue.attributes["MaximumVisibilityTimeout"]) * MILLISECONDS
    return lanes.code(put_back(record, latest, now, skew, longest, arrivals))


def _count_sent_ahead(store: DeltaStore, queue: QueueRecord, after: int) -> int:
    files = store.engine.files()[1]
    files_ahead = files.filter(pc.and_(pc.equal(files["queue"], queue.id), pc.greater(files["last_sent_at"], after)))
    return pc.sum(files_ahead["messages"]).as_py() or 0
