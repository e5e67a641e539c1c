"""Ctrl-C at any instruction: no lock and no turn stays, and a verb happened or did not."""

import random
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

import pytest

from ledger.heartbeat import Beat, Heartbeat
from ledger.store.delta.commit.file_locks import TableLock
from ledger.store.delta.commit.holdings import releasing
from tests.delta.interrupting import Interrupter, locked_files

SOON = 20.0
#: Real signals at random moments; the answer says what stayed locked, and which messages are there.
SIGNALLED = """
import os, random, signal, sys, threading, time
from pathlib import Path
from ledger import Ledger
from tests.delta.interrupting import locked_files
root, times = sys.argv[1], int(sys.argv[2])
queue = Ledger.open(root).create_queue("work", {"Lanes": 2, "VisibilityTimeout": 0})
queue.send(["warm"])
answered, tried, kept, interrupts = {"warm"}, {"warm"}, None, 0
armed, dice = threading.Event(), random.Random(times)

def interrupt():
    while True:
        armed.wait()
        time.sleep(dice.uniform(0, 0.006))
        if armed.is_set():
            armed.clear()
            os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
for turn in range(100_000):
    body = f"body {turn}"
    try:
        try:
            armed.set()
            tried.add(body)
            if turn % 2:
                queue.receive(3)
            else:
                queue.send([body])
                answered.add(body)
        finally:
            armed.clear()
    except KeyboardInterrupt as error:
        kept, interrupts = error, interrupts + 1
        held = locked_files(Path(root, "_locks"))
        assert not held, held
        if interrupts >= times:
            break
signal.signal(signal.SIGINT, signal.SIG_IGN)
there = [message.body for message in Ledger.open(root).queue("work").receive(None).messages()]
assert len(there) == len(set(there)), "sent twice"
assert answered <= set(there) <= tried, (len(answered - set(there)), set(there) - tried)
assert not [one for one in threading.enumerate() if one.name == "ledger-gate"]
print(interrupts)
"""


def sampled(most, seed=1):
    """Places that are tried in the usual run: the first ones, and some of the others."""
    dice, number = random.Random(seed), 0
    while True:
        number += dice.randint(1, most)
        yield number


def require_free(queue, folder, at):
    """Locks are free at once, and another thread's verb and this one's next pass."""
    assert locked_files(folder) == [], at
    errors = []
    other = threading.Thread(target=lambda: errors.append(queue.send("other")), daemon=True)
    other.start()
    other.join(SOON)
    assert errors and errors[0], at
    assert not [one for one in threading.enumerate() if one.name == "ledger-gate" and not_ending(one)], at


def interrupted(queue, root, act, numbers):
    """Interrupts what `act` does at places by their numbers; yields where, and the answer if it came all the same."""
    for number in numbers:
        interrupter = Interrupter(number)
        answer, kept = interrupter.run(act)
        if interrupter.at is None:
            return
        require_free(queue, Path(root, "_locks"), interrupter.at)
        yield interrupter.at, answer, kept


@pytest.fixture
def work(open_ledger):
    queue = open_ledger().create_queue("work", {"Lanes": 2})
    queue.send(["a", "b"])
    return queue


def run_of(verb, queue, root, numbers):
    bodies, tried, answered = count(), set(), set()

    def send():
        body = f"body {next(bodies)}"
        tried.add(body)
        assert queue.send([body])
        answered.add(body)

    acts = {"send": send, "receive": lambda: queue.receive(1, visibility_timeout=0)}
    acts["settle"] = lambda: queue.receive(1).release()
    places = [at for at, *_ in interrupted(queue, root, acts[verb], numbers)]
    return places, tried, answered


@pytest.mark.parametrize("verb", ["send", "receive", "settle"])
def test_wherever_a_verb_is_interrupted_locks_and_turns_are_free(work, open_ledger, root, clock, verb):
    places, tried, answered = run_of(verb, work, root, sampled(40))
    assert len(places) > 20
    clock.advance(60)
    require_sent_once(open_ledger, tried, answered)


@pytest.mark.soak
@pytest.mark.parametrize("verb", ["send", "receive", "settle"])
def test_at_every_place_of_a_verb(work, open_ledger, root, clock, verb):
    places, tried, answered = run_of(verb, work, root, count(1))
    assert len(places) > 500
    clock.advance(60)
    require_sent_once(open_ledger, tried, answered)


def require_sent_once(open_ledger, tried, answered):
    """An interrupted send happened or did not; one that was answered is there."""
    later = open_ledger().queue("work")
    later_bodies = [message.body for message in later.receive(None).messages()]
    assert len(later_bodies) == len(set(later_bodies) - {"other"}) + later_bodies.count("other")
    assert answered <= set(later_bodies) <= {"a", "b", "other"} | tried


@pytest.mark.parametrize("kind", ["shared", "exclusive", "rather_exclusive"])
def test_wherever_a_lock_is_interrupted_it_is_free(tmp_path, kind):
    lock = TableLock(tmp_path / "_locks", "visibility")

    @releasing
    def hold():
        with lock.rather_exclusive(0.01) if kind == "rather_exclusive" else getattr(lock, kind)():
            pass

    kept = []
    for number in count(1):
        interrupter = Interrupter(number)
        kept.append(interrupter.run(hold))
        assert locked_files(tmp_path / "_locks") == [], interrupter.at
        assert not [one for one in threading.enumerate() if one.name == "ledger-gate" and not_ending(one)]
        if interrupter.at is None:
            break
    assert number > 50


def not_ending(thread):
    """Whether a thread goes on; one that was never started does not."""
    if thread.ident is None:
        return False
    thread.join(SOON)
    return thread.is_alive()


@pytest.mark.parametrize("times", [200, pytest.param(5_000, marks=pytest.mark.soak)])
def test_signals_at_random_moments_leave_nothing_locked_and_nothing_half_done(root, times):
    command = [sys.executable, "-c", SIGNALLED, root, str(times)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=550)
    assert found.returncode == 0, found.stderr[-3_000:]
    assert found.stdout.strip() == str(times)


def test_a_heartbeat_that_is_interrupted_as_it_starts_beats_no_more():
    for number in count(1):
        heartbeat = Heartbeat("r", lambda seconds: Beat(0, False), 30, 10)
        interrupter = Interrupter(number)
        _, kept = interrupter.run(heartbeat.__enter__)
        if kept is None:
            heartbeat.__exit__()
            break
        assert not any(not_ending(one) for one in threading.enumerate() if one.name == "ledger-heartbeat")
    assert number > 2
