"""The ledgers that simulated clients meet: queues and messages, made once by the product's own verbs, then copied."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ledger.clock import passing_of
from ledger.ledger import Ledger
from ledger.settings import Settings
from ledger.store.delta.commit.clocks import SteadyClock
from ledger.store.delta.commit.locks import NoLock
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.opening import OpenLedger
from ledger.store.delta.verbs.store import DeltaStore
from ledger.store.delta.verbs.tidying import Ages
from tests.simulation.engine import SimulatedEngine, nobody
from tests.simulation.log import Storage
from tests.simulation.scheduler import BEGINNING

#: Short, so that what they wait for happens in a simulation of a few minutes.
SETTINGS = Settings(keep_deleted_receipts=20, open_segment_seconds=30, poll_interval=0.5, mark_seconds=20)
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
    *,
    steady: bool = False,
) -> Ledger:
    """A ledger object of one process on simulated tables. `steady`: it holds its clock against the time that passes, as
    Ledger.open does."""
    engine = SimulatedEngine(storage, rules, at, actor)
    locks = locks or dict.fromkeys(TABLES, NoLock())
    # Spark's commits to a local path are only safe while no other process commits at all.
    alone = rules == "spark" and not isinstance(locks["visibility"], NoLock)
    transactions = Transactions(engine, locks, alone, SETTINGS, owner, turns=turns)
    store = DeltaStore(engine, transactions, SETTINGS, engine)
    if not steady:
        return Ledger(store, clock, SETTINGS, OpenLedger(store, engine, {}, transactions, None, None))
    held = SteadyClock(clock, passing_of(clock), SETTINGS.maximum_clock_skew)
    ages = Ages(engine, transactions, held, SETTINGS)
    held.explained_by = ages.explain
    return Ledger(store, held, SETTINGS, OpenLedger(store, engine, {}, transactions, None, None, held, ages))


class NoTurns:
    """Threads of one process do not wait for each other: nothing relies on that they do."""

    @staticmethod
    def of(key: object) -> contextlib.AbstractContextManager[None]:
        """Everybody's turn."""
        return contextlib.nullcontext()

    @staticmethod
    def together(key: object, call: Any, most: int, most_size: int = 0) -> contextlib.AbstractContextManager[list[Any]]:
        """Everybody's turn, for nobody else."""
        return contextlib.nullcontext([call])


@dataclass(frozen=True)
class World:
    """A kind of ledger: how it begins, and how often its clients use each verb."""

    name: str
    begin: Callable[[Ledger, Any], None]
    verbs: dict[str, int]
    #: Whether all clients are threads of one process, which stand still often and long, and are not killed.
    of_threads: bool = False
    #: Whether clocks jump, by hours and days, for a verb or an upkeep. Processes hold theirs against passing time.
    jumps: bool = False
    #: Whether the power is cut: every process ends at once, and what is not on the disk may be gone.
    cuts: bool = False
    #: Whether processes fork: all clients are threads of one at first.
    forks: bool = False


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


def _retention(ledger: Ledger, advance: Callable[[float], None]) -> None:
    """Queues that keep messages for a minute, or a few: some have expired, some will soon."""
    advance(480)
    ledger.create_queue("dead", {"Lanes": 2, "MessageRetentionPeriod": 150})
    for name, period in (("brief", 60), ("long", 300)):
        attributes = {"Lanes": 2, "MessageRetentionPeriod": period, "RedrivePolicy": _policy("dead", 2)}
        queue = ledger.create_queue(name, attributes)
        queue.send([f"{name} early {n}" for n in range(2)])
    advance(80)
    for name in ("brief", "long"):
        ledger.queue(name).send([f"{name} late {n}" for n in range(2)])
    ledger.queue("long").redrive(destination="dead", max_messages=1)
    queue = ledger.create_queue("brief.fifo", {"FifoQueue": True, "Lanes": 1, "MessageRetentionPeriod": 60})
    queue.send(_grouped(range(3)))


def _tasks(ledger: Ledger, advance: Callable[[float], None]) -> None:
    """A dead-letter queue with messages of two others, kept for a few minutes."""
    advance(500)
    ledger.create_queue("dead", {"Lanes": 3, "MessageRetentionPeriod": 300})
    for name in ("left", "right"):
        queue = ledger.create_queue(name, {"Lanes": 2, "RedrivePolicy": _policy("dead", 1)})
        queue.send([f"{name} {n}" for n in range(4)])
        queue.redrive(destination="dead")
        queue.send([f"{name} stays"])


def _named(ledger: Ledger, advance: Callable[[float], None]) -> None:
    """Two queues with tags and permissions, one of which names the other."""
    ledger.create_queue("dead", {"Lanes": 1}, {"team": "first"})
    queue = ledger.create_queue("once", {"Lanes": 1, "RedrivePolicy": _policy("dead", 3)}, {"cost": "first"})
    queue.add_permission("read", ["123456789012"], ["ReceiveMessage"])


def _waiting(ledger: Ledger, advance: Callable[[float], None]) -> None:
    """Queues that are empty, or nearly."""
    ledger.create_queue("once", {"Lanes": 2})
    ledger.create_queue("small", {"Limits": "SQS", "Lanes": 2}).send(["small"])
    ledger.create_queue("first.fifo", {"FifoQueue": True, "Lanes": 1})


def _handles(ledger: Ledger, advance: Callable[[float], None]) -> None:
    """Queues of which several claims are held, and dead letters."""
    ledger.create_queue("dead", {"Lanes": 1})
    queue = ledger.create_queue("work", {"Lanes": 3, "RedrivePolicy": _policy("dead", 3)})
    for n in range(3):
        queue.send([f"work {n} {m}" for m in range(3)], attempt_id=f"begin {n}")
    queue = ledger.create_queue("first.fifo", {"FifoQueue": True, "Lanes": 2})
    queue.send(_grouped(range(6)))


def _alike(ledger: Ledger, advance: Callable[[float], None]) -> None:
    """Queues of one lane, to which whoever sends within half a minute appends to the segment of before."""
    ledger.create_queue("dead", {"Lanes": 1})
    ledger.create_queue("work", {"Lanes": 1, "RedrivePolicy": _policy("dead", 2)}).send(["work"])
    ledger.create_queue("line.fifo", {"FifoQueue": True, "Lanes": 1})


def _kept(ledger: Ledger, advance: Callable[[float], None]) -> None:
    """Queues with work that is done, in flight and left: what upkeep drops in one ledger, another one may have yet."""
    ledger.create_queue("dead", {"Lanes": 2})
    queue = ledger.create_queue("work", {"Lanes": 2, "RedrivePolicy": _policy("dead", 2)})
    for n in range(3):
        queue.send([f"work {n} {m}" for m in range(2)], attempt_id=f"begin {n}")
    queue.receive(1).delete()
    queue.receive(1)
    fifo = ledger.create_queue("line.fifo", {"FifoQueue": True, "Lanes": 2})
    fifo.send(_grouped(range(4)))
    advance(1)
    fifo.receive(1)


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
        World(
            "retention",
            _retention,
            {**RECEIVING, "send": 6, "retain": 10, "age": 8, "upkeep": 8, "redrive": 5, "restore": 3, "remake": 1},
        ),
        World(
            "tasks",
            _tasks,
            {"start_task": 12, "cancel_task": 4, "list_tasks": 2, "upkeep": 8, "age": 6, "wait": 4, "receive": 6}
            | {"delete": 2, "redrive": 2, "retain": 3, "delete_queue": 1, "remake": 1, "send": 1, "settings": 1},
        ),
        World(
            "named",
            _named,
            {"tag": 8, "untag": 5, "retag": 2, "permit": 8, "forbid": 6, "settings": 3, "retain": 2, "remake": 4}
            | {"delete_queue": 2, "upkeep": 1, "receive": 1, "age": 1},
        ),
        World(
            "waiting",
            _waiting,
            {**RECEIVING, "receive": 2, "await": 14, "several": 4, "send": 8, "remake": 3, "delete_queue": 2}
            | {"check": 2, "upkeep": 2},
        ),
        World(
            "handles",
            _handles,
            {**RECEIVING, "receive": 6, "several": 8, "delete_many": 6, "change_many": 6, "check": 5, "heartbeat": 8}
            | {"fail": 5, "upkeep": 2, "restore": 1, "remake": 1, "redrive": 1},
        ),
        World(
            "rejecting",
            _handles,
            {**RECEIVING, "reject": 16, "release": 2, "send": 4, "heartbeat": 4, "check": 3, "redrive": 4, "upkeep": 3}
            | {"work": 4, "write": 2, "restore": 1, "delete_queue": 1},
        ),
        World(
            "clocks",
            _retention,
            {"jump": 14, "upkeep_ahead": 12, "upkeep": 6, "receive": 8, "send": 6, "delete": 3, "restore": 2, "wait": 6}
            | {"release": 2, "retain": 2, "redrive": 2},
            jumps=True,
        ),
        World(
            "power",
            _handles,
            {**RECEIVING, "send": 8, "work": 8, "write": 3, "redrive": 2, "restore": 1, "upkeep": 2},
            cuts=True,
        ),
        World(
            "forks",
            _alike,
            {**RECEIVING, "send": 10, "small": 26, "fork": 6, "twin": 6, "redrive": 1, "upkeep": 2, "restore": 1},
            forks=True,
        ),
        World(
            "replaced",
            _kept,
            {
                **RECEIVING,
                "receive": 10,
                "small": 6,
                "send": 8,
                "back_up": 3,
                "put_back": 4,
                "make_anew": 3,
                "upkeep": 5,
            }
            | {"redrive": 3, "restore": 1, "upkeep": 4, "purge": 1, "lock": 1, "settings": 1, "delete_queue": 1},
        ),
        # Few sends: each makes up for what threads forgot before it.
        World("threads", _ordered, {"send": 4, "receive": 14, "release": 2}, of_threads=True),
    )
}
#: Those that a seed without a world's name is about. No world may come to them, nor a verb to theirs: seeds that are
#: kept as tests would be about other schedules then. The others are played by their names.
DRAWN = ("feeding", "moving", "fifo", "ordered", "quota", "outputs", "anew")
NAMED = tuple(name for name in WORLDS if name not in DRAWN)


def beginnings(world: World, seed: str = "setup") -> Callable[[Callable[[], int]], Storage]:
    """Copies of a world as it begins, with ids of this seed."""
    from tests.simulation.patching import use

    use(None, seed)
    passed = [0.0]
    storage = Storage(lambda: BEGINNING - 600_000 + round(passed[0] * 1_000))
    clock = storage.clock

    def advance(seconds: float) -> None:
        passed[0] += seconds

    world.begin(open_ledger(storage, "delta-rs", clock), advance)
    return storage.copy
