"""Random programs: what each client of a world does, as plain steps that still make sense when some are left out."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import NamedTuple

from tests.simulation.plan import Rates
from tests.simulation.worlds import DRAWN, WORLDS


class Step(NamedTuple):
    """One verb, with numbers that choose among whatever there is when it comes to it."""

    verb: str
    which: int
    detail: int
    dice: int


class Schedule(NamedTuple):
    """Everything about a run but the events: the world, who shares a process, what each client does."""

    seed: str
    world: str
    rules: str
    locked: bool
    processes: tuple[tuple[int, ...], ...]
    skews: tuple[int, ...]
    programs: tuple[tuple[Step, ...], ...]
    rates: Rates
    #: Whether the threads of a process take turns, as they do; nothing may rely on it.
    turns: bool
    #: Whether in the end every process receives all that is left.
    drained: bool


def generate(seed: str) -> Schedule:
    """A schedule of a dozen verbs or so. A seed that ends in @ and a world's name is about that world."""
    dice = random.Random(f"{seed}/program")
    world = dice.choice(DRAWN)
    world = seed.partition("@")[2] or world
    # Verbs share a commit where two threads wait while a third one commits: that takes a crowd.
    crowd = dice.random() < 0.25
    clients = 6 if crowd else dice.choice((2, 3, 3, 4))
    processes: list[list[int]] = []
    for client in range(clients):
        if processes and dice.random() < (0.9 if crowd else 0.5):
            dice.choice(processes).append(client)
        else:
            processes.append([client])
    length = dice.choice((16, 24) if crowd else (8, 12, 16))
    kinds, weights = zip(*WORLDS[world].verbs.items())
    programs: list[list[Step]] = [[] for _ in range(clients)]
    for _ in range(length):
        step = Step(dice.choices(kinds, weights)[0], dice.randrange(1 << 16), dice.randrange(1 << 16), 0)
        dice.choice(programs).append(step._replace(dice=dice.randrange(1 << 16)))
    rates = Rates(
        switch=0.6 if crowd else dice.choice((0.05, 0.15, 0.4)),
        stall=dice.choice((0.0, 0.01, 0.04)),
        skew=dice.choice((0.0, 0.0, 0.005)),
        kill=dice.choice((0.0, 0.003, 0.012)),
        fault=dice.choice((0.0, 0.03, 0.1)),
        unseen=dice.choice((0.0, 0.1)),
    )
    schedule = Schedule(
        seed,
        world,
        dice.choice(("delta-rs", "delta-rs", "spark")),
        dice.random() < 0.3,
        tuple(map(tuple, processes)),
        tuple(dice.choice((0, 0, -8_000, 8_000, 3_000)) for _ in processes),
        tuple(map(tuple, programs)),
        rates,
        turns=crowd or dice.random() < 0.5,
        drained=dice.random() < 0.5,
    )
    if WORLDS[world].jumps:
        # Clocks are off by jumps, and what a process does meanwhile is not to be another event's.
        schedule = schedule._replace(rates=replace(schedule.rates, skew=0.0), skews=(0,) * len(processes))
    if WORLDS[world].cuts:
        schedule = schedule._replace(rates=replace(schedule.rates, cut=0.01))
    if WORLDS[world].forks:
        schedule = schedule._replace(processes=(tuple(range(clients)),), skews=schedule.skews[:1])
    return _of_threads(schedule) if WORLDS[world].of_threads else schedule


def _of_threads(schedule: Schedule) -> Schedule:
    """The same in one process, whose threads stand still often; in the end it receives all that is left."""
    return schedule._replace(
        processes=(tuple(range(len(schedule.programs))),),
        skews=(0,),
        rates=replace(schedule.rates, switch=0.2, stall=0.1, skew=0.0, kill=0.0),
        turns=False,
        drained=True,
    )
