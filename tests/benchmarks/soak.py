"""A queue that is worked at for long: `python tests/benchmarks/soak.py [--verbs 100000] [--keep 60]`.

One process sends, claims ten messages at a time, extends and acknowledges, through delta-rs, beside ten claims that
stay in flight; `ledger upkeep` runs in a process of its own every so many seconds. What was acknowledged keeps its
receipt for `--keep` seconds, and a row of its own so long. Tells at each tenth what a verb took, by the clock and of
the processor, what lies on the disk, and how much memory the process has; writes results/soak.md.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
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

from ledger import Ledger, Settings

CHECKOUT = Path(__file__).resolve().parents[2]
TENTHS, OF_A_CLAIM, OF_A_SEND = 10, 10, 1_000
VERBS = ("receive", "extend", "delete")


class Upkeep:
    """`ledger upkeep`, every so many seconds until the end."""

    def __init__(self, root: str, settings: Path, seconds: float) -> None:
        self._command = [sys.executable, "-m", "ledger.cli", "upkeep", "--root", root, "--settings", str(settings)]
        self._seconds, self._over = seconds, threading.Event()
        self.took: list[float] = []
        self.failed = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            began = time.monotonic()
            self.failed += subprocess.run(self._command, cwd=CHECKOUT, stdout=subprocess.DEVNULL).returncode != 0
            self.took.append(time.monotonic() - began)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def worked_at(root: str, verbs: int, settings: Settings) -> Iterator[dict[str, list[tuple[float, float]]]]:
    """By verb, the seconds that each took by the clock and of the processor, a tenth of them at a time."""
    queue = Ledger.open(root, engine="delta-rs", settings=settings).create_queue("work", {"VisibilityTimeout": 3_600})
    queue.send([f"in flight {number}" for number in range(10 * OF_A_CLAIM)])
    for _ in range(10):
        queue.receive(OF_A_CLAIM, visibility_timeout=43_200)
    there = 0
    for _ in range(TENTHS):
        took: dict[str, list[tuple[float, float]]] = {verb: [] for verb in VERBS}
        for _ in range(verbs // TENTHS // len(VERBS)):
            if there < OF_A_CLAIM:
                queue.send([f"message {number}" for number in range(OF_A_SEND)])
                there += OF_A_SEND
            claim = _timed(took["receive"], lambda: queue.receive(OF_A_CLAIM))
            assert claim.count == OF_A_CLAIM, f"{claim.count} messages are claimed, and there are {there}"
            _timed(took["extend"], lambda claim=claim: claim.extend(7_200))
            _timed(took["delete"], claim.delete)
            there -= OF_A_CLAIM
        yield took


def _timed(took: list[tuple[float, float]], call: Callable[[], Any]) -> Any:
    began, used = time.perf_counter(), time.thread_time()
    result = call()
    took.append((time.perf_counter() - began, time.thread_time() - used))
    return result


def on_disk(root: str) -> dict[str, str]:
    """MB and files of the logs, and of the rest."""
    found = {"logs": [0, 0], "data": [0, 0]}
    for path in Path(root).rglob("*"):
        if path.is_file():
            kind = found["logs" if "_delta_log" in path.parts else "data"]
            kind[0] += path.stat().st_blocks * 512
            kind[1] += 1
    return {name: f"{size / 1e6:.0f} MB, {files:,} files" for name, (size, files) in found.items()}


def main(verbs: int, every: float, keep: int, work: Path | None) -> None:
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory(prefix="ledger-soak-", dir=work) as folder:
        described, root = machine.describe(Path(folder)), str(Path(folder) / "ledger")
        settings = Path(folder) / "settings.toml"
        settings.write_text(f"[ledger]\nkeep_deleted_receipts = {keep}\n")
        upkeep = Upkeep(root, settings, every)
        try:
            for tenth, took in enumerate(worked_at(root, verbs, Settings(keep_deleted_receipts=keep)), 1):
                medians = [
                    " / ".join(f"{1_000 * statistics.median(column):.1f}" for column in zip(*took[v])) for v in VERBS
                ]
                disk, memory = on_disk(root), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                worst = max(upkeep.took, default=0.0)
                rows.append(
                    [f"{tenth * verbs // TENTHS:,}", *medians, *disk.values(), f"{memory:.0f} MB", f"{worst:.1f} s"]
                )
                say(", ".join(map(str, rows[-1])))
        finally:
            upkeep.end()
    titles = ["verbs", *(f"{verb}, ms" for verb in VERBS), "logs", "data", "memory, at most", "longest upkeep"]
    said = f"Medians of a tenth, by the clock / of the processor; receipts of what is deleted are kept for {keep} s. "
    said += f"Of {len(upkeep.took)} upkeeps {upkeep.failed or 'none'} failed."
    page = ["# A long day", "", ", ".join(f"{key} {value}" for key, value in described.items()), "", said, ""]
    page += [*table(titles, rows), ""]
    (RESULTS / "soak.md").write_text("\n".join(page))
    print("\n".join(page))
    if upkeep.failed:
        sys.exit("an upkeep failed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbs", type=int, default=100_000)
    parser.add_argument("--upkeep", type=float, default=60.0, help="an upkeep every so many seconds")
    parser.add_argument("--keep", type=int, default=60, help="the setting keep_deleted_receipts, in seconds")
    parser.add_argument("--work", type=Path, help="where the ledger lies while it runs (default: a temporary folder)")
    chosen = parser.parse_args()
    main(chosen.verbs, chosen.upkeep, chosen.keep, chosen.work)
