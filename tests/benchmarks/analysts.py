"""What claims cost while analysts loop over the views, against claims without them, in turns in one run.

    python tests/benchmarks/analysts.py [--analysts 3] [--rounds 30] [--claims 20] [--nice 10] [--anywhere]

Through delta-rs. Each analyst is a process of its own that asks for queue_depth and in_flight, over and over, while its
rounds last. Reading takes no lock: what slows claims down is the machine alone. To tell how much that is, in other
rounds the same processes count, and read nothing. They are niced, and on the last core, while the claims are on the
others; `--anywhere` lets the system place all of them. A round is so many claims, each received and acknowledged. The
aim is a ratio of at most 1.1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

    from ledger.runtime.bootstrap import ensure_environment

    ensure_environment(["benchmarks", "jvm"])

from ledger import Ledger

QUERIES = ("SELECT * FROM queue_depth", "SELECT * FROM in_flight ORDER BY seconds_left")
#: Claims that others hold meanwhile, queues beside the one, and how many messages a claim takes.
HELD, QUEUES, AT_ONCE = 50, 5, 100
AIM = 1.1
#: What the analysts do, and what it is called.
ALONE, COUNTING, ASKING, ENDS = range(4)
KINDS = {ALONE: "alone", COUNTING: "beside {} that count", ASKING: "beside {} analysts"}


def analyst(root: str, nice: int, cores: set[int], doing: Any, asked: Any) -> None:
    """Loops over the views, or counts, while `doing` says so; counts the answers in `asked`."""
    os.nice(nice)
    os.sched_setaffinity(0, cores)
    ledger = Ledger.open(root, read_only=True)
    while doing.value != ENDS:
        if doing.value == ALONE:
            time.sleep(0.05)
        elif doing.value == COUNTING:
            sum(range(10_000))
        else:
            for query in QUERIES:
                ledger.sql(query)
                with asked.get_lock():
                    asked.value += 1


@contextmanager
def analysts(root: str, count: int, nice: int, cores: set[int]) -> Iterator[tuple[Any, Any]]:
    """So many of them, who have asked once; the value that says what they do, and how much they asked."""
    # A forked child cannot use what its parent's delta-rs has.
    spawn = multiprocessing.get_context("spawn")
    doing, asked = spawn.Value("q", ASKING), spawn.Value("q", 0)
    crowd = [spawn.Process(target=analyst, args=(root, nice, cores, doing, asked)) for _ in range(count)]
    for one in crowd:
        one.start()
    try:
        while asked.value < len(QUERIES) * count and all(one.is_alive() for one in crowd):
            time.sleep(0.1)
        if not all(one.is_alive() for one in crowd):
            raise SystemExit("an analyst ended")
        yield doing, asked
    finally:
        doing.value = ENDS
        for one in crowd:
            one.join()


def prepared(root: str, claims: int) -> Ledger:
    """A ledger with messages for so many claims, some claims in flight, and other queues."""
    ledger = Ledger.open(root)
    for number in range(QUEUES):
        other = ledger.create_queue(f"other-{number}")
        other.send(["a", "b"])
        other.receive(visibility_timeout=36_000)
    queue = ledger.create_queue("work", {"VisibilityTimeout": 36_000})
    queue.send([f"message {number}" for number in range((claims + HELD) * AT_ONCE)])
    queue.receive_many([(AT_ONCE,)] * HELD)
    return ledger


def round_of(ledger: Ledger, claims: int) -> list[float]:
    """Seconds that each of so many claims took, from its receive to its acknowledgement."""
    queue, took = ledger.queue("work"), []
    for _ in range(claims):
        start = time.perf_counter()
        queue.receive(AT_ONCE).delete()
        took.append(time.perf_counter() - start)
    return took


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    arguments.add_argument("--analysts", type=int, default=3)
    arguments.add_argument("--rounds", type=int, default=30, help="a third of them with the analysts")
    arguments.add_argument("--claims", type=int, default=20, help="claims of a round")
    arguments.add_argument("--nice", type=int, default=10, help="how nice analysts are; 0: as everybody")
    arguments.add_argument("--anywhere", action="store_true", help="let the system place everybody")
    given = arguments.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    mine, theirs = (set(cores), set(cores)) if given.anywhere or len(cores) < 2 else (set(cores[:-1]), {cores[-1]})
    with tempfile.TemporaryDirectory(prefix="ledger-analysts-") as folder:
        root = str(Path(folder) / "ledger")
        # Threads that are started from now on stay there, too.
        os.sched_setaffinity(0, mine)
        ledger = prepared(root, (given.rounds + 1) * given.claims)
        with analysts(root, given.analysts, given.nice, theirs) as (doing, asked):
            # The first is for what is loaded once.
            doing.value = ALONE
            round_of(ledger, given.claims)
            took: dict[int, list[float]] = {kind: [] for kind in KINDS}
            before = asked.value
            for number in range(given.rounds):
                kind = doing.value = number % len(KINDS)
                time.sleep(0.5)
                took[kind] += round_of(ledger, given.claims)
            doing.value = ALONE
            answers = asked.value - before
    alone = statistics.median(took[ALONE])
    print(f"a claim of {AT_ONCE}, received and acknowledged, {len(took[ALONE])} times each, medians:")
    for kind, name in KINDS.items():
        median = statistics.median(took[kind])
        print(f"  {name.format(given.analysts):24} {median * 1_000:7.1f} ms   ratio {median / alone:5.2f}")
    print(f"  (aim: {AIM}; {answers} answers meanwhile; load average {os.getloadavg()[0]:.1f})")


if __name__ == "__main__":
    main()
