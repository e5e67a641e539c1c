"""Receiving: one MERGE that grants messages to a new receipt, and buries what was received too often."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import numpy as np
import pyarrow as pa

from ledger.clock import Clock
from ledger.errors import OutputUnreadable
from ledger.rules import redrive, visibility
from ledger.rules.admission import admit
from ledger.rules.attempts import require_asked
from ledger.rules.attributes import is_fifo, limits_of
from ledger.rules.receipt_handle import new_receipt_id
from ledger.rules.state import Status
from ledger.settings import Settings
from ledger.store import GRANTED_RUNS, Grant, QueueRecord
from ledger.store.delta import axis
from ledger.store.delta.axis import Runs
from ledger.store.delta.choose import choose_lanes, choose_lanes_in_order, first_in_order
from ledger.store.delta.deciding import Loaded, in_order
from ledger.store.delta.engine import Engine, tuple_of
from ledger.store.delta.events import Events
from ledger.store.delta.existing import INDEX
from ledger.store.delta.groups import Groups
from ledger.store.delta.lanes import Lanes
from ledger.store.delta.moving import Move, load_beside, move
from ledger.store.delta.outputs import Outputs
from ledger.store.delta.queues import Queues
from ledger.store.delta.receivable import receivable
from ledger.store.delta.stock import Listing, Stocks
from ledger.store.delta.transaction import Plan, Transactions


class Receiver:
    """The receive of a store."""

    def __init__(
        self,
        engine: Engine,
        transactions: Transactions,
        stocks: Stocks,
        groups: Groups,
        queues: Queues,
        outputs: Outputs,
        settings: Settings,
    ) -> None:
        self._engine, self._transactions, self._stocks = engine, transactions, stocks
        self._groups, self._queues, self._outputs, self._settings = groups, queues, outputs, settings

    def receive(
        self, queue: QueueRecord, maximum: int | None, timeout: int, attempt_id: str | None, clock: Clock
    ) -> Grant | None:
        """One MERGE over the chosen lanes. Also answers None when other receivers took everything meanwhile."""
        receipt_id = new_receipt_id()
        fifo, limits = is_fifo(queue.attributes), limits_of(queue.attributes)
        meeting = _meeting(queue, attempt_id)

        def decide(losses: int) -> Plan[Grant | None]:
            others = lambda: self._targets(queue)  # noqa: E731
            loaded, targets = load_beside(self._engine, self._settings, self._queues, queue, clock, others)
            target = targets[0] if targets else None
            policy = redrive.policy_of(queue.attributes) if targets else None
            lanes, events = loaded.lanes, Events()
            undecided = self._outputs.decide_doubts(loaded, events, attempt_id)
            if attempt_id is not None:
                again = _same_attempt(lanes, attempt_id, timeout, loaded.now)
                if len(again.first):
                    require_asked(attempt_id, int(axis.lengths(again.first, again.last).sum()), maximum)
                    record = lanes.record(again.code[0])
                    events.add("granted again", record, again)
                    answer = grant_of(lanes, again, record.receipt_id)
                    # Even when the deadline stays what it was: the fencing token is a commit of this grant's own.
                    return loaded.plan(again, events, answer, meeting, always=True)
                if any(visibility.same_attempt(lanes.record(c), attempt_id, loaded.now) for c in lanes.undecided):
                    return loaded.plan(again, events, _or_raise(lambda version: None, undecided), meeting)
            seen = loaded.look(self._stocks)
            held = seen.state == INDEX[Status.IN_FLIGHT]
            in_flight = int(axis.lengths(seen.pieces.first[held], seen.pieces.last[held]).sum())
            most = admit(maximum, in_flight, limits, fifo=fifo)
            runs, order = receivable(loaded, seen, self._groups)
            dead = lanes.per_code(runs.code, lambda r: redrive.is_dead(r, policy), bool)
            buried = self._bury(loaded, seen.listing, target, _sorted(runs, dead), events)
            alive, order = _where(runs, ~dead), order[~dead]
            some = _of_few_lanes(lanes, alive, most, losses, fifo=fifo)
            chosen, order = first_in_order(_where(alive, some), order[some], most)
            events.expired(lanes, chosen)
            granted = lambda r: lanes.code(visibility.receive(r, receipt_id, attempt_id, timeout, loaded.now))  # noqa: E731
            over = in_order(chosen._replace(code=lanes.per_code(chosen.code, granted, np.int64)))
            if len(over.first):
                events.add("granted", lanes.record(over.code[0]), over)
            answer = _or_raise(grant_of(lanes, over, receipt_id, order if fifo else None), undecided)
            both = in_order(Runs(*(np.concatenate(column) for column in zip(over, buried.leaving))))
            arriving = {target.id: buried.arriving} if target else {}
            return loaded.plan(both, events, answer, meeting, arriving)

        return self._transactions.run("receive", "visibility", queue.id, decide)

    def _targets(self, queue: QueueRecord) -> list[QueueRecord]:
        """The queue that the redrive policy names, if it can take dead letters: that may be another one by now than the
        one that the policy was set for. Else none."""
        policy = redrive.policy_of(queue.attributes)
        named = [record for record in self._queues.all() if record.name == policy.target] if policy else []
        return [record for record in named if redrive.broken_bound(queue, record) is None]

    def _bury(self, loaded: Loaded, listing: Listing, target: QueueRecord | None, dead: Runs, events: Events) -> Move:
        if target is None or not len(dead.first):
            return Move(axis.empty_runs(), axis.empty_runs())
        fifo = is_fifo(loaded.queue.attributes)
        arrives = lambda r: redrive.dead_letter(r, loaded.queue.id, loaded.now, fifo=fifo, target=target.id)  # noqa: E731
        return move(loaded, listing, target, dead, arrives, events)


def grant_of(
    lanes: Lanes, runs: Runs, receipt_id: str, order: np.ndarray | None = None
) -> Callable[[int], Grant | None]:
    """The answer of a receive, once its version is known; None for no messages. `order`: see Grant."""

    def answer(version: int) -> Grant | None:
        if not len(runs.first):
            return None
        codes, which = np.unique(runs.code, return_inverse=True)
        records, which = [lanes.record(code) for code in codes.tolist()], pa.array(which)
        columns = [
            *lanes.table(runs.first, runs.last),
            pa.array([r.receive_count for r in records], pa.int32()).take(which),
            pa.array([r.first_received_at for r in records], pa.int64()).take(which),
            pa.array([r.origin_queue for r in records], pa.string()).take(which),
            pa.array([r.enqueued_at for r in records], pa.int64()).take(which),
        ]
        newest = max(records, key=lambda r: r.visible_at)
        table = pa.table(columns, schema=GRANTED_RUNS)
        places = None if order is None else pa.array(order)
        return Grant(receipt_id, newest.visible_at, newest.received_at, version, table, places)

    return answer


def _or_raise(
    answer: Callable[[int], Grant | None], undecided: OutputUnreadable | None
) -> Callable[[int], Grant | None]:
    """The answer; where it would be none although there are messages, left alone in doubt, the error that says why."""

    def answer_or_error(version: int) -> Grant | None:
        grant = answer(version)
        if grant is None and undecided is not None:
            raise undecided
        return grant

    return answer_or_error


def _meeting(queue: QueueRecord, attempt_id: str | None) -> tuple[int, ...]:
    """Lanes that receives count up although they take nothing there, so that two of them conflict.

    Two receives of one attempt may choose different lanes; on the attempt's own lane they meet. And a quota holds
    exactly only if every receive has seen the one before it.
    """
    lanes = set() if attempt_id is None else {crc32(attempt_id.encode()) % int(queue.attributes["Lanes"])}
    return tuple_of(lanes if limits_of(queue.attributes).maximum_in_flight is None else lanes | {0})


def _of_few_lanes(lanes: Lanes, runs: Runs, maximum: int | None, losses: int, *, fifo: bool) -> np.ndarray:
    """A mask: the runs in the lanes that the claim is to be made of."""
    lane_of = lanes.lanes(runs.first)
    messages = np.bincount(lane_of, axis.lengths(runs.first, runs.last)).astype(np.int64)
    if fifo:
        chosen = choose_lanes_in_order(np.flatnonzero(messages).tolist(), losses)
    else:
        chosen = choose_lanes(dict(enumerate(messages.tolist())), maximum, losses)
    return np.isin(lane_of, chosen)


def _same_attempt(lanes: Lanes, attempt_id: str, timeout: int, now: int) -> Runs:
    mine = lanes.per_code(lanes.runs.code, lambda r: visibility.same_attempt(r, attempt_id, now), bool)
    mine &= ~np.isin(lanes.runs.code, list(lanes.undecided))
    if mine.any():
        # With late changes accepted, an attempt may hold two claims; its last one is meant.
        last = max((lanes.record(code) for code in lanes.runs.code[mine].tolist()), key=lambda r: r.received_at)
        mine &= lanes.per_code(lanes.runs.code, lambda r: r.receipt_id == last.receipt_id, bool)
    runs = _where(lanes.runs, mine)
    code = lanes.per_code(runs.code, lambda r: lanes.code(visibility.restart(r, timeout, now)), np.int64)
    return runs._replace(code=code)


def _where(runs: Runs, mask: np.ndarray) -> Runs:
    return Runs(*(column[mask] for column in runs))


def _sorted(runs: Runs, mask: np.ndarray) -> Runs:
    return in_order(_where(runs, mask))
