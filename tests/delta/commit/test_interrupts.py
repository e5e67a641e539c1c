"""Ctrl-C at any instruction: no lock and no turn stays, and a verb happened or did not."""

import contextlib
import random
import subprocess
import sys
import threading
import time
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from ledger.heartbeat import Beat, Heartbeat
from ledger.runtime.threads import Workers, map_at_once
from ledger.store.delta.commit.locks import TableLock, releasing
from tests.delta.commit.interrupting import THREADS, Interrupter, locked_files

SOON = 20.0
#: Real signals at random moments; the answer says what stayed locked, and which messages are there.
SIGNALLED = """
import os, random, signal, sys, threading, time
from pathlib import Path
from ledger import Ledger
from tests.delta.commit.interrupting import locked_files
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
    places = []
    for at, *_ in interrupted(queue, root, acts[verb], numbers):
        places.append(at)
        # What the interrupted verb wrote is synced with this one. Else each would sync more files, in more places.
        if verb == "send":
            assert queue.send("other")
        else:
            acts[verb]()
    return places, tried, answered


@pytest.mark.parametrize("verb", ["send", "receive", "settle"])
def test_wherever_a_verb_is_interrupted_locks_and_turns_are_free(work, open_ledger, root, clock, verb):
    # A settlement has three times as many places as a receive.
    places, tried, answered = run_of(verb, work, root, sampled(150 if verb == "settle" else 60))
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


@pytest.mark.parametrize("kind", ["shared", "exclusive", "prefer_exclusive"])
def test_wherever_a_lock_is_interrupted_it_is_free(tmp_path, kind):
    lock = TableLock(tmp_path / "_locks", "visibility")

    @releasing
    def hold():
        with lock.prefer_exclusive(0.01) if kind == "prefer_exclusive" else getattr(lock, kind)():
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


def test_wherever_the_wait_before_a_fork_is_interrupted_no_lock_stays(root):
    """Python ignores the error, and the process gets the signal again. A process of its own: it is forked half way."""
    code = """
import os, signal, sys, threading
from itertools import count
from ledger import Ledger
from tests.delta.commit.interrupting import Interrupter
signal.signal(signal.SIGINT, lambda *received: again.append(received))
sys.unraisablehook = lambda error: None
queue, again, places = Ledger.open(sys.argv[1]).create_queue("work"), [], []
def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
for number in count(1):
    interrupter = Interrupter(number)
    interrupter.run(fork)
    if interrupter.at is None or "release_in_parent" in interrupter.at:
        break
    places.append(interrupter.at)
    sent = []
    other = threading.Thread(target=lambda: sent.append(queue.send("a")), daemon=True)
    other.start()
    other.join(10)
    if not sent:
        print("no other thread can send after", interrupter.at, flush=True)
        os._exit(1)
print(len(places), len(again), flush=True)
os._exit(0)
"""
    checkout = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", code, root]
    found = subprocess.run(command, cwd=checkout, stdout=subprocess.PIPE, text=True, timeout=200)
    assert found.returncode == 0, found.stdout
    places, again = map(int, found.stdout.split())
    assert places > 20 and again > 10


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


def test_a_heartbeat_beats_no_more_wherever_its_block_is_interrupted():
    """Also at the first instruction of what ends the block, and although the exception keeps what it knows of."""
    for number in count(1):
        heartbeat = Heartbeat("r", lambda seconds: Beat(0, False), 30, 10)

        def block(heartbeat=heartbeat):
            with heartbeat:
                pass

        interrupter = Interrupter(number, *THREADS)
        _, kept = interrupter.run(block)
        assert not any(not_ending(one) for one in threading.enumerate() if one.name == "ledger-heartbeat")
        if kept is None:
            break
    assert number > 10


def eventually(is_so):
    """Whether something becomes so, while other threads run."""
    until = time.monotonic() + SOON
    while not is_so() and time.monotonic() < until:
        time.sleep(0.001)
    return is_so()


def test_to_look_at_a_heartbeat_does_not_stop_it():
    with Heartbeat("r", lambda seconds: Beat(0, False), 30, 0.001) as heart:
        for _ in range(3):
            assert callable(heart.__exit__) and isinstance(heart, contextlib.AbstractContextManager)
        before = heart.beats
        assert eventually(lambda: heart.beats > before + 2)
    with contextlib.ExitStack() as stack:
        heart = stack.enter_context(Heartbeat("r", lambda seconds: Beat(0, False), 30, 0.001))
        assert eventually(lambda: heart.beats > 2)
    before = heart.beats
    assert not any(not_ending(one) for one in threading.enumerate() if one.name == "ledger-heartbeat")
    assert heart.beats == before


@pytest.mark.parametrize("use", ["one after the other", "at once"])
def test_workers_do_what_comes_after_an_interrupt(use):
    """A pool whose lock an interrupt leaves taken would do nothing any more, and every later verb would wait for it."""
    for number in count(1):
        workers = Workers(2, "ledger-test")

        def work(workers=workers):
            if use == "at once":
                return map_at_once(str, range(5), 3)
            return [job.result() for job in [workers.begin(partial(str, n)) for n in range(5)]]

        interrupter, done = Interrupter(number, *THREADS), []
        answer, kept = interrupter.run(work)
        after = threading.Thread(target=lambda done=done, work=work: done.append(work()), daemon=True)
        after.start()
        after.join(SOON)
        assert done == [list("01234")], interrupter.at
        if kept is None:
            assert answer == list("01234")
            break
    assert number > 10


def test_calls_in_other_threads_raise_what_the_first_of_them_raises():
    begun = []

    def call(n):
        begun.append(n)
        if n in (2, 4):
            raise ValueError(n)
        return n

    with pytest.raises(ValueError, match="2"):
        map_at_once(call, range(6), 3)
    assert sorted(begun) == list(range(6))
    assert map_at_once(call, (), 3) == [] and map_at_once(call, [7], 3) == [7]
