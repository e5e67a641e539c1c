"""The ledgers that simulated clients meet: queues and messages, made once by the product's own verbs, then copied."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ledger.ledger import Ledger
from ledger.settings import Settings
from ledger.store.delta.commit.file_locks import NoLock
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.opening import Opened
from ledger.store.delta.verbs.store import DeltaStore
from tests.simulation.engine import SimulatedEngine, nobody
from tests.simulation.log import Storage
from tests.simulation.scheduler import BEGINNING

#: Short, so that what they wait for happens in a simulation of a few minutes.
SETTINGS = Settings(keep_deleted_receipts=20, open_segment_seconds=30, poll_interval=0.5)
OUTPUTS = ("abfss://out@simulated/one", "abfss://out@simulated/two")


def open_ledger(
    storage: Storage,
    rules: str,
    clock: Callable[[], int],
    at: Callable[[str], Any] = nobody,
    actor: Any = None,
    locks: dict[str, Any] | None = None,
    owner: str = "setup",
    turns: Any = None,
) -> Ledger:
    """A ledger object of one process on simulated tables."""
    engine = SimulatedEngine(storage, rules, at, actor)
    locks = locks or dict.fromkeys(TABLES, NoLock())
    # Spark's commits to a local path are only safe while no other process commits at all.
    alone = rules == "spark" and not isinstance(locks["visibility"], NoLock)
    transactions = Transactions(engine, locks, alone, SETTINGS, owner, turns=turns)
    store = DeltaStore(engine, transactions, SETTINGS)
    return Ledger(store, clock, SETTINGS, Opened(store, engine, {}, transactions, None, None))


class NoTurns:
    """Threads of one process do not wait for each other: nothing relies on that they do."""

    @staticmethod
    def of(key: object) -> contextlib.AbstractContextManager[None]:
        """Everybody's turn."""
        return contextlib.nullcontext()

    @staticmethod
    def together(key: object, wish: Any, most: int) -> contextlib.AbstractContextManager[list[Any]]:
        """Everybody's turn, for nobody else."""
        return contextlib.nullcontext([wish])


@dataclass(frozen=True)
class World:
    """A kind of ledger: how it begins, and how often its clients use each verb."""

    name: str
    begin: Callable[[Ledger, Any], None]
    verbs: dict[str, int]


def _policy(target: str, count: int) -> dict[str, object]:
    return {"deadLetterTargetArn": target, "maxReceiveCount": count}


def _feeding(ledger: Ledger, advance: Callable[[float], None]) -> None:
    """Two queues with different Lanes, whose dead letters meet in a third one; some went there before."""
    ledger.create_queue("dead", {"Lanes": 2})
    ledger.create_queue("third", {"Lanes": 3})
    for name, lanes in (("left", 5), ("right", 4)):
        queue = ledger.create_queue(name, {"Lanes": lanes, "RedrivePolicy": _policy("dead", 1)})
        # A segment in each lane; one of its two messages goes to the dead-letter queue.
        sent = [queue.send([f"{name} {n} {m}" for m in range(2)]) for n in range(lanes)]
        queue.redrive(where=[first for first, _ in sent], destination="dead")
        queue.receive(1)


def _moving(ledger: Ledger, advance: Callable[[float], None]) -> None:
    """All of some segments lie in a dead-letter queue, or in none any more."""
    ledger.create_queue("dead", {"Lanes": 2})
    queue = ledger.create_queue("once", {"Lanes": 1, "RedrivePolicy": _policy("dead", 1)})
    for n in range(2):
        queue.send([f"once {n}"], attempt_id=f"begin {n}")
    queue.receive(None).release()
    queue.receive(None)
    advance(60)


def _fifo(ledger: Ledger, advance: Callable[[float], None]) -> None:
    """FIFO queues, the one with the other's dead letters."""
    fifo = {"FifoQueue": True, "Lanes": 2}
    ledger.create_queue("dead.fifo", fifo)
    queue = ledger.create_queue("first.fifo", {**fifo, "RedrivePolicy": _policy("dead.fifo", 2)})
    ledger.create_queue("second.fifo", {**fifo, "RedrivePolicy": _policy("dead.fifo", 2)})
    queue.send(_grouped(range(6)))
    advance(1)
    queue.receive(1).release()


def _ordered(ledger: Ledger, advance: Callable[[float], None]) -> None:
    """One FIFO queue of one lane, to which several send: what is known of its groups grows all the time."""
    ledger.create_queue("line.fifo", {"FifoQueue": True, "Lanes": 1})


def _grouped(numbers: Any) -> list[dict[str, str]]:
    return [
        {"MessageBody": f"{n}", "MessageGroupId": "abc"[n % 3], "MessageDeduplicationId": f"key-{n}"} for n in numbers
    ]


def _quota(ledger: Ledger, advance: Callable[[float], None]) -> None:
    """Queues with SQS's limits."""
    queue = ledger.create_queue("small", {"Limits": "SQS", "Lanes": 4})
    for n in range(3):
        queue.send([f"{n} {m}" for m in range(2)])
    ledger.create_queue("single", {"Limits": "SQS", "Lanes": 1}).send(["a", "b", "c", "d"])


def _outputs(ledger: Ledger, advance: Callable[[float], None]) -> None:
    """Work whose output goes to tables."""
    for name, count in (("work", 2), ("more", 4)):
        ledger.create_queue(name, {"Lanes": 2}).send([f"{name} {n}" for n in range(count)], attempt_id=f"begin {name}")


def _anew(ledger: Ledger, advance: Callable[[float], None]) -> None:
    """Queues that are deleted and made again, FIFO ones and others, with messages of theirs elsewhere."""
    ledger.create_queue("dead", {"Lanes": 2})
    queue = ledger.create_queue("once", {"Lanes": 3, "RedrivePolicy": _policy("dead", 1)})
    queue.send([f"once {n}" for n in range(3)], attempt_id="begin")
    queue.receive(2).release()
    queue.receive(1)
    fifo = {"FifoQueue": True, "Lanes": 2}
    ledger.create_queue("dead.fifo", fifo)
    queue = ledger.create_queue("first.fifo", {**fifo, "RedrivePolicy": _policy("dead.fifo", 1)})
    queue.send(_grouped(range(5)))
    advance(1)
    queue.receive(1).release()


RECEIVING = {"receive": 12, "delete": 4, "release": 4, "extend": 3, "settle": 3, "again": 2, "wait": 2}
WORLDS = {
    world.name: world
    for world in (
        World(
            "feeding",
            _feeding,
            {**RECEIVING, "gather": 24, "redrive": 6, "rehouse": 1, "send": 3, "upkeep": 2, "purge": 1, "restore": 1},
        ),
        World(
            "moving", _moving, {**RECEIVING, "receive": 5, "rehouse": 10, "redrive": 6, "upkeep": 12, "delete_queue": 1}
        ),
        World("fifo", _fifo, {**RECEIVING, "send": 8, "redrive": 3, "upkeep": 2, "restore": 1, "lock": 1, "purge": 1}),
        World("ordered", _ordered, {"send": 16, "receive": 12, "release": 4, "delete": 1}),
        World("quota", _quota, {**RECEIVING, "send": 2, "lock": 1, "upkeep": 1, "restore": 1}),
        World(
            "outputs",
            _outputs,
            {**RECEIVING, "receive": 3, "work": 14, "write": 5, "wait": 2, "send": 1, "restore": 1, "upkeep": 1},
        ),
        World(
            "anew",
            _anew,
            {**RECEIVING, "remake": 4, "settings": 6, "send": 3, "redrive": 5, "upkeep": 4, "delete_queue": 1},
        ),
    )
}


def beginnings(world: World) -> Callable[[Callable[[], int]], Storage]:
    """Copies of a world as it begins."""
    from tests.simulation.patching import use

    use(None)
    passed = [0.0]
    storage = Storage(lambda: BEGINNING - 600_000 + round(passed[0] * 1_000))
    clock = storage.clock

    def advance(seconds: float) -> None:
        passed[0] += seconds

    world.begin(open_ledger(storage, "delta-rs", clock), advance)
    return storage.copy
