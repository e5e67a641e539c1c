"""Putting a queue's time right, after a clock that was ahead has committed there.

In a queue time never goes back, so one commit of such a clock makes every right clock disagree until it has caught up.
A repair is one commit for each queue. It sets the time of each lane that is ahead to now. What lanes record as done in
the future is recorded as done now. A deadline that only the wrong time explains is moved back by as much as the lane
was ahead, so that a lease lasts as long as its timeout says (see `instants.put_back`). What was sent by the wrong clock
stays as it is, as messages never change: it becomes visible when its time has come.

The queue itself may have been changed by that clock. A longer MessageRetentionPeriod notes what had expired until then,
and by a clock ahead that is too much, or even what is sent later: the repair notes what has expired by the period that
there is now (`QueueRecord.put_back`).

Sends to a FIFO queue follow each other, and none is before the last. So there the repair also records of the messages
that were sent ahead when they arrived, which is now, and a second commit, to `messages`, notes that the instants of the
sends until now do not count (`state.last_sends`). It counts as a send does: of a send that came in between, or was
decided before, one of the two decides again. Then each message is before what follows it, by number and by arrival.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.clock import Clock
from ledger.delta_log.values import milliseconds
from ledger.rules import fifo
from ledger.rules.attributes import is_fifo
from ledger.rules.instants import put_back
from ledger.rules.limits import MILLISECONDS
from ledger.rules.state import Record
from ledger.store import RUNS, QueueRecord
from ledger.store.delta.commit.transactions import Plan
from ledger.store.delta.model.run_algebra import Runs
from ledger.store.delta.model.where import Where, tuple_of
from ledger.store.delta.state.edit_rows import NO_EDITS
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.last_sends import last_send
from ledger.store.delta.verbs.store import DeltaStore


@dataclass(frozen=True)
class ClockRepair:
    """What a repair put right in a queue, or would.

    `ahead`: by how many seconds its time was. `lanes`: how many lanes were. `messages`: of how many messages what is
    recorded changes. `sent_ahead`: how many were sent by a clock that was ahead (the files that have such, counted
    whole); they become visible when their time has come. `refused_sends`: sends to this FIFO queue were refused for
    them. `changed_ahead`: the queue was made or changed by such a clock: its timestamps are set to now, and what had
    expired is noted anew.
    """

    queue: str
    ahead: float
    lanes: int
    messages: int
    sent_ahead: int
    refused_sends: bool = False
    changed_ahead: bool = False

    def __bool__(self) -> bool:
        """Whether there is anything to put right: what was sent ahead alone stays as it is."""
        return bool(self.lanes or self.refused_sends or self.changed_ahead)


def find_wrong_times(store: DeltaStore, clock: Clock) -> list[ClockRepair]:
    """Return what a repair would put right, and change nothing."""
    return [one for one in (_repair(store, queue, clock, dry_run=True) for queue in store.queues()) if one is not None]


def repair_clock(store: DeltaStore, clock: Clock) -> list[ClockRepair]:
    """Put all queues' times right, by `clock`: a commit for each that is ahead by more than maximum_clock_skew.

    Raises ContentionOutlastedRetries, StorageFailed.
    """
    return [one for one in (_repair(store, queue, clock, dry_run=False) for queue in store.queues()) if one is not None]


def _repair(store: DeltaStore, queue: QueueRecord, clock: Clock, *, dry_run: bool) -> ClockRepair | None:
    found = _set_queues_time(store, queue, clock, dry_run=dry_run)
    now, skew = clock(), round(store.settings.maximum_clock_skew * MILLISECONDS)
    if queue.put_back(now, skew) is queue:
        return found
    if not dry_run:
        store.put_back_queue(queue, clock)
    found = found or ClockRepair(queue.name, 0.0, 0, 0, 0)
    return replace(found, ahead=max(found.ahead, (queue.latest - now) / MILLISECONDS), changed_ahead=True)


def _set_queues_time(store: DeltaStore, queue: QueueRecord, clock: Clock, *, dry_run: bool) -> ClockRepair | None:
    if not is_fifo(queue.attributes):
        return _set_times(store, queue, clock, dry_run=dry_run)
    engine, transactions = store.engine, store.transactions
    attempts = transactions.attempts("repair_clock")
    for losses in attempts:
        with transactions.turn("messages", queue.id, losses):
            sent, now = engine.transaction_version("messages", fifo.sends(queue.id)) or 0, clock()
            last = _last_send(store, queue, now)
            skew = round(store.settings.maximum_clock_skew * MILLISECONDS)
            ahead = last if last > now + skew else 0
            found = _set_times(store, queue, clock, ahead, dry_run=dry_run)
            if dry_run or not ahead:
                return found
            since = engine.version("messages")
            metadata = transactions.metadata(secrets.token_hex(8), "repair_clock", queue.id, clock(), [])
            transactions.step("chosen")
            marks = (
                (fifo.sends(queue.id), sent + 1),
                (fifo.clock_repairs(queue.id), sent),
                (fifo.repaired_at(queue.id), int(_sent(store, queue, clock())[1])),
            )
            mark = partial(engine.mark, "messages", metadata, *marks)
            if transactions.commit("messages", metadata, since, mark, attempts) is not None:
                return found
    raise attempts.outlasted()


def _last_send(store: DeltaStore, queue: QueueRecord, now: int) -> int:
    """The instant that no send to a FIFO queue may be before."""
    skew = store.settings.maximum_clock_skew
    return last_send(store.engine, queue.id, store.listings.newest().last_sent(queue.id), now, skew)


def _set_times(
    store: DeltaStore, queue: QueueRecord, clock: Clock, last: int = 0, *, dry_run: bool
) -> ClockRepair | None:
    """Put a queue's time right, in one commit to `visibility`. `last`: when the last message was sent to a FIFO queue
    where sends to it are refused for that; else 0."""
    skew = round(store.settings.maximum_clock_skew * MILLISECONDS)

    def decide(losses: int) -> Plan[ClockRepair | None]:
        snapshot = store.engine.load("visibility", Where(queue.id))
        lanes, now = Lanes(queue.id, snapshot.rows), clock()
        times = {lane: at for lane, at in lanes.heads.times.items() if at > now + skew}
        latest, sent_ahead = max([*times.values(), last or now]), _sent_ahead(store, queue, now + skew)
        right_code = partial(_right_code, lanes, queue, now, skew)
        changed = _changed(lanes, times, right_code)
        ahead = (latest - now) / MILLISECONDS
        repair = ClockRepair(queue.name, ahead, len(times), changed.count, sent_ahead, bool(last))
        found = repair if times or sent_ahead else None
        edits, arrived = NO_EDITS, Runs.empty()
        if not dry_run:
            if last:
                arrived = _arrived(store, queue, lanes, now)
                lanes.supersede(arrived)
            lanes.supersede(_changed(lanes, times, right_code))
            if times and lanes.heads.purged_at is not None:
                lanes.heads.purged_at = min(lanes.heads.purged_at, now)
            edits = lanes.edits(Runs.empty(), now)
            # Lanes in which nothing else changes are counted up, too: whoever decided by their time decides again.
            others = set(times) - set(edits["lane"].unique().to_pylist())
            edits = pa.concat_tables([lanes.heads.edits(sorted(others), now), edits])
        reason = f"the queue's time was {repair.ahead:.1f} s ahead"
        events = [{"event": "clock repaired", "messages": changed.count + arrived.count, "reason": reason}]
        where = Where(queue.id, tuple_of(edits["lane"].unique().to_pylist()))
        return Plan(snapshot, where, edits, events, lambda version: found, now)

    if dry_run:
        return decide(0).answer(0)
    found = store.transactions.run("repair_clock", "visibility", queue.id, decide)
    store.times.forget(queue.id)
    return found


def _sent(store: DeltaStore, queue: QueueRecord, now: int) -> tuple[pa.Table, int]:
    """The messages of a FIFO queue that were sent ahead, in their order, with when each arrived as a repair records it
    (`arrived_at`, milliseconds); and the latest arrival of all.

    They arrive now, and not before what was sent before them. Of two that arrive at once the instants of their sends
    decide: where that of the later one is earlier, as two wrong clocks have sent them, it arrives a millisecond later.
    """
    latest = now + round(store.settings.maximum_clock_skew * MILLISECONDS)
    columns = ["lane", "segment", "seq", "sent_at", "sequence_number"]
    rows = store.engine.messages(Where(queue.id), columns, sent_after=now)
    rows = rows.sort_by("sequence_number")
    sent = milliseconds(rows["sent_at"]).to_numpy()
    right, ahead = sent[sent <= latest], sent[sent > latest]
    steps = np.cumsum(ahead[1:] < ahead[:-1])
    arrived_at = max([now, *right]) + np.concatenate([np.zeros(min(len(ahead), 1), dtype=np.int64), steps])
    rows = rows.filter(pa.array(sent > latest)).append_column("arrived_at", pa.array(arrived_at, pa.int64()))
    return rows, max([now, *right, *arrived_at[-1:]])


def _arrived(store: DeltaStore, queue: QueueRecord, lanes: Lanes, now: int) -> Runs:
    """Of a FIFO queue the messages that were sent ahead, with what is recorded about them and when they arrive."""
    rows, parts = _sent(store, queue, now)[0], [Runs.empty()]

    latest = now + round(store.settings.maximum_clock_skew * MILLISECONDS)

    def right_code(at: int, record: Record) -> int:
        # Of what a repair before has put right its arrival is known.
        is_known = record.enqueued_at is not None and record.enqueued_at <= latest
        return lanes.code(record if is_known else record._replace(enqueued_at=at))

    for at in rows["arrived_at"].unique().to_pylist():
        mine = rows.filter(pc.equal(rows["arrived_at"], at))
        runs = pa.table([mine["lane"], mine["segment"], mine["seq"], mine["seq"]], schema=RUNS)
        pieces = lanes.cut(runs)
        parts.append(pieces.coded(lanes.per_code(pieces.code, partial(right_code, at), np.int64)))
    return Runs.concatenated(parts).in_order()


def _changed(lanes: Lanes, times: Mapping[int, int], right_code: Callable[[int, Record], int]) -> Runs:
    """Of the recorded runs in lanes whose `times` are ahead those about which something else is to be recorded."""
    parts = [Runs.empty()]
    lane_of = lanes.lanes(lanes.runs)
    for lane, latest in times.items():
        mine = lanes.runs.where(lane_of == lane)
        code = lanes.per_code(mine.code, partial(right_code, latest), np.int64)
        parts.append(mine.coded(code).where(code != mine.code))
    return Runs.concatenated(parts).in_order()


def _right_code(lanes: Lanes, queue: QueueRecord, now: int, skew: int, latest: int, record: Record) -> int:
    longest = int(queue.attributes["MaximumVisibilityTimeout"]) * MILLISECONDS
    return lanes.code(put_back(record, latest, now, skew, longest))


def _sent_ahead(store: DeltaStore, queue: QueueRecord, after: int) -> int:
    """How many messages the files have of which the last was sent after an instant."""
    files = store.engine.files()[1]
    mine = files.filter(pc.and_(pc.equal(files["queue"], queue.id), pc.greater(files["last_sent_at"], after)))
    return pc.sum(mine["messages"]).as_py() or 0
