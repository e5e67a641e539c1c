"""Q2, Q3: how many messages may be in flight on an SQS-limited queue.

A call of such a queue takes at most ten; so what fills it here asks the store for more in one receive.
"""

import pytest

from ledger.errors import LedgerError, OverLimit
from ledger.rules import limits
from ledger.rules.limits import MAXIMUM_IN_FLIGHT, MAXIMUM_IN_FLIGHT_FIFO
from ledger.store.protocol import ReceiveRequest
from tests.conformance.looking import changing_nothing

FIFO = {"FifoQueue": "true", "Limits": "SQS", "ContentBasedDeduplication": "true"}


def claim_many(queue, clock, count, timeout=30):
    """A receive of any size, whatever the queue allows per call; answers how many it got."""
    (grant,) = queue.access.store.receive(queue.access.record(), [ReceiveRequest(count, timeout)], clock)
    if isinstance(grant, LedgerError):
        raise grant
    return grant.count if grant else 0


@pytest.fixture
def small_quota(monkeypatch):
    """A quota of 1,200 messages, for what does not depend on the number."""
    monkeypatch.setattr(limits, "MAXIMUM_IN_FLIGHT", 1_200)
    return 1_200


@pytest.fixture
def full(make_queue, clock):
    """A standard queue with 5 messages more than its quota, and 3 messages short of it in flight."""
    quota = limits.MAXIMUM_IN_FLIGHT
    queue = make_queue(Limits="SQS", Lanes=1)
    queue.send(["x"] * (quota + 5))
    assert claim_many(queue, clock, quota - 3) == quota - 3
    return queue


@pytest.fixture
def full_fifo(ledger, clock):
    """The same as a FIFO queue, every message in a group of its own."""
    queue = ledger.create_queue("full.fifo", {**FIFO, "Lanes": 1})
    queue.send([{"MessageBody": str(n), "MessageGroupId": str(n)} for n in range(MAXIMUM_IN_FLIGHT_FIFO + 5)])
    assert claim_many(queue, clock, MAXIMUM_IN_FLIGHT_FIFO - 3) == MAXIMUM_IN_FLIGHT_FIFO - 3
    return queue


@pytest.mark.soak_variants("memory")
def test_q2_a_receive_gets_what_the_quota_leaves_then_a_short_poll_is_an_error_and_a_long_poll_empty(full, clock):
    assert full.receive(10).count == 3
    with changing_nothing(full):
        with pytest.raises(OverLimit, match=r"120000 messages are in flight.*limit is 120000"):
            full.receive()
        assert not full.receive(wait=0.01)
    assert full.counts().in_flight == MAXIMUM_IN_FLIGHT
    clock.advance(30)
    assert full.receive(10).count == 10, "what ran out is in flight no more"


def test_q2_a_deleted_and_a_released_message_make_room_and_a_locked_one_takes_none(small_quota, full):
    first = full.receive(3).messages()
    full.delete(first[0].receipt_handle)
    full.change_visibility(first[1].receipt_handle, 0)
    assert full.receive(10).count == 2
    with pytest.raises(OverLimit):
        full.receive()


def test_q2_the_same_attempt_gets_its_claim_again_at_the_quota(small_quota, full):
    claim = full.receive(3, attempt_id="job")
    assert claim.count == 3
    again = full.receive(3, attempt_id="job")
    assert (again.receipt_id, again.count) == (claim.receipt_id, 3)
    with pytest.raises(OverLimit):
        full.receive(3, attempt_id="another job")


def test_q2_no_receive_of_any_size_goes_beyond_the_quota(small_quota, make_queue, clock):
    queue = make_queue(Limits="SQS", Lanes=4)
    for _ in range(4):
        queue.send(["x"] * (small_quota // 4 + 10))
    taken = 0
    while taken < small_quota:
        taken += claim_many(queue, clock, None)
        assert queue.counts().in_flight == taken <= small_quota
    with pytest.raises(OverLimit):
        claim_many(queue, clock, None)


def test_q3_at_the_quota_a_fifo_queue_answers_no_error_and_no_messages(full_fifo, clock):
    assert full_fifo.receive(10).count == 3
    with changing_nothing(full_fifo):
        assert not full_fifo.receive()
        assert not full_fifo.receive(wait=0.01)
    assert full_fifo.counts().in_flight == MAXIMUM_IN_FLIGHT_FIFO
    clock.advance(30)
    assert full_fifo.receive(10).count == 10


@pytest.mark.soak_variants("memory")
def test_q4_an_unbounded_queue_has_no_quota(make_queue):
    queue = make_queue(Lanes=1)
    queue.send(["x"] * (MAXIMUM_IN_FLIGHT + 1))
    assert queue.receive(None).count == MAXIMUM_IN_FLIGHT + 1
    assert not queue.receive()
