"""The quota on messages in flight in every order: never exceeded, although the receives take different lanes."""

import threading

import pytest

from ledger.rules import limits
from tests.interleavings.scheduler import Client


@pytest.fixture(autouse=True)
def quota_of_one(monkeypatch):
    monkeypatch.setattr(limits, "MAXIMUM_IN_FLIGHT", 1)
    monkeypatch.setattr(limits, "MAXIMUM_IN_FLIGHT_FIFO", 1)


def receive(name="jobs"):
    return lambda ledger: sorted(message.body for message in ledger.queue(name).receive(1, 60))


def in_two_lanes(ledger, **attributes):
    queue = ledger.create_queue("jobs", {"Lanes": 2, "Limits": "SQS", **attributes})
    for body in "ab":
        queue.send(body)
    return queue


def in_the_last_lane(call):
    """What a call answers in a thread that takes the last of the lanes that serve alike (see conftest)."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(call()), name="setup 1")
    thread.start()
    thread.join()
    return answers[0]


def test_two_receives_from_different_lanes_keep_the_quota(ledger, every_interleaving):
    """12 interleavings: one gets its message, the other OverLimit."""
    in_two_lanes(ledger)

    def check(outcome):
        assert sorted(map(str, outcome.answers)) in (["OverLimit", "['a']"], ["OverLimit", "['b']"])
        assert outcome.ledger.queue("jobs").counts().in_flight == 1

    assert every_interleaving([receive(), receive()], check) == 12


def test_two_receives_of_a_fifo_queue_keep_the_quota_without_an_error(ledger, every_interleaving):
    """12 interleavings: one gets its message, the other none (Q3)."""
    queue = ledger.create_queue("jobs.fifo", {"FifoQueue": True, "Lanes": 2, "Limits": "SQS"})
    for group in "ac":
        queue.send(group, message_group_id=group, message_deduplication_id=group)

    def check(outcome):
        assert sorted(map(len, outcome.answers)) == [0, 1]
        assert outcome.ledger.queue("jobs.fifo").counts().in_flight == 1

    assert every_interleaving([receive("jobs.fifo"), receive("jobs.fifo")], check) == 12


def test_an_extension_in_time_and_a_receive_from_another_lane_keep_the_quota(ledger, clock, every_interleaving):
    """12 interleavings: the receive, a millisecond later, counts a message as free that the extension keeps.

    (A late change that a queue accepts is not held against the quota: it takes nothing new.)
    """
    queue = in_two_lanes(ledger)
    # Not in the lane that receives under a quota meet on.
    held = in_the_last_lane(lambda: queue.receive(1, 10).messages()[0])
    clock.advance(9.999)

    def extend(ledger):
        return ledger.queue("jobs").change_visibility([held.receipt_handle], 60)[0].outcome

    def check(outcome):
        received, extended = outcome.answers
        assert extended == "changed" or received != "OverLimit"
        assert outcome.ledger.queue("jobs").counts().in_flight <= 1

    assert every_interleaving([Client(receive(), ahead=0.001), extend], check) == 12
