"""Starting workers, and collecting what they did."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ledger import Ledger
from tests.races.history import Log, read, violations
from tests.races.worker import Worker

CHECKOUT = Path(__file__).resolve().parents[2]
#: How long an interpreter may take to start and import, on a busy machine.
STARTING = 4.0


class Race:
    """A queue on a ledger of its own, filled, with workers to be let loose on it."""

    def __init__(self, root: Path, folder: Path, messages: int, sends: int = 10, lanes: int = 4) -> None:
        self.root, self.folder = str(root), folder
        self.ledger = Ledger.open(self.root, engine="delta-rs")
        self.queue = self.ledger.create_queue("race", {"Lanes": lanes})
        log = Log(folder / "setup.log", "setup")
        for n in range(sends):
            operation = log.began("send")
            ids = self.queue.send([f"{n}-{m}" for m in range(messages // sends)])
            log.ended(operation, ids=tuple(ids))

    def start(self, name: str, role: str, seconds: float = 0.0, **more: Any) -> subprocess.Popen[str]:
        """A worker in a process of its own."""
        config = {
            "root": self.root, "folder": str(self.folder), "queue": "race", "name": name, "role": role,
            "seconds": seconds, "seed": sum(map(ord, name)), **more,
        }
        command = [sys.executable, "-m", "tests.races.worker", json.dumps(config)]
        return subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(
        self, processes: dict[str, str], seconds: float, timeout: int = 5, threads: dict[str, tuple[str, Ledger]] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Lets roles by worker name run against each other, in processes, and in threads on ledgers of this process."""
        start = time.time() + STARTING
        started = [
            self.start(name, role, seconds, timeout=timeout, start=start) for name, role in processes.items()
        ]
        answers: dict[str, dict[str, Any]] = {}

        def here(name: str, role: str, ledger: Ledger) -> None:
            worker = Worker(name, ledger.queue("race"), self.folder, sum(map(ord, name)), timeout)
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
        while self.queue.counts().in_flight:
            assert time.monotonic() < deadline, "a lease does not run out"
            time.sleep(0.2)
        remaining = [message.message_id for message in self.queue.receive(None)]
        operations = read(sorted(self.folder.glob("*.log")))
        assert any(operation.verb == "receive" for operation in operations)
        return violations(operations, remaining)
