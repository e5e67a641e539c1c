"""A ledger of many queues that feed one another, wandered over by threads of processes that are stopped and killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
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
#: Who is killed later than so long before the end is not replaced; how long a stopped worker may take to end.
STARTING, ENDING = 2.0, 180.0
#: How long processes may take to be at work, and a race goes on while it has done less than its floors, in seconds.
PATIENCE = 120.0
#: What a race is to have done, and the verbs that do it.
DEEDS = {
    "sent": ("send",),
    "received": ("receive",),
    "settled": ("delete", "release", "extend"),
    "written": ("write",),
    "moved": ("redrive",),
}


class World:
    """The ledger and its processes."""

    def __init__(self, root: Path, folder: Path, outputs: Path, seed: int) -> None:
        self.root, self.folder, self.outputs, self.dice = root, folder, outputs, random.Random(seed)
        #: How many processes were found killed, and how often the world stopped one.
        self.killed = self.stopped = 0
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
        floors: Mapping[str, int] | None = None,
    ) -> None:
        """Lets everybody loose, for so long from when they all are at work. `kills` and `stops`: how many a second, at
        any moment, and one of each in any case; `dying` and `stalling`: at how large a share of the steps of verbs a
        process does that to itself. `floors`: see `missing`; until they are reached the race goes on, though not for
        ever."""
        end = self.folder / "end"
        config = {
            "root": str(self.root),
            "folder": str(self.folder),
            "outputs": str(self.outputs),
            "brittle": BRITTLE,
            "habits": habits,
            "quota": QUOTA,
            "timeout": TIMEOUT,
            "end": str(end),
            "threads": threads,
            "dying": dying,
            "stalling": stalling,
            "longest": LONGEST_STOP,
        }
        running: dict[str, tuple[dict[str, Any], Any, int]] = {}
        try:
            for number in range(processes):
                # Some share a ledger, some go without file locks, as on storage that has none.
                own = {"role": "wander", "shared": number % 3 != 1, "locks": number % 3 != 2}
                running[f"process-{number}"] = self._start({**config, **own}, f"process-{number}", 0)
            keeper = {"role": "keeper", "shared": False, "locks": True, "threads": 2}
            running["keeper"] = self._start({**config, **keeper}, "keeper", 0)
            self._trouble(running, seconds, kills, stops, floors or {})
            end.touch()
            for _, process, _ in running.values():
                process.send_signal(signal.SIGCONT)
            for _, process, _ in running.values():
                _, err = process.communicate(timeout=ENDING)
                assert process.returncode in (0, -signal.SIGKILL), err
        finally:
            for _, process, _ in running.values():
                process.kill()

    def _trouble(
        self,
        running: dict[str, tuple[dict[str, Any], Any, int]],
        seconds: float,
        kills: float,
        stops: float,
        floors: Mapping[str, int],
    ) -> None:
        """Kills, stops and starts again, until it is time and the floors are reached."""
        # Interpreters start one after the other where the machine is busy: so long nothing is asked of them.
        begun, until = False, time.time() + PATIENCE
        stopped, planned = dict[str, float](), dict[str, float]()
        while time.time() < until or (begun and time.time() < until + PATIENCE and self.missing(floors)):
            time.sleep(PAUSE)
            for name, (config, process, incarnation) in list(running.items()):
                if process.poll() is not None:
                    err = process.communicate()[1]
                    assert process.returncode == -signal.SIGKILL, err
                    self.killed += 1
                    del running[name]
                    if time.time() < until - STARTING or self.missing(floors):
                        running[name] = self._start(config, name, incarnation + 1)
            if not begun and all(self._is_at_work(name, *one[1:]) for name, one in running.items()):
                begun, until = True, time.time() + seconds
                # What happens to somebody in any case, and from when on.
                planned = {"stop": until - seconds, "kill": until - seconds / 2}
            busy = [
                name for name in sorted(running) if name not in stopped and self._is_at_work(name, *running[name][1:])
            ]
            due = [trouble for trouble, since in planned.items() if since < time.time()]
            luck = self.dice.random()
            if busy and (due or luck < (kills + stops) * PAUSE):
                name, trouble = self.dice.choice(busy), due[0] if due else "kill" if luck < kills * PAUSE else "stop"
                planned.pop(trouble, None)
                if trouble == "kill":
                    running[name][1].kill()
                else:
                    running[name][1].send_signal(signal.SIGSTOP)
                    self.stopped += 1
                    stopped[name] = time.time() + LONGEST_STOP * self.dice.random() ** 2
            for name in [name for name, at in stopped.items() if at < time.time() or name not in running]:
                del stopped[name]
                if name in running:
                    running[name][1].send_signal(signal.SIGCONT)

    def missing(self, floors: Mapping[str, int]) -> list[str]:
        """In words, what the race did less often than it should have: of DEEDS, by calls that were answered and changed
        something, and how many processes were "killed" and "stopped"."""
        logs = [path for path in self.folder.glob("*.log") if not path.name.startswith("setup-")]
        effective = [one for one in read(logs) if one.ended is not None and not one.refused and (one.ids or one.count)]
        verbs = Counter(one.verb for one in effective)
        done = {deed: sum(verbs[verb] for verb in of) for deed, of in DEEDS.items()}
        done |= {"killed": self.killed, "stopped": self.stopped}
        return [
            f"{deed} {done[deed]} times, and at least {n} were to be" for deed, n in floors.items() if done[deed] < n
        ]

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
                claim, handles = worker.receive(None, queue=queue)
                if claim:
                    worker.act("delete", claim.receipt_id, handles, queue)
                    patience = time.monotonic() + 30

    def _is_at_work(self, name: str, process: Any, incarnation: int) -> bool:
        """Whether it runs, and has begun something."""
        logs = self.folder.glob(f"{name}.{incarnation}-*.log")
        return process.poll() is None and any(path.stat().st_size for path in logs)

    def _start(self, config: dict[str, Any], name: str, incarnation: int) -> tuple[dict[str, Any], Any, int]:
        given = json.dumps({**config, "name": name, "incarnation": incarnation})
        command = [sys.executable, "-m", "tests.races.wander", given]
        process = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        return config, process, incarnation
