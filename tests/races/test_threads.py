"""Threads that share one ledger object, and threads with a ledger each."""

import threading

import pytest

from ledger import Ledger


@pytest.mark.soak_variants("a ledger each")
@pytest.mark.parametrize("shared", [True, False], ids=["one ledger", "a ledger each"])
def test_threads_share_a_queue_without_losing_anything(make_race, shared):
    race = make_race(300, sends=4, lanes=2)
    ledgers = [race.ledger if shared else Ledger.open(race.root, engine="delta-rs") for _ in range(4)]
    roles = ["small", "small", "everything", "sender"]
    threads = {f"{role}-{n}": (role, ledger) for n, (role, ledger) in enumerate(zip(roles, ledgers))}
    answers = race.run({}, 5, threads=threads)
    assert all(answer["errors"] == [] for answer in answers.values()), answers
    assert race.judge() == []


@pytest.mark.parametrize("shared", [True, False], ids=["one ledger", "a ledger each"])
def test_the_same_send_from_many_threads_at_once_is_sent_once(make_race, shared):
    race = make_race(0, sends=1)
    ledgers = [race.ledger if shared else Ledger.open(race.root, engine="delta-rs") for _ in range(5)]
    together, answers = threading.Barrier(5), []

    def send(ledger):
        together.wait()
        answers.append(tuple(ledger.queue("race").send(["a", "b", "c"], attempt_id="job")))

    threads = [threading.Thread(target=send, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 5 and len(set(answers)) == 1
    assert race.queue.counts().stored == 3


def test_the_same_attempt_from_many_threads_at_once_is_one_claim(make_race):
    race = make_race(40, sends=4, lanes=4)
    together, receipts = threading.Barrier(5), []

    def receive():
        queue = Ledger.open(race.root, engine="delta-rs").queue("race")
        together.wait()
        receipts.append(queue.receive(7, 60, attempt_id="job").receipt_id)

    threads = [threading.Thread(target=receive) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(receipts) == 5 and len(set(receipts)) == 1
    assert race.queue.counts().in_flight == 7
