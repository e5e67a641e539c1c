"""Looks for a run that breaks a rule, and makes it small: fewer steps, fewer events, the same violation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation.judge import violations
from tests.simulation.plan import Event, Place, Plan, Script
from tests.simulation.programs import Schedule, Step, generate
from tests.simulation.run import Run
from tests.simulation.scheduler import Deadlock


@dataclass(frozen=True)
class Found:
    """A run that was not allowed."""

    schedule: Schedule
    events: Mapping[Place, Event]
    problems: Sequence[str]
    run: Run

    def __str__(self) -> str:
        problems = "\n".join(f"  {problem}" for problem in self.problems[:5])
        return (
            f"{len(self.problems)} violations with the seed {self.schedule.seed}:\n{problems}\n"
            f"Play it again, and make it small: python -m tests.simulation --replay '{self.schedule.seed}'"
        )


def play(schedule: Schedule, plan: Plan | None = None) -> Found:
    """Plays a schedule and judges it; without problems it was allowed."""
    run = Run(schedule, plan)
    try:
        run.play()
        problems = violations(run)
    except Deadlock as stuck:
        problems = [f"all clients wait for each other: {stuck}"]
    return Found(schedule, dict(run.scheduler.plan.happened), problems, run)


def search(seed: str, schedules: int, world: str | None = None, first: int = 0) -> Iterator[Found]:
    """Plays schedules, one after the other; each as it comes. Their seeds are `seed`/`first`, and so on."""
    at = f"@{world}" if world else ""
    for number in range(first, first + schedules):
        yield play(generate(f"{seed}/{number}{at}"))


def kind(problem: str) -> str:
    """What a violation is about, without the names and numbers that differ from run to run."""
    about = problem.rpartition("): ")[2]
    return re.sub(
        r"'[^']*'|\b[0-9a-f]{6,}\b|house-\S+|\d+|\b(left|right|third|dead|once|first|second|work|more|small)\S*",
        "#",
        about,
    )


def smaller(found: Found, tell: Callable[[str], None] = lambda text: None) -> Found:
    """The smallest run that leaving out steps and events one by one leads to, with a violation of the same kind."""
    wanted = {kind(problem) for problem in found.problems[:1]}

    def still(schedule: Schedule, events: Mapping[Place, Event]) -> Found | None:
        again = play(schedule, Script(schedule.seed, events))
        return again if wanted & {kind(problem) for problem in again.problems} else None

    best = still(found.schedule, found.events)
    if best is None:
        raise AssertionError(f"seed {found.schedule.seed} does not play again")
    while True:
        size = _size(best)
        for client, steps in _parts(best.schedule):
            program = tuple(one for one in best.schedule.programs[client] if one not in steps)
            if len(program) < len(best.schedule.programs[client]):
                best = still(_with(best.schedule, client, program), best.events) or best
        for places in _chunks(list(best.events)):
            events = {place: event for place, event in best.events.items() if place not in places}
            best = still(best.schedule, events) or best
        tell(f"{_size(best)} steps and events")
        if _size(best) == size:
            return best


def _size(found: Found) -> int:
    return sum(map(len, found.schedule.programs)) + len(found.events)


def _parts(schedule: Schedule) -> Iterator[tuple[int, set[Step]]]:
    """Steps to leave out: first all of a client's, then each."""
    for client, program in enumerate(schedule.programs):
        yield client, set(program)
    for client, program in enumerate(schedule.programs):
        for step in program:
            yield client, {step}


def _with(schedule: Schedule, client: int, program: tuple[Any, ...]) -> Schedule:
    programs = list(schedule.programs)
    programs[client] = program
    return schedule._replace(programs=tuple(programs))


def _chunks(places: list[Place]) -> Iterator[set[Place]]:
    size = len(places)
    while size:
        for start in range(0, len(places), size):
            yield set(places[start : start + size])
        size //= 2
