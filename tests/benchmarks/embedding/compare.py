"""The same texts, model, server and kill for a ledger, a plain script, and Celery.

    python -m tests.benchmarks.embedding.compare [--texts N] [--only ledger,hand,celery,celery-late]

Each contestant embeds the texts in two processes. The first process that has paid for texts after 40 % of them were
billed is killed at once. A contestant that ends with an error is started again, as a person would do. At the end its
table and the server's bills say what was lost, written twice, and paid for twice. Celery needs `redis-server` on PATH,
and the packages celery and redis.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from deltalake import DeltaTable

from jobs.common import table
from jobs.embed_demo.front import Front
from jobs.embed_demo.model import FRONT_URL
from jobs.embed_demo.texts import real_texts
from tests.benchmarks.machine import describe
from tests.sources import CHECKOUT, code_lines

HERE = Path(__file__).parent
PACKAGE = "tests.benchmarks.embedding"
MOST_STARTS = 5
#: Celery has no end of its own: it is over when the broker is empty and nothing was paid for so long, in seconds.
QUIET_SECONDS = 15


class Outcome(NamedTuple):
    """What came of a contestant."""

    name: str
    lines: int
    starts: int
    seconds: float
    lost: int
    written_twice: int
    paid_twice: int
    tokens_twice: int
    commits: int


class Accident:
    """Kills the first process that has paid once so many texts were billed."""

    def __init__(self, front: Front, after: int) -> None:
        self._front, self._after, self.victim = front, after, 0
        front.on_paid = self._look

    def _look(self, worker: int) -> None:
        if not self.victim and len(self._front.bills) >= self._after:
            self.victim = worker
            os.kill(worker, signal.SIGKILL)


def run_until_done(module: str, texts: Path, folder: Path, environment: Mapping[str, str]) -> int:
    """Start a program, and again when it ends with an error; return how often. Raises RuntimeError."""
    command = [sys.executable, "-m", f"{PACKAGE}.{module}", str(texts), str(folder)]
    for starts in range(1, MOST_STARTS + 1):
        with (folder / "log").open("a") as log:
            if subprocess.run(command, cwd=CHECKOUT, env=environment, stdout=log, stderr=log).returncode == 0:
                return starts
    raise RuntimeError(f"{module} did not end well in {MOST_STARTS} starts: {(folder / 'log').read_text()[-2_000:]}")


def run_celery(texts: Path, folder: Path, environment: Mapping[str, str], front: Front) -> int:
    """Run Celery's worker until the broker is empty and nothing is paid for any more; return 1."""
    with redis() as port:
        environment = {**environment, "CELERY_BROKER": f"redis://127.0.0.1:{port}/0"}
        sender = [sys.executable, "-m", f"{PACKAGE}.by_celery", str(texts)]
        worker = [sys.executable, "-m", "celery", "-A", f"{PACKAGE}.by_celery", "worker", "-c", "2"]
        subprocess.run(sender, cwd=CHECKOUT, env=environment, check=True)
        with (folder / "log").open("a") as log:
            process = subprocess.Popen(worker, cwd=CHECKOUT, env=environment, stdout=log, stderr=log)
        try:
            seen, since = -1, time.monotonic()
            while process.poll() is None and time.monotonic() - since < QUIET_SECONDS:
                if seen != len(front.bills) or is_waiting(port):
                    seen, since = len(front.bills), time.monotonic()
                time.sleep(0.2)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    return 1


@contextmanager
def redis() -> Iterator[int]:
    """Yield the port of a Redis server that is empty."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True).returncode:
                time.sleep(0.1)
            yield port
        finally:
            server.terminate()
            server.wait()


def is_waiting(port: int) -> bool:
    """Whether the broker has tasks, or tasks that a worker has not acknowledged."""
    asked = (["llen", "celery"], ["hlen", "unacked"])
    answers = (subprocess.run(["redis-cli", "-p", str(port), *one], capture_output=True, text=True) for one in asked)
    return any(answer.stdout.strip() != "0" for answer in answers)


def contest(name: str, texts: list[str], folder: Path) -> Outcome:
    """Let one contestant embed the texts; return what came of it."""
    folder.mkdir()
    file, output = folder / "texts.txt", folder / "table"
    file.write_text("\n".join(texts))
    module = {"ledger": "by_ledger", "hand": "by_hand"}.get(name, "by_celery")
    with Front() as front:
        Accident(front, 2 * len(texts) // 5)
        environment = {**os.environ, FRONT_URL: front.url, "EMBED_TABLE": str(output)}
        if name == "celery-late":
            environment["CELERY_LATE"] = "1"
        started = time.monotonic()
        if module == "by_celery":
            starts = run_celery(file, folder, environment, front)
            seconds = time.monotonic() - started - QUIET_SECONDS
        else:
            starts = run_until_done(module, file, folder, environment)
            seconds = time.monotonic() - started
    written = Counter(DeltaTable(str(output)).to_pyarrow_table(columns=["text"])["text"].to_pylist())
    again = front.paid_again()
    return Outcome(
        name=name,
        lines=code_lines((HERE / f"{module}.py").read_text()),
        starts=starts,
        seconds=round(seconds),
        lost=len(set(texts) - set(written)),
        written_twice=sum(written.values()) - len(written),
        paid_twice=len(again),
        tokens_twice=sum(bill.tokens for bill in again),
        commits=DeltaTable(str(output)).version() + 1,
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--texts", type=int, default=5_000, metavar="N")
    arguments.add_argument("--only", default="ledger,hand,celery,celery-late", metavar="NAMES")
    options = arguments.parse_args()
    texts, outcomes = real_texts(options.texts), []
    with tempfile.TemporaryDirectory() as folder:
        print("  \n".join(f"{name}: {value}" for name, value in describe(Path(folder)).items()), flush=True)
        for name in options.only.split(","):
            if name.startswith("celery") and not shutil.which("redis-server"):
                sys.exit("compare: Celery needs redis-server on PATH (on Debian: apt-get install redis-server)")
            outcomes.append(contest(name, texts, Path(folder, name)))
            print(outcomes[-1], flush=True)
    print(table([outcome._asdict() for outcome in outcomes]))


if __name__ == "__main__":
    main()
