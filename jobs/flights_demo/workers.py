"""The workers of jobs/flights.py (spark-submit of jobs/work.py), and the kill of one of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.runtime.session import submit_command, submit_environment

if TYPE_CHECKING:
    from ledger.claim import Claim
    from ledger.queue import Queue

WORK = Path(__file__).resolve().parents[1] / "work.py"
#: Options for short-lived JVMs that share few cores: the JVMs start faster, and need less memory.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Worker:
    """One spark-submit and all its processes."""

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self.name, self.log, self.killed_at = name, log, None
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            # The worker gets a session of its own. A signal to the worker reaches its JVM and its Python, and Ctrl-C
            # reaches only this process.
            self._process = subprocess.Popen(
                submit_command(WORK, *arguments, "--owner", name),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**submit_environment(), "JDK_JAVA_OPTIONS": JAVA_OPTIONS},
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def fate(self) -> str:
        """The state of the worker in words: working, done, failed or killed."""
        if self.killed_at is not None:
            return "killed (SIGKILL)"
        code = self._process.poll()
        return "working" if code is None else "done" if code == 0 else f"failed with {code}"

    def signal(self, number: int) -> None:
        """Send a signal to all processes of the worker."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Kill the worker at once, as a power failure would."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        self.killed_at = time.time()

    def end(self, patience: float) -> None:
        """Wait for the worker's end. If it has not ended after `patience` seconds, kill it."""
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._process.wait()


class Workers(list):
    """The workers. Those that still run at the end of the `with` block are ended, also after an error."""

    def start(self, count: int, arguments: list[str], logs: Path) -> None:
        """Start `count` workers, named worker-1 and so on."""
        for number in range(1, count + 1):
            self.append(Worker(f"worker-{number}", arguments, logs / f"worker-{number}.log"))

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self if worker.is_alive]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        # Ignore further signals: a second Ctrl-C must not leave workers behind.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        for worker in self.alive:
            worker.signal(signal.SIGTERM)
        patience = time.monotonic() + 8
        for worker in self.alive:
            worker.end(max(0.0, patience - time.monotonic()))
        for number, handler in before.items():
            signal.signal(number, handler)


class Accident:
    """Kills a worker at the worst moment: its results are written, and not acknowledged yet.

    Files that a worker stages for the output table name the worker. Once the victim has staged rows, it is stopped
    every few milliseconds until the rows are published. Then it is killed if it still holds the claim. If the
    acknowledgement was faster, the victim continues until its next claim.
    """

    #: Seconds that the victim runs between two looks, and the most seconds to wait until it has published.
    SLICE, PATIENCE = 0.004, 12.0

    def __init__(self, victim: Worker, queue: Queue, output: Path) -> None:
        self.victim, self.receipt_id, self.messages = victim, None, 0
        self._queue, self._log, self._seen = queue, output / "_delta_log", 0
        self._staged, self._looked_at = output / "ledger_writes", set[str]()
        self.is_watching = self._told = False

    @property
    def happened(self) -> bool:
        return self.receipt_id is not None

    def _try_to_kill(self) -> bool:
        """Kill the victim if it has published rows and not acknowledged them. Return True if this call killed it."""
        if self.happened or not self.victim.is_alive:
            return False
        if not self._has_just_staged():
            return False
        written, give_up = None, time.monotonic() + self.PATIENCE
        self.victim.signal(signal.SIGSTOP)
        while written is None and self.victim.is_alive and time.monotonic() < give_up:
            self.victim.signal(signal.SIGCONT)
            time.sleep(self.SLICE)
            self.victim.signal(signal.SIGSTOP)
            written = self.just_written()
        held = None if written is None else self.unacknowledged(*written)
        if held is None:
            self.victim.signal(signal.SIGCONT)
            return False
        self.victim.kill()
        self.receipt_id, self.messages = written[0], held.count
        return True

    def watch(self) -> None:
        """Begin to watch the victim in a thread.

        A worker acknowledges some hundredths of a second after it has published.
        """
        self.just_written()
        self._has_just_staged()
        self.is_watching = True
        threading.Thread(target=self._watch, name="accident", daemon=True).start()

    def is_news(self) -> bool:
        """Return True in the first call after the accident, else False."""
        was_told, self._told = self._told, self.happened
        return self.happened and not was_told

    def _watch(self) -> None:
        while self.victim.is_alive and not self._try_to_kill():
            time.sleep(0.005)

    def _has_just_staged(self) -> bool:
        """Tell whether the victim has written rows that it has not published."""
        has_staged = False
        for folder in self._staged.glob("*") if self._staged.exists() else ():
            log = folder / "_delta_log" / f"{1:020}.json"
            if folder.name in self._looked_at or not log.exists():
                continue
            with suppress(FileNotFoundError):
                has_staged |= self._owner(log.read_text()) == self.victim.name
            self._looked_at.add(folder.name)
        return has_staged

    @staticmethod
    def _owner(log: str) -> str | None:
        metadata_texts = [json.loads(line).get("commitInfo", {}).get("userMetadata") for line in log.splitlines()]
        return next((json.loads(text).get("owner") for text in metadata_texts if text), None)

    def just_written(self) -> tuple[str, int] | None:
        """Return the receipt under which the victim has published rows since the last call, and the number of rows."""
        written = None
        for file in sorted(self._log.glob("*.json"))[self._seen :]:
            self._seen += 1
            entries = [json.loads(line) for line in file.read_text().splitlines()]
            metadata = next(
                (said for entry in entries if (said := entry.get("commitInfo", {}).get("userMetadata"))), "{}"
            )
            if json.loads(metadata).get("owner") == self.victim.name:
                rows = sum(json.loads(entry["add"]["stats"])["numRecords"] for entry in entries if "add" in entry)
                written = json.loads(metadata)["receipt_id"], rows
        return written

    def unacknowledged(self, receipt_id: str, rows: int) -> Claim | None:
        """Return the claim of these rows. Return None if it holds fewer messages: the rows are acknowledged then."""
        held = self._queue.claim(receipt_id)
        return held if held.count >= max(rows, 1) else None
