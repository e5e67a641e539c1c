"""What the workers of a race do, in threads of the test or in processes of their own (see play.py)."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from ledger import Claim, Queue
from ledger.clock import system_clock
from ledger.errors import LeaseLost, LedgerError, OverLimit
from ledger.message import public_message
from ledger.rules.visibility import arrived_at
from tests.races.history import Log


class Worker:
    """Plays one role on one queue until its time is up; every call is logged, and the slowest one remembered."""

    def __init__(self, name: str, queue: Queue, folder: Path, seed: int, timeout: int = 5) -> None:
        self.name, self.queue, self.timeout = name, queue, timeout
        self.log, self.dice = Log(folder / f"{name}.log", name), random.Random(seed)
        self.claims, self.refused, self.slowest, self.errors = 0, 0, 0.0, []
        #: Handles of claims given up or run out, by receipt, to be tried again.
        self.old: list[tuple[str, dict[str, str]]] = []

    def run(self, role: str, seconds: float) -> dict[str, Any]:
        """Plays a role and says how it went."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            started = time.monotonic()
            try:
                getattr(self, role)()
            except LedgerError as error:
                self.errors.append(repr(error))
            self.slowest = max(self.slowest, time.monotonic() - started)
        return {
            "worker": self.name,
            "claims": self.claims,
            "refused": self.refused,
            "slowest": self.slowest,
            "errors": self.errors,
        }

    def small(self) -> None:
        """Claims a few; mostly deletes, now and then extends, releases or forgets them, and replays old receipts."""
        claim, handles = self.receive(self.dice.choice([1, 1, 2, 5]))
        if self.dice.random() < 0.15:
            self.replay()
        if not claim:
            time.sleep(0.02)
            return
        if self.dice.random() < 0.2:
            self.extend(claim, handles)
        luck = self.dice.random()
        if luck < 0.6:
            self.act("delete", claim.receipt_id, handles)
        elif luck < 0.8:
            self.act("release", claim.receipt_id, handles)
        if luck >= 0.6 or self.dice.random() < 0.3:
            self.old.append((claim.receipt_id, handles))

    def sleepy(self) -> None:
        """Claims a few and sleeps about as long as its lease before it does anything."""
        claim, handles = self.receive(self.dice.choice([1, 3]))
        time.sleep(self.dice.choice([0.1, 0.9, 1.0, 1.1, 1.3]) * self.timeout if claim else 0.05)
        if claim:
            self.act(self.dice.choice(["delete", "delete", "release"]), claim.receipt_id, handles)
            self.old.append((claim.receipt_id, handles))
            self.replay()

    def everything(self) -> None:
        """Claims all there is, extends it, deletes a little and gives the rest back."""
        claim, handles = self.receive(None)
        if not claim:
            time.sleep(0.05)
            return
        self.extend(claim, handles)
        some = dict(list(handles.items())[: max(1, len(handles) // 50)])
        self.act("delete", claim.receipt_id, some)
        rest = {message: handle for message, handle in handles.items() if message not in some}
        # What others got meanwhile is not in it; that a release takes none of those, the next holder's log shows.
        operation = self.log.began("release", rest, claim.receipt_id, queue=self.queue.id)
        try:
            claim.release()
        except LeaseLost:
            self.log.ended(operation, ids=())
            return
        self.log.ended(operation)
        time.sleep(0.1)

    def sender(self) -> None:
        """Sends a few now and then."""
        bodies = tuple(f"{self.name} {system_clock()} {n}" for n in range(self.dice.choice([1, 5, 20])))
        operation = self.log.began("send", queue=self.queue.id, bodies=bodies)
        self.log.ended(operation, ids=tuple(self.queue.send(list(bodies))))
        time.sleep(0.2)

    def receive(
        self, most: int | None, attempt_id: str | None = None, queue: Queue | None = None, wait: float | None = None
    ) -> tuple[Claim, dict[str, str]]:
        """A claim, and its handles by message id. At the quota an empty one."""
        queue = queue or self.queue
        operation = self.log.began("receive", queue=queue.id, attempt=attempt_id)
        try:
            claim = queue.receive(most, self.timeout, wait=wait, attempt_id=attempt_id)
        except OverLimit:
            self.refused += 1
            claim = Claim(queue.access, None, self.timeout)
        if not claim:
            self.log.ended(operation)
            return claim, {}
        # As the store knows them: when each came to the queue is nothing that a message tells its receiver.
        stored = queue.access.store.read(queue.access.made, claim.grant)
        messages = [public_message(queue.access.made, one, 0, claim.receipt_id) for one in stored]
        deadline = round(claim.deadline.timestamp() * 1_000)
        self.log.ended(
            operation,
            ids=tuple(message.message_id for message in messages),
            receipt=claim.receipt_id,
            version=claim.version,
            deadline=deadline,
            received_at=deadline - self.timeout * 1_000,
            places=tuple(
                (
                    m.message_group_id,
                    m.sequence_number,
                    arrived_at(m.record, m.sent_at),
                    m.record.enqueued_at is not None,
                )
                for m in stored
                if m.message_group_id is not None
            ),
            bodies=tuple(message.body for message in messages),
            counts=tuple(message.receive_count for message in messages),
        )
        self.claims += 1
        if claim.count != len(messages):
            self.log.began("error", to=f"a claim of {claim.count} messages of which {len(messages)} are there")
        return claim, {message.message_id: message.receipt_handle for message in messages}

    def act(self, verb: str, receipt: str, handles: dict[str, str], queue: Queue | None = None) -> None:
        """Deletes or releases by handles, and logs those on which it worked."""
        queue = queue or self.queue
        operation = self.log.began(verb, handles, receipt, queue=queue.id)
        given = list(handles.values())
        outcomes = queue.delete(given) if verb == "delete" else queue.change_visibility(given, 0)
        worked = tuple(i for i, o in zip(handles, outcomes) if o.outcome in ("deleted", "changed"))
        self.log.ended(operation, ids=worked)

    def extend(self, claim: Claim, handles: dict[str, str], queue: Queue | None = None) -> None:
        """Extends by handles."""
        queue = queue or self.queue
        operation = self.log.began("extend", handles, claim.receipt_id, queue=queue.id)
        outcomes = queue.change_visibility(list(handles.values()), self.timeout)
        worked = tuple(i for i, o in zip(handles, outcomes) if o.outcome == "changed")
        self.log.ended(operation, ids=worked, deadline=operation.began + self.timeout * 1_000)

    def replay(self) -> None:
        """Tries an old receipt again."""
        if self.old:
            receipt, handles = self.dice.choice(self.old)
            self.act(self.dice.choice(["delete", "release"]), receipt, handles)
