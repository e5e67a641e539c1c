"""Simulations by hand: `python -m tests.simulation --schedules 1000 [--seed 0] [--first 0] [--world NAME]`, and
`python -m tests.simulation --replay SEED`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation import patching
from tests.simulation.facts import later
from tests.simulation.programs import generate
from tests.simulation.searching import Found, kind, play, search, smaller
from tests.simulation.worlds import WORLDS


def main(arguments: list[str]) -> int:
    """1 when something was not allowed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", default="0", help="schedules have the seeds SEED/FIRST, and so on")
    parser.add_argument("--first", type=int, default=0, help="to go on where an earlier run ended")
    parser.add_argument("--schedules", type=int, default=1_000, help="how many to play")
    parser.add_argument("--world", choices=list(WORLDS), help="only this kind of ledger; without it one of DRAWN")
    parser.add_argument("--replay", metavar="SEED", help="play one schedule again, make it small and show it")
    options = parser.parse_args(arguments)
    with patching.installed():
        if options.replay is not None:
            return _replay(options.replay)
        return _search(options.seed, options.schedules, options.world, options.first)


def _search(seed: str, schedules: int, world: str | None, first: int) -> int:
    began, verbs, kinds = time.process_time(), 0, Counter()
    for found in search(seed, schedules, world, first):
        verbs += sum(call.verb != "look up" for call in found.run.calls)
        if found.problems:
            if not kinds[kind(found.problems[0])]:
                print(found, flush=True)
            kinds[kind(found.problems[0])] += 1
    seconds = time.process_time() - began
    for name, times in kinds.most_common():
        print(f"{times} times: {name}")
    rate = f"{schedules / seconds:.1f} schedules/s, {verbs / 12 / seconds:.1f} dozen verbs/s"
    print(f"{schedules} schedules, {verbs} verbs in {seconds:.0f} s of one core: {rate}")
    return 1 if kinds else 0


def _replay(seed: str) -> int:
    found = play(generate(seed))
    if not found.problems:
        print("allowed")
        return 0
    small = smaller(found, lambda text: print(text, file=sys.stderr))
    print(story(small))
    return 1


def story(found: Found) -> str:
    """A run as lines: who called what when, what was committed on whose behalf, and what was not allowed."""
    run = found.run
    lines = [(call.began, f"{call.client} calls {call.verb} {call.queue} {call.about}") for call in run.calls]
    lines += [
        (call.ended, f"{call.client} is answered {call.error or call.answer!r} by {call.verb}")
        for call in run.calls
        if call.ended is not None
    ]
    lines += [
        (change.actor.at_point, f"    {name} has version {change.version}: {change.metadata.get('verb')}")
        for name, change in later(run.before, run.storage)
    ]
    schedule = found.schedule
    head = [
        f"world {schedule.world}, rules of {schedule.rules}, locks {schedule.locked}, clients by process "
        f"{schedule.processes}, clocks {schedule.skews}",
        *(f"client {n}: {[(step.verb, *step[1:]) for step in program]}" for n, program in enumerate(schedule.programs)),
        *(f"{client}, point {point}: {event}" for (client, point), event in sorted(found.events.items())),
    ]
    return "\n".join(
        [*head, *(f"{at:5} {line}" for at, line in sorted(lines, key=lambda one: one[0])), *found.problems]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
