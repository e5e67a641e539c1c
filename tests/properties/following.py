"""The oracle: the rules in memory, told which messages to receive, since queues are unordered and stores choose freely."""

from __future__ import annotations

from ledger import Claim, Ledger, Queue
from ledger.clock import Clock
from ledger.rules import visibility
from ledger.rules.state import Status, status
from ledger.settings import Settings
from ledger.store.memory import MemoryStore


class FollowingStore(MemoryStore):
    """A MemoryStore that can be made to receive what another store chose."""

    def permitted(self, queue: str, attempt_id: str | None, now: int) -> tuple[list[set[str]], bool]:
        """Sets of bodies a receive may choose from, and whether it must give all of one, held by the attempt already."""
        messages = self._messages[self.queue(queue).id].values()
        if attempt_id is not None:
            mine = [m for m in messages if visibility.same_attempt(m.record, attempt_id, now)]
            last = max((m.record.received_at for m in mine), default=0)
            receipts = {m.record.receipt_id for m in mine if m.record.received_at == last}
            if receipts:
                return [{m.body for m in mine if m.record.receipt_id == receipt} for receipt in receipts], True
        return [{m.body for m in messages if status(m.record, m.sent_at, now) is Status.VISIBLE}], False

    def put_first(self, queue: str, bodies: set[str]) -> None:
        """Makes the next receive take these before all others."""
        record = self.queue(queue)
        stored = self._messages[record.id]
        self._messages[record.id] = dict(sorted(stored.items(), key=lambda item: item[1].body not in bodies))


class Oracle:
    """A ledger on a FollowingStore."""

    def __init__(self, clock: Clock) -> None:
        self._store, self._clock = FollowingStore(), clock
        self.ledger = Ledger(self._store, clock, Settings())

    def follow(
        self, queue: Queue, chosen: list[str], asked: int | None, timeout: int | None, attempt_id: str | None
    ) -> Claim:
        """Receives exactly what the store under test `chosen`, after checking that it was permitted to."""
        bodies = set(chosen)
        assert len(bodies) == len(chosen), "a message was given twice in one receive"
        choices, all_of_them = self._store.permitted(queue.name, attempt_id, self._clock())
        permitted = next((choice for choice in choices if bodies <= choice), None)
        assert permitted is not None, f"given although not visible: {sorted(bodies - choices[0])[:5]}"
        expected = len(permitted) if all_of_them or asked is None else min(asked, len(permitted))
        assert len(bodies) == expected, f"{expected} could be given, {len(bodies)} were"
        self._store.put_first(queue.name, bodies)
        claim = queue.receive(len(bodies) or asked, timeout, attempt_id=attempt_id)
        assert {message.body for message in claim} == bodies
        return claim
