"""Verbs with and without upkeep beside them: `python tests/benchmarks/upkeep_daemon.py [--verbs 12000] [--every 10s]`.

One process works at a queue as in soak.py, first alone, then beside `ledger upkeep --every`. Tells at each tenth what a
verb took, what lies on the disk, how much memory each of the two processes has, and what is left for upkeep; writes
results/upkeep.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
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
from soak import CHECKOUT, TENTHS, VERBS, on_disk, worked_at
from timing import say

from ledger import Ledger, Settings
from ledger.store.delta.model.where import Where

TITLES = ["verbs", *(f"{verb}, ms" for verb in VERBS), "logs", "data", "rows", "memory", "daemon's", "rounds"]


def memory_of(process: int) -> str:
    """The memory that a process has now, as Linux tells it."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (kilobytes,) = (int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return f"{kilobytes / 1024:.0f} MB"


@contextmanager
def daemon(root: str, settings: Path, every: str | None) -> Iterator[subprocess.Popen[bytes] | None]:
    """`ledger upkeep --every`, until the end of the block; none where `every` is None."""
    if every is None:
        yield None
        return
    command = [sys.executable, "-m", "ledger.cli", "upkeep", "--root", root, "--settings", str(settings)]
    process = subprocess.Popen([*command, "--every", every], cwd=CHECKOUT, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, "it ends well"


def measured(root: str, settings: Path, verbs: int, every: str | None) -> list[list[Any]]:
    """A row for each tenth."""
    known, rows = Settings.read(settings), list[list[Any]]()
    Ledger.open(root, settings=known)
    # What it takes to look is not to be in the memory of the process that is looked at.
    with _another_process() as observer, daemon(root, settings, every) as process:
        for tenth, took in enumerate(worked_at(root, verbs, known), 1):
            medians = [_medians(took[verb]) for verb in VERBS]
            recorded, rounds = observer.submit(_on_record, root).result()
            of_daemon = "" if process is None else memory_of(process.pid)
            disk, mine = on_disk(root).values(), memory_of(os.getpid())
            rows.append([f"{tenth * verbs // TENTHS:,}", *medians, *disk, f"{recorded:,}", mine, of_daemon, rounds])
            say(", ".join(map(str, rows[-1])))
    return rows


def _medians(took: list[tuple[float, float]]) -> str:
    """In milliseconds, by the clock and of the processor."""
    return " / ".join(f"{1_000 * statistics.median(column):.1f}" for column in zip(*took))


def _on_record(root: str) -> tuple[int, int]:
    """How many rows `visibility` has, and how many rounds of upkeep began."""
    ledger = Ledger.open(root, read_only=True)
    return ledger.store.engine.load("visibility", Where()).rows.num_rows, ledger.rounds().look().lease


def main(verbs: int, every: str, keep: int, work: Path | None) -> None:
    described, parts = "", list[str]()
    for title, period in (("Without upkeep", None), (f"Beside `ledger upkeep --every {every}`", every)):
        with tempfile.TemporaryDirectory(prefix="ledger-upkeep-", dir=work) as folder:
            described = described or ", ".join(f"{k} {v}" for k, v in machine.describe(Path(folder)).items())
            settings = Path(folder) / "settings.toml"
            settings.write_text(f"[ledger]\nkeep_deleted_receipts = {keep}\nmark_seconds = 0\n")
            with _another_process() as worker:
                rows = worker.submit(measured, str(Path(folder) / "ledger"), settings, verbs, period).result()
        parts += [f"## {title}", "", *table(TITLES, rows), ""]
    said = f"Medians of a tenth, by the clock / of the processor; receipts are kept for {keep} s after a deletion. "
    said += "`rows` are those of `visibility`."
    page = ["# Upkeep beside verbs", "", described, "", said, "", *parts]
    (RESULTS / "upkeep.md").write_text("\n".join(page))
    print("\n".join(page))


def _another_process() -> ProcessPoolExecutor:
    """One that begins with nothing in its memory."""
    return ProcessPoolExecutor(1, get_context("spawn"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbs", type=int, default=12_000)
    parser.add_argument("--every", default="10s", help="how often the daemon looks")
    parser.add_argument("--keep", type=int, default=30, help="the setting keep_deleted_receipts, in seconds")
    parser.add_argument("--work", type=Path, help="where the ledgers lie while it runs (default: a temporary folder)")
    chosen = parser.parse_args()
    main(chosen.verbs, chosen.every, chosen.keep, chosen.work)
