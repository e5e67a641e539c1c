"""Starting workers, and collecting what they did."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ledger import Ledger, Queue
from ledger.clock import system_clock
from ledger.errors import MessageDoesNotExist
from ledger.rules.message_id import message_id
from ledger.rules.visibility import GONE
from ledger.store.delta.state.listing import GONE_STATES
from ledger.store.delta.state.snapshot import OpenTables
from tests.races.checker import violations
from tests.races.history import Log, Operation, read
from tests.races.roles import Roles

CHECKOUT = Path(__file__).resolve().parents[2]
#: How long an interpreter may take to start and import, on a busy machine.
STARTING = 4.0


class Race:
    """A queue on a ledger of its own, filled, with workers to be let loose on it."""

    def __init__(
        self,
        root: Path,
        folder: Path,
        messages: int,
        sends: int = 10,
        lanes: int = 4,
        name: str = "race",
        quota: int | None = None,
        dead_after: int | None = None,
        **attributes: Any,
    ) -> None:
        self.root, self.folder, self.quota, self.dead_after = str(root), folder, quota, dead_after
        self.ledger = Ledger.open(self.root, engine="delta-rs")
        attributes["Lanes"] = lanes
        if dead_after is not None:
            self.ledger.create_queue(f"dead-{name}", attributes)
            policy = {"deadLetterTargetArn": f"dead-{name}", "maxReceiveCount": dead_after}
            attributes["RedrivePolicy"] = policy
        self.queue = self.ledger.create_queue(name, attributes)
        log = Log(folder / "setup.log", "setup")
        for n in range(sends):
            bodies = tuple(f"{n}-{m}" for m in range(messages // sends))
            operation = log.began("send", queue=self.queue.id, bodies=bodies)
            log.ended(operation, ids=tuple(self.queue.send(list(bodies))))

    def start(self, name: str, role: str, seconds: float = 0.0, **more: Any) -> subprocess.Popen[str]:
        """A worker in a process of its own."""
        config = {
            "root": self.root,
            "folder": str(self.folder),
            "queue": self.queue.name,
            "name": name,
            "role": role,
            "seconds": seconds,
            "seed": sum(map(ord, name)),
            **more,
        }
        config |= {} if self.quota is None else {"quota": self.quota}
        command = [sys.executable, "-m", "tests.races.play", json.dumps(config)]
        return subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(
        self,
        processes: dict[str, str],
        seconds: float,
        timeout: int = 5,
        threads: dict[str, tuple[str, Ledger]] | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Lets roles by worker name run against each other, in processes, and in threads on ledgers of this process."""
        start = time.time() + STARTING
        started = [self.start(name, role, seconds, timeout=timeout, start=start) for name, role in processes.items()]
        answers: dict[str, dict[str, Any]] = {}

        def here(name: str, role: str, ledger: Ledger) -> None:
            worker = Roles(name, ledger.queue(self.queue.name), self.folder, sum(map(ord, name)), timeout)
            time.sleep(max(0.0, start - time.time()))
            answers[name] = worker.run(role, seconds)

        running = [
            threading.Thread(target=here, args=(name, role, ledger)) for name, (role, ledger) in (threads or {}).items()
        ]
        for thread in running:
            thread.start()
        for process in started:
            out, err = process.communicate(timeout=seconds + 120)
            assert process.returncode == 0, err
            answer = json.loads(out.splitlines()[-1])
            answers[answer["worker"]] = answer
        for thread in running:
            thread.join(seconds + 120)
        assert set(answers) == {*processes, *(threads or {})}, "a worker's thread died"
        return answers

    def judge(self) -> list[str]:
        """Waits until every lease ran out, looks at what is left, and answers what was not allowed."""
        deadline = time.monotonic() + 30
        queues = self.ledger.list_queues()
        while any(queue.counts().in_flight for queue in queues):
            assert time.monotonic() < deadline, "a lease does not run out"
            time.sleep(0.2)
        operations = read(sorted(self.folder.glob("*.log")))
        assert any(operation.verb == "receive" for operation in operations)
        remaining = [one for queue in queues for one in self._there(queue, operations)]
        quotas = {} if self.quota is None else {self.queue.name: self.quota}
        policies = {}
        if self.dead_after is not None:
            policies[self.queue.name] = f"dead-{self.queue.name}", self.dead_after
        return violations(operations, remaining, quotas, policies)

    @staticmethod
    def _there(queue: Queue, operations: Sequence[Operation]) -> list[str]:
        """What a queue still has. (Receiving it all would bury some, and a FIFO queue or a quota would give a part.)"""
        store = queue.access.store
        opened = OpenTables(store.engine, store.engine, store.transactions, store.settings, store.listings, store.times)
        loaded = opened.load(queue.access.record(), system_clock)
        _, _, pieces, state = loaded.classify(store.listings)
        left = loaded.lanes.to_arrow(pieces.where(~np.isin(state, GONE_STATES)))
        runs = zip(*(column.to_pylist() for column in left[1:]))
        found = {message_id(segment, seq) for segment, first, last in runs for seq in range(first, last + 1)}
        known = {one for operation in operations for one in operation.ids}
        assert found <= known and len(found) == queue.counts().stored, "what is stored is what some worker knows of"
        # Reading one by one takes long: some of each kind tell whether it says the same.
        for message in [*sorted(found)[:5], *sorted(known - found)[:5]]:
            with contextlib.suppress(MessageDoesNotExist):
                assert (queue.peek(message).status not in GONE) == (message in found)
        return sorted(found)
