"""The rules applied message by message, in memory: the executable specification, and the oracle of the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from ledger.clock import Clock
from ledger.errors import MessageDoesNotExist
from ledger.rules import fifo, redrive, visibility
from ledger.rules import message_id as ids
from ledger.rules.admission import admit
from ledger.rules.attempts import Attempt, content_of, require_asked
from ledger.rules.attributes import is_fifo, limits_of
from ledger.rules.limits import MILLISECONDS, Limits
from ledger.rules.message import Entry, deduplication_key
from ledger.rules.receipt_handle import new_receipt_id
from ledger.rules.state import GONE, Record, Status, came, expires_at, status
from ledger.rules.visibility import Outcome, Receipts
from ledger.store import (
    GRANTED_RUNS,
    OUTCOME_RUNS,
    Action,
    Counts,
    Grant,
    QueueRecord,
    StoredMessage,
    decide,
    named_twice,
)
from ledger.store.memory_queues import MemoryQueues, Place, Stored

LANE = 0


class MemoryStore(MemoryQueues):
    """A Store of one process, gone with it."""

    def __init__(self) -> None:
        super().__init__()
        self._sent: dict[str, tuple[Attempt, list[str]]] = {}

    def send(self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock, attempt_id: str | None) -> list[str]:
        if not entries:
            return []
        with self._lock:
            now = clock()
            attempt = attempt_id and Attempt(attempt_id, queue.id, content_of(queue.id, entries))
            if attempt_id in self._sent:
                landed, known = self._sent[attempt_id]
                attempt.require_same(landed.content)
                return known
            segment, send = ids.segment(ids.new_send_key(), 0), self._commit()
            stored, in_order = self._stored(queue), is_fifo(queue.attributes)
            places = self._remembered(queue, stored, now) if in_order else {}
            answer = []
            for entry in entries:
                place = segment, len(answer)
                if in_order:
                    place = places.setdefault(_key(queue, entry), place)
                if place not in stored:
                    sequence = fifo.sequence_number(send, place[1])
                    stored[place] = Stored(queue.id, entry, now, now + entry.delay * MILLISECONDS, sequence)
                answer.append(ids.message_id(*place))
            if attempt:
                self._sent[attempt_id] = attempt, answer
            return answer

    @staticmethod
    def _remembered(queue: QueueRecord, stored: dict[Place, Stored], now: int) -> dict[tuple[str, str], Place]:
        """F1: what was sent to this queue so lately that sending it again is a duplicate; not what was moved here."""
        return {
            _key(queue, message.entry): place
            for place, message in stored.items()
            if message.home == queue.id and fifo.is_duplicate(message.sent_at, now)
        }

    def receive(
        self, queue: QueueRecord, maximum: int | None, timeout: int, attempt_id: str | None, clock: Clock
    ) -> Grant | None:
        with self._lock:
            now = clock()
            stored = self._stored(queue)
            if attempt_id is not None:
                same = [place for place, m in stored.items() if visibility.same_attempt(m.record, attempt_id, now)]
                if same:
                    # With late changes accepted, an attempt may hold two claims; its last one is meant.
                    last = max((stored[place].record for place in same), key=lambda record: record.received_at)
                    same = [place for place in same if stored[place].record.receipt_id == last.receipt_id]
                    require_asked(attempt_id, len(same), maximum)
                    for place in same:
                        stored[place].record = visibility.restart(stored[place].record, timeout, now)
                    return self._grant(stored, same)
            states = {place: self._status(queue, m, now) for place, m in stored.items()}
            in_flight = sum(state is Status.IN_FLIGHT for state in states.values())
            maximum = admit(maximum, in_flight, limits_of(queue.attributes), fifo=is_fifo(queue.attributes))
            alive = self._bury(queue, stored, self._receivable(queue, stored, states), now)
            chosen = alive if maximum is None else alive[:maximum]
            receipt_id = new_receipt_id()
            for place in chosen:
                stored[place].record = visibility.receive(stored[place].record, receipt_id, attempt_id, timeout, now)
            return self._grant(stored, chosen) if chosen else None

    @staticmethod
    def _receivable(queue: QueueRecord, stored: dict[Place, Stored], states: dict[Place, Status]) -> list[Place]:
        if not is_fifo(queue.attributes):
            return [place for place, state in states.items() if state is Status.VISIBLE]
        # What was moved here came with the move; within one instant the order of the sends decides.
        key = lambda m: (came(m.record, m.sent_at), m.sequence_number)  # noqa: E731
        ordered = sorted(stored, key=lambda place: key(stored[place]))
        return list(fifo.receivable((place, stored[place].entry.message_group_id, states[place]) for place in ordered))

    def _bury(self, queue: QueueRecord, stored: dict[Place, Stored], places: list[Place], now: int) -> list[Place]:
        """D1: moves what was received too often; answers the others."""
        policy = redrive.policy_of(queue.attributes)
        target = self._queues.get(policy.target) if policy else None
        if target is None or redrive.broken_bound(queue, target) is not None:
            return places
        dead = [place for place in places if redrive.is_dead(stored[place].record, policy)]
        arrives = lambda record: redrive.dead_letter(record, queue.id, now, fifo=is_fifo(queue.attributes))  # noqa: E731
        self._move(queue, target, dead, arrives)
        return [place for place in places if place not in set(dead)]

    def _move(
        self, source: QueueRecord, target: QueueRecord, places: Sequence[Place], arrives: Callable[[Record], Record]
    ) -> None:
        here, there = self._stored(source), self._stored(target)
        for place in places:
            there[place] = replace(here[place], record=arrives(here[place].record))
            here[place].record = redrive.moved_away(here[place].record, target.id)
        if places:
            self._commit()

    def redrive(
        self, source: QueueRecord, target: QueueRecord | None, maximum: int | None, chosen: object, clock: Clock
    ) -> int:
        with self._lock:
            now = clock()
            stored = self._stored(source)
            states = {place: self._status(source, m, now) for place, m in stored.items()}
            visible = self._receivable(source, stored, states)
            if chosen is not None:
                wanted = {
                    (r["segment"], s) for r in chosen.to_pylist() for s in range(r["first_seq"], r["last_seq"] + 1)
                }
                visible = [place for place in visible if place in wanted]
            if target is not None:
                redrive.require_destination(source, target)
            homes = {q.id: q for q in self._queues.values() if redrive.broken_bound(source, q) is None}
            ways = [(place, target or homes.get(stored[place].record.origin_queue)) for place in visible]
            ways = [(place, there) for place, there in ways if there is not None][:maximum]
            for place, there in ways:
                self._move(source, there, [place], lambda record: redrive.redriven(now, source.id))
            return len(ways)

    def act(
        self, queue: QueueRecord, actions: Sequence[Action], limits: Limits, receipts: Receipts, clock: Clock
    ) -> list[pa.Table]:
        with self._lock:
            now = clock()
            stored = self._stored(queue)
            before = {place: message.record for place, message in stored.items()}
            answers, changed, records = [], {}, {}
            for action in actions:
                outcomes = []
                for run in action.runs.to_pylist():
                    for seq in range(run["first_seq"], run["last_seq"] + 1):
                        place = run["segment"], seq
                        outcome, record = Outcome.SETTLED if action.whole_claim else Outcome.ALREADY_DELETED, None
                        if place in before:
                            outcome, record = decide(queue, action, before[place], limits, receipts, now)
                        if record is not None and record != before[place]:
                            if changed.setdefault(place, action) is not action:
                                raise named_twice()
                            records[place] = record
                        outcomes.append({**run, "first_seq": seq, "last_seq": seq, "outcome": outcome.value})
                answers.append(pa.Table.from_pylist(outcomes, schema=OUTCOME_RUNS))
            for place, record in records.items():
                stored[place].record = record
            if records:
                self._commit()
            return answers

    def restore(self, queue: QueueRecord, receipt_id: str, clock: Clock) -> int:
        with self._lock:
            now = clock()
            restored = 0
            for message in self._stored(queue).values():
                record = visibility.restore(message.record, receipt_id, now)
                if record is not None and expires_at(record, message.sent_at, queue.retention) > now:
                    message.record, restored = record, restored + 1
            if restored:
                self._commit()
            return restored

    def lock(self, queue: QueueRecord, message_id: str, timeout: int, clock: Clock) -> bool:
        with self._lock:
            now = clock()
            message = self._find(queue, message_id)
            record = visibility.lock(message.record, timeout, now)
            if record is not None:
                message.record = record
                self._commit()
            return record is not None

    def peek(self, queue: QueueRecord, message_id: str) -> StoredMessage:
        with self._lock:
            return self._answer(ids.place(message_id), self._find(queue, message_id))

    def held(self, queue: QueueRecord, receipt_id: str, clock: Clock | None = None) -> Grant | None:
        with self._lock:
            stored, now = self._stored(queue), None if clock is None else clock()
            places = [place for place, m in stored.items() if visibility.is_held(m.record, receipt_id, now)]
            return self._grant(stored, places) if places else None

    def read(self, queue: QueueRecord, grant: Grant) -> list[StoredMessage]:
        with self._lock:
            stored = self._stored(queue)
            places = [
                (run["segment"], seq)
                for run in grant.runs.to_pylist()
                for seq in range(run["first_seq"], run["last_seq"] + 1)
            ]
            known = [(place, stored[place]) for place in places if place in stored]
            known.sort(key=lambda one: (came(one[1].record, one[1].sent_at), one[1].sequence_number))
            return [self._answer(place, message) for place, message in known]

    def purge(self, queue: QueueRecord, clock: Clock) -> int:
        with self._lock:
            now = clock()
            self._commit()
            alive = [m for m in self._stored(queue).values() if self._status(queue, m, now) not in GONE]
            for message in alive:
                message.record = visibility.purge(message.record, now)
            return len(alive)

    def counts(self, queue: QueueRecord, clock: Clock) -> Counts:
        with self._lock:
            now = clock()
            by_status, oldest = dict.fromkeys(Status, 0), []
            for message in self._stored(queue).values():
                state = self._status(queue, message, now)
                by_status[state] += 1
                if state not in GONE:
                    oldest.append(message.sent_at)
            return Counts(by_status, min(oldest, default=None))

    @staticmethod
    def _status(queue: QueueRecord, message: Stored, now: int) -> Status:
        ends = expires_at(message.record, message.sent_at, queue.retention)
        return status(message.record, message.available_at, now, ends)

    def _find(self, queue: QueueRecord, message_id: str) -> Stored:
        place = ids.place(message_id)
        message = self._stored(queue).get(place)
        if message is None or message.record.moved_to is not None:
            raise MessageDoesNotExist(f"There is no message {message_id} in queue {queue.name}")
        return message

    @staticmethod
    def _answer(place: Place, message: Stored) -> StoredMessage:
        entry = message.entry
        return StoredMessage(
            ids.message_id(*place), entry.body, message.sent_at, message.available_at, LANE, *place, message.record,
            entry.message_attributes, entry.message_group_id, entry.message_deduplication_id,
            message.sequence_number if entry.message_deduplication_id else None, entry.trace_header,
        )  # fmt: skip

    def _grant(self, stored: dict[Place, Stored], places: list[Place]) -> Grant:
        version = self._commit()
        newest = max((stored[place].record for place in places), key=lambda record: record.visible_at)
        rows = [
            {
                "lane": LANE,
                "segment": place[0],
                "first_seq": place[1],
                "last_seq": place[1],
                "receive_count": stored[place].record.receive_count,
                "first_received_at": stored[place].record.first_received_at,
                "origin_queue": stored[place].record.origin_queue,
                "enqueued_at": stored[place].record.enqueued_at,
            }
            for place in places
        ]
        runs = pa.Table.from_pylist(rows, GRANTED_RUNS)
        return Grant(newest.receipt_id, newest.visible_at, newest.received_at, version, runs)


def _key(queue: QueueRecord, entry: Entry) -> tuple[str, str]:
    return deduplication_key(queue.attributes, entry.message_group_id, entry.message_deduplication_id)
