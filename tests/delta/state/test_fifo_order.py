"""A FIFO queue's order survives what the tables go through: several senders, compaction, and moves to and fro."""

import threading

import pytest

from ledger.errors import InvalidParameterValue
from ledger.store.delta.state.listing import Listing
from ledger.store.delta.verbs.upkeep import FILES_WORTH_COMPACTING

FIFO = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "Lanes": 1}


def test_f2_compaction_does_not_mix_up_what_several_senders_sent_in_turn(open_ledger, clock):
    ledgers = [open_ledger(), open_ledger()]
    ledgers[0].create_queue("jobs.fifo", FIFO)
    sent = [str(n) for n in range(2 * FILES_WORTH_COMPACTING)]
    for n, body in enumerate(sent):
        ledgers[n % 2].queue("jobs.fifo").send(body, message_group_id="g")
        clock.advance(1)
    assert ledgers[0].upkeep(vacuum=False).lanes_compacted == 1
    for ledger in (ledgers[0], open_ledger()):
        first = ledger.queue("jobs.fifo").receive(5)
        assert [message.body for message in first] == sent[:5]
        first.release()


def test_f2_what_came_back_to_a_group_later_comes_later_also_within_one_claim(open_ledger, clock):
    ledger = open_ledger()
    ledger.create_queue("dead.fifo", FIFO)
    policy = {"deadLetterTargetArn": "dead.fifo", "maxReceiveCount": 1}
    jobs = ledger.create_queue("jobs.fifo", {**FIFO, "RedrivePolicy": policy})
    for body in ("first", "second"):
        jobs.send(body, message_group_id="g")
        clock.advance(1)
    jobs.receive(1, 10)
    clock.advance(10)
    assert [message.body for message in jobs.receive(None, 60)] == ["second"], "the first one is a dead letter"
    jobs.send("third", message_group_id="g")
    clock.advance(60)
    jobs.set_attributes({"RedrivePolicy": {**policy, "maxReceiveCount": 1_000}})
    dead = ledger.queue("dead.fifo")
    assert dead.redrive() == 1
    assert [message.body for message in jobs.receive(None)] == ["second", "third", "first"]


def test_a_redrive_goes_to_another_queue_of_the_same_kind_and_lanes(open_ledger):
    ledger = open_ledger()
    ledger.create_queue("plain", {"Lanes": 1})
    ledger.create_queue("wide.fifo", {**FIFO, "Lanes": 2})
    jobs = ledger.create_queue("jobs.fifo", FIFO)
    for destination, why in (("jobs.fifo", "another queue"), ("plain", "same type"), ("wide.fifo", "equal Lanes")):
        with pytest.raises(InvalidParameterValue, match=why):
            jobs.redrive(destination=destination)


def test_threads_that_share_a_ledger_keep_their_stocks_apart(open_ledger, monkeypatch):
    """One thread's list of an older version, put away late, must not stand for the newer one."""
    ledger = open_ledger()
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send("old")
    read, waiting, go = Listing._read, threading.Event(), threading.Event()

    def slow(*arguments):
        found = read(*arguments)
        if threading.current_thread().name == "slow":
            waiting.set()
            assert go.wait(10)
        return found

    monkeypatch.setattr(Listing, "_read", slow)
    thread = threading.Thread(target=queue.counts, name="slow")
    thread.start()
    assert waiting.wait(10)
    queue.send("new")
    assert queue.counts().visible == 2
    go.set()
    thread.join()
    assert queue.counts().visible == 2
