"""A worker that does whatever a ledger can do, on all its queues: sends, claims, moves, restores, locks, outputs."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from ledger import Claim, Ledger, Queue
from ledger.clock import system_clock
from ledger.errors import (
    InvalidParameterValue,
    LeaseLost,
    LedgerError,
    MessageDoesNotExist,
    OutputUnreadable,
    QueueDoesNotExist,
)
from tests.races.habits import Habits
from tests.races.history import Log, Operation, read
from tests.races.worker import Worker

GROUPS = "abcdef"
#: The tables that claims are written to, and their columns.
OUTPUTS = ("one", "two")
COLUMNS = ("message", "receipt", "body")


class Wanderer(Worker):
    """Takes any queue of `standard` or `fifo` at each step; those named in `brittle` are deleted now and then."""

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        folder: Path,
        outputs: Path,
        seed: int,
        timeout: int,
        brittle: Sequence[str],
        habits: Habits,
    ) -> None:
        super().__init__(name, ledger.queue("north"), folder, seed, timeout)
        self.ledger, self.outputs, self.brittle, self.habits = ledger, outputs, brittle, habits
        self.claimed: list[tuple[Queue, Claim, dict[str, str]]] = []
        self.numbered = 0

    def wander(self) -> None:
        """One step, at any queue."""
        name = self.one_queue([queue.name for queue in self.ledger.list_queues()])
        step = getattr(self, f"step_{self.one_of(self.habits.steps)}")
        try:
            step(self.ledger.queue(name))
        except LeaseLost:
            pass  # others have the claim
        except OutputUnreadable as error:
            # Whoever writes to that table is stopped. The messages are left alone until it goes on: that they are
            # received then is found out at the end.
            if "stand still while they do" not in str(error):
                raise
        except QueueDoesNotExist as error:
            if not any(brittle in str(error) for brittle in self.brittle):
                raise
        if self.dice.random() < 0.3:
            time.sleep(self.dice.uniform(0, 0.1))

    def wander_on(self) -> None:
        """The same; what no step may end in is a violation."""
        try:
            self.wander()
        except Exception as error:
            self.log.began("error", to=repr(error))

    def step_send(self, queue: Queue) -> None:
        """Sends a few messages; a send that is answered is complete, one that is not may be tried again."""
        self.numbered += 1
        bodies = tuple(f"{self.name}-{self.numbered}.{n}" for n in range(self.dice.choice([1, 1, 2, 4])))
        fifo = queue.name.endswith(".fifo")
        attempt = None if fifo or self.dice.random() < 0.5 else f"{self.name} {self.numbered}"
        keys = bodies if fifo else ()
        send_again(self.log, self.log.began("send", queue=queue.id, bodies=bodies, keys=keys, attempt=attempt), queue)

    def recover(self, before: Path) -> None:
        """Tries again what the process that had this place before had not been answered when it died."""
        if not before.exists():
            return
        last = read([before])[-1:]
        for one in last:
            if one.verb == "send" and one.ended is None and (one.keys or one.attempt):
                for queue in self.ledger.list_queues():
                    if queue.id == one.queue:
                        again = self.log.began(
                            "send", queue=one.queue, bodies=one.bodies, keys=one.keys, attempt=one.attempt
                        )
                        send_again(self.log, again, queue)

    def step_work(self, queue: Queue) -> None:
        """Claims some; deletes, releases, extends, writes or forgets them, at once or when the lease is about over."""
        process = self.name.partition(".")[0]
        most = self.dice.choice(self.habits.most)
        # A retry asks for as many as before.
        attempt = f"{process}-{most}" if self.dice.random() < 0.3 else None
        wait = 0.5 if self.dice.random() < 0.2 else None
        claim, handles = self.receive(most, attempt, queue, wait)
        if not claim:
            return
        if self.dice.random() < self.habits.oversleeping:
            time.sleep(self.dice.uniform(0, 1.3) * self.timeout)
        if self.dice.random() < 0.15:
            self.extend(claim, handles, queue)
        if self.dice.random() < 0.3:
            handles = {m: handles[m] for m in self.dice.sample(sorted(handles), (len(handles) + 1) // 2)}
        self.claimed = [*self.claimed[-5:], (queue, claim, handles)]
        for _ in range(2 if self.dice.random() < self.habits.twice else 1):
            self.act_on(self.one_of(self.habits.acts), queue, claim, handles)

    def act_on(self, act: str, queue: Queue, claim: Claim, handles: dict[str, str]) -> None:
        """One thing that is done with a claim."""
        if act == "write":
            self.write(queue, claim, handles)
        elif act.endswith("_all"):
            self.everything_of(queue, claim, act.removesuffix("_all"))
        elif act != "forget":
            self.act(act, claim.receipt_id, handles, queue)

    def one_queue(self, names: Sequence[str]) -> str:
        """One of the names, by its habits if they have any of them."""
        known = {kind: weight for kind, weight in self.habits.queues.items() if fnmatch.filter(names, kind)}
        return self.dice.choice(fnmatch.filter(names, self.one_of(known)) if known else names)

    def one_of(self, weights: Mapping[str, float]) -> str:
        """One of the names, by their weights."""
        return self.dice.choices(list(weights), list(weights.values()))[0]

    def everything_of(self, queue: Queue, claim: Claim, verb: str) -> None:
        """Deletes or releases what is left of a claim, in one."""
        ids = [message.message_id for message in claim.messages()]
        operation = self.log.began(verb, ids, claim.receipt_id, queue=queue.id)
        try:
            settled = getattr(claim, verb)()
        except LeaseLost:
            self.log.ended(operation, ids=())
            raise
        # Of how many is answered, not of which: one of some stays as one without an answer.
        if settled.messages in (0, len(ids)):
            self.log.ended(operation, ids=tuple(ids) if settled.messages else ())

    def write(self, queue: Queue, claim: Claim, handles: dict[str, str]) -> None:
        """Writes rows about some of a claim's messages to one of the outputs; tried again it is the same write."""
        table = self.dice.choice(OUTPUTS)
        bodies = {message.message_id: message.body for message in claim.messages()}
        if not set(handles) <= set(bodies):
            return
        rows = pa.table([list(handles), [claim.receipt_id] * len(handles), [bodies[m] for m in handles]], list(COLUMNS))
        operation = self.log.began("write", handles, claim.receipt_id, queue=queue.id, to=table)
        try:
            claim.write(rows, str(self.outputs / table), messages=list(handles.values()))
        except LeaseLost:
            self.log.ended(operation, refused=True)
            raise
        except InvalidParameterValue as error:
            # It was written to the other table before.
            self.log.ended(operation, ids=())
            if not any(other in str(error) for other in OUTPUTS if other != table):
                raise
            return
        self.log.ended(operation)

    def step_replay(self, queue: Queue) -> None:
        """Does something, once more, through a receipt of some time ago."""
        if self.claimed:
            queue, claim, handles = self.dice.choice(self.claimed)
            self.act_on(self.dice.choice(["delete", "release", "write"]), queue, claim, handles)

    def step_move(self, queue: Queue) -> None:
        """Moves messages, all or one or some that it met, back or to another queue."""
        names = [other.name for other in self.ledger.list_queues() if other.name != queue.name]
        names = [n for n in names if n.endswith(".fifo") == queue.name.endswith(".fifo")]
        back = queue.name.startswith("dead") and self.dice.random() < 0.5
        destination = None if back else self.ledger.queue(self.one_queue(names))
        met = sorted({message for _, _, handles in self.claimed for message in handles})
        brittle = destination is not None and destination.name in self.brittle
        chosen = self.dice.sample(met, min(len(met), 5)) if brittle or self.dice.random() < 0.3 else []
        if not chosen and (brittle or queue.name in self.brittle):
            return
        most = self.dice.choice([*self.habits.most, None]) if self.dice.random() < 0.3 else 1
        to = None if destination is None else destination.id
        operation = self.log.began("redrive", chosen, queue=queue.id, to=to)
        try:
            moved = queue.redrive(chosen or None, destination and destination.name, most)
        except InvalidParameterValue:
            # A FIFO queue that was made anew with other lanes takes nothing from this one.
            self.log.ended(operation, count=0)
            if not brittle and queue.name not in self.brittle:
                raise
            return
        self.log.ended(operation, ids=tuple(chosen), count=moved)

    def step_lock(self, queue: Queue) -> None:
        """Hides a message that it met, for a moment."""
        met = sorted({message for where, _, handles in self.claimed if where.name == queue.name for message in handles})
        if not met:
            return
        message = self.dice.choice(met)
        operation = self.log.began("lock", [message], queue=queue.id, deadline=system_clock() + 1_000)
        try:
            queue.lock(message, 1)
        except LedgerError as error:
            # It is gone, or somebody has it.
            self.log.ended(operation, ids=())
            if type(error) not in (MessageDoesNotExist, LedgerError):
                raise
            return
        self.log.ended(operation)

    def step_bring_back(self, queue: Queue) -> None:
        """Restores what some receipt acknowledged a moment ago."""
        if self.claimed:
            queue, claim, _ = self.dice.choice(self.claimed)
            operation = self.log.began("restore", (), claim.receipt_id, queue=queue.id)
            self.log.ended(operation, count=queue.restore(claim.receipt_id))


def send_again(log: Log, operation: Operation, queue: Queue) -> None:
    """Makes the call of a send, which was noted as begun."""
    if operation.keys:
        of = lambda key: GROUPS[sum(map(ord, key)) % len(GROUPS)]  # noqa: E731 - the same in every process
        entries = [
            {"MessageBody": body, "MessageGroupId": of(body), "MessageDeduplicationId": body}
            for body in operation.bodies
        ]
        ids = queue.send(entries)
    else:
        ids = queue.send(list(operation.bodies), attempt_id=operation.attempt)
    log.ended(operation, ids=tuple(ids))
