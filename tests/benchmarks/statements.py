"""What small verbs cost with each value of the setting merge, in turn, in one run.

python tests/benchmarks/statements.py [--engine delta-rs] [--rounds 20]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

    from ledger.runtime.bootstrap import ensure_environment

    ensure_environment(["jvm", "tests"])

from ledger import Ledger, Queue
from ledger.settings import MERGES
from tests.benchmarks.timing import timed

MILLISECONDS = 1_000


def once(queue: Queue, found: dict[str, list[float]]) -> None:
    """Does each verb once and notes its seconds."""

    def run(name: str, verb) -> object:
        seconds, answer = timed(verb)
        found.setdefault(name, []).append(seconds)
        return answer

    run("send 10", partial(queue.send, ["a"] * 10))
    claim = run("receive 10", partial(queue.receive, 10))
    run("extend 10", partial(claim.extend, 600))
    run("release 10", claim.release)
    run("delete 10", queue.receive(10).delete)


def main(engine: str, rounds: int) -> None:
    """Prints a line for each verb: the medians in milliseconds with each setting."""
    spark = None
    if engine == "spark":
        from ledger.runtime.session import spark_session

        spark = spark_session("statements", small=True)
    found: dict[str, dict[str, list[float]]] = {merge: {} for merge in MERGES}
    with tempfile.TemporaryDirectory() as folder:
        queues = {}
        for merge in MERGES:
            ledger = Ledger.open(f"{folder}/{merge}", spark, engine, merge=merge)
            queues[merge] = ledger.create_queue("jobs", {"Lanes": 1})
            once(queues[merge], {})
        for _ in range(rounds):
            for merge, queue in queues.items():
                once(queue, found[merge])
    cores = len(os.sched_getaffinity(0))
    print(f"{engine}, {cores} cores, load {os.getloadavg()[0]:.1f}, medians of {rounds} rounds\n")
    print(f"{'':12}" + "".join(f"{merge:>14}" for merge in MERGES))
    for name in found[MERGES[0]]:
        medians = (MILLISECONDS * statistics.median(found[merge][name]) for merge in MERGES)
        print(f"{name:12}" + "".join(f"{one:>11.1f} ms" for one in medians))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("delta-rs", "spark"), default="delta-rs", help="default: delta-rs")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of all verbs (default: 20)")
    chosen = parser.parse_args()
    main(chosen.engine, chosen.rounds)
