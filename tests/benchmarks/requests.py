"""What a verb costs on an object store: requests, and seconds where each takes 20 ms, on a server of this machine.

python tests/benchmarks/requests.py [--delay 0.02] [--rounds 10]

With `--list` it lists each verb's requests instead, by the rounds in which they come one after the other. Choose a
delay that is long beside what the machine needs for a request, say 0.3: a request that comes sooner than that after the
first of a round is in this round.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

    from ledger.runtime.bootstrap import ensure_environment

    ensure_environment(["tests"])

from ledger import Ledger
from tests.s3.server import Request, S3Server, s3_server


def measured(server: S3Server, verb: Callable[[], object]) -> tuple[int, float, object]:
    """How many requests a verb makes, the seconds that it takes, and what it returns."""
    since, began = len(server.requests()), time.perf_counter()
    result = verb()
    seconds = time.perf_counter() - began
    return len(server.requests()) - since, seconds, result


class Arrivals:
    """When the server was done with each request, as a thread sees it that looks all the time."""

    def __init__(self, server: S3Server, delay: float) -> None:
        self._server, self._delay, self._at = server, delay, list[float]()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            with contextlib.suppress(OSError, TypeError):
                self._at += [time.perf_counter()] * (len(self._server.requests()) - len(self._at))
            time.sleep(self._delay / 20)

    def by_round(self, since: int) -> list[list[Request]]:
        """The requests from this one on, in rounds."""
        rounds, first = list[list[Request]](), 0.0
        time.sleep(self._delay)
        for request, at in list(zip(self._server.requests(), self._at))[since:]:
            if not rounds or at - first > self._delay * 0.75:
                rounds.append([])
                first = at
            rounds[-1].append(request)
        return rounds


def shown(request: Request) -> str:
    """A request in a line: the table, and the end of a file's name."""
    listed = urllib.parse.parse_qs(request.query).get("prefix", [""])[0]
    since = urllib.parse.parse_qs(request.query).get("start-after", [""])[0]
    path = "/".join(part for part in (listed or request.path).split("/") if part not in ("", "bucket", "ledger"))
    return f"{'LIST' if listed else request.method} {path}{' after ' + since[-25:] if since else ''}"


def main(delay: float, rounds: int, lists: bool) -> None:
    """Prints a line for each verb: median requests, median seconds."""
    found: dict[str, list[tuple[int, float]]] = {}
    with s3_server(delay) as server:
        arrivals = Arrivals(server, delay) if lists else None

        def run(name: str, verb: Callable[[], object]) -> object:
            since = len(server.requests())
            requests, seconds, result = measured(server, verb)
            if arrivals is not None and (name not in found or len(found[name]) == rounds - 1):
                print(f"{name}, for the {'first' if name not in found else 'last'} time")
                for number, together in enumerate(arrivals.by_round(since), 1):
                    print(f"  {number}: {'; '.join(map(shown, together))}", flush=True)
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
    parser.add_argument("--list", action="store_true", help="list the requests of each verb, by rounds")
    chosen = parser.parse_args()
    main(chosen.delay, chosen.rounds, chosen.list)
