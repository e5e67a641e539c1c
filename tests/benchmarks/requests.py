"""What a verb costs on an object store: requests, and seconds where each takes 20 ms, on a server of this machine.

python tests/benchmarks/requests.py [--delay 0.02] [--rounds 10]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

    from ledger.runtime.bootstrap import ensure_environment

    ensure_environment(["tests"])

from ledger import Ledger
from tests.s3.server import S3Server, s3_server


def measured(server: S3Server, verb: Callable[[], object]) -> tuple[int, float, object]:
    """How many requests a verb makes, the seconds that it takes, and what it returns."""
    since, began = len(server.requests()), time.perf_counter()
    result = verb()
    seconds = time.perf_counter() - began
    return len(server.requests()) - since, seconds, result


def main(delay: float, rounds: int) -> None:
    """Prints a line for each verb: median requests, median seconds."""
    found: dict[str, list[tuple[int, float]]] = {}
    with s3_server(delay) as server:

        def run(name: str, verb: Callable[[], object]) -> object:
            requests, seconds, result = measured(server, verb)
            found.setdefault(name, []).append((requests, seconds))
            return result

        def open_ledger() -> Ledger:
            return Ledger.open(server.root("ledger"), storage_options=server.options, engine="delta-rs")

        run("open, new", open_ledger)
        queue = run("open, existing", open_ledger).create_queue("jobs", {"Lanes": 1})
        queue.send(["a"] * 10)
        queue.receive(1)
        for _ in range(rounds):
            run("send 10", lambda: queue.send(["a"] * 10))
            claim = run("receive 10", lambda: queue.receive(10))
            run("extend", partial(claim.extend, 600))
            run("release", claim.release)
            run("delete", queue.receive(None).delete)
            queue.receive(1)
            run("receive, empty", lambda: queue.receive(10))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; each request {delay * 1_000:.0f} ms more\n")
    for name, runs in found.items():
        requests, seconds = (statistics.median(column) for column in zip(*runs))
        print(f"{name:15} {requests:5.0f} requests {seconds:6.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--delay", type=float, default=0.02, help="seconds that each request takes more (default: 0.02)"
    )
    parser.add_argument("--rounds", type=int, default=10, help="rounds of all verbs (default: 10)")
    chosen = parser.parse_args()
    main(chosen.delay, chosen.rounds)
