"""The rules applied message by message, in memory: the executable specification, and the oracle of the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from ledger.clock import Clock
from ledger.errors import LedgerError, MessageDoesNotExist
from ledger.rules import admission, fifo, intervals, visibility
from ledger.rules import message_id as ids
from ledger.rules.attempts import Attempt, content_of
from ledger.rules.attributes import is_fifo, limits_of
from ledger.rules.copies import CopyProgress, Position, instants_in_target
from ledger.rules.limits import MILLISECONDS, Limits
from ledger.rules.message import Entry, deduplication_key
from ledger.rules.message_fields import GIVEN
from ledger.rules.state import GONE, Status, expires_at
from ledger.rules.visibility import Receipts
from ledger.settings import Settings
from ledger.store import (
    RUNS,
    Action,
    Contents,
    CopiedMessage,
    Counts,
    Grant,
    Lease,
    OutputWrites,
    QueueRecord,
    Sent,
    StoredMessage,
    leases_of,
)
from ledger.store.memory_applying import applied
from ledger.store.memory_queues import Place, Stored
from ledger.store.memory_receiving import MemoryReceives, as_found, by_arrival

#: So many messages at a time are read to be copied.
PART = 100


class MemoryStore(MemoryReceives):
    """A Store of one process, gone with it."""

    def __init__(self, settings: Settings | None = None, sender_id: str | None = None) -> None:
        super().__init__(settings or Settings())
        #: By queue id: when it was last purged, and how many commits there were before.
        self._purged: dict[str, tuple[int, int]] = {}
        self._sender = sender_id
        self._sent: dict[str, tuple[Attempt, list[Sent]]] = {}
        #: By queue id and name.
        self._copies: dict[tuple[str, str], CopyProgress] = {}

    def send(self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock, attempt_id: str | None) -> list[Sent]:
        if not entries:
            return []
        with self._lock:
            now = clock()
            attempt = Attempt(attempt_id, queue.id, content_of(queue.id, entries)) if attempt_id else None
            if attempt is not None and attempt.attempt_id in self._sent:
                landed, known = self._sent[attempt.attempt_id]
                attempt.require_same(landed.content)
                return known
            segment, send = ids.segment(ids.new_send_key(), 0), self._commit()
            stored, in_order = self._stored(queue), is_fifo(queue.attributes)
            places = self._remembered(queue, stored, now) if in_order else {}
            answer: list[Sent] = []
            keys = {_key(queue, entry) for entry in entries} if in_order else ()
            more = sum(key not in places for key in keys) if in_order else len(entries)
            self._require_room(queue, stored, more, now)
            for entry in entries:
                place = segment, len(answer)
                if in_order:
                    place = places.setdefault(_key(queue, entry), place)
                if place not in stored:
                    sequence = fifo.sequence_number(send, place[1])
                    available_at, lane = now + entry.delay_seconds * MILLISECONDS, _lane(queue, entry)
                    stored[place] = Stored(queue.id, entry, now, available_at, sequence, lane, sender_id=self._sender)
                number = stored[place].sequence_number if in_order else None
                answer.append(Sent(ids.message_id(*place), number))
            if attempt is not None:
                self._sent[attempt.attempt_id] = attempt, answer
            return answer

    def _require_room(self, queue: QueueRecord, stored: dict[Place, Stored], more: int, now: int) -> None:
        there = sum(self._status(queue, message, now) not in GONE for message in stored.values())
        admission.require_room(queue.name, there, more, limits_of(queue.attributes))

    def _remembered(self, queue: QueueRecord, stored: dict[Place, Stored], now: int) -> dict[tuple[str, str], Place]:
        """F1: what was sent to this queue so lately that sending it again is a duplicate; not what was moved here, and
        not what was sent before its last purge."""
        _, purged = self._purged.get(queue.id, (0, 0))
        return {
            _key(queue, message.entry): place
            for place, message in stored.items()
            if message.home == queue.id
            and fifo.is_duplicate(message.sent_at, now)
            and message.sequence_number >= fifo.first_remembered(purged)
        }

    def apply(
        self, queue: QueueRecord, actions: Sequence[Action], limits: Limits, receipts: Receipts, clock: Clock
    ) -> list[pa.Table]:
        with self._lock:
            now = clock()
            stored = self._stored(queue)
            records = {place: message.record for place, message in stored.items()}
            changed, answers = applied(queue, actions, records, limits, receipts, now)
            for place, record in changed.items():
                stored[place].record = record
            if changed:
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
            return self._grant(stored, as_found(queue, stored, places), self._version) if places else None

    def leases(self, queue: QueueRecord, clock: Clock) -> list[Lease]:
        return self._leases(queue, clock, postponed=False)

    def postponed(self, queue: QueueRecord, clock: Clock) -> list[Lease]:
        return self._leases(queue, clock, postponed=True)

    def given_back(self, queue: QueueRecord, clock: Clock) -> Mapping[str, pa.Table]:
        with self._lock:
            now, stored, places = clock(), self._stored(queue), dict[str, list[Place]]()
            for place, message in stored.items():
                if visibility.is_postponed(message.record, now):
                    places.setdefault(message.record.receipt_id or "", []).append(place)
            grants = [self._grant(stored, some, self._version) for some in places.values()]
            return {one.receipt_id: one.runs.select(RUNS.names) for one in grants if one is not None}

    def _leases(self, queue: QueueRecord, clock: Clock, *, postponed: bool) -> list[Lease]:
        with self._lock:
            now, records = clock(), [(message.record, 1) for message in self._stored(queue).values()]
            return leases_of(records, now, postponed=postponed)

    def read(self, queue: QueueRecord, grant: Grant) -> list[StoredMessage]:
        with self._lock:
            stored = self._stored(queue)
            places = [
                (run["segment"], seq)
                for run in grant.runs.to_pylist()
                for seq in range(run["first_seq"], run["last_seq"] + 1)
            ]
            # A FIFO queue's grant has a run for each message, in their order.
            known = [place for place in places if place in stored]
            known = known if is_fifo(queue.attributes) else by_arrival({place: stored[place] for place in known})
            return [self._answer(place, stored[place]) for place in known]

    def require_messages(self, queue: QueueRecord, grant: Grant, runs: pa.Table) -> None:
        # A message and its record are one object here.
        pass

    def purge(self, queue: QueueRecord, clock: Clock, older_than: int | None = None) -> int:
        with self._lock:
            now, (last, _) = clock(), self._purged.get(queue.id, (None, 0))
            stored, limits = self._stored(queue), limits_of(queue.attributes)
            if older_than is None:
                intervals.require_purge(queue.name, last, limits, self._settings.purge_interval, now)
                self._purged[queue.id] = now, self._commit()
            alive = [m for m in stored.values() if self._status(queue, m, now) not in GONE]
            chosen = [m for m in alive if older_than is None or m.sent_at < now - older_than]
            for message in chosen:
                message.record = visibility.purge(message.record, now)
            if chosen and older_than is not None:
                self._commit()
            return len(chosen)

    def contents(
        self, queue: QueueRecord, clock: Clock, after: Position | None = None, until: int | None = None
    ) -> Contents:
        with self._lock:
            now = clock()
            alive = {p: m for p, m in self._stored(queue).items() if self._status(queue, m, now) not in GONE}
            found = [self._answer(place, message) for place, message in alive.items()]
        if after is not None:
            found = [message for message in found if message.position > after]
        if until is not None:
            found = [message for message in found if message.position.arrived_at <= until]
        found.sort(key=lambda message: message.position)
        parts = (found[first : first + PART] for first in range(0, len(found), PART))
        return Contents(len(found), max((one.position.arrived_at for one in found), default=0), parts)

    def copy_progress(self, queue: QueueRecord, key: str) -> CopyProgress | None:
        with self._lock:
            return self._copies.get((queue.id, key))

    def add_copies(
        self, queue: QueueRecord, messages: Sequence[CopiedMessage], key: str, progress: CopyProgress, clock: Clock
    ) -> bool:
        with self._lock:
            before, now, in_order = self._copies.get((queue.id, key)), clock(), is_fifo(queue.attributes)
            stored = self._stored(queue)
            if progress.parts != (before.parts if before else 0) + 1:
                return False
            self._require_room(queue, stored, len(messages), now)
            segment, send = ids.segment(ids.new_send_key(), 0), self._commit()
            for seq, (entry, kept_since, available_at, sender) in enumerate(messages):
                at = instants_in_target(kept_since, available_at, now, queue.retention, fifo=in_order)
                number, lane = fifo.sequence_number(send, seq), _lane(queue, entry)
                stored[segment, seq] = Stored(queue.id, entry, *at, number, lane, sender_id=sender)
            self._copies[queue.id, key] = progress
            return True

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

    @property
    def outputs(self) -> OutputWrites:
        raise LedgerError("claim.write needs a ledger on Delta tables; this one is in memory")

    def _find(self, queue: QueueRecord, message_id: str) -> Stored:
        place = ids.place(message_id)
        message = self._stored(queue).get(place)
        if message is None or message.record.moved_to is not None:
            raise MessageDoesNotExist(f"There is no message {message_id} in queue {queue.name}")
        return message

    def _answer(self, place: Place, message: Stored) -> StoredMessage:
        segment, seq = place
        return StoredMessage(
            message_id=ids.message_id(segment, seq),
            sent_at=message.sent_at,
            available_at=message.available_at,
            lane=message.lane,
            segment=segment,
            seq=seq,
            record=message.record,
            sequence_number=message.sequence_number if message.entry.message_deduplication_id else None,
            sender_id=message.sender_id,
            **{field.name: getattr(message.entry, field.name) for field in GIVEN if field.is_shown},
        )


def _key(queue: QueueRecord, entry: Entry) -> tuple[str, str]:
    return deduplication_key(queue.attributes, entry.group, entry.deduplication)


def _lane(queue: QueueRecord, entry: Entry) -> int:
    """The lane of a FIFO queue's message is that of its group; on standard queues it says nothing here."""
    return fifo.lane(entry.group, int(queue.attributes["Lanes"])) if is_fifo(queue.attributes) else 0
