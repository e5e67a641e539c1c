"""Q6: a delayed message is stored, not receivable and not in flight, until its delay is over."""

import pytest

from ledger.errors import InvalidParameterValue
from tests.conformance.looking import changing_nothing, statuses


def bodies(claim):
    return [message.body for message in claim]


def test_q6_a_delayed_message_is_hidden_until_its_delay_is_over(queue, clock):
    ids = queue.send("x", delay_seconds=10)
    clock.advance(9.999)
    with changing_nothing(queue, ids):
        assert not queue.receive()
    assert statuses(queue, ids) == ["delayed"]
    counts = queue.counts()
    assert (counts.delayed, counts.visible, counts.in_flight, counts.stored) == (1, 0, 0, 1)
    clock.advance(0.001)
    assert statuses(queue, ids) == ["visible"]
    (message,) = queue.receive().messages()
    assert message.receive_count == 1 and message.sent_at.timestamp() == clock() / 1_000 - 10


def test_q6_the_queues_delay_holds_for_messages_that_have_none_of_their_own(make_queue, clock):
    queue = make_queue(DelaySeconds=60, Lanes=1)
    assert queue.attributes()["DelaySeconds"] == "60"
    queue.send([{"MessageBody": "now", "DelaySeconds": 0}, {"MessageBody": "soon", "DelaySeconds": 5}, "later"])
    assert bodies(queue.receive(None)) == ["now"]
    clock.advance(5)
    assert bodies(queue.receive(None)) == ["soon"]
    clock.advance(55)
    assert bodies(m for m in queue.receive(None) if m.receive_count == 1) == ["later"]


def test_q6_messages_of_one_send_may_be_delayed_differently(queue, clock):
    queue.send([{"MessageBody": str(n), "DelaySeconds": n % 3 * 10} for n in range(30)])
    for wait, delayed in ((0, 20), (10, 10), (10, 0)):
        clock.advance(wait)
        assert queue.counts().delayed == delayed
        assert sorted(bodies(queue.receive(None, visibility_timeout=600)), key=int) == [
            str(n) for n in range(30) if n % 3 * 10 == 20 - delayed
        ]


def test_q6_a_change_of_the_queues_delay_holds_for_later_sends(make_queue, clock):
    queue = make_queue(DelaySeconds=100)
    queue.send("slow")
    queue.set_attributes({"DelaySeconds": 0})
    queue.send("fast")
    assert bodies(queue.receive(None)) == ["fast"]
    clock.advance(99)
    assert bodies(queue.receive(None)) == ["fast"]
    clock.advance(1)
    assert bodies(queue.receive(None)) == ["slow"]


def test_q6_a_delay_is_over_once_and_a_release_makes_visible_at_once(queue, clock):
    queue.send("x", delay_seconds=900)
    clock.advance(900)
    claim = queue.receive()
    claim.release()
    assert queue.counts().delayed == 0 and queue.receive()


def test_q6_a_delayed_message_can_be_peeked_at_locked_and_purged(queue, clock):
    ids = queue.send(["a", "b"], delay_seconds=30)
    assert queue.peek(ids[0]).body == "a"
    queue.lock(ids[0], 60)
    clock.advance(30)
    assert statuses(queue, ids) == ["locked", "visible"]
    assert bodies(queue.receive(None, visibility_timeout=1)) == ["b"]
    queue.send("c", delay_seconds=30)
    assert queue.purge() == 3 and queue.counts().stored == 0


def test_q6_a_message_can_be_received_until_its_retention_is_over_although_it_was_delayed(make_queue, clock):
    queue = make_queue(MessageRetentionPeriod=60)
    queue.send("x", delay_seconds=59)
    clock.advance(59)
    assert queue.counts().visible == 1
    clock.advance(1)
    assert not queue.receive() and queue.counts().expired == 1


@pytest.mark.parametrize("delay", [-1, 901, 1.5, "1"])
def test_q6_a_delay_out_of_its_range_is_refused_and_nothing_is_sent(queue, delay):
    with changing_nothing(queue), pytest.raises(InvalidParameterValue, match="DelaySeconds"):
        queue.send(["x", {"MessageBody": "y", "DelaySeconds": delay}], all_or_nothing=True)
    with changing_nothing(queue), pytest.raises(InvalidParameterValue, match="DelaySeconds"):
        queue.send(["x"], delay_seconds=delay)


def test_q6_recorded_a_fifo_message_is_delayed_as_its_queue_says_and_holds_back_its_group(ledger, clock):
    queue = ledger.create_queue(
        "delayed.fifo", {"FifoQueue": "true", "DelaySeconds": 2, "ContentBasedDeduplication": "true"}
    )
    queue.send(["a1"], message_group_id="a", delay_seconds=0)
    assert not queue.receive()
    clock.advance(1)
    queue.set_attributes({"DelaySeconds": 0})
    queue.send(["a2"], message_group_id="a")
    queue.send(["b1"], message_group_id="b")
    assert bodies(queue.receive(None)) == ["b1"], "a1 comes first in its group"
    clock.advance(1)
    assert bodies(queue.receive(None)) == ["a1", "a2"]
