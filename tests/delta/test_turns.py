"""Turns between threads: in order, one at a time for a key, never in a circle, and given back whatever happens."""

import threading

import pytest

from ledger.store.delta.commit.turns import Turns

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
