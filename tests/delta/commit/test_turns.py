"""Turns between threads: in order, one at a time for a key, never in a circle, and given back whatever happens."""

import contextlib
import itertools
import linecache
import sys
import threading

import pytest

from ledger.store.delta.commit import locks as module
from ledger.store.delta.commit.locks import PendingCall, Turns, releasing

#: Long enough for a thread to get a turn that is free, on a busy machine.
SOON = 20.0


@pytest.fixture
def turns():
    return Turns()


def waiting(turns, key, log, name):
    """A thread that awaits its turn; answers once it stands in the line."""
    before = turns.waiting(key)

    def take():
        with turns.of(key):
            log.append(name)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    while turns.waiting(key) == before:
        thread.join(0.001)
        assert thread.is_alive()
    return thread


def done(threads):
    for thread in threads:
        thread.join(SOON)
    return not any(thread.is_alive() for thread in threads)


def test_turns_come_in_the_order_in_which_they_were_asked_for(turns):
    log = []
    with turns.of("a"):
        threads = [waiting(turns, "a", log, name) for name in range(8)]
        assert log == []
    assert done(threads)
    assert log == list(range(8))


def test_one_that_never_ends_stops_no_other_queue(turns):
    log = []
    with turns.of("a"):
        with turns.of("b"):
            pass
        thread = threading.Thread(target=lambda: [log.append(key) for key in "bc" if _passes(turns, key)])
        thread.start()
        assert done([thread])
    assert log == ["b", "c"]


def _passes(turns, key):
    with turns.of(key):
        return True


def test_a_turn_ends_with_an_error(turns):
    with pytest.raises(ZeroDivisionError), turns.of("a"):
        _ = 1 / 0
    thread = threading.Thread(target=_passes, args=(turns, "a"), daemon=True)
    thread.start()
    assert done([thread])


def test_two_threads_that_want_each_others_turn_do_not_wait_in_a_circle(turns):
    met, ended = threading.Barrier(2), []

    def both(first, second):
        with turns.of(first):
            met.wait(SOON)
            with turns.of(second), turns.of(first):
                ended.append(first)

    threads = [threading.Thread(target=both, args=pair, daemon=True) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    assert done(threads)
    assert sorted(ended) == ["a", "b"]


def test_one_at_a_time_and_nothing_is_left_behind(turns):
    inside, most, rounds = [0], [0], []

    def work():
        for _ in range(200):
            with turns.of("a"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1
        rounds.append(200)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert done(threads)
    assert (most, len(rounds)) == ([1], 8)
    assert turns._queues == {}


class Ended(BaseException):
    """As KeyboardInterrupt, which would end the tests."""


@contextlib.contextmanager
def ended_at(number):
    """This thread is interrupted before the line that is run as the so-manieth of the module; yields a list that says
    where, then. Not where a lock is given back, or nothing is done: there Python looks for no interrupt."""
    found, lines = [], itertools.count(1)

    def trace(frame, event, argument):
        if frame.f_code.co_filename != module.__file__:
            return None
        text = linecache.getline(module.__file__, frame.f_lineno).strip()
        if event == "line" and not text.startswith(("with ", "try:")) and next(lines) == number:
            found.append(text)
            raise Ended
        return trace

    sys.settrace(trace)
    try:
        yield found
    finally:
        sys.settrace(None)


def interrupted(number):
    """Where the first of three was interrupted that wait in one line and go together, and which are still there."""
    turns, first_is_there, may_go, found = Turns(), threading.Event(), threading.Event(), []

    def hold():
        with turns.of("key"):
            first_is_there.set()
            may_go.wait(SOON)

    @releasing
    def wish():
        mine = PendingCall("kind")
        while not mine.done:
            with turns.together("key", mine, 31) as wishes:
                for one in wishes:
                    one.granted(1)

    def first():
        with contextlib.suppress(Ended), ended_at(number) as at:
            try:
                wish()
            finally:
                found.extend(at)

    threads = [threading.Thread(target=hold, daemon=True)]
    threads[0].start()
    first_is_there.wait(SOON)
    for target in (first, wish, wish):
        before = turns.waiting("key")
        threads.append(threading.Thread(target=target, daemon=True))
        threads[-1].start()
        while turns.waiting("key") == before and threads[-1].is_alive():
            threads[-1].join(0.001)
    may_go.set()
    assert done(threads), found
    assert not turns._queues
    return found


def test_wherever_one_is_interrupted_nobody_waits_for_ever():
    """Before its turn, in it, and as it gives it back."""
    found = list(itertools.takewhile(bool, map(interrupted, itertools.count(1))))
    assert len(found) > 30
