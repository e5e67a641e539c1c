"""One simulation: a schedule played on a copy of its world, and everything that is worth judging afterwards."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ledger.errors import LedgerError
from ledger.ledger import Ledger
from ledger.rules.message_id import message_id
from ledger.store.delta.model.tables import TABLES
from tests.simulation import patching
from tests.simulation.calls import Actor, Call
from tests.simulation.locks import SimulatedLock
from tests.simulation.log import Era, Storage
from tests.simulation.plan import Plan
from tests.simulation.programs import Schedule
from tests.simulation.scheduler import Client, Process, Scheduler
from tests.simulation.worlds import WORLDS, NoTurns, beginnings, open_ledger


@dataclass
class Held:
    """A claim that some client was answered."""

    queue: str
    receipt: str
    slot: int
    claim: Any
    ledger: Ledger
    messages: list[Any] = field(default_factory=list)
    attempt: str | None = None


class Slot:
    """A process, and after its end the next one in its place, each with a ledger object of its own."""

    def __init__(self, number: int, skew: int) -> None:
        self.number, self._skew, self.lives = number, skew, 0
        self.process = Process("", skew)
        self.process.alive = False
        self.ledger: Ledger | None = None


_WORLDS: dict[str, Callable[[Callable[[], int]], Storage]] = {}


class Run:
    """Plays a schedule. Afterwards: `calls`, `storage` with all its changes, `before` (a copy from the beginning)."""

    def __init__(self, schedule: Schedule, plan: Plan | None = None) -> None:
        from tests.simulation.players import AnyPlayer

        self.schedule = schedule
        if schedule.world not in _WORLDS:
            _WORLDS[schedule.world] = beginnings(WORLDS[schedule.world])
        self.scheduler = Scheduler(plan or Plan(schedule.seed, schedule.rates))
        patching.use(self.scheduler)
        self.storage = _WORLDS[schedule.world](lambda: self.scheduler.now)
        self.scheduler.on_cut = lambda number: self.storage.cut_power(random.Random(number))
        self.before = self.storage.copy(lambda: 0)
        #: The ledgers that lay in the storage before the one that lies there, and since when, and how, this one does.
        self.past: list[Era] = []
        self._began, self._before = 0, self.before
        self.backups: list[Storage] = []
        self.calls: list[Call] = self.scheduler.calls
        self.problems: list[str] = []
        self.claims: list[Held] = []
        self.message_ids: list[tuple[str, str]] = []
        #: Whether an upkeep was started by a clock that was wrong.
        self.jumped = False
        #: The message move tasks that were answered: the queue, and the handle.
        self.tasks: list[tuple[str, str]] = []
        rows = self.before.tables["queues"].changes[-1].state[()]
        records = [row for file in rows for row in file.rows.to_pylist()]
        self.attributes = {row["name"]: dict(row["attributes"]) for row in records}
        self.names = sorted(self.attributes)
        files = (one for files in self.before.tables["messages"].changes[-1].state.values() for one in files)
        #: The message ids of each segment of the queue `left`, from the highest lane down.
        self.segments = [
            [message_id(segment, seq) for segment, seq in file.keys(("segment", "seq"))]
            for file in sorted(files, key=lambda one: -one.bounds("lane")[0])
            if file.bounds("queue")[0].startswith("left-")
        ]
        self.locks = {name: SimulatedLock(self.scheduler) for name in TABLES} if schedule.locked else None
        self.slots = [Slot(number, skew) for number, skew in enumerate(schedule.skews)]
        self.clients: list[Client] = []
        for number, program in enumerate(schedule.programs):
            slot = next(s for s, members in zip(self.slots, schedule.processes) if number in members)
            self.live(slot)
            player = AnyPlayer(self, slot, program)
            client = Client(f"client {number}", slot.process, player.play)
            player.client = client
            self.clients.append(client)

    def play(self) -> None:
        """Lets all clients run to their end. Raises what was no LedgerError, and Deadlock."""
        try:
            self.scheduler.run(self.clients)
        finally:
            self.scheduler.current = None
        if self.schedule.drained:
            self._drain()

    def _drain(self) -> None:
        """Once every lease is over, each process in turn receives all that FIFO queues have, by what it remembers of
        their groups; nothing visible may be left."""
        fresh = open_ledger(self.storage, "delta-rs", lambda: self.scheduler.now)
        for slot in self.slots:
            self.scheduler.now += 120_000
            slot.process.skew = 0
            for queue in fresh.list_queues():
                if queue.name.endswith(".fifo") and slot.process.alive:
                    with contextlib.suppress(LedgerError):
                        slot.ledger.queue(queue.name).receive(None, 60)
                        left = queue.counts().visible
                        if left:
                            self.problems.append(f"{slot.process.name} cannot receive {left} messages of {queue.name}")

    def live(self, slot: Slot) -> None:
        """A process in the slot's place, if there is none (any more)."""
        if slot.process.alive:
            return
        slot.lives += 1
        slot.process = Process(f"process {slot.number}.{slot.lives}", slot._skew)
        slot.ledger = open_ledger(
            self.storage,
            self.schedule.rules,
            self.scheduler.clock(slot.process),
            self.scheduler.point,
            self._actor,
            self.locks,
            slot.process.name,
            None if self.schedule.turns else NoTurns(),
            steady=WORLDS[self.schedule.world].jumps,
        )

    def fork(self, parent: Slot, *, is_told: bool) -> Slot:
        """A new slot with a process that begins with a copy of another one's memory, see `forking`."""
        from tests.simulation.forking import forked

        slot = Slot(len(self.slots), parent.process.skew)
        slot.lives, slot.process = 1, Process(f"process {slot.number}.1", parent.process.skew)
        mine = [held for held in self.claims if held.ledger is parent.ledger]
        shared = [self, self.scheduler, self.storage, *self.scheduler.clients, *(self.locks or {}).values()]
        slot.ledger, claims = forked(
            parent.ledger, [held.claim for held in mine], parent.process, slot.process, shared, is_told=is_told
        )
        for held, claim in zip(mine, claims):
            self.claims.append(replace(held, slot=slot.number, claim=claim, ledger=slot.ledger))
        self.slots.append(slot)
        return slot

    def remove(self) -> None:
        """Removes the ledger from the storage."""
        after = Storage(self.storage.clock)
        after.tables = self.storage.tables
        self.past.append(Era(self._began, self._before, self.scheduler.steps, after))
        self.storage.is_gone = True

    def put(self, other: Storage) -> None:
        """Puts another ledger in the place of the one that was removed."""
        self.storage.tables, self.storage.is_gone = other.tables, False
        self._began, self._before = self.scheduler.steps, other.copy(lambda: 0)

    def restored(self, backup: Storage) -> Storage:
        """The ledger that a backup becomes in the place of the one that was removed."""
        return backup.restored(self.past[-1].after, f"restored {len(self.past)}")

    def made_anew(self) -> Storage:
        """A ledger with queues of the same names, and messages of its own."""
        key = f"{self.schedule.world} anew {len(self.past)}"
        if key not in _WORLDS:
            _WORLDS[key] = beginnings(WORLDS[self.schedule.world], key)
            patching.use(self.scheduler)
        made = _WORLDS[key](self.storage.clock)
        for name, table in made.tables.items():
            table.identifier = f"anew {len(self.past)} {name}"
        return made

    def eras(self) -> list[Era]:
        """All ledgers that lay in the storage, one after the other."""
        return [*self.past, Era(self._began, self._before, float("inf"), self.storage)]

    def open_ahead(self, process: Process) -> Ledger:
        """The ledger object of a process that has just started, by whatever clock."""
        clock, point = self.scheduler.clock(process), self.scheduler.point
        return open_ledger(
            self.storage, self.schedule.rules, clock, point, self._actor, self.locks, process.name, steady=True
        )

    def _actor(self) -> Actor:
        client = self.scheduler.current
        if client is None:
            return Actor(None, self.scheduler.steps, self.scheduler.now, 0)
        clock = self.scheduler.now + client.process.skew
        since = client.since + client.process.least_skew
        return Actor(client.doing, self.scheduler.steps, clock, since, tuple(client.steps), client.looked)
