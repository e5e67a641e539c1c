"""Putting a queue's time right, after a clock that was ahead has committed there.

In a queue time never goes back, so one commit of such a clock makes every right clock disagree until it has caught up.
A repair is one commit for each queue. It sets the time of each lane that is ahead to now. What lanes record as done in
the future is recorded as done now. A deadline that only the wrong time explains is moved back by as much as the lane
was ahead, so that a lease lasts as long as its timeout says (see `instants.put_back`). What was sent by the wrong clock
stays as it is, as messages never change: it becomes visible when its time has come. But sends to a FIFO queue follow
each other, and none is before the last: there a second commit, to `messages`, notes that the instants of the sends
until now do not count (`state.last_sends`). It counts as a send does, so that one which was decided before decides
again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.clock import Clock
from ledger.rules import fifo
from ledger.rules.attributes import is_fifo
from ledger.rules.instants import put_back
from ledger.rules.limits import MILLISECONDS
from ledger.rules.state import Record
from ledger.store import QueueRecord
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
    them.
    """

    queue: str
    ahead: float
    lanes: int
    messages: int
    sent_ahead: int
    refused_sends: bool = False


def find_wrong_times(store: DeltaStore, clock: Clock) -> list[ClockRepair]:
    """Return what a repair would put right, and change nothing."""
    return [one for one in (_repair(store, queue, clock, dry_run=True) for queue in store.queues()) if one is not None]


def repair_clock(store: DeltaStore, clock: Clock) -> list[ClockRepair]:
    """Put all queues' times right, by `clock`: a commit for each that is ahead by more than maximum_clock_skew.

    Raises ContentionOutlastedRetries, StorageFailed.
    """
    return [one for one in (_repair(store, queue, clock, dry_run=False) for queue in store.queues()) if one is not None]


def _repair(store: DeltaStore, queue: QueueRecord, clock: Clock, *, dry_run: bool) -> ClockRepair | None:
    skew = round(store.settings.maximum_clock_skew * MILLISECONDS)
    last = _last_send_ahead(store, queue, clock())

    def decide(losses: int) -> Plan[ClockRepair | None]:
        snapshot = store.engine.load("visibility", Where(queue.id))
        lanes, now = Lanes(queue.id, snapshot.rows), clock()
        times = {lane: at for lane, at in lanes.heads.times.items() if at > now + skew}
        latest, sent_ahead = max([*times.values(), last or now]), _sent_ahead(store, queue, now + skew)
        changed = _changed(lanes, times, partial(_right_code, lanes, queue, now, skew))
        repair = ClockRepair(
            queue.name, (latest - now) / MILLISECONDS, len(times), changed.count, sent_ahead, bool(last)
        )
        found = repair if times or sent_ahead else None
        edits = NO_EDITS
        if times and not dry_run:
            if lanes.heads.purged_at is not None:
                lanes.heads.purged_at = min(lanes.heads.purged_at, now)
            edits = lanes.edits(changed, now)
            # Lanes in which nothing else changes are counted up, too: whoever decided by their time decides again.
            others = set(times) - set(edits["lane"].unique().to_pylist())
            edits = pa.concat_tables([lanes.heads.edits(sorted(others), now), edits])
        reason = f"the queue's time was {repair.ahead:.1f} s ahead"
        events = [{"event": "clock repaired", "messages": changed.count, "reason": reason}]
        return Plan(snapshot, Where(queue.id, tuple_of(times)), edits, events, lambda version: found, now)

    if dry_run:
        return decide(0).answer(0)
    found = store.transactions.run("repair_clock", "visibility", queue.id, decide)
    store.times.forget(queue.id)
    if last:
        _set_sends_aside(store, queue, clock)
    return found


def _last_send_ahead(store: DeltaStore, queue: QueueRecord, now: int) -> int:
    """When the last message was sent to a FIFO queue, where sends to it are refused for that; else 0."""
    if not is_fifo(queue.attributes):
        return 0
    skew = store.settings.maximum_clock_skew
    last = last_send(store.engine, queue.id, store.listings.newest().last_sent(queue.id), now, skew)
    return last if last > now + round(skew * MILLISECONDS) else 0


def _set_sends_aside(store: DeltaStore, queue: QueueRecord, clock: Clock) -> None:
    """Note that the instants of all sends to a FIFO queue until now do not count; nothing where that is done."""
    engine, transactions = store.engine, store.transactions
    attempts = transactions.attempts("repair_clock")
    for losses in attempts:
        with transactions.turn("messages", queue.id, losses):
            sent = engine.transaction_version("messages", fifo.sends(queue.id)) or 0
            if not _last_send_ahead(store, queue, clock()):
                return
            since = engine.version("messages")
            metadata = transactions.metadata(secrets.token_hex(8), "repair_clock", queue.id, clock(), [])
            transactions.step("chosen")
            marks = (fifo.sends(queue.id), sent + 1), (fifo.clock_repairs(queue.id), sent)
            mark = partial(engine.mark, "messages", metadata, *marks)
            if transactions.commit("messages", metadata, since, mark, attempts) is not None:
                return
    raise attempts.outlasted()


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
