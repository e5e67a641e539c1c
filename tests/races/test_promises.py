"""The smallest races that broke a promise once: queues that feed one, many threads on FIFO, many with short leases."""

import contextlib
import shutil
import threading

import pytest

from ledger import Ledger, Settings
from ledger.clock import system_clock
from tests.races.checker import violations
from tests.races.history import read
from tests.races.worker import Worker

FIFO = {"FifoQueue": True, "Lanes": 2}


def together(*calls):
    """Runs calls in threads at once; raises the first error that one of them ended in."""
    ready, errors = threading.Barrier(len(calls)), []

    def run(call):
        ready.wait()
        try:
            call()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error


@pytest.fixture
def root(race_template, tmp_path):
    return str(shutil.copytree(race_template, tmp_path / "ledger"))


@pytest.fixture
def opened(root):
    return lambda: Ledger.open(root, engine="delta-rs")


@pytest.fixture
def logged(tmp_path):
    """A worker on a queue, whose calls are judged in the end."""

    def worker(name, queue, timeout=3_600):
        return Worker(name, queue, tmp_path, seed=0, timeout=timeout)

    return worker


def test_messages_that_two_queues_feed_into_a_third_have_one_holder_each(opened, logged, tmp_path):
    """Never held by two receivers: two redrive 60 times one message at a time, from queues of different Lanes."""
    ledger = opened()
    feeders = {name: ledger.create_queue(name, {"Lanes": lanes}) for name, lanes in (("wide", 7), ("narrow", 3))}
    third = ledger.create_queue("third", {"Lanes": 5})
    # Neighbours: every other message comes straight, and its neighbour by way of the other queue.
    bodies = [str(n) for n in range(120)]
    ids = feeders["wide"].send(bodies)
    assert feeders["wide"].redrive(ids[1::2], destination="narrow") == 60

    def feed(name):
        queue = opened().queue(name)
        for _ in range(60):
            assert queue.redrive(destination="third", max_messages=1) == 1

    def receive(name):
        worker = logged(name, opened().queue("third"))
        for _ in range(30):
            worker.receive(2)

    together(lambda: feed("wide"), lambda: feed("narrow"), lambda: receive("one"), lambda: receive("two"))
    drain = logged("drain", third)
    while drain.receive(None)[0]:
        pass
    history = read(sorted(tmp_path.glob("*.log")))
    assert [found for found in violations(history) if "never sent" not in found] == []
    granted = [message for operation in history for message in operation.ids]
    assert sorted(granted) == sorted(ids), "each to one holder"


def test_ten_threads_of_one_ledger_receive_a_fifo_queue_in_order_and_completely(opened, logged, tmp_path):
    """A group's messages in order, between threads that share what they read of the groups."""
    queue = opened().create_queue("orders.fifo", FIFO)
    # Each send from a ledger of its own: its messages lie in segments that nobody has met before.
    senders, done = [opened().queue("orders.fifo") for _ in range(25)], threading.Event()

    def send():
        log = logged("sender", queue).log
        for n, sender in enumerate(senders):
            keys = tuple(f"key-{n}-{group}" for group in "abcd")
            entries = [{"MessageBody": k, "MessageGroupId": k[-1], "MessageDeduplicationId": k} for k in keys]
            operation = log.began("send", queue=queue.id, bodies=keys)
            log.ended(operation, ids=tuple(sender.send(entries)), keys=keys)
        done.set()

    def receive(name):
        worker = logged(name, queue)
        while not done.is_set() or queue.counts().visible:
            claim, handles = worker.receive(5)
            if claim:
                worker.act("delete", claim.receipt_id, handles)

    together(send, *(lambda n=n: receive(f"receiver-{n}") for n in range(10)))
    assert queue.counts().stored == 0
    assert violations(read(sorted(tmp_path.glob("*.log"))), []) == []


class Turns:
    """A table's lock that tells each thread when it got its turn."""

    def __init__(self, lock):
        self._lock, self.got = lock, threading.local()

    @contextlib.contextmanager
    def shared(self):
        with self._lock.shared():
            self.got.at = system_clock()
            yield

    @contextlib.contextmanager
    def exclusive(self):
        with self._lock.exclusive():
            self.got.at = system_clock()
            yield

    @contextlib.contextmanager
    def prefer_exclusive(self, seconds):
        with self._lock.prefer_exclusive(seconds):
            self.got.at = system_clock()
            yield


def test_ten_receivers_that_wait_for_one_another_decide_by_the_time_when_they_have_their_turn(root, opened):
    """Claims come back with time left: a lease counts from the decision, and a wait is no disagreement of clocks."""
    opened().create_queue("jobs", {"Lanes": 1}).send([str(n) for n in range(50)])
    claims = []

    def receive():
        strict = Settings(maximum_clock_skew=0.05, losses_before_waiting=1)
        ledger = Ledger.open(root, engine="delta-rs", settings=strict, storage_clock=system_clock)
        turns = ledger.store.transactions.locks["visibility"] = Turns(ledger.store.transactions.locks["visibility"])
        for _ in range(5):
            claim = ledger.queue("jobs").receive(1, 60)
            claims.append((claim.deadline.timestamp() * 1_000 - 60_000, turns.got.at))

    together(*[receive] * 10)
    assert len(claims) == 50 and all(round(decided) >= turn for decided, turn in claims)
