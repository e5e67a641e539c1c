"""The oracle: the rules in memory, told which messages to receive, since stores choose lanes of standard queues at
random."""

from __future__ import annotations

from collections.abc import Sequence

from ledger import Claim, Ledger, Queue
from ledger.clock import Clock
from ledger.rules import redrive, visibility
from ledger.rules.attributes import is_fifo, limits_of
from ledger.rules.visibility import Status
from ledger.settings import Settings
from ledger.store.memory import MemoryMessage, MemoryStore, Place
from ledger.store.protocol import QueueRecord


class FollowingStore(MemoryStore):
    """A MemoryStore that can be made to receive what another store chose: `only`, by bodies. None: it chooses."""

    only: set[str] | None = None

    def held_by(self, queue: QueueRecord, attempt_id: str | None, now: int) -> list[set[str]]:
        """What the latest claims of an attempt still hold, as bodies: a receive has to answer one of them."""
        messages = self._find_stored(queue).values()
        mine = [m for m in messages if attempt_id is not None and visibility.is_same_attempt(m.record, attempt_id, now)]
        last = max((m.record.received_at for m in mine), default=0)
        receipts = {m.record.receipt_id for m in mine if m.record.received_at == last}
        return [{m.entry.body for m in mine if m.record.receipt_id == receipt} for receipt in receipts]

    def permitted(self, queue: QueueRecord, now: int) -> tuple[list[MemoryMessage], int | None]:
        """What a receive may choose from, in order, and how many messages the quota leaves."""
        stored = self._find_stored(queue)
        states = {place: self._status(queue, m, now) for place, m in stored.items()}
        quota, in_flight = limits_of(queue.attributes).maximum_in_flight, list(states.values()).count(Status.IN_FLIGHT)
        alive = [
            p for p in MemoryStore._select_receivable(queue, stored, states, now) if not self._dies(queue, stored[p])
        ]
        return [stored[place] for place in alive], None if quota is None else quota - in_flight

    def _select_receivable(
        self, queue: QueueRecord, stored: dict[Place, MemoryMessage], states: dict[Place, Status], now: int
    ) -> list[Place]:
        found = MemoryStore._select_receivable(queue, stored, states, now)
        if self.only is None:
            return found
        return [p for p in found if stored[p].entry.body in self.only or self._dies(queue, stored[p])]

    def _dies(self, queue: QueueRecord, message: MemoryMessage) -> bool:
        policy = redrive.policy_of(queue.attributes)
        target = self._queues.get(policy.target) if policy else None
        takes = target is not None and redrive.explain_unfit_destination(queue, target) is None
        return takes and redrive.is_dead(message.record, policy)


class Oracle:
    """A ledger on a FollowingStore."""

    def __init__(self, clock: Clock) -> None:
        self._store, self._clock = FollowingStore(), clock
        self.ledger = Ledger(self._store, clock, Settings())

    def follow(
        self, queue: Queue, chosen: Sequence[str], asked: int | None, timeout: int | None, attempt_id: str | None
    ) -> Claim:
        """Receives exactly what the store under test `chosen`, after checking that it was permitted to."""
        assert len(set(chosen)) == len(chosen), "a message was given twice in one receive"
        record, now = self._store.queue(queue.name), self._clock()
        held = self._store.held_by(record, attempt_id, now)
        if held:
            assert set(chosen) in held, "a repeated attempt has to be answered what it holds"
        else:
            self._require_permitted(record, chosen, asked, now)
        self._store.only = set(chosen)
        try:
            return queue.receive(asked, timeout, attempt_id=attempt_id)
        finally:
            self._store.only = None

    def _require_permitted(self, record: QueueRecord, chosen: Sequence[str], asked: int | None, now: int) -> None:
        permitted, left = self._store.permitted(record, now)
        bounds = [asked, limits_of(record.attributes).maximum_messages_per_receive, left]
        expected = min([len(permitted), *(bound for bound in bounds if bound is not None)])
        assert len(chosen) == expected, f"{expected} could be given, {len(chosen)} were"
        if not is_fifo(record.attributes):
            strangers = set(chosen) - {m.entry.body for m in permitted}
            assert not strangers, f"given although not visible: {sorted(strangers)[:5]}"
            return
        assert list(chosen) == [m.entry.body for m in permitted[:expected]], "F2: one order, whatever the lanes"
