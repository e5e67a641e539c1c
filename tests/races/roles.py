"""Roles on FIFO queues, with dead letters, and of those who move them back."""

from __future__ import annotations

import time

from ledger import Queue, Settings
from ledger.client.access import Access
from tests.races.worker import Worker

GROUPS = "abcd"


class Roles(Worker):
    """All roles there are."""

    def ordered_sender(self) -> None:
        """Sends a few to some groups; now and then what it, or another sender, sent under the same id before."""
        operation = self.log.began("send", queue=self.queue.id)
        keys = [self._key() for _ in range(self.dice.choice([1, 2, 5]))]
        of = lambda key: GROUPS[sum(map(ord, key)) % len(GROUPS)]  # noqa: E731 - the same in every process
        ids = self.queue.send(
            [{"MessageBody": key, "MessageGroupId": of(key), "MessageDeduplicationId": key} for key in keys]
        )
        self.log.ended(operation, ids=tuple(ids), keys=tuple(keys))
        time.sleep(0.02)

    def _key(self) -> str:
        # The same ones from every sender, so that they race for them.
        self.sent = getattr(self, "sent", 0) + 1
        return f"key-{self.dice.randrange(max(0, self.sent - 3), self.sent + 3)}"

    def ordered(self) -> None:
        """Claims the first of some groups; mostly deletes them, now and then releases or forgets them."""
        claim, handles = self.receive(self.dice.choice([1, 2, 5]))
        if not claim:
            time.sleep(0.02)
            return
        luck = self.dice.random()
        if luck < 0.7:
            self.act("delete", claim.receipt_id, handles)
        elif luck < 0.85:
            self.act("release", claim.receipt_id, handles)
        else:
            self.old.append((claim.receipt_id, handles))
        if self.dice.random() < 0.15:
            self.replay()

    def careless(self) -> None:
        """Claims some and releases most of them, until they are dead letters."""
        claim, handles = self.receive(self.dice.choice([1, 3]))
        if not claim:
            time.sleep(0.02)
            return
        self.act(self.dice.choice(["release", "release", "delete"]), claim.receipt_id, handles)

    def undertaker(self) -> None:
        """Deletes some of the dead letters, releases others, and moves all that is left back where it came from."""
        dead = self._dead()
        claim, handles = self.receive(2, queue=dead)
        if claim:
            self.act(self.dice.choice(["release", "delete"]), claim.receipt_id, handles, queue=dead)
        if self.dice.random() < 0.3:
            operation = self.log.began("redrive", queue=dead.id)
            self.log.ended(operation, count=dead.redrive())
        time.sleep(0.05)

    def _dead(self) -> Queue:
        store, clock = self.queue.access.store, self.queue.access.clock
        return Queue(Access(store, clock, Settings(), None, store.queue(f"dead-{self.queue.name}")))
