"""The rules applied message by message, in memory: the executable specification, and the oracle of the tests."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ledger.errors import MessageDoesNotExist, QueueDoesNotExist
from ledger.rules import message_id as ids
from ledger.rules import visibility
from ledger.rules.limits import Limits
from ledger.rules.receipt_handle import new_receipt_id
from ledger.rules.state import UNTOUCHED, Record, Status, status
from ledger.rules.visibility import Outcome, Verb
from ledger.store import GRANTED_RUNS, OUTCOME_RUNS, Action, Counts, Grant, QueueRecord, StoredMessage, named_twice

LANE = 0
Place = tuple[str, int]


@dataclass
class _Stored:
    body: str
    sent_at: int
    record: Record = UNTOUCHED


class MemoryStore:
    """A Store of one process, gone with it. One lock makes every verb atomic."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._queues: dict[str, QueueRecord] = {}
        self._messages: dict[str, dict[Place, _Stored]] = {}
        self._sent: dict[tuple[str, str], list[str]] = {}
        self._version = 0

    def create_queue(self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], now: int) -> QueueRecord:
        with self._lock:
            known = self._queues.get(name)
            if known is None:
                known = QueueRecord(f"{name}-{self._commit():08x}", name, attributes, tags, now, now)
                self._queues[name], self._messages[known.id] = known, {}
            return known

    def queue(self, name: str) -> QueueRecord:
        with self._lock:
            if name not in self._queues:
                raise QueueDoesNotExist(name, self._queues)
            return self._queues[name]

    def queues(self) -> list[QueueRecord]:
        with self._lock:
            return [self._queues[name] for name in sorted(self._queues)]

    def change_queue(self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], now: int) -> QueueRecord:
        with self._lock:
            self._commit()
            self._queues[name] = replace(self.queue(name), attributes=attributes, tags=tags, modified_at=now)
            return self._queues[name]

    def delete_queue(self, name: str) -> None:
        with self._lock:
            self._messages.pop(self.queue(name).id)
            self._queues.pop(name)
            self._commit()

    def send(self, queue: QueueRecord, bodies: Sequence[str], now: int, attempt_id: str | None) -> list[str]:
        if not bodies:
            return []
        with self._lock:
            known = self._sent.get((queue.id, attempt_id)) if attempt_id is not None else None
            if known is not None:
                return known
            self._commit()
            segment = ids.segment(ids.new_send_key(), 0)
            stored = self._stored(queue)
            for seq, body in enumerate(bodies):
                stored[segment, seq] = _Stored(body, now)
            answer = [ids.message_id(segment, seq) for seq in range(len(bodies))]
            if attempt_id is not None:
                self._sent[queue.id, attempt_id] = answer
            return answer

    def receive(
        self, queue: QueueRecord, maximum: int | None, timeout: int, attempt_id: str | None, now: int
    ) -> Grant | None:
        with self._lock:
            stored = self._stored(queue)
            if attempt_id is not None:
                same = [place for place, m in stored.items() if visibility.same_attempt(m.record, attempt_id, now)]
                if same:
                    # With late changes accepted, an attempt may hold two claims; its last one is meant.
                    last = max((stored[place].record for place in same), key=lambda record: record.received_at)
                    same = [place for place in same if stored[place].record.receipt_id == last.receipt_id]
                    for place in same:
                        stored[place].record = visibility.restart(stored[place].record, timeout, now)
                    return self._grant(stored, same, now)
            visible = [place for place, m in stored.items() if status(m.record, m.sent_at, now) is Status.VISIBLE]
            chosen = visible if maximum is None else visible[:maximum]
            receipt_id = new_receipt_id()
            for place in chosen:
                stored[place].record = visibility.receive(stored[place].record, receipt_id, attempt_id, timeout, now)
            return self._grant(stored, chosen, now) if chosen else None

    def act(
        self, queue: QueueRecord, actions: Sequence[Action], limits: Limits, accept_late: bool, now: int
    ) -> list[pa.Table]:
        with self._lock:
            stored = self._stored(queue)
            before = {place: message.record for place, message in stored.items()}
            answers, changed, records = [], {}, {}
            for action in actions:
                outcomes = []
                for run in action.runs.to_pylist():
                    for seq in range(run["first_seq"], run["last_seq"] + 1):
                        place = run["segment"], seq
                        outcome, record = self._decide(before.get(place), action, limits, accept_late, now)
                        if record is not None and record != before.get(place):
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

    @staticmethod
    def _decide(
        record: Record | None, action: Action, limits: Limits, accept_late: bool, now: int
    ) -> tuple[Outcome, Record | None]:
        if record is None:
            return (Outcome.SETTLED if action.whole_claim else Outcome.ALREADY_DELETED), None
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

    def lock(self, queue: QueueRecord, message_id: str, timeout: int, now: int) -> bool:
        with self._lock:
            message = self._find(queue, message_id)
            record = visibility.lock(message.record, timeout, now)
            if record is not None:
                message.record = record
                self._commit()
            return record is not None

    def peek(self, queue: QueueRecord, message_id: str) -> StoredMessage:
        with self._lock:
            return self._answer(ids.place(message_id), self._find(queue, message_id))

    def held(self, queue: QueueRecord, receipt_id: str) -> Grant | None:
        with self._lock:
            stored = self._stored(queue)
            places = [
                place
                for place, m in stored.items()
                if m.record.receipt_id == receipt_id and m.record.deleted_at is None
            ]
            return self._grant(stored, places, stored[places[0]].record.received_at) if places else None

    def read(self, queue: QueueRecord, grant: Grant) -> list[StoredMessage]:
        with self._lock:
            stored = self._stored(queue)
            places = [
                (run["segment"], seq)
                for run in grant.runs.to_pylist()
                for seq in range(run["first_seq"], run["last_seq"] + 1)
            ]
            return [self._answer(place, stored[place]) for place in places if place in stored]

    def purge(self, queue: QueueRecord, now: int) -> int:
        with self._lock:
            self._commit()
            alive = [m for m in self._stored(queue).values() if m.record.deleted_at is None]
            for message in alive:
                message.record = message.record._replace(deleted_at=now)
            return len(alive)

    def counts(self, queue: QueueRecord, now: int) -> Counts:
        with self._lock:
            by_status = dict.fromkeys(Status, 0)
            messages = self._stored(queue).values()
            for message in messages:
                by_status[status(message.record, message.sent_at, now)] += 1
            return Counts(by_status, min((m.sent_at for m in messages if m.record.deleted_at is None), default=None))

    def change_token(self) -> object:
        return self._version

    def _commit(self) -> int:
        self._version += 1
        return self._version

    def _stored(self, queue: QueueRecord) -> dict[Place, _Stored]:
        if queue.id not in self._messages:
            raise QueueDoesNotExist(queue.name, self._queues)
        return self._messages[queue.id]

    def _find(self, queue: QueueRecord, message_id: str) -> _Stored:
        place = ids.place(message_id)
        if place not in self._stored(queue):
            raise MessageDoesNotExist(f"There is no message {message_id} in queue {queue.name}")
        return self._stored(queue)[place]

    @staticmethod
    def _answer(place: Place, message: _Stored) -> StoredMessage:
        return StoredMessage(
            ids.message_id(*place), message.body, message.sent_at, message.sent_at, LANE, *place, message.record
        )

    def _grant(self, stored: dict[Place, _Stored], places: list[Place], received_at: int) -> Grant:
        version = self._commit()
        record = stored[places[0]].record
        rows = [
            {
                "lane": LANE,
                "segment": place[0],
                "first_seq": place[1],
                "last_seq": place[1],
                "receive_count": stored[place].record.receive_count,
                "first_received_at": stored[place].record.first_received_at,
            }
            for place in places
        ]
        return Grant(
            record.receipt_id, record.visible_at, received_at, version, pa.Table.from_pylist(rows, GRANTED_RUNS)
        )
