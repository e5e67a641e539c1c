"""Processes that use a ledger until they are killed: each says what it is about to do, and what it was answered.

Arguments: the root, the output table, the folder of what they say, a seed, how many, and whether they sync.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from ledger import Claim, Ledger, Settings
from ledger.errors import LedgerError, QueueNameExists

QUEUE, TIMEOUT = "work", 3_600


class Worker:
    """One process."""

    def __init__(self, root: str, output: str, told: Path, seed: int, *, sync: bool) -> None:
        self._told = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._dice, self._name, self._output, self._number = random.Random(seed), told.name, output, 0
        settings = Settings(sync=sync, keep_deleted_receipts=1, open_segment_seconds=2)
        self._ledger = Ledger.open(root, settings=settings)
        with contextlib.suppress(QueueNameExists):
            self._ledger.create_queue(QUEUE, {"VisibilityTimeout": TIMEOUT, "Lanes": 3})
        self._queue = self._ledger.queue(QUEUE)

    def tell(self, kind: str, **said: Any) -> None:
        """Write down a line, which survives this process."""
        os.write(self._told, (json.dumps({"kind": kind, **said}) + "\n").encode())

    def run(self) -> None:
        """Use the ledger until this process is killed."""
        verbs = [self.send] * 5 + [self.end] * 6 + [self.write] * 2 + [self.bulk, self.upkeep, self.create]
        self.tell("begun")
        while True:
            with contextlib.suppress(LedgerError):
                self._dice.choice(verbs)()

    def send(self) -> None:
        bodies = self._bodies(self._dice.choice([1, 1, 3]))
        self.tell("sending", bodies=bodies)
        self.tell("sent", ids=dict(zip(map(str, self._queue.send(bodies)), bodies)))

    def bulk(self) -> None:
        bodies = self._bodies(300)
        self.tell("sending", bodies=bodies)
        self._queue.send(pa.table({"body": bodies}))
        self.tell("sent in bulk", bodies=bodies)

    def end(self) -> None:
        """Receive, and do something with what was received, or nothing."""
        claim, ids = self._received()
        if claim is None:
            return
        luck = self._dice.random()
        if luck < 0.2:
            claim.extend(2 * TIMEOUT)
            self.tell("held", ids=ids, receipt=claim.receipt_id)
        elif luck < 0.7:
            self.tell("deleting", ids=ids)
            claim.delete()
            self.tell("deleted", ids=ids)
        elif luck < 0.9:
            handles = [message.receipt_handle for message in claim.messages()]
            some = ids[: len(handles) // 2]
            self.tell("deleting", ids=ids)
            claim.settle(delete=handles[: len(some)], release=handles[len(some) :])
            self.tell("deleted", ids=some)

    def write(self) -> None:
        claim, ids = self._received()
        if claim is not None:
            self.tell("writing", ids=ids)
            claim.write(pa.table({"message_id": ids}), self._output, messages="message_id")
            self.tell("written", ids=ids)

    def create(self) -> None:
        name = f"q-{self._name}-{self._count()}"
        self.tell("creating", name=name)
        self._ledger.create_queue(name)
        self.tell("created", name=name)

    def upkeep(self) -> None:
        self._ledger.upkeep()

    def _received(self) -> tuple[Claim | None, list[str]]:
        claim = self._queue.receive(self._dice.choice([1, 2, 10]))
        if not claim:
            return None, []
        ids = [message.message_id for message in claim.messages()]
        self.tell("held", ids=ids, receipt=claim.receipt_id)
        return claim, ids

    def _bodies(self, count: int) -> list[str]:
        return [f"{self._name} {self._count()}" for _ in range(count)]

    def _count(self) -> int:
        self._number += 1
        return self._number


def main(root: str, output: str, told: str, seed: str, count: str, sync: str) -> None:
    """Start as many processes as are wanted. Nothing was opened before: they share no thread of a library."""
    for n in range(int(count)):
        if os.fork() == 0:
            Worker(root, output, Path(told, f"{seed}-{n}"), int(seed) + n, sync=sync == "sync").run()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
