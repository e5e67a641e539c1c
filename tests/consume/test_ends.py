"""The end of a consumer, by a signal or an error: what a handler has done is settled, and all other messages are given
back."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.errors import StorageFailed
from ledger.work.backlog import Backlog
from ledger.work.claim_source import ClaimSource

CHECKOUT = Path(__file__).resolve().parents[2]


def test_a_drain_waits_for_the_outcome_of_a_call_that_has_just_ended(tmp_path):
    code = """
import os, signal, sys, time
from ledger import Ledger
from ledger.work.handler_calls import HandlerEvidence
add = HandlerEvidence.add
def add_late(*arguments, **keywords):
    time.sleep(0.3)
    return add(*arguments, **keywords)
HandlerEvidence.add = add_late
Ledger.open(sys.argv[1]).queue("work").consume(lambda message: os.kill(os.getpid(), signal.SIGTERM), concurrency=1)
"""
    queue = Ledger.open(str(tmp_path / "ledger")).create_queue("work")
    queue.send("1")
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path / "ledger")], cwd=CHECKOUT, check=False)
    assert run.returncode == 128 + signal.SIGTERM
    counts = queue.counts()
    assert (counts.deleted, counts.visible, counts.in_flight) == (1, 0, 0)


def test_an_error_of_a_receive_loses_no_outcome_that_waits(place, monkeypatch):
    receive, report = ClaimSource.receive, Backlog.report
    has_outcome, receives = threading.Event(), []

    def fail_later(source, *arguments):
        receives.append(arguments)
        if len(receives) == 1:
            return receive(source, *arguments)
        assert has_outcome.wait(30)
        raise StorageFailed("there", "no answer")

    def tell(backlog):
        report(backlog)
        has_outcome.set()

    monkeypatch.setattr(ClaimSource, "receive", fail_later)
    monkeypatch.setattr(Backlog, "report", tell)
    place.queue.send("1")
    with pytest.raises(StorageFailed, match="no answer"):
        place.queue.consume(lambda message: None)
    counts = place.queue.counts()
    assert (counts.deleted, counts.visible, counts.in_flight) == (1, 0, 0)


def test_a_signal_that_a_library_turned_into_an_error_is_still_the_signal(tmp_path):
    """Condition.wait raises RuntimeError if it is interrupted while it takes its lock again."""
    code = """
import os, signal, sys, threading, time
from ledger import Ledger
from ledger.runtime.termination import ONE_SIGNAL_SECONDS
wait = threading.Event.wait
def wait_badly(event, timeout=None):
    try:
        return wait(event, timeout)
    except BaseException:
        raise RuntimeError("release unlocked lock")
def end_twice(message):
    threading.Event.wait = wait_badly
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(4 * ONE_SIGNAL_SECONDS)
    time.sleep(60)
Ledger.open(sys.argv[1]).queue("work").consume(end_twice, concurrency=1)
"""
    queue = Ledger.open(str(tmp_path / "ledger")).create_queue("work")
    queue.send("1")
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "ledger")], cwd=CHECKOUT, check=False, stderr=subprocess.PIPE
    )
    assert run.returncode == 128 + signal.SIGTERM, run.stderr
    assert queue.counts().visible == 1
