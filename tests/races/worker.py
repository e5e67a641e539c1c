"""What the workers of a race do, in threads of the test or in processes of their own: `python -m tests.races.worker JSON`."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ledger import Claim, Ledger, Queue
from ledger.clock import system_clock
from ledger.errors import LeaseLost, LedgerError
from tests.races.history import Log


class Worker:
    """Plays one role on one queue until its time is up; every call is logged, and the slowest one remembered."""

    def __init__(self, name: str, queue: Queue, folder: Path, seed: int, timeout: int = 5) -> None:
        self.name, self.queue, self.timeout = name, queue, timeout
        self.log, self.dice = Log(folder / f"{name}.log", name), random.Random(seed)
        self.claims, self.slowest, self.errors = 0, 0.0, []
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
        return {"worker": self.name, "claims": self.claims, "slowest": self.slowest, "errors": self.errors}

    def small(self) -> None:
        """Claims a few; mostly deletes them, now and then extends, releases or forgets them, and replays old receipts."""
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
        operation = self.log.began("release", rest, claim.receipt_id)
        try:
            claim.release()
        except LeaseLost:
            self.log.ended(operation, ids=())
            return
        self.log.ended(operation)
        time.sleep(0.1)

    def sender(self) -> None:
        """Sends a few now and then."""
        operation = self.log.began("send")
        ids = self.queue.send([f"{self.name} {system_clock()} {n}" for n in range(self.dice.choice([1, 5, 20]))])
        self.log.ended(operation, ids=tuple(ids))
        time.sleep(0.2)

    def receive(self, most: int | None, attempt_id: str | None = None) -> tuple[Claim, dict[str, str]]:
        """A claim, and its handles by message id."""
        operation = self.log.began("receive")
        claim = self.queue.receive(most, self.timeout, attempt_id=attempt_id)
        handles = {m.message_id: m.receipt_handle for m in claim}
        deadline = round(claim.deadline.timestamp() * 1_000) if claim else None
        self.log.ended(
            operation, ids=tuple(handles), receipt=claim.receipt_id, version=claim.version, deadline=deadline,
            received_at=deadline - self.timeout * 1_000 if claim else None,
        )
        self.claims += bool(claim)
        return claim, handles

    def act(self, verb: str, receipt: str, handles: dict[str, str]) -> None:
        """Deletes or releases by handles, and logs those on which it worked."""
        operation = self.log.began(verb, handles, receipt)
        given = list(handles.values())
        outcomes = self.queue.delete(given) if verb == "delete" else self.queue.change_visibility(given, 0)
        worked = tuple(i for i, o in zip(handles, outcomes) if o.outcome in ("deleted", "changed"))
        self.log.ended(operation, ids=worked)

    def extend(self, claim: Claim, handles: dict[str, str]) -> None:
        """Extends by handles."""
        operation = self.log.began("extend", handles, claim.receipt_id)
        outcomes = self.queue.change_visibility(list(handles.values()), self.timeout)
        worked = tuple(i for i, o in zip(handles, outcomes) if o.outcome == "changed")
        self.log.ended(operation, ids=worked, deadline=operation.began + self.timeout * 1_000)

    def replay(self) -> None:
        """Tries an old receipt again."""
        if self.old:
            receipt, handles = self.dice.choice(self.old)
            self.act(self.dice.choice(["delete", "release"]), receipt, handles)


def die(step: str = "") -> None:
    """As by kill -9: nothing is flushed, nothing unwound."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(ledger: Ledger, at: str) -> None:
    """Makes this process die at a step of its next verb: chosen, committed, and for sends appending or appended."""
    ledger.store.transactions._on_step = lambda step: die() if step == at else None
    engine = ledger.store.engine
    append = engine.append

    def dying(*arguments: Any) -> Any:
        if at == "appending":
            die()
        answer = append(*arguments)
        if at == "appended":
            die()
        return answer

    engine.append = dying


def doomed(worker: Worker, ledger: Ledger, verb: str, at: str) -> None:
    """Claims under the attempt id "job" and dies in the middle of a verb."""
    queue = worker.queue
    if verb == "send":
        die_at(ledger, at)
        queue.send([f"sent {n}" for n in range(20)], attempt_id="job")
    elif verb == "receive":
        die_at(ledger, at)
        queue.receive(None, 60, attempt_id="job")
    else:
        claim = queue.receive(None, 60, attempt_id="job")
        handles = [message.receipt_handle for message in claim]
        die_at(ledger, at)
        if verb == "delete":
            claim.delete()
        else:
            claim.settle(delete=handles[::2], release=handles[1::2])


def main(config: dict[str, Any]) -> None:
    """Plays what `config` says; prints how it went."""
    ledger = Ledger.open(config["root"], engine="delta-rs")
    worker = Worker(
        config["name"], ledger.queue(config["queue"]), Path(config["folder"]), config["seed"], config.get("timeout", 5)
    )
    if config["role"] == "doomed":
        doomed(worker, ledger, config["verb"], config["at"])
        return
    # All begin together.
    time.sleep(max(0.0, config["start"] - time.time()))
    print(json.dumps(worker.run(config["role"], config["seconds"])))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
