"""The lock between the writers of one machine: shared or alone, between threads and between processes, and fair."""

import contextlib
import subprocess
import sys
import threading
import time

import pytest

from ledger.settings import Settings
from ledger.store.delta.commit import locks, transactions
from ledger.store.delta.commit.locks import StillLocked, TableLock

HOLDER = """
import sys
from pathlib import Path
from ledger.store.delta.commit.locks import TableLock
lock = TableLock(Path(sys.argv[1]), "visibility")
with getattr(lock, sys.argv[2])():
    print("held", flush=True)
    sys.stdin.readline()
"""
FORKING = """
import os, sys
from pathlib import Path
from ledger.store.delta.commit.locks import TableLock
lock = TableLock(Path(sys.argv[1]), "visibility")
with lock.exclusive():
    me = "child" if os.fork() == 0 else "parent"
    if sys.argv[2] != me:
        print(me, "stays", flush=True)
        sys.stdin.read()
print(me, "left", flush=True)
sys.stdin.read()
"""
#: Long enough for a thread to get a lock that is free, on a busy machine.
SOON = 20.0


@pytest.fixture
def lock(tmp_path):
    return TableLock(tmp_path / "_locks", "visibility")


def entered(kind) -> threading.Event:
    """Tells when another thread got hold of the lock, which it gives back at once."""
    inside = threading.Event()

    def hold():
        with kind():
            inside.set()

    threading.Thread(target=hold, daemon=True).start()
    return inside


def test_two_threads_may_share(lock):
    with lock.shared():
        assert entered(lock.shared).wait(SOON)


@pytest.mark.parametrize("held, wanted", [("shared", "exclusive"), ("exclusive", "shared"), ("exclusive", "exclusive")])
def test_nobody_is_beside_a_thread_that_is_alone(lock, held, wanted):
    with getattr(lock, held)():
        inside = entered(getattr(lock, wanted))
        assert not inside.wait(0.2)
    assert inside.wait(SOON)


@pytest.mark.parametrize("held, wanted, beside", [("exclusive", "shared", False), ("shared", "shared", True)])
def test_processes_keep_to_the_same_lock(lock, tmp_path, held, wanted, beside):
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "_locks"), held]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        inside = entered(getattr(lock, wanted))
        assert inside.wait(SOON if beside else 0.3) is beside
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert inside.wait(SOON)


def test_a_process_that_dies_gives_its_lock_back(lock, tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "_locks"), "exclusive"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.kill()
        holder.wait()
        assert entered(lock.exclusive).wait(SOON)


@contextlib.contextmanager
def forking(folder, leaves):
    """A process that forks while it has the lock; `leaves`: which of the two gives it back then. Both end after this,
    and what they say comes before it."""
    command = [sys.executable, "-c", FORKING, str(folder / "_locks"), leaves]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        said = {parent.stdout.readline(), parent.stdout.readline()}
        assert len(said) == 2 and all(said)
        try:
            yield parent
        finally:
            parent.stdin.close()
            parent.stdout.read()


def test_a_forked_child_does_not_keep_the_lock_that_its_parent_gives_back(lock, tmp_path):
    """A pool of processes, forked beside a heartbeat, stopped the whole ledger for as long as it lived."""
    with forking(tmp_path, leaves="parent"):
        assert entered(lock.exclusive).wait(SOON)


def test_a_forked_child_does_not_keep_the_lock_of_a_parent_that_dies(lock, tmp_path):
    with forking(tmp_path, leaves="nobody") as parent:
        parent.kill()
        parent.wait()
        assert entered(lock.exclusive).wait(SOON)


def test_a_forked_child_does_not_give_back_the_lock_of_its_parent(lock, tmp_path):
    with forking(tmp_path, leaves="child"):
        inside = entered(lock.shared)
        assert not inside.wait(0.3)
    assert inside.wait(SOON)


@pytest.mark.parametrize("held", ["shared", "exclusive"])
def test_one_that_gives_up_waiting_raises_and_holds_up_nobody(lock, held):
    with getattr(lock, held)():
        for late in (0.0, 0.05):
            with pytest.raises(StillLocked, match="visibility"), lock.exclusive(until=time.monotonic() + late):
                pytest.fail("it is not alone")
        assert held == "exclusive" or entered(lock.shared).wait(SOON)
    with lock.exclusive(until=time.monotonic()):
        pass
    assert entered(lock.exclusive).wait(SOON)


def test_one_that_would_rather_be_alone_is_so_unless_somebody_never_goes(lock, tmp_path):
    """A process that was stopped while it shared the table held up all others, of all queues, for ever."""
    with lock.prefer_exclusive(SOON):
        assert not entered(lock.shared).wait(0.1)
    with lock.shared():
        with lock.prefer_exclusive(0.05):
            newcomer = entered(lock.shared)
            assert not newcomer.wait(0.1), "it is alone but for that one"
        assert newcomer.wait(SOON) and not entered(lock.exclusive).wait(0.1)
    with lock.exclusive():
        inside = entered(lambda: lock.prefer_exclusive(0.05))
        assert not inside.wait(0.3), "that one is owed to be alone"
    assert inside.wait(SOON)


def test_a_process_that_is_stopped_in_a_commit_holds_up_no_verb_for_ever(open_ledger, monkeypatch):
    monkeypatch.setattr(transactions, "PATIENCE", 0.05)
    own = open_ledger().store.transactions
    with own.locks["visibility"].shared():
        assert entered(lambda: own.turn("visibility", losses=Settings().losses_before_waiting)).wait(SOON)


def test_locks_of_two_tables_do_not_meet(lock, tmp_path):
    with lock.exclusive():
        assert entered(TableLock(tmp_path / "_locks", "messages").exclusive).wait(SOON)


def test_a_lock_is_given_back_after_an_error(lock):
    with pytest.raises(ZeroDivisionError), lock.shared():
        _ = 1 / 0
    assert entered(lock.exclusive).wait(SOON)


def test_one_that_wants_to_be_alone_is_not_starved_by_sharers(lock):
    """Sharers that always overlap never leave the table free; whoever waits to be alone gets it all the same."""
    stop, rounds = threading.Event(), [0, 0, 0]

    def share(which: int) -> None:
        while not stop.is_set():
            with lock.shared():
                rounds[which] += 1
                time.sleep(0.03)

    sharers = [threading.Thread(target=share, args=(which,), daemon=True) for which in range(3)]
    for sharer in sharers:
        sharer.start()
    try:
        for _ in range(3):
            assert entered(lock.exclusive).wait(SOON)
    finally:
        stop.set()
        for sharer in sharers:
            sharer.join()
    assert all(rounds), "the sharers went on as well"


def test_who_must_be_alone_lets_others_by_while_one_never_goes(lock, monkeypatch):
    """One stopped sharer and one process that commits through Spark held up everybody, of all queues, for ever."""
    monkeypatch.setattr(locks, "PATIENCE", 0.3)
    with lock.shared():
        alone = entered(lock.exclusive)
        # It has the gate, and then not any more.
        assert all(entered(lock.shared).wait(SOON) for _ in range(3))
        assert not alone.is_set()
    assert alone.wait(SOON)


def test_who_stays_at_the_gate_holds_up_the_others_once(lock, tmp_path, monkeypatch):
    """One of several processes that was stopped while it was given the table alone held up all others, for ever."""
    elsewhere = TableLock(tmp_path / "_locks", "visibility")
    with lock.prefer_exclusive(SOON):
        monkeypatch.setattr(locks, "PATIENCE_AT_GATE", 0.05)
        assert entered(lock.shared).wait(SOON), "it shows nothing for longer than that"
        monkeypatch.setattr(locks, "PATIENCE_AT_GATE", 5 * SOON)
        (told,) = (tmp_path / "_locks").glob("*.at_gate_in_vain")
        found_out = told.stat().st_mtime
        assert entered(elsewhere.shared).wait(SOON) and entered(lambda: elsewhere.prefer_exclusive(SOON)).wait(SOON)
        alone = entered(elsewhere.exclusive)
        assert not alone.wait(0.1), "it has the table, as the others have"
        monkeypatch.setattr(locks, "IN_VAIN", 0.0)
        assert told.stat().st_mtime == found_out, "by who did not wait nobody is told"
        late = entered(lock.shared)
        assert not late.wait(0.1), "a while later it is waited for again"
    assert alone.wait(SOON) and late.wait(SOON)


def test_who_goes_on_at_the_gate_is_waited_for(lock, monkeypatch):
    """A FIFO DataFrame that lost to others takes longer than their patience, and would never land."""
    monkeypatch.setattr(locks, "PATIENCE_AT_GATE", 0.3)
    monkeypatch.setattr(locks, "SHOWING", 0.01)
    with lock.prefer_exclusive(SOON):
        inside = entered(lock.shared)
        assert not inside.wait(1)
    assert inside.wait(SOON)


def test_who_has_to_be_alone_is_so_however_long_that_takes(lock, monkeypatch):
    with lock.exclusive():
        monkeypatch.setattr(locks, "PATIENCE_AT_GATE", 0.05)
        inside = [entered(kind) for kind in (lock.shared, lambda: lock.prefer_exclusive(SOON), lock.exclusive)]
        assert not any(one.wait(0.2) for one in inside)
    assert all(one.wait(SOON) for one in inside)
    monkeypatch.setattr(locks, "PATIENCE_AT_GATE", 5 * SOON)
    with lock.prefer_exclusive(SOON):
        assert not entered(lock.shared).wait(0.1), "to wait for that one was not in vain"


def test_that_one_never_goes_is_found_out_once_for_all_processes(lock, tmp_path, monkeypatch):
    """Each in turn waited for it, with the gate in hand: ten processes took half a minute for a verb."""
    with lock.shared():
        with lock.prefer_exclusive(0.05):
            pass
        began = time.monotonic()
        for _ in range(5):
            with TableLock(tmp_path / "_locks", "visibility").prefer_exclusive(SOON):
                pass
        assert time.monotonic() - began < SOON / 2
    monkeypatch.setattr(locks, "IN_VAIN", 0.0)
    with lock.prefer_exclusive(SOON):
        assert not entered(lock.shared).wait(0.1), "a while later it is alone again"
