"""The Store on Delta tables: each verb decides by the rules and records it as one MERGE into `visibility`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

import numpy as np
import pyarrow as pa

from ledger.errors import MessageDoesNotExist
from ledger.rules import message_id as ids
from ledger.rules import visibility
from ledger.rules.limits import Limits
from ledger.rules.receipt_handle import new_receipt_id
from ledger.rules.state import UNTOUCHED, Record, Status, status
from ledger.rules.visibility import Outcome, Verb
from ledger.settings import Settings
from ledger.store import GRANTED_RUNS, OUTCOME_RUNS, Action, Counts, Grant, QueueRecord, StoredMessage, named_twice
from ledger.store.delta import axis
from ledger.store.delta.axis import ABSENT, Pieces, Runs
from ledger.store.delta.choose import choose_lanes, oldest_up_to
from ledger.store.delta.engine import Engine, Snapshot, Where, tuple_of
from ledger.store.delta.events import Events
from ledger.store.delta.lanes import Lanes
from ledger.store.delta.queues import Queues
from ledger.store.delta.reading import read_message, read_messages
from ledger.store.delta.sending import Sender
from ledger.store.delta.stock import Stock, Stocks
from ledger.store.delta.transaction import Answer, Plan, Transactions


class DeltaStore:
    """A Store on one ledger's tables, through one engine. Threads may share it."""

    def __init__(self, engine: Engine, transactions: Transactions, settings: Settings) -> None:
        self.engine, self.transactions, self.settings = engine, transactions, settings
        self.stocks = Stocks(engine)
        self._queues = Queues(engine, transactions)
        self._sender = Sender(engine, transactions, self.stocks, settings)
        self.create_queue, self.queue, self.queues = self._queues.create, self._queues.get, self._queues.all
        self.change_queue, self.delete_queue = self._queues.change, self._queues.delete
        self.send = self._sender.send

    def receive(
        self, queue: QueueRecord, maximum: int | None, timeout: int, attempt_id: str | None, now: int
    ) -> Grant | None:
        """One MERGE over the chosen lanes. Also answers None when other receivers took everything meanwhile."""
        receipt_id = new_receipt_id()

        def decide(losses: int) -> Plan[Grant | None]:
            snapshot = self.engine.load("visibility", Where(queue.id))
            lanes = Lanes(queue.id, snapshot.rows)
            events = Events()
            if attempt_id is not None:
                again = _same_attempt(lanes, attempt_id, timeout, now)
                if len(again.first):
                    first_record = lanes.record(again.code[0])
                    events.add("granted again", first_record, again)
                    return self._plan(snapshot, lanes, again, events, _grant(lanes, again, first_record.receipt_id))
            stock = self.stocks.of(queue.id)
            pieces = pieces_of(lanes, stock)
            visible = lanes.per_code(pieces.code, lambda r: status(r, 0, now) is Status.VISIBLE, bool)
            visible &= stock.available_at[pieces.query] <= now
            at = np.flatnonzero(visible)
            lane_of = lanes.lanes(pieces.first[at])
            messages = np.bincount(lane_of, axis.lengths(pieces.first[at], pieces.last[at])).astype(np.int64)
            chosen = choose_lanes(dict(enumerate(messages.tolist())), maximum, losses)
            at = at[np.isin(lane_of, chosen)]
            which, first, last = oldest_up_to(
                stock.sent_at[pieces.query[at]], pieces.first[at], pieces.last[at], maximum
            )
            before = pieces.code[at][which]
            events.expired(lanes, Runs(first, last, before))
            granted = lambda r: lanes.code(visibility.receive(r, receipt_id, attempt_id, timeout, now))  # noqa: E731
            over = _sorted(Runs(first, last, lanes.per_code(before, granted, np.int64)))
            if len(first):
                events.add("granted", lanes.record(over.code[0]), over)
            # Two receives of one attempt at once may choose different lanes; on the attempt's own lane they meet.
            meeting = () if attempt_id is None else (crc32(attempt_id.encode()) % int(queue.attributes["Lanes"]),)
            return self._plan(snapshot, lanes, over, events, _grant(lanes, over, receipt_id), meeting)

        return self.transactions.run("receive", "visibility", queue.id, now, decide)

    def act(
        self, queue: QueueRecord, actions: Sequence[Action], limits: Limits, accept_late: bool, now: int
    ) -> list[pa.Table]:
        """One MERGE over the lanes that the actions name."""
        named = tuple_of(lane for action in actions for lane in action.runs["lane"].unique().to_pylist())
        if not named:
            return [OUTCOME_RUNS.empty_table() for _ in actions]

        def decide(losses: int) -> Plan[list[pa.Table]]:
            snapshot = self.engine.load("visibility", Where(queue.id, named))
            lanes, events = Lanes(queue.id, snapshot.rows), Events()
            answers, changes = [], []
            for action in actions:
                rule = _rule(action, limits, accept_late, now)
                pieces = _act_pieces(lanes, action)
                outcome_of = dict.fromkeys(pieces.code.tolist())
                new_code = {}
                for code in outcome_of:
                    outcome, record = rule(lanes.record(code))
                    outcome_of[code] = outcome
                    new_code[code] = lanes.code(record) if code != ABSENT else ABSENT
                answers.append(self._outcomes(queue, lanes, action, pieces, outcome_of))
                change = _mapped(pieces, {c: n for c, n in new_code.items() if n != c})
                events.acted(action, lanes, change)
                changes.append(change)
            over = _sorted(Runs(*(np.concatenate(column) for column in zip(*changes))))
            if (over.first[1:] <= over.last[:-1]).any():
                raise named_twice()
            return self._plan(snapshot, lanes, over, events, lambda version: answers)

        return self.transactions.run("act", "visibility", queue.id, now, decide)

    def lock(self, queue: QueueRecord, message_id: str, timeout: int, now: int) -> bool:
        """One MERGE over the message's lane."""
        segment, seq = ids.place(message_id)
        lane = self._lane(queue, message_id)

        def decide(losses: int) -> Plan[bool]:
            snapshot = self.engine.load("visibility", Where(queue.id, (lane,)))
            lanes, events = Lanes(queue.id, snapshot.rows), Events()
            at = lanes.positions([lane], pa.array([segment]), [seq])
            record = visibility.lock(lanes.record(axis.cut(lanes.runs, at, at).code[0]), timeout, now)
            over = axis.empty_runs() if record is None else Runs(at, at, np.array([lanes.code(record)]))
            if record is not None:
                events.add("locked", record, over)
            return self._plan(snapshot, lanes, over, events, lambda version: record is not None)

        return self.transactions.run("lock", "visibility", queue.id, now, decide)

    def peek(self, queue: QueueRecord, message_id: str) -> StoredMessage:
        """Two small reads, no commit."""
        segment, seq = ids.place(message_id)
        lane = self._lane(queue, message_id)
        lanes = Lanes(queue.id, self.engine.load("visibility", Where(queue.id, (lane,))).rows)
        at = lanes.positions([lane], pa.array([segment]), [seq])
        return read_message(self.engine, queue, lane, message_id, lanes.record(axis.cut(lanes.runs, at, at).code[0]))

    def held(self, queue: QueueRecord, receipt_id: str) -> Grant | None:
        """One read of the queue's records."""
        snapshot = self.engine.load("visibility", Where(queue.id))
        lanes = Lanes(queue.id, snapshot.rows)
        mine = lanes.per_code(lanes.runs.code, lambda r: r.receipt_id == receipt_id and r.deleted_at is None, bool)
        return _grant(lanes, Runs(*(column[mine] for column in lanes.runs)), receipt_id)(snapshot.version)

    def read(self, queue: QueueRecord, grant: Grant) -> list[StoredMessage]:
        return read_messages(self.engine, queue, grant)

    def purge(self, queue: QueueRecord, now: int) -> int:
        """Deletes what exists in one snapshot of `messages`; sends that commit later stay."""

        def decide(losses: int) -> Plan[int]:
            snapshot = self.engine.load("visibility", Where(queue.id))
            lanes, events = Lanes(queue.id, snapshot.rows), Events()
            pieces = pieces_of(lanes, self.stocks.of(queue.id))
            alive = lanes.per_code(pieces.code, lambda r: r.deleted_at is None, bool)
            code = lanes.per_code(pieces.code[alive], lambda r: lanes.code(r._replace(deleted_at=now)), np.int64)
            over = _sorted(Runs(pieces.first[alive], pieces.last[alive], code))
            events.add("purged", UNTOUCHED, over)
            count = int(axis.lengths(over.first, over.last).sum())
            return self._plan(snapshot, lanes, over, events, lambda version: count)

        return self.transactions.run("purge", "visibility", queue.id, now, decide)

    def counts(self, queue: QueueRecord, now: int) -> Counts:
        """From the log of `messages` and the records; exact for one version of each."""
        lanes = Lanes(queue.id, self.engine.load("visibility", Where(queue.id)).rows)
        stock = self.stocks.of(queue.id)
        pieces = pieces_of(lanes, stock)
        states = list(Status)
        ready = lanes.per_code(pieces.code, lambda r: states.index(status(r, now, now)), np.int64)
        delayed = lanes.per_code(pieces.code, lambda r: states.index(status(r, now + 1, now)), np.int64)
        state = np.where(stock.available_at[pieces.query] > now, delayed, ready)
        counted = np.bincount(state, axis.lengths(pieces.first, pieces.last), len(states)).astype(np.int64)
        alive = lanes.per_code(pieces.code, lambda r: r.deleted_at is None, bool)
        sent_at = stock.sent_at[pieces.query[alive]]
        return Counts(dict(zip(states, counted.tolist())), int(sent_at.min()) if len(sent_at) else None)

    def change_token(self) -> object:
        return self.engine.version("messages"), self.engine.version("visibility")

    def _plan(
        self,
        snapshot: Snapshot,
        lanes: Lanes,
        over: Runs,
        events: Events,
        answer: Callable[[int], Answer],
        meeting: Sequence[int] = (),
    ) -> Plan[Answer]:
        """`meeting`: lanes to count up even though nothing changes there, when anything changes at all."""
        edits = lanes.edits(over)
        changed = set(edits["lane"].to_pylist())
        if changed:
            edits = pa.concat_tables([lanes.heads(lane for lane in meeting if lane not in changed), edits])
        return Plan(snapshot, Where(lanes.queue, tuple_of(changed.union(meeting))), edits, events.entries, answer)

    def _lane(self, queue: QueueRecord, message_id: str) -> int:
        segment, seq = ids.place(message_id)
        stock = self.stocks.of(queue.id)
        lane = stock.lane_of(segment)
        if lane is None or seq > stock.last_of(segment):
            raise MessageDoesNotExist(f"There is no message {message_id} in queue {queue.name}")
        return lane

    def _outcomes(
        self, queue: QueueRecord, lanes: Lanes, action: Action, pieces: Pieces, outcome_of: Mapping[int, Outcome]
    ) -> pa.Table:
        outcome = np.array([outcome_of[code].value for code in pieces.code.tolist()], dtype=object)
        unknown = pieces.code == ABSENT
        if unknown.any():
            # Nothing is recorded: either never received, or deleted so long ago that upkeep dropped it.
            exists = set(self.stocks.of(queue.id).segment.unique().to_pylist())
            dropped = np.array([name not in exists for name in lanes.segments])[pieces.first >> axis.SEGMENT_SHIFT]
            gone = Outcome.SETTLED if action.whole_claim else Outcome.ALREADY_DELETED
            outcome[unknown & dropped] = gone.value
        columns = [*lanes.table(pieces.first, pieces.last), pa.array(outcome, pa.string())]
        return pa.table(columns, schema=OUTCOME_RUNS)


def pieces_of(lanes: Lanes, stock: Stock) -> Pieces:
    """Every message that exists, with the code of what is recorded about it; `query` counts the stock's runs."""
    first = lanes.positions(stock.lane, stock.segment, stock.first_seq)
    return axis.cut(lanes.runs, first, first + stock.last_seq - stock.first_seq)


def _same_attempt(lanes: Lanes, attempt_id: str, timeout: int, now: int) -> Runs:
    mine = lanes.per_code(lanes.runs.code, lambda r: visibility.same_attempt(r, attempt_id, now), bool)
    if mine.any():
        # With late changes accepted, an attempt may hold two claims; its last one is meant.
        last = max((lanes.record(code) for code in lanes.runs.code[mine].tolist()), key=lambda r: r.received_at)
        mine &= lanes.per_code(lanes.runs.code, lambda r: r.receipt_id == last.receipt_id, bool)
    runs = Runs(*(column[mine] for column in lanes.runs))
    code = lanes.per_code(runs.code, lambda r: lanes.code(visibility.restart(r, timeout, now)), np.int64)
    return runs._replace(code=code)


def _act_pieces(lanes: Lanes, action: Action) -> Pieces:
    runs = action.runs
    first = lanes.positions(runs["lane"], runs["segment"], runs["first_seq"])
    return axis.cut(lanes.runs, first, first + runs["last_seq"].to_numpy() - runs["first_seq"].to_numpy())


def _rule(action: Action, limits: Limits, accept_late: bool, now: int) -> Callable[[Record], tuple[Outcome, Record]]:
    def rule(record: Record) -> tuple[Outcome, Record]:
        if action.verb is Verb.DELETE:
            return visibility.delete(record, action.receipt_id, now, whole_claim=action.whole_claim)
        return visibility.change(
            record,
            action.receipt_id,
            action.timeout,
            now,
            ceiling=limits.maximum_visibility_timeout,
            accept_late=accept_late,
            whole_claim=action.whole_claim,
            only_later=action.only_later,
        )

    return rule


def _mapped(pieces: Pieces, new_code: Mapping[int, int]) -> Runs:
    """The pieces whose code changes, with their new codes."""
    changed = np.isin(pieces.code, list(new_code))
    code = np.array([new_code[c] for c in pieces.code[changed].tolist()], dtype=np.int64)
    return Runs(pieces.first[changed], pieces.last[changed], code)


def _sorted(runs: Runs) -> Runs:
    order = np.argsort(runs.first, kind="stable")
    return axis.join(Runs(*(column[order] for column in runs)))


def _grant(lanes: Lanes, runs: Runs, receipt_id: str) -> Callable[[int], Grant | None]:
    """The answer of a receive, once its version is known; None for no messages."""

    def answer(version: int) -> Grant | None:
        if not len(runs.first):
            return None
        records = [lanes.record(code) for code in runs.code.tolist()]
        columns = [
            *lanes.table(runs.first, runs.last),
            pa.array([r.receive_count for r in records], pa.int32()),
            pa.array([r.first_received_at for r in records], pa.int64()),
        ]
        newest = max(records, key=lambda r: r.visible_at)
        return Grant(receipt_id, newest.visible_at, newest.received_at, version, pa.table(columns, schema=GRANTED_RUNS))

    return answer
