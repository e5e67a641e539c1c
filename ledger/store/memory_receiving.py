"""What leaves a queue of the store in memory: receives, dead letters and redrives, message by message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from ledger.clock import Clock
from ledger.errors import LedgerError
from ledger.rules import fifo, redrive, visibility
from ledger.rules.admission import admit
from ledger.rules.attempts import require_asked
from ledger.rules.attributes import is_fifo, limits_of
from ledger.rules.receipt_handle import new_receipt_id
from ledger.rules.state import UNTOUCHED, Record, Status, arrived_at, expires_at, latest_hold, status
from ledger.store import GRANTED_RUNS, Action, Grant, QueueRecord, Received, Request
from ledger.store.memory_queues import MemoryQueues, Place, Stored


class MemoryReceives(MemoryQueues):
    """The receives and moves of a MemoryStore."""

    def receive(self, queue: QueueRecord, requests: Sequence[Request], clock: Clock) -> list[Received]:
        with self._lock:
            now = clock()
            stored = self._stored(queue)
            states = {place: self._status(queue, m, now) for place, m in stored.items()}
            in_flight = sum(state is Status.IN_FLIGHT for state in states.values())
            version: int | None = None
            answers: list[Received] = []
            # Looked for before anything is granted: what is granted now is no earlier attempt's, nor does it order it.
            held = [_held_by(queue, stored, request.attempt_id, now) for request in requests]
            free = [] if all(held) else self._receivable(queue, stored, states, now)
            left: list[Place] | None = None
            for request, mine in zip(requests, held):
                try:
                    if mine:
                        require_asked(request.attempt_id, len(mine), request.maximum)
                        for place in mine:
                            stored[place].record = visibility.restart(stored[place].record, request.timeout, now)
                    else:
                        most = admit(
                            request.maximum, in_flight, limits_of(queue.attributes), fifo=is_fifo(queue.attributes)
                        )
                        if left is None:
                            left = self._bury(queue, stored, free, now)
                        mine, left = _dealt(queue, stored, left, most)
                        in_flight += len(mine)
                        _record(stored, mine, request, now)
                except LedgerError as error:
                    answers.append(error)
                    continue
                if not mine:
                    answers.append(None)
                    continue
                version = self._commit() if version is None else version
                answers.append(self._grant(stored, mine, version))
            return answers

    @staticmethod
    def _receivable(
        queue: QueueRecord, stored: dict[Place, Stored], states: dict[Place, Status], now: int
    ) -> list[Place]:
        """What a receive may take, in the order in which it does."""
        if not is_fifo(queue.attributes):
            return [place for place, state in states.items() if state is Status.VISIBLE]
        return fifo.receivable((_member(queue, p, stored[p], states[p]) for p in by_arrival(stored)), now)

    def _bury(self, queue: QueueRecord, stored: dict[Place, Stored], places: list[Place], now: int) -> list[Place]:
        """D1: moves what was received too often; returns the others."""
        policy = redrive.policy_of(queue.attributes)
        target = self._queues.get(policy.target) if policy else None
        if target is None or redrive.broken_bound(queue, target) is not None:
            return places
        dead = [place for place in places if redrive.is_dead(stored[place].record, policy)]
        fifo = is_fifo(queue.attributes)

        def arrives(record: Record) -> Record:
            return redrive.dead_letter(record, queue.id, now, fifo=fifo, target=target.id)

        self._move(queue, target, dead, arrives)
        return [place for place in places if place not in set(dead)]

    def _move(
        self, source: QueueRecord, target: QueueRecord, places: Sequence[Place], arrives: Callable[[Record], Record]
    ) -> None:
        here, there = self._stored(source), self._stored(target)
        for place in places:
            there[place] = replace(here[place], record=arrives(here[place].record))
            if here is not there:
                here[place].record = redrive.moved_away(here[place].record, target.id)
        if places:
            self._commit()

    def reject(self, queue: QueueRecord, actions: Sequence[Action], clock: Clock) -> int | None:
        with self._lock:
            now, policy = clock(), redrive.policy_of(queue.attributes)
            target = self._queues.get(policy.target) if policy else None
            if target is None or target.id == queue.id or redrive.broken_bound(queue, target) is not None:
                return None
            stored, fifo, moved = self._stored(queue), is_fifo(queue.attributes), list[Place]()
            for action in actions:
                for run in action.runs.to_pylist():
                    for place in ((run["segment"], seq) for seq in range(run["first_seq"], run["last_seq"] + 1)):
                        record = stored[place].record if place in stored else UNTOUCHED
                        given_back = visibility.reject(record, action.receipt_id, now, action.mark)
                        if given_back is not None:
                            stored[place].record = given_back
                            moved.append(place)
            arrives = partial(redrive.dead_letter, origin=queue.id, now=now, fifo=fifo, target=target.id)
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
            stored = self._stored(source)
            states = {place: self._status(source, m, now) for place, m in stored.items()}
            visible = self._receivable(source, stored, states, now)
            if chosen is not None:
                wanted = {
                    (r["segment"], s) for r in chosen.to_pylist() for s in range(r["first_seq"], r["last_seq"] + 1)
                }
                visible = [place for place in visible if place in wanted]
            if target is not None:
                redrive.require_destination(source, target)
            others = [q for q in self._queues.values() if q.id != source.id]
            homes: dict[str | None, QueueRecord] = {q.id: q for q in others if redrive.broken_bound(source, q) is None}
            found = [(place, target or homes.get(stored[place].record.origin_queue)) for place in visible]
            ways = [(place, there) for place, there in found if there is not None][:maximum]
            for place, there in ways:
                self._move(source, there, [place], lambda record: redrive.redriven(now, source.id))
            return len(ways)

    @staticmethod
    def _status(queue: QueueRecord, message: Stored, now: int) -> Status:
        ends = expires_at(message.record, message.sent_at, queue.retention)
        return status(message.record, message.available_at, now, ends)

    @staticmethod
    def _grant(stored: dict[Place, Stored], places: list[Place], version: int) -> Grant | None:
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


def by_arrival(stored: dict[Place, Stored]) -> list[Place]:
    """Places by when their messages came; within one instant the order of the sends decides. What was moved here came
    with the move."""
    return sorted(stored, key=lambda place: _order(stored[place]))


def _order(message: Stored) -> tuple[int, int, int]:
    return arrived_at(message.record, message.sent_at), message.sent_at, message.sequence_number


def as_found(queue: QueueRecord, stored: dict[Place, Stored], places: Sequence[Place]) -> list[Place]:
    """The places of a claim that is found again, in an order that needs nothing but what is recorded."""
    places = by_arrival({place: stored[place] for place in places})
    if not is_fifo(queue.attributes):
        return places
    return fifo.drained(places, lambda place: stored[place].entry.message_group_id)


def _held_by(queue: QueueRecord, stored: dict[Place, Stored], attempt_id: str | None, now: int) -> list[Place]:
    """F3: what an earlier receive under the attempt id holds."""
    same = {p: m for p, m in stored.items() if attempt_id and visibility.same_attempt(m.record, attempt_id, now)}
    last = visibility.last_receipt(m.record for m in same.values())
    return as_found(queue, stored, [p for p, m in same.items() if m.record.receipt_id == last])


def _dealt(
    queue: QueueRecord, stored: dict[Place, Stored], left: list[Place], most: int | None
) -> tuple[list[Place], list[Place]]:
    """What one receive takes of what may be received, and what is left for the next one of the same commit."""
    taken, left = (left, []) if most is None else (left[:most], left[most:])
    if taken and is_fifo(queue.attributes):
        group = stored[taken[-1]].entry.message_group_id
        left = [place for place in left if stored[place].entry.message_group_id != group]
    return taken, left


def _record(stored: dict[Place, Stored], places: Sequence[Place], request: Request, now: int) -> None:
    receipt_id = new_receipt_id()
    for place in places:
        before = stored[place].record
        stored[place].record = visibility.receive(before, receipt_id, request.attempt_id, request.timeout, now)


def _member(queue: QueueRecord, place: Place, message: Stored, state: Status) -> fifo.Member:
    since = max(arrived_at(message.record, message.sent_at), message.available_at)
    ended = fifo.hold_ended(message.record, expires_at(message.record, message.sent_at, queue.retention))
    return fifo.Member(place, message.entry.group, state, since, ended)
