"""A ledger of many queues that feed one another, wandered over by threads of processes that are stopped and killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from ledger import Ledger
from tests.races.checker import violations
from tests.races.history import Log, read
from tests.races.racing import CHECKOUT
from tests.races.wander import SETTINGS
from tests.races.wanderer import COLUMNS, OUTPUTS, send_again
from tests.races.worker import Worker

#: Each queue's lanes and dead-letter queue. What feeds one queue differs in lanes, but for FIFO queues, which may not.
QUEUES = {
    "fleeting": (5, None),
    "fleeting.fifo": (3, None),
    "dead": (2, None),
    "dead.fifo": (3, None),
    "north": (7, "dead"),
    "south": (3, "dead"),
    "third": (5, "fleeting"),
    "fourth": (1, None),
    "narrow": (3, None),
    "north.fifo": (3, "dead.fifo"),
    "south.fifo": (3, "fleeting.fifo"),
    "third.fifo": (3, None),
    "narrow.fifo": (3, "dead.fifo"),
}
DEAD_AFTER, QUOTA, TIMEOUT = 3, 6, 2
BRITTLE = [name for name in QUEUES if name.startswith("fleeting")]
#: How many messages each queue has when the race begins.
FIRST = 20
#: How long a process is stopped at most, in seconds, which outlasts a lease; and how often the world is looked after.
LONGEST_STOP, PAUSE = 2.0 * TIMEOUT, 0.1
#: How long an interpreter may take to start, and at the end a worker that was stopped.
STARTING, ENDING = 2.0, 180.0


class World:
    """The ledger and its processes."""

    def __init__(self, root: Path, folder: Path, outputs: Path, seed: int) -> None:
        self.root, self.folder, self.outputs, self.dice = root, folder, outputs, random.Random(seed)
        ledger = Ledger.open(str(root), engine="delta-rs", settings=SETTINGS)
        for name, (lanes, dead) in QUEUES.items():
            attributes: dict[str, Any] = {"Lanes": lanes}
            if name.endswith(".fifo"):
                attributes["FifoQueue"] = True
            if name.startswith("narrow"):
                attributes["Limits"] = "SQS"
            if dead is not None:
                attributes["RedrivePolicy"] = {"deadLetterTargetArn": dead, "maxReceiveCount": DEAD_AFTER}
            queue = ledger.create_queue(name, attributes)
            log, bodies = Log(folder / f"setup-{name}.log", "setup"), tuple(f"{name}-{n}" for n in range(FIRST))
            keys = bodies if name.endswith(".fifo") else ()
            send_again(log, log.began("send", queue=queue.id, bodies=bodies, keys=keys), queue)

    def run(
        self,
        seconds: float,
        habits: str = "everything",
        processes: int = 3,
        threads: int = 3,
        kills: float = 0.1,
        stops: float = 0.3,
        dying: float = 0.001,
        stalling: float = 0.004,
    ) -> None:
        """Lets everybody loose. `kills` and `stops`: how many a second, at any moment; `dying` and `stalling`: at how
        large a share of the steps of verbs a process does that to itself."""
        until = time.time() + STARTING + seconds
        config = {
            "root": str(self.root),
            "folder": str(self.folder),
            "outputs": str(self.outputs),
            "brittle": BRITTLE,
            "habits": habits,
            "quota": QUOTA,
            "timeout": TIMEOUT,
            "until": until,
            "threads": threads,
            "dying": dying,
            "stalling": stalling,
            "longest": LONGEST_STOP,
        }
        running = {}
        for number in range(processes):
            # Some share a ledger, some go without file locks, as on storage that has none.
            own = {"role": "wander", "shared": number % 3 != 1, "locks": number % 3 != 2}
            running[f"process-{number}"] = self._start({**config, **own}, f"process-{number}", 0)
        keeper = {"role": "keeper", "shared": False, "locks": True, "threads": 2}
        running["keeper"] = self._start({**config, **keeper}, "keeper", 0)
        stopped: dict[str, float] = {}
        while time.time() < until:
            time.sleep(PAUSE)
            name = self.dice.choice(sorted(running))
            one, process, incarnation = running[name]
            luck = self.dice.random()
            if process.poll() is not None:
                assert process.returncode in (0, -signal.SIGKILL), process.communicate()[1]
                if time.time() < until - STARTING:
                    running[name] = self._start(one, name, incarnation + 1)
            elif luck < kills * PAUSE:
                process.kill()
            elif luck < (kills + stops) * PAUSE:
                process.send_signal(signal.SIGSTOP)
                stopped[name] = time.time() + LONGEST_STOP * self.dice.random() ** 2
            for name in [name for name, at in stopped.items() if at < time.time()]:
                del stopped[name]
                running[name][1].send_signal(signal.SIGCONT)
        for _, process, _ in running.values():
            process.send_signal(signal.SIGCONT)
        for _, process, _ in running.values():
            _, err = process.communicate(timeout=ENDING)
            assert process.returncode in (0, -signal.SIGKILL), err

    def judge(self) -> list[str]:
        """Receives all that is left, and answers what was not allowed."""
        stuck = self._drain()
        operations = read(sorted(self.folder.glob("*.log")))
        policies = {name: (dead, DEAD_AFTER) for name, (_, dead) in QUEUES.items() if dead is not None}
        quotas = {name: QUOTA for name in QUEUES if name.startswith("narrow")}
        rows = [
            (table, *row.values())
            for table in OUTPUTS
            if DeltaTable.is_deltatable(str(self.outputs / table))
            for row in DeltaTable(str(self.outputs / table)).to_pyarrow_table(columns=list(COLUMNS)).to_pylist()
        ]
        return [*stuck, *violations(operations, [], quotas, policies, rows)]

    def _drain(self) -> list[str]:
        """Receives and deletes until there is nothing; answers what is there and cannot be received."""
        ledger = Ledger.open(str(self.root), engine="delta-rs", settings=SETTINGS)
        worker = Worker("drain", ledger.queue("north"), self.folder, 0, 600)
        patience = time.monotonic() + 30
        while True:
            left = {queue.name: queue.counts() for queue in ledger.list_queues()}
            left = {name: counts for name, counts in left.items() if counts.stored or counts.in_flight}
            if not left or time.monotonic() > patience:
                return [f"{name} still has {counts} and gives none" for name, counts in left.items()]
            for name in left:
                queue = ledger.queue(name)
                most = QUOTA if name.startswith("narrow") else None
                claim, handles = worker.receive(most, queue=queue)
                if claim:
                    worker.act("delete", claim.receipt_id, handles, queue)
                    patience = time.monotonic() + 30

    def _start(self, config: dict[str, Any], name: str, incarnation: int) -> tuple[dict[str, Any], Any, int]:
        given = json.dumps({**config, "name": name, "incarnation": incarnation})
        command = [sys.executable, "-m", "tests.races.wander", given]
        process = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        return config, process, incarnation
