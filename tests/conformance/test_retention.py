"""Q7: a message is kept for the queue's MessageRetentionPeriod, counted from its send, whoever holds it then."""

import pytest

from ledger.errors import InvalidAttributeName
from tests.conformance.looking import changing_nothing, statuses

DAY = 86_400


def test_q7_the_default_is_four_days_counted_from_the_send(queue, clock):
    ids = queue.send(["x"])
    clock.advance(4 * DAY - 0.001)
    assert statuses(queue, ids) == ["visible"]
    clock.advance(0.001)
    assert statuses(queue, ids) == ["expired"]
    with changing_nothing(queue, ids):
        assert not queue.receive(None)


def test_q7_an_expired_message_counts_as_expired_and_is_nobodys_oldest(make_queue, clock):
    queue = make_queue(MessageRetentionPeriod=60, Lanes=1)
    queue.send(["a", "b"])
    clock.advance(30)
    queue.send("c")
    clock.advance(30)
    counts = queue.counts()
    assert (counts.expired, counts.visible, counts.stored, counts.age_of_oldest) == (2, 1, 1, 30.0)
    assert [message.body for message in queue.receive(None)] == ["c"]
    clock.advance(30)
    assert (queue.counts().expired, queue.counts().in_flight, queue.counts().age_of_oldest) == (3, 0, None)


@pytest.mark.parametrize("state", ["delayed", "locked", "in flight"])
def test_q7_a_message_expires_whatever_its_state(make_queue, clock, state):
    queue = make_queue(MessageRetentionPeriod=60)
    ids = queue.send("x", delay_seconds=900 if state == "delayed" else 0)
    if state == "locked":
        queue.lock(ids[0], 600)
    if state == "in flight":
        queue.receive(visibility_timeout=600)
    clock.advance(59.999)
    assert statuses(queue, ids) == [state]
    clock.advance(0.001)
    assert statuses(queue, ids) == ["expired"]
    clock.advance(1_000)
    assert not queue.receive() and statuses(queue, ids) == ["expired"]


def test_q7_neither_a_receive_nor_a_change_extends_the_retention(make_queue, clock):
    queue = make_queue(MessageRetentionPeriod=60)
    ids = queue.send(["x"])
    clock.advance(50)
    (message,) = queue.receive().messages()
    queue.change_visibility(message.receipt_handle, 0)
    clock.advance(5)
    claim = queue.receive(visibility_timeout=2)
    clock.advance(5)
    assert statuses(queue, ids) == ["expired"] and not queue.receive()
    assert claim.count == 1


def test_q7_who_holds_an_expired_message_may_still_delete_it(make_queue, clock):
    queue = make_queue(MessageRetentionPeriod=60)
    ids = queue.send(["x"])
    claim = queue.receive(visibility_timeout=600)
    clock.advance(60)
    assert claim.delete().messages == 1
    assert statuses(queue, ids) == ["deleted"]


def test_q7_a_change_of_the_period_holds_for_messages_already_there(make_queue, clock):
    queue = make_queue(MessageRetentionPeriod=600)
    ids = queue.send(["x"])
    clock.advance(60)
    queue.set_attributes({"MessageRetentionPeriod": 60})
    assert statuses(queue, ids) == ["expired"] and not queue.receive()


def test_q7_what_has_expired_stays_expired_when_the_period_is_raised(make_queue, clock):
    queue = make_queue(MessageRetentionPeriod=60)
    ids = queue.send(["x"])
    clock.advance(30)
    ids += queue.send(["y"])
    clock.advance(30)
    queue.set_attributes({"MessageRetentionPeriod": 600})
    assert statuses(queue, ids) == ["expired", "visible"]
    clock.advance(569)
    assert statuses(queue, ids) == ["expired", "visible"], "the raised period holds for what had not expired"
    queue.set_attributes({"MessageRetentionPeriod": 61})
    queue.set_attributes({"MessageRetentionPeriod": 1_000})
    assert statuses(queue, ids) == ["expired", "expired"] and not queue.receive()
    assert "ExpiredBefore" not in queue.attributes()
    with pytest.raises(InvalidAttributeName, match="ExpiredBefore"):
        queue.set_attributes({"ExpiredBefore": 7})


def test_q7_an_expired_message_is_not_purged(make_queue, clock):
    queue = make_queue(MessageRetentionPeriod=60)
    queue.send(["x", "y"])
    clock.advance(60)
    queue.send("z")
    assert queue.purge() == 1
    assert (queue.counts().expired, queue.counts().deleted) == (2, 1)


def test_q7_an_unbounded_queue_may_keep_its_messages_for_years(make_queue, clock):
    queue = make_queue(MessageRetentionPeriod=3_650 * DAY)
    queue.send("x")
    clock.advance(3_649 * DAY)
    assert queue.receive()


def test_q7_f4_an_expired_member_frees_its_group(ledger, clock):
    queue = ledger.create_queue(
        "kept.fifo", {"FifoQueue": "true", "ContentBasedDeduplication": "true", "MessageRetentionPeriod": 60}
    )
    queue.send("a1", message_group_id="a")
    queue.receive(visibility_timeout=600)
    clock.advance(30)
    queue.send("a2", message_group_id="a")
    assert not queue.receive()
    clock.advance(30)
    assert [message.body for message in queue.receive(None)] == ["a2"]


def test_q7_d1_a_move_to_a_dead_letter_queue_restarts_it_on_fifo_queues_only(make_queue, ledger, clock):
    target = make_queue(MessageRetentionPeriod=100)
    queue = make_queue(RedrivePolicy={"deadLetterTargetArn": target.name, "maxReceiveCount": 1}, VisibilityTimeout=0)
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    fifo_target = ledger.create_queue("target.fifo", {**fifo, "MessageRetentionPeriod": 100})
    policy = {"deadLetterTargetArn": "target.fifo", "maxReceiveCount": 1}
    fifo_queue = ledger.create_queue("source.fifo", {**fifo, "RedrivePolicy": policy, "VisibilityTimeout": 0})
    ids, fifo_ids = queue.send(["x"]), fifo_queue.send(["x"], message_group_id="g")
    for one in (queue, fifo_queue):
        assert one.receive(visibility_timeout=0)
    clock.advance(60)
    for one in (queue, fifo_queue):
        assert not one.receive()
    clock.advance(40)
    assert statuses(target, ids) == ["expired"] and not target.receive()
    clock.advance(59.999)
    assert statuses(fifo_target, fifo_ids) == ["visible"]
    clock.advance(0.001)
    assert statuses(fifo_target, fifo_ids) == ["expired"] and not fifo_target.receive()
