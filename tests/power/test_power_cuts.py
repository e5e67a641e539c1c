"""What was answered survives a power cut: processes use a ledger on a storage that forgets what was not synced, and are
killed; what the storage kept is opened again, by the next ones."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.power.judge import Judge
from tests.power.storage import Storage, build

CHECKOUT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("gcc") is None,
    reason="needs Linux and gcc: it compiles the library that stands for a storage that forgets",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("library"))


class Rounds:
    """Rounds of "verbs, answers, cut, reopen", each on what the cut before has left."""

    def __init__(self, folder: Path, library: Path, seed: int, *, sync: bool = True) -> None:
        self.judge, self._dice = Judge(), random.Random(seed)
        self._folder, self._library, self._sync = folder, library, sync
        self._left: Path | None = None

    def play(self, number: int) -> list[str]:
        """Play one, and return what is wrong after it."""
        folder = self._folder / f"round-{number}"
        told = folder / "told"
        told.mkdir(parents=True)
        if self._left is not None:
            self._left.rename(folder / "disk")
        storage = Storage(folder, self._library)
        self._run(storage, told, number)
        left = folder / "left"
        storage.cut(left, self._dice)
        self.judge.hear(told)
        wrong = self.judge.wrong(left / "deep" / "ledger", left / "output")
        if self._left is not None:
            shutil.rmtree(self._folder / f"round-{number - 1}", ignore_errors=True)
        self._left = left
        return wrong

    def _run(self, storage: Storage, told: Path, number: int) -> None:
        count = self._dice.choice([1, 2, 3])
        said = "sync" if self._sync else "no sync"
        places = (str(storage.disk / "deep" / "ledger"), str(storage.disk / "output"), str(told))
        command = [sys.executable, "-m", "tests.power.worker", *places, str(100 * number), str(count), said]
        with (storage.disk.parent / "errors").open("wb") as errors:
            worker = subprocess.Popen(
                command, cwd=CHECKOUT, env=storage.environment(), start_new_session=True, stderr=errors
            )
        try:
            if self._dice.random() < 0.15:
                # While they open the ledger, or make it.
                time.sleep(self._dice.uniform(0.3, 3))
            else:
                self._wait(told, self._dice.randrange(12_000))
            assert worker.poll() is None, (storage.disk.parent / "errors").read_text()
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()

    def _wait(self, told: Path, characters: int) -> None:
        """Wait until the workers have said so much, or long."""
        until = time.monotonic() + 20
        while time.monotonic() < until and sum(file.stat().st_size for file in told.iterdir()) < characters:
            time.sleep(0.005)
        time.sleep(self._dice.uniform(0, 0.03))


@pytest.mark.parametrize("rounds", [6, pytest.param(200, marks=pytest.mark.soak)])
def test_nothing_that_was_answered_is_lost_and_nothing_acknowledged_comes_back(tmp_path, library, rounds):
    cuts = Rounds(tmp_path, library, seed=rounds)
    for number in range(rounds):
        assert cuts.play(number) == [], f"after cut {number}, in {tmp_path}"
    assert cuts.judge.answers > 5 * rounds


@pytest.mark.soak
def test_without_sync_a_cut_loses_what_was_answered(tmp_path, library):
    """The storage forgets, and the judge sees it."""
    found = []
    for seed in range(5):
        cuts = Rounds(tmp_path / str(seed), library, seed, sync=False)
        found += [wrong for number in range(2) for wrong in cuts.play(number)][:1]
        if found:
            break
    assert found
