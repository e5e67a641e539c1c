"""The store in memory: the executable specification of the rules, and the tests' oracle.

It applies the rules message by message, and shares only the rules and the protocol with the Delta store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from ledger.clock import Clock
from ledger.errors import LedgerError, MessageDoesNotExist, QueueDoesNotExist
from ledger.rules import fifo, redrive, visibility
from ledger.rules import limits as limit_rules
from ledger.rules import message_id as ids
from ledger.rules.attempts import Attempt, hash_content, require_not_smaller
from ledger.rules.attributes import is_fifo, limits_of
from ledger.rules.copies import CopyProgress, Position, instants_in_target
from ledger.rules.limits import MILLISECONDS, Limits, admit
from ledger.rules.message import GIVEN, Entry, deduplication_key, size_of_message
from ledger.rules.receipt_handle import new_receipt_id
from ledger.rules.redrive import MoveTask
from ledger.rules.visibility import (
    GONE,
    UNTOUCHED,
    Outcome,
    Receipts,
    Record,
    Status,
    arrived_at,
    expires_at,
    latest_hold,
    status,
)
from ledger.settings import Settings
from ledger.store.protocol import (
    GRANTED_RUNS,
    OUTCOME_RUNS,
    RUNS,
    Action,
    Change,
    Contents,
    CopiedMessage,
    Grant,
    Lease,
    OutputWrites,
    QueueRecord,
    Received,
    ReceiveRequest,
    StateCounts,
    StoredMessage,
    StoredSend,
    apply_action,
    leases_of,
)

Place = tuple[str, int]


@dataclass
class MemoryMessage:
    """A message and its record.

    `home` is the id of the queue that the message was sent to. A move keeps `home` and `lane`.
    """

    home: str
    entry: Entry
    sent_at: int
    available_at: int
    sequence_number: int
    lane: int
    record: Record = UNTOUCHED
    sender_id: str | None = None


class MemoryQueues:
    """The queues of a MemoryStore. One lock makes every verb atomic."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._lock = settings, threading.RLock()
        self._queues: dict[str, QueueRecord] = {}
        self._messages: dict[str, dict[Place, MemoryMessage]] = {}
        self._tasks: dict[str, MoveTask] = {}
        self._version = 0
        self._deleted: dict[str, int] = {}

    def create_queue(
        self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], clock: Clock
    ) -> QueueRecord:
        with self._lock:
            record, now = self._queues.get(name), clock()
            if record is None:
                redrive.require_target(self.queues(), name, attributes, attributes)
                interval = self._settings.deletion_interval
                limit_rules.require_name(name, self._deleted.get(name), limits_of(attributes), interval, now)
                record = QueueRecord(f"{name}-{self._commit():08x}", name, attributes, tags, now, now)
                self._queues[name], self._messages[record.id] = record, {}
            return record

    def queue(self, name: str) -> QueueRecord:
        with self._lock:
            if name not in self._queues:
                raise QueueDoesNotExist(name, self._queues)
            return self._queues[name]

    def queues(self) -> list[QueueRecord]:
        with self._lock:
            return [self._queues[name] for name in sorted(self._queues)]

    def change_queue(self, queue: QueueRecord, change: Change, clock: Clock) -> QueueRecord:
        with self._lock:
            current = self._require_current(queue)
            changed = current.changed(*change(current, self.queues()), clock())
            if changed is not current:
                self._commit()
                self._queues[queue.name] = changed
            return changed

    def delete_queue(self, queue: QueueRecord, clock: Clock) -> None:
        with self._lock:
            self._messages.pop(self._require_current(queue).id)
            self._queues.pop(queue.name)
            self._deleted[queue.name] = clock()
            self._commit()

    def tasks(self) -> list[MoveTask]:
        with self._lock:
            return list(self._tasks.values())

    def put_task(self, task: MoveTask) -> bool:
        with self._lock:
            stored = redrive.is_next_revision(task, self.tasks())
            if stored:
                self._tasks[task.task] = task
            return stored

    def change_token(self) -> object:
        return self._version

    def require_tables(self) -> None:
        pass

    def require_ready(self, free_bytes: int) -> None:
        pass

    def refusals(self) -> Mapping[str, tuple[str, str]]:
        return {}

    @property
    def place(self) -> str:
        return f"memory {id(self)}"

    def _commit(self) -> int:
        self._version += 1
        return self._version

    def _require_current(self, queue: QueueRecord) -> QueueRecord:
        current = self._queues.get(queue.name)
        if current is None or current.id != queue.id:
            raise QueueDoesNotExist(queue.name, self._queues)
        return current

    def _find_stored(self, queue: QueueRecord) -> dict[Place, MemoryMessage]:
        if queue.id not in self._messages:
            raise QueueDoesNotExist(queue.name, self._queues)
        return self._messages[queue.id]


def decide_actions(
    queue: QueueRecord,
    actions: Sequence[Action],
    records: Mapping[Place, Record],
    limits: Limits,
    receipts: Receipts,
    now: int,
) -> tuple[dict[Place, Record], list[pa.Table]]:
    """See `Store.apply`. Return the changed records, and the answers."""
    proposals: dict[Place, set[Record]] = {}
    decisions = []
    for action in actions:
        each = []
        for run in action.runs.to_pylist():
            for place in ((run["segment"], seq) for seq in range(run["first_seq"], run["last_seq"] + 1)):
                outcome = Outcome.SETTLED if action.whole_claim else Outcome.ALREADY_DELETED
                before = after = records.get(place)
                if before is not None:
                    outcome, after = apply_action(queue, action, before, limits, receipts, now)
                if after is not None and after != before:
                    proposals.setdefault(place, set()).add(after)
                each.append((run["lane"], place, outcome, after != before))
        decisions.append(each)
    changed = {place: next(iter(proposed)) for place, proposed in proposals.items() if len(proposed) == 1}
    return changed, [_outcome_runs(each, proposals.keys() - changed.keys()) for each in decisions]


def _outcome_runs(decided: Sequence[tuple[int, Place, Outcome, bool]], contradicted: set[Place]) -> pa.Table:
    rows = []
    for lane, (segment, seq), outcome, changes in decided:
        if changes and (segment, seq) in contradicted:
            outcome = Outcome.CONTRADICTED
        rows.append({"lane": lane, "segment": segment, "first_seq": seq, "last_seq": seq, "outcome": outcome.value})
    return pa.Table.from_pylist(rows, OUTCOME_RUNS)


class MemoryReceives(MemoryQueues):
    def receive(self, queue: QueueRecord, requests: Sequence[ReceiveRequest], clock: Clock) -> list[Received]:
        with self._lock:
            now = clock()
            stored = self._find_stored(queue)
            states = {place: self._status(queue, m, now) for place, m in stored.items()}
            in_flight = sum(state is Status.IN_FLIGHT for state in states.values())
            version: int | None = None
            answers: list[Received] = []
            # Messages that are granted below are not held yet.
            held = [_find_held(queue, stored, request.attempt_id, now) for request in requests]
            free = [] if all(held) else self._select_receivable(queue, stored, states, now)
            remaining: list[Place] | None = None
            for request, places in zip(requests, held):
                try:
                    if places:
                        require_not_smaller(request.attempt_id, len(places), request.maximum)
                        for place in places:
                            stored[place].record = visibility.restart(stored[place].record, request.timeout, now)
                    else:
                        most = admit(
                            request.maximum, in_flight, limits_of(queue.attributes), fifo=is_fifo(queue.attributes)
                        )
                        if remaining is None:
                            remaining = self._bury(queue, stored, free, now)
                        places, remaining = _take_for_receive(queue, stored, remaining, most)
                        in_flight += len(places)
                        _record(stored, places, request, now)
                except LedgerError as error:
                    answers.append(error)
                    continue
                if not places:
                    answers.append(None)
                    continue
                version = self._commit() if version is None else version
                answers.append(self._grant(stored, places, version))
            return answers

    @staticmethod
    def _select_receivable(
        queue: QueueRecord, stored: dict[Place, MemoryMessage], states: dict[Place, Status], now: int
    ) -> list[Place]:
        if not is_fifo(queue.attributes):
            return [place for place, state in states.items() if state is Status.VISIBLE]
        return fifo.select_receivable((_member(queue, p, stored[p], states[p]) for p in sort_by_arrival(stored)), now)

    def _bury(
        self, queue: QueueRecord, stored: dict[Place, MemoryMessage], places: list[Place], now: int
    ) -> list[Place]:
        policy = redrive.policy_of(queue.attributes)
        target = self._queues.get(policy.target) if policy else None
        if target is None or redrive.explain_unfit_destination(queue, target) is not None:
            return places
        dead = [place for place in places if redrive.is_dead(stored[place].record, policy)]
        fifo = is_fifo(queue.attributes)

        def arrives(record: Record) -> Record:
            return redrive.make_dead_letter(record, queue.id, now, fifo=fifo, target=target.id)

        self._move(queue, target, dead, arrives)
        return [place for place in places if place not in set(dead)]

    def _move(
        self,
        source: QueueRecord,
        target: QueueRecord,
        places: Sequence[Place],
        record_at_target: Callable[[Record], Record],
    ) -> None:
        source_messages, target_messages = self._find_stored(source), self._find_stored(target)
        for place in places:
            target_messages[place] = replace(
                source_messages[place], record=record_at_target(source_messages[place].record)
            )
            if source_messages is not target_messages:
                source_messages[place].record = redrive.mark_moved(source_messages[place].record, target.id)
        if places:
            self._commit()

    def reject(self, queue: QueueRecord, actions: Sequence[Action], clock: Clock) -> int | None:
        with self._lock:
            now, policy = clock(), redrive.policy_of(queue.attributes)
            target = self._queues.get(policy.target) if policy else None
            if target is None or target.id == queue.id or redrive.explain_unfit_destination(queue, target) is not None:
                return None
            stored, fifo, moved = self._find_stored(queue), is_fifo(queue.attributes), list[Place]()
            for action in actions:
                for run in action.runs.to_pylist():
                    for place in ((run["segment"], seq) for seq in range(run["first_seq"], run["last_seq"] + 1)):
                        record = stored[place].record if place in stored else UNTOUCHED
                        given_back = visibility.reject(record, action.receipt_id, now, action.mark)
                        if given_back is not None:
                            stored[place].record = given_back
                            moved.append(place)
            arrives = partial(redrive.make_dead_letter, origin=queue.id, now=now, fifo=fifo, target=target.id)
            self._move(queue, target, moved, arrives)
            return len(moved)

    def redrive(
        self,
        source: QueueRecord,
        target: QueueRecord | None,
        maximum: int | None,
        chosen: pa.Table | None,
        clock: Clock,
    ) -> int:
        with self._lock:
            now = clock()
            stored = self._find_stored(source)
            states = {place: self._status(source, m, now) for place, m in stored.items()}
            visible = self._select_receivable(source, stored, states, now)
            if chosen is not None:
                chosen_places = {
                    (r["segment"], s) for r in chosen.to_pylist() for s in range(r["first_seq"], r["last_seq"] + 1)
                }
                visible = [place for place in visible if place in chosen_places]
            if target is not None:
                redrive.require_destination(source, target)
            other_queues = [q for q in self._queues.values() if q.id != source.id]
            homes: dict[str | None, QueueRecord] = {
                q.id: q for q in other_queues if redrive.explain_unfit_destination(source, q) is None
            }
            destinations = [(place, target or homes.get(stored[place].record.origin_queue)) for place in visible]
            moves = [(place, destination) for place, destination in destinations if destination is not None][:maximum]
            for place, destination in moves:
                self._move(source, destination, [place], lambda record: redrive.make_redriven(now, source.id))
            return len(moves)

    @staticmethod
    def _status(queue: QueueRecord, message: MemoryMessage, now: int) -> Status:
        ends = expires_at(message.record, message.sent_at, queue.retention)
        return status(message.record, message.available_at, now, ends)

    @staticmethod
    def _grant(stored: dict[Place, MemoryMessage], places: list[Place], version: int) -> Grant | None:
        latest = latest_hold(stored[place].record for place in places)
        if latest is None:
            return None
        rows = [
            {
                "lane": stored[place].lane,
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
        return Grant(latest.receipt_id, latest.visible_at, latest.received_at, version, runs)


def sort_by_arrival(stored: dict[Place, MemoryMessage]) -> list[Place]:
    """Return the places by arrival, within one instant by send."""
    return sorted(stored, key=lambda place: _order(stored[place]))


def _order(message: MemoryMessage) -> tuple[int, int, int]:
    return arrived_at(message.record, message.sent_at), message.sent_at, message.sequence_number


def order_of_found_claim(
    queue: QueueRecord, stored: dict[Place, MemoryMessage], places: Sequence[Place]
) -> list[Place]:
    """Return the places of a claim that is found again, in an order that does not depend on its grant."""
    places = sort_by_arrival({place: stored[place] for place in places})
    if not is_fifo(queue.attributes):
        return places
    return fifo.order_by_group(places, lambda place: stored[place].entry.message_group_id)


def _find_held(queue: QueueRecord, stored: dict[Place, MemoryMessage], attempt_id: str | None, now: int) -> list[Place]:
    same = {p: m for p, m in stored.items() if attempt_id and visibility.is_same_attempt(m.record, attempt_id, now)}
    last = visibility.last_receipt(m.record for m in same.values())
    return order_of_found_claim(queue, stored, [p for p, m in same.items() if m.record.receipt_id == last])


def _take_for_receive(
    queue: QueueRecord, stored: dict[Place, MemoryMessage], remaining: list[Place], most: int | None
) -> tuple[list[Place], list[Place]]:
    """Return the places that one receive takes, and those left for the next one."""
    taken, remaining = (remaining, []) if most is None else (remaining[:most], remaining[most:])
    if taken and is_fifo(queue.attributes):
        group = stored[taken[-1]].entry.message_group_id
        remaining = [place for place in remaining if stored[place].entry.message_group_id != group]
    return taken, remaining


def _record(stored: dict[Place, MemoryMessage], places: Sequence[Place], request: ReceiveRequest, now: int) -> None:
    receipt_id = new_receipt_id()
    for place in places:
        before = stored[place].record
        stored[place].record = visibility.receive(before, receipt_id, request.attempt_id, request.timeout, now)


def _member(queue: QueueRecord, place: Place, message: MemoryMessage, state: Status) -> fifo.Member:
    since = max(arrived_at(message.record, message.sent_at), message.available_at)
    ended = fifo.hold_ended(message.record, expires_at(message.record, message.sent_at, queue.retention))
    return fifo.Member(place, message.entry.group, state, since, ended)


#: How many messages a part of `contents` has.
PART = 100


class MemoryStore(MemoryReceives):
    """A Store inside one process. Its contents end with the process."""

    def __init__(self, settings: Settings | None = None, sender_id: str | None = None) -> None:
        super().__init__(settings or Settings())
        #: By queue id: the instant of the last full purge, and the number of its commit.
        self._purged: dict[str, tuple[int, int]] = {}
        self._sender = sender_id
        self._sent: dict[str, tuple[Attempt, list[StoredSend]]] = {}
        #: By queue id and copy key.
        self._copies: dict[tuple[str, str], CopyProgress] = {}

    def send(
        self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock, attempt_id: str | None
    ) -> list[StoredSend]:
        if not entries:
            return []
        with self._lock:
            now = clock()
            attempt = Attempt(attempt_id, queue.id, hash_content(queue.id, entries)) if attempt_id else None
            if attempt is not None and attempt.attempt_id in self._sent:
                landed, answer_before = self._sent[attempt.attempt_id]
                attempt.require_same(landed.content)
                return answer_before
            segment, send = ids.segment(ids.new_send_key(), 0), self._commit()
            stored, in_order = self._find_stored(queue), is_fifo(queue.attributes)
            places = self._find_remembered(queue, stored, now) if in_order else {}
            answer: list[StoredSend] = []
            added = {_key(queue, entry): entry for entry in reversed(entries)} if in_order else {}
            fresh = [entry for key, entry in added.items() if key not in places] if in_order else entries
            self._require_room(queue, stored, fresh, now)
            for entry in entries:
                place = segment, len(answer)
                if in_order:
                    place = places.setdefault(_key(queue, entry), place)
                if place not in stored:
                    sequence = fifo.sequence_number(send, place[1])
                    available_at, lane = now + entry.delay_seconds * MILLISECONDS, _lane(queue, entry)
                    stored[place] = MemoryMessage(
                        queue.id, entry, now, available_at, sequence, lane, sender_id=self._sender
                    )
                number = stored[place].sequence_number if in_order else None
                answer.append(StoredSend(ids.message_id(*place), number))
            if attempt is not None:
                self._sent[attempt.attempt_id] = attempt, answer
            return answer

    def _require_room(
        self, queue: QueueRecord, stored: dict[Place, MemoryMessage], added: Sequence[Entry], now: int
    ) -> None:
        bounds = limits_of(queue.attributes)
        present = [message.entry for message in stored.values() if self._status(queue, message, now) not in GONE]
        limit_rules.require_room(queue.name, len(present), len(added), bounds)
        stored_bytes, added_bytes = (sum(map(size_of_message, entries)) for entries in (present, added))
        limit_rules.require_bytes(queue.name, stored_bytes, added_bytes, bounds)

    def _find_remembered(
        self, queue: QueueRecord, stored: dict[Place, MemoryMessage], now: int
    ) -> dict[tuple[str, str], Place]:
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
            stored = self._find_stored(queue)
            records = {place: message.record for place, message in stored.items()}
            changed, answers = decide_actions(queue, actions, records, limits, receipts, now)
            for place, record in changed.items():
                stored[place].record = record
            if changed:
                self._commit()
            return answers

    def restore(self, queue: QueueRecord, receipt_id: str, clock: Clock) -> int:
        with self._lock:
            now = clock()
            restored = 0
            for message in self._find_stored(queue).values():
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
            stored, now = self._find_stored(queue), None if clock is None else clock()
            places = [place for place, m in stored.items() if visibility.is_held(m.record, receipt_id, now)]
            return self._grant(stored, order_of_found_claim(queue, stored, places), self._version) if places else None

    def leases(self, queue: QueueRecord, clock: Clock) -> list[Lease]:
        return self._leases(queue, clock, postponed=False)

    def postponed(self, queue: QueueRecord, clock: Clock) -> list[Lease]:
        return self._leases(queue, clock, postponed=True)

    def given_back(self, queue: QueueRecord, clock: Clock) -> Mapping[str, pa.Table]:
        with self._lock:
            now, stored, places = clock(), self._find_stored(queue), dict[str, list[Place]]()
            for place, message in stored.items():
                if visibility.is_postponed(message.record, now):
                    places.setdefault(message.record.receipt_id or "", []).append(place)
            grants = [self._grant(stored, of_receipt, self._version) for of_receipt in places.values()]
            return {grant.receipt_id: grant.runs.select(RUNS.names) for grant in grants if grant is not None}

    def _leases(self, queue: QueueRecord, clock: Clock, *, postponed: bool) -> list[Lease]:
        with self._lock:
            now, records = clock(), [(message.record, 1) for message in self._find_stored(queue).values()]
            return leases_of(records, now, postponed=postponed)

    def read(self, queue: QueueRecord, grant: Grant) -> list[StoredMessage]:
        with self._lock:
            stored = self._find_stored(queue)
            places = [
                (run["segment"], seq)
                for run in grant.runs.to_pylist()
                for seq in range(run["first_seq"], run["last_seq"] + 1)
            ]
            # A FIFO queue's grant has one run for each message, in the order of the grant.
            remaining = [place for place in places if place in stored]
            remaining = (
                remaining
                if is_fifo(queue.attributes)
                else sort_by_arrival({place: stored[place] for place in remaining})
            )
            return [self._answer(place, stored[place]) for place in remaining]

    def require_messages(self, queue: QueueRecord, grant: Grant, runs: pa.Table) -> None:
        # A message and its record are one object here, so no record lacks its message.
        pass

    def purge(self, queue: QueueRecord, clock: Clock, older_than: int | None = None) -> int:
        with self._lock:
            now, (last, _) = clock(), self._purged.get(queue.id, (None, 0))
            stored, limits = self._find_stored(queue), limits_of(queue.attributes)
            if older_than is None:
                limit_rules.require_purge(queue.name, last, limits, self._settings.purge_interval, now)
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
            alive = {p: m for p, m in self._find_stored(queue).items() if self._status(queue, m, now) not in GONE}
            messages = [self._answer(place, message) for place, message in alive.items()]
        if after is not None:
            messages = [message for message in messages if message.position > after]
        if until is not None:
            messages = [message for message in messages if message.position.arrived_at <= until]
        messages.sort(key=lambda message: message.position)
        parts = (messages[first : first + PART] for first in range(0, len(messages), PART))
        return Contents(len(messages), max((message.position.arrived_at for message in messages), default=0), parts)

    def copy_progress(self, queue: QueueRecord, key: str) -> CopyProgress | None:
        with self._lock:
            return self._copies.get((queue.id, key))

    def add_copies(
        self, queue: QueueRecord, messages: Sequence[CopiedMessage], key: str, progress: CopyProgress, clock: Clock
    ) -> bool:
        with self._lock:
            before, now, in_order = self._copies.get((queue.id, key)), clock(), is_fifo(queue.attributes)
            stored = self._find_stored(queue)
            if progress.parts != (before.parts if before else 0) + 1:
                return False
            self._require_room(queue, stored, [message.entry for message in messages], now)
            segment, send = ids.segment(ids.new_send_key(), 0), self._commit()
            for seq, (entry, kept_since, available_at, sender) in enumerate(messages):
                at = instants_in_target(kept_since, available_at, now, queue.retention, fifo=in_order)
                number, lane = fifo.sequence_number(send, seq), _lane(queue, entry)
                stored[segment, seq] = MemoryMessage(queue.id, entry, *at, number, lane, sender_id=sender)
            self._copies[queue.id, key] = progress
            return True

    def counts(self, queue: QueueRecord, clock: Clock) -> StateCounts:
        with self._lock:
            now = clock()
            by_status, oldest = dict.fromkeys(Status, 0), []
            for message in self._find_stored(queue).values():
                state = self._status(queue, message, now)
                by_status[state] += 1
                if state not in GONE:
                    oldest.append(message.sent_at)
            return StateCounts(by_status, min(oldest, default=None))

    @property
    def outputs(self) -> OutputWrites:
        raise LedgerError("claim.write needs a ledger on Delta tables; this ledger is in memory")

    def _find(self, queue: QueueRecord, message_id: str) -> MemoryMessage:
        place = ids.place(message_id)
        message = self._find_stored(queue).get(place)
        if message is None or message.record.moved_to is not None:
            raise MessageDoesNotExist(f"There is no message {message_id} in queue {queue.name}")
        return message

    def _answer(self, place: Place, message: MemoryMessage) -> StoredMessage:
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
    return fifo.lane(entry.group, int(queue.attributes["Lanes"])) if is_fifo(queue.attributes) else 0
