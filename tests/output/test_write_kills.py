"""The process is killed (SIGKILL) in the middle of a write, at every step of it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.clock import system_clock
from tests.output.conftest import Place, rows_of

CHECKOUT = Path(__file__).resolve().parents[2]
WRITER = """
import os, signal, sys
from ledger import Ledger
from tests.output.conftest import rows_of

root, table, step, times, attempt = *sys.argv[1:4], int(sys.argv[4]), sys.argv[5] or None
ledger, seen = Ledger.open(root, engine="delta-rs"), []

def on_step(name):
    seen.append(name)
    if name == step and seen.count(name) == times:
        os.kill(os.getpid(), signal.SIGKILL)

claim = ledger.queue("work").receive(None, attempt_id=attempt)
ledger.store.transactions.on_step = on_step
claim.write(rows_of(claim), table)
"""
STEPS = [("chosen", 1), ("committed", 1), ("begun", 1), ("written", 1), ("chosen", 2), ("committed", 2)]


def killed_writer(place, step, times, attempt=""):
    process = subprocess.run(
        [sys.executable, "-c", WRITER, place.root, place.table, step, str(times), attempt],
        cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert process.returncode == -signal.SIGKILL, process.stderr[-2_000:]


@pytest.mark.parametrize(("step", "times"), STEPS)
def test_others_take_over_and_every_row_is_there_once(tmp_path, step, times):
    place = Place(tmp_path, system_clock)
    ids = place.queue.send([f"{n}" for n in range(5)])
    killed_writer(place, step, times)
    later = Place(tmp_path, lambda: system_clock() + 31_000)
    taken = later.queue.receive(None)
    taken.write(rows_of(taken), later.table)
    assert later.written() == dict.fromkeys(ids, 1) and later.queue.counts().deleted == 5


@pytest.mark.soak
@pytest.mark.parametrize(("step", "times"), STEPS)
def test_its_retry_carries_on_and_every_row_is_there_once(tmp_path, step, times):
    place = Place(tmp_path, system_clock)
    ids = place.queue.send([f"{n}" for n in range(5)])
    killed_writer(place, step, times, "job")
    again = place.queue.receive(None, attempt_id="job")
    again.write(rows_of(again), place.table)
    assert place.written() == dict.fromkeys(ids, 1) and place.queue.counts().deleted == 5
