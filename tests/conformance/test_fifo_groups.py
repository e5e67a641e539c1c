"""F2: the order of the groups. One became receivable when its first message came or when its last hold ended; each is
drained before the next; and lanes make no difference."""

import pytest

from tests.conformance.test_fifo import bodies, send


@pytest.fixture(params=[1, 8], ids=["1-lane", "8-lanes"])
def fifo(request, make_fifo):
    return make_fifo(Lanes=request.param, VisibilityTimeout=30)


@pytest.fixture
def sent(fifo, clock):
    """The recorded example: a1 and b1, then a2 and a3, each a little later than the one before."""
    for body in ("a1", "b1", "a2", "a3"):
        send(fifo, body)
        clock.advance(0.001)
    return fifo


def handles(claim):
    return {message.body: message.receipt_handle for message in claim}


@pytest.mark.spark_too
def test_f2_recorded_each_group_is_drained_before_the_next(sent):
    claim = sent.receive(10)
    assert bodies(claim) == ["a1", "a2", "a3", "b1"]


def test_f2_recorded_a_receive_of_two_takes_both_of_the_first_group(sent):
    assert bodies(sent.receive(2)) == ["a1", "a2"]
    assert bodies(sent.receive(2)) == ["b1"]


@pytest.mark.parametrize("most", [1, 10])
def test_f2_recorded_a_group_that_was_released_goes_behind_the_others(fifo, clock, most):
    send(fifo, "a1", "b1", "a2")
    clock.advance(0.001)
    held = handles(fifo.receive(2))
    assert list(held) == ["a1", "a2"]
    fifo.change_visibility(held["a1"], 0)
    received = [bodies(fifo.receive(most)) for _ in range(2)]
    assert received == ([["b1"], ["a1"]] if most == 1 else [["b1", "a1"], []])


@pytest.mark.parametrize("step", [0, 0.001], ids=["one instant", "a millisecond each"])
def test_f2_groups_take_turns_when_each_message_is_deleted(fifo, clock, step):
    """Also within one instant: what was held in it goes behind what came in it."""
    for body in ("a1", "a2", "a3", "b1", "b2", "c1"):
        send(fifo, body)
        clock.advance(step)
    served = []
    while claim := fifo.receive(1):
        served += bodies(claim)
        clock.advance(step)
        claim.delete()
        clock.advance(step)
    if step:
        assert served == ["a1", "b1", "c1", "a2", "b2", "a3"]
    else:
        assert served[:3] == ["a1", "b1", "c1"] and sorted(served[3:]) == ["a2", "a3", "b2"]


def test_f2_the_order_is_that_of_the_ends_of_the_holds_whatever_ended_them(fifo, clock):
    """By a deadline, a release, a delete; and in between groups whose first message came then."""
    send(fifo, "a1", "a2", "b1", "b2", "c1", "d1")
    first, second, third = fifo.receive(1, 10), fifo.receive(1, 60), fifo.receive(1, 60)
    assert [bodies(claim) for claim in (first, second, third)] == [["a1"], ["b1"], ["c1"]]
    clock.advance(4)
    third.release()
    clock.advance(4)
    send(fifo, "e1")
    clock.advance(4)
    second.delete()
    clock.advance(4)
    send(fifo, "f1")
    # d1 was never held; c ended at 4 s, e came at 8, a ended at 10, b at 12, f came at 16.
    claim = fifo.receive(None)
    assert bodies(claim) == ["d1", "c1", "e1", "a1", "a2", "b2", "f1"]
    again = fifo.claim(claim.receipt_id)
    assert bodies(again) == ["a1", "a2", "b2", "c1", "d1", "e1", "f1"], "found again: by their first messages"


def test_f2_delays_count_and_so_does_a_hold_that_outlives_a_receive(make_fifo, clock):
    fifo = make_fifo(Lanes=8, DelaySeconds=10)
    send(fifo, "a1")
    fifo.set_attributes({"DelaySeconds": 0})
    clock.advance(1)
    send(fifo, "b1", "c1")
    assert bodies(fifo.receive(1, 60)) == ["b1"]
    clock.advance(9)
    assert bodies(fifo.receive(None, 0)) == ["c1", "a1"], "a1 could not be received before"


def test_f2_a_lock_and_a_restore_are_holds_too(sent, clock):
    send(sent, "c1")
    claim = sent.receive(10)
    clock.advance(1)
    claim.delete()
    clock.advance(1)
    (other,) = send(sent, "d1")
    sent.lock(other, 5)
    clock.advance(1)
    send(sent, "e1")
    clock.advance(1)
    assert sent.restore(claim.receipt_id) == 5
    assert bodies(sent.receive(10, 0)) == ["e1", "a1", "a2", "a3", "b1", "c1"], "d1 is locked"
    clock.advance(5)
    assert bodies(sent.receive(10)) == ["a1", "a2", "a3", "b1", "c1", "e1", "d1"], "its lock ended last"


def test_f2_f4_a_group_whose_holder_let_a_message_expire_is_receivable_since_then(make_fifo, clock):
    fifo = make_fifo(Lanes=8, MessageRetentionPeriod=100)
    send(fifo, "a1")
    assert bodies(fifo.receive(1, 600)) == ["a1"]
    clock.advance(60)
    send(fifo, "a2")
    clock.advance(30)
    send(fifo, "b1")
    clock.advance(20)
    send(fifo, "c1")
    # a1 expired at 100 s, in flight until 600.
    assert bodies(fifo.receive(None)) == ["b1", "a2", "c1"]


def test_f2_what_was_moved_here_came_with_the_move(make_fifo, clock):
    dead = make_fifo(Lanes=8)
    fifo = make_fifo(Lanes=8, RedrivePolicy={"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
    send(fifo, "a1", "b1")
    clock.advance(1)
    send(dead, "c1", "b2")
    fifo.receive(None, 0)
    clock.advance(1)
    assert not fifo.receive(None), "buried"
    clock.advance(1)
    send(dead, "a3", "d1")
    claim = dead.receive(None)
    # a1 and b1 came at 2 s: behind what was sent there at 1, b1 behind b2.
    assert bodies(claim) == ["c1", "b2", "b1", "a1", "a3", "d1"]
    clock.advance(1)
    claim.release()
    fifo.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1_000}})
    send(fifo, "e1")
    clock.advance(1)
    # In the order in which a receive would take them: what came from nowhere else, c1 and b2, stays.
    assert dead.redrive(max_messages=1) == 1
    assert bodies(fifo.receive(None)) == ["e1", "b1"]


def test_f2_a_claim_keeps_its_order_while_it_is_extended_and_parts_of_it_are_settled(sent, clock):
    send(sent, "c1", "b2")
    claim = sent.receive(1)
    claim.release()
    claim = sent.receive(None)
    assert bodies(claim) == ["b1", "b2", "c1", "a1", "a2", "a3"]
    sent.delete(handles(claim)["b1"])
    claim.extend(60)
    assert bodies(claim)[1:] == ["b2", "c1", "a1", "a2", "a3"]


def test_f2_what_one_move_brings_from_several_queues_comes_in_the_order_in_which_it_was_sent(make_fifo, clock):
    dead, target = make_fifo(), make_fifo()
    policy = {"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}}
    one, other = make_fifo(**policy), make_fifo(**policy)
    send(one, "p1", "p2", "p3")
    for queue, body in ((one, "g1"), (other, "g2")):
        send(queue, body)
        queue.receive(None, 0)
        clock.advance(1)
        assert not queue.receive(None)
    assert dead.redrive(destination=target.name) == 5
    assert [body for body in bodies(target.receive(None)) if body.startswith("g")] == ["g1", "g2"]
