"""`receive_many`: several receives in one commit, with a receipt each, as if they came one after the other."""

import pytest

from ledger.errors import InvalidParameterValue, LeaseLost, OverLimit
from ledger.rules import limits
from tests.conformance.looking import changing_nothing
from tests.conformance.test_fifo import bodies, send

ATTEMPT = "ReceiveRequestAttemptId"


@pytest.fixture
def fifo(make_fifo):
    return make_fifo(Lanes=8)


def test_each_request_has_a_receipt_of_its_own_and_all_share_one_commit(make_queue, clock):
    queue = make_queue(Lanes=1, VisibilityTimeout=30)
    queue.send([str(n) for n in range(10)])
    claims = queue.receive_many([(3,), (4, 60), (2, 10, "job"), (5, None, None), (1,)])
    assert [claim.count for claim in claims] == [3, 4, 2, 1, 0] and not claims[-1] and claims[-1].error is None
    assert sorted(int(body) for claim in claims for body in bodies(claim)) == list(range(10))
    got = [claim for claim in claims if claim]
    assert len({claim.receipt_id for claim in got}) == 4 and {claim.version for claim in got} == {claims[0].version}
    assert len({claim.deadline for claim in got}) == 3
    assert {message.receipt_handle for message in claims[1]}.isdisjoint(m.receipt_handle for m in claims[0])
    clock.advance(10)
    assert queue.counts().in_flight == 8, "each has a timeout of its own"
    # Each receipt stands for itself.
    assert claims[0].delete().messages == 3 and claims[1].extend(90).messages == 4 and claims[3].release().messages == 1
    with pytest.raises(LeaseLost):
        claims[2].extend()
    later = queue.receive(None)
    assert later.count == 3 and later.version > claims[0].version
    assert sorted(queue.claim(claims[1].receipt_id).messages(), key=lambda m: int(m.body))


def test_f2_no_group_goes_to_two_receipts_of_a_call(fifo):
    send(fifo, "a1", "a2", "a3", "b1", "c1", "c2", "d1")
    claims = fifo.receive_many([(2,), (2,), (10,), (10,)])
    assert [bodies(claim) for claim in claims] == [["a1", "a2"], ["b1", "c1"], ["d1"], []]
    assert not fifo.receive(None), "a3 and c2 wait"
    claims[0].delete()
    assert [bodies(claim) for claim in fifo.receive_many([(None,), (None,)])] == [["a3"], []]


def test_f2_it_is_what_the_receives_would_get_one_after_the_other(make_fifo, clock):
    requests, found = [(1,), (3,), (2,), (1,), (4,), (9,)], []
    for many in (True, False):
        queue = make_fifo(Lanes=8)
        for n in range(24):
            queue.send(str(n), message_group_id=str(n * n % 11))
            clock.advance(0.001)
        claims = queue.receive_many(requests) if many else [queue.receive(*request) for request in requests]
        found.append([bodies(claim) for claim in claims])
    assert found[0] == found[1] and [len(one) for one in found[0]][:4] == [1, 3, 2, 1]


def test_f3_an_attempt_gets_its_claim_again_beside_new_ones(make_queue, clock):
    queue = make_queue(Lanes=4, VisibilityTimeout=30)
    queue.send([str(n) for n in range(6)])
    first = queue.receive(2, attempt_id="one")
    clock.advance(20)
    again, other, more = queue.receive_many([(2, None, "one"), (2, None, "two"), (None, 40)])
    assert (again.receipt_id, sorted(bodies(again))) == (first.receipt_id, sorted(bodies(first)))
    assert again.version == other.version == more.version > first.version
    assert again.deadline == other.deadline > first.deadline, "its timeout is restarted"
    assert sorted(bodies(again) + bodies(other) + bodies(more)) == [str(n) for n in range(6)]
    repeated = queue.receive_many([(2, None, "two"), (2, None, "one"), (2, None, "three")])
    assert [claim.receipt_id for claim in repeated] == [other.receipt_id, again.receipt_id, None]


def test_f3_an_attempt_that_holds_more_than_it_asks_for_is_that_requests_error(make_queue):
    queue = make_queue(Lanes=2)
    queue.send([str(n) for n in range(5)])
    held = queue.receive(3, attempt_id="one")
    wrong, right = queue.receive_many([(1, None, "one"), (1,)])
    assert not wrong and isinstance(wrong.error, InvalidParameterValue) and "holds a claim of 3" in str(wrong.error)
    assert (right.count, right.error) == (1, None) and held.extend().messages == 3


def test_q2_what_the_quota_leaves_is_shared_and_who_comes_too_late_has_the_error(make_queue, monkeypatch):
    monkeypatch.setattr(limits, "MAXIMUM_IN_FLIGHT", 5)
    queue = make_queue(Limits="SQS", Lanes=2)
    queue.send([str(n) for n in range(8)])
    claims = queue.receive_many([(3,), (3,), (3,), (1,)])
    assert [claim.count for claim in claims] == [3, 2, 0, 0] and queue.counts().in_flight == 5
    assert [type(claim.error) for claim in claims] == [type(None), type(None), OverLimit, OverLimit]
    with changing_nothing(queue):
        assert all(isinstance(claim.error, OverLimit) for claim in queue.receive_many([(1,), (2,)]))


def test_q3_a_fifo_queue_at_its_quota_has_no_messages_and_no_error(make_fifo, monkeypatch):
    monkeypatch.setattr(limits, "MAXIMUM_IN_FLIGHT_FIFO", 3)
    queue = make_fifo(Limits="SQS", Lanes=8)
    send(queue, "a1", "b1", "c1", "d1", "e1")
    claims = queue.receive_many([(2,), (2,), (2,)])
    assert [bodies(claim) for claim in claims] == [["a1", "b1"], ["c1"], []]
    assert [claim.error for claim in claims] == [None] * 3


def test_d1_what_was_received_too_often_is_buried_once_and_nobody_gets_it(make_queue):
    dead = make_queue(Lanes=2)
    queue = make_queue(Lanes=2, RedrivePolicy={"deadLetterTargetArn": dead.arn, "maxReceiveCount": 2})
    queue.send(["old one", "old two"])
    for _ in range(2):
        queue.receive(None, 0)
    queue.send(["new one", "new two"])
    claims = queue.receive_many([(None,), (1,)])
    assert [claim.count for claim in claims] == [2, 0] and sorted(bodies(claims[0])) == ["new one", "new two"]
    assert [message.receive_count for message in claims[0]] == [1, 1]
    assert sorted(bodies(dead.receive(None))) == ["old one", "old two"]


def test_a_message_goes_to_one_of_them_also_when_nothing_is_held(queue):
    queue.send(["one", "two"])
    first, second, third = queue.receive_many([(1, 0), (1, 0), (1, 0)])
    assert (first.count, second.count, third.count) == (1, 1, 0) and bodies(first) != bodies(second)
    assert queue.counts().visible == 2


@pytest.mark.parametrize(
    ("requests", "field"),
    [
        ([(1,), (0,)], "MaxNumberOfMessages"),
        ([(1,), (1, -1)], "VisibilityTimeout"),
        ([(1,), (1, 30, "")], ATTEMPT),
        ([(1, None, "same"), (2, None, "same")], ATTEMPT),
        ([(1,), ()], "requests"),
        ([(1,), (1, 2, "3", 4)], "requests"),
        ([(1,), "12"], "requests"),
        ([(1,), 1], "requests"),
        ("12", "requests"),
        (None, "requests"),
    ],
)
def test_every_request_is_looked_at_before_anything_is_received(queue, requests, field):
    queue.send(["one", "two"])
    with changing_nothing(queue), pytest.raises(InvalidParameterValue) as raised:
        queue.receive_many(requests)
    assert raised.value.field == field


def test_no_requests_are_no_claims(queue):
    with changing_nothing(queue):
        assert queue.receive_many([]) == []
