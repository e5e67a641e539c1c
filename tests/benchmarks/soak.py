"""A queue that is worked at for long: `python tests/benchmarks/soak.py [--verbs 1000000] [--rate 130] [--every 60s]`.

Threads of one process claim ten messages at a time, extend the claim and acknowledge it, through delta-rs, beside ten
claims that stay in flight. Another thread sends. `--rate` bounds the verbs a second of all threads; 0 is no bound. With
`--every`, `ledger upkeep` runs beside them in a process of its own. Without it, nothing keeps the tables up.

The report has a row for each tenth: what a verb took, and what lies on the disk and in the memory of both processes at
its end. It is results/soak.md, or the file that `--results` names.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

    from ledger.runtime.bootstrap import ensure_environment

    ensure_environment(["benchmarks", "jvm"])

import machine
from command import RESULTS
from report import table
from timing import say

from ledger import Ledger
from ledger.queue import Queue
from ledger.settings import Settings
from ledger.store.delta.model.tables import Where

CHECKOUT = Path(__file__).resolve().parents[2]
TENTHS, MESSAGES_OF_A_CLAIM, MESSAGES_OF_A_SEND, CLAIMS_IN_FLIGHT = 10, 10, 1_000, 10
VERBS = ("receive", "extend", "delete")
TITLES = [
    "verbs", "minutes", *(f"{verb}, ms" for verb in VERBS), "CPU a verb, ms", "logs", "data", "rows of visibility",
    "memory", "daemon's memory", "rounds",
]  # fmt: skip


class Workers:
    """Threads that claim, extend and acknowledge, at a common pace, and one that sends before the messages run out."""

    def __init__(self, queue: Queue, threads: int, rate: float) -> None:
        self._queue, self._threads, self._rate = queue, threads, rate
        self._lock = threading.Lock()
        #: The cycles that are still to begin in this tenth, the messages that may be claimed, the next cycle's start.
        self._cycles = self._messages = 0
        self._next_start = time.monotonic()
        self._took: dict[str, list[float]] = {}

    def work(self, cycles: int) -> dict[str, list[float]]:
        """Run so many cycles of three verbs. Return by verb the seconds that each took."""
        self._cycles, self._took = cycles, {verb: [] for verb in VERBS}
        failures: list[BaseException] = []
        workers = [threading.Thread(target=self._run, args=(failures,)) for _ in range(self._threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if failures:
            raise failures[0]
        return self._took

    def _run(self, failures: list[BaseException]) -> None:
        try:
            while self._begins():
                claim = self._timed("receive", lambda: self._queue.receive(MESSAGES_OF_A_CLAIM))
                assert claim.count == MESSAGES_OF_A_CLAIM, f"{claim.count} messages were claimed"
                self._timed("extend", lambda claim=claim: claim.extend(7_200))
                self._timed("delete", claim.delete)
        except BaseException as error:
            failures.append(error)
            self._cycles = 0

    def _begins(self) -> bool:
        """Wait for the next cycle's turn. Return False if the tenth has no more cycles."""
        with self._lock:
            if self._cycles <= 0:
                return False
            self._cycles -= 1
            if self._messages < MESSAGES_OF_A_CLAIM:
                self._queue.send([f"message {number}" for number in range(MESSAGES_OF_A_SEND)])
                self._messages += MESSAGES_OF_A_SEND
            self._messages -= MESSAGES_OF_A_CLAIM
            start = self._next_start = max(self._next_start, time.monotonic())
            if self._rate:
                self._next_start += len(VERBS) / self._rate
        time.sleep(max(0.0, start - time.monotonic()))
        return True

    def _timed(self, verb: str, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = call()
        self._took[verb].append(time.perf_counter() - began)
        return result


@contextmanager
def upkeep(root: str, settings: Path, every: str | None) -> Iterator[subprocess.Popen[bytes] | None]:
    """Run `ledger upkeep --every` until the end of the block; nothing if `every` is None."""
    if every is None:
        yield None
        return
    command = [sys.executable, "-m", "ledger", "upkeep", "--root", root, "--settings", str(settings)]
    process = subprocess.Popen([*command, "--every", every], cwd=CHECKOUT, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, "the daemon ends well"


def on_disk(root: str) -> list[str]:
    """Return the MB and files of the logs, and those of the rest."""
    found = {"logs": [0, 0], "data": [0, 0]}
    for folder, _, names in os.walk(root):
        kind = found["logs" if "_delta_log" in Path(folder).parts else "data"]
        for name in names:
            try:
                kind[0] += Path(folder, name).stat().st_blocks * 512
            except FileNotFoundError:
                # Upkeep has removed it since.
                continue
            kind[1] += 1
    return [f"{size / 1e6:.0f} MB, {files:,} files" for size, files in found.values()]


def memory_of(process: int) -> str:
    """Return the memory that a process has now, as Linux has it."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (kilobytes,) = (int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return f"{kilobytes / 1024:.0f} MB"


def in_another_process(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a call returns in a process of its own: what a look needs stays out of the measured memory."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(call, *arguments).result()


def state(root: str) -> tuple[int, int]:
    """Return the number of rows of `visibility`, and how many rounds of upkeep began."""
    ledger = Ledger.open(root, read_only=True)
    return ledger.store.engine.load("visibility", Where()).rows.num_rows, ledger.rounds().look().lease


def measured(root: str, settings: Path, options: argparse.Namespace) -> Iterator[list[Any]]:
    """Yield a row for each tenth."""
    ledger = Ledger.open(root, engine="delta-rs", settings=Settings.read(settings))
    queue = ledger.create_queue("work", {"VisibilityTimeout": 3_600})
    queue.send([f"in flight {number}" for number in range(CLAIMS_IN_FLIGHT * MESSAGES_OF_A_CLAIM)])
    for _ in range(CLAIMS_IN_FLIGHT):
        queue.receive(MESSAGES_OF_A_CLAIM, visibility_timeout=43_200)
    workers, began = Workers(queue, options.threads, options.rate), time.monotonic()
    with upkeep(root, settings, options.every) as daemon:
        for tenth in range(1, TENTHS + 1):
            used = time.process_time()
            took = workers.work(options.verbs // TENTHS // len(VERBS))
            used = time.process_time() - used
            verbs = sum(map(len, took.values()))
            rows, rounds = in_another_process(state, root)
            yield [
                f"{tenth * options.verbs // TENTHS:,}",
                f"{(time.monotonic() - began) / 60:.0f}",
                *(f"{1_000 * statistics.median(took[verb]):.1f}" for verb in VERBS),
                f"{1_000 * used / verbs:.1f}",
                *on_disk(root),
                f"{rows:,}",
                memory_of(os.getpid()),
                "" if daemon is None else memory_of(daemon.pid),
                rounds,
            ]


def main(options: argparse.Namespace) -> None:
    """Measure, and write the report anew after each tenth."""
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory(prefix="ledger-soak-", dir=options.work) as folder:
        described, settings = machine.describe(Path(folder)), Path(folder) / "settings.toml"
        kept = {
            "keep_deleted_receipts": options.keep,
            "log_retention": options.retention,
            "deleted_file_retention": options.retention,
        }
        settings.write_text("\n".join(["[ledger]", *(f"{name} = {value}" for name, value in kept.items()), ""]))
        beside = f"beside `ledger upkeep --every {options.every}`" if options.every else "without upkeep"
        pace = f"at most {options.rate:g} verbs a second" if options.rate else "as fast as they can"
        sentences = [
            f"{options.threads} threads of one process {beside}, {pace}.",
            f"Settings: {', '.join(f'{name} {value}' for name, value in kept.items())} (seconds).",
            "Milliseconds are medians of a tenth by the clock. CPU is that of the whole process.",
        ]
        for row in measured(str(Path(folder) / "ledger"), settings, options):
            rows.append(row)
            say(", ".join(map(str, row)))
            page = ["# A long day", "", ", ".join(f"{key} {value}" for key, value in described.items()), ""]
            page += ["\n".join(sentences), "", *table(TITLES, rows), ""]
            options.results.write_text("\n".join(page))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbs", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.0, help="at most so many verbs a second; 0: no bound")
    parser.add_argument("--every", help="how often the daemon looks, such as 60s (default: no upkeep)")
    parser.add_argument("--keep", type=int, default=60, help="the setting keep_deleted_receipts, in seconds")
    parser.add_argument("--retention", type=int, default=3_600, help="log_retention and deleted_file_retention")
    parser.add_argument("--work", type=Path, help="where the ledger lies while it runs (default: a temporary folder)")
    parser.add_argument("--results", type=Path, default=RESULTS / "soak.md", help="the report")
    main(parser.parse_args())
