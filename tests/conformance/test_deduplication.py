"""F1: what is sent again under the same deduplication id within five minutes is accepted and not sent again."""

import itertools

import pytest

from ledger.errors import InvalidParameterValue
from tests.conformance.looking import changing_nothing

_numbers = itertools.count()


@pytest.fixture
def make_fifo(world):
    def make(**attributes):
        name = f"once-{next(_numbers)}.fifo"
        world.maker.create_queue(name, {"FifoQueue": "true", **attributes})
        return world.ledger.queue(name)

    return make


@pytest.fixture
def fifo(make_fifo):
    return make_fifo()


def send(queue, body, deduplication_id=None, group="g"):
    (message_id,) = queue.send(body, message_group_id=group, message_deduplication_id=deduplication_id)
    return message_id


def bodies(claim):
    return [message.body for message in claim]


def test_f1_the_same_id_within_five_minutes_answers_the_same_message(fifo, clock, world):
    first = send(fifo, "x", "d")
    clock.advance(299.999)
    with changing_nothing(fifo, [first]):
        assert send(fifo, "another body", "d") == first
        assert send(world.open_another().queue(fifo.name), "x", "d") == first
    clock.advance(0.001)
    later = send(fifo, "later", "d")
    assert later != first and bodies(fifo.receive(None)) == ["x", "later"]


def test_f1_a_repeat_does_not_restart_the_five_minutes(fifo, clock):
    first = send(fifo, "x", "d")
    clock.advance(200)
    assert send(fifo, "x", "d") == first
    clock.advance(100)
    assert send(fifo, "x", "d") != first


def test_f1_recorded_the_scope_is_the_queue_unless_it_is_the_group(make_fifo):
    """Recorded: fifo_deduplication_not_on_message_group_id, sqs_fifo_message_group_scope_no_throughput_setting."""
    by_queue, by_group = make_fifo(), make_fifo(DeduplicationScope="messageGroup")
    assert send(by_queue, "Test", "1", "a") == send(by_queue, "Test", "1", "b")
    assert bodies(by_queue.receive(None)) == ["Test"]
    assert send(by_group, "Test", "1", "a") != send(by_group, "Test", "1", "b")
    assert send(by_group, "Test", "1", "a") == send(by_group, "Test", "1", "a")
    assert by_group.receive(None).count == 2


def test_f1_recorded_a_change_of_the_scope_holds_for_sends_from_then_on(make_fifo):
    """Recorded: fifo_change_to_regular_throughput_after_creation."""
    queue = make_fifo(DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    send(queue, "Test1", "1", "a")
    send(queue, "Test2", "1", "b")
    queue.set_attributes({"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"})
    send(queue, "Test3", "2", "a")
    assert send(queue, "Test4", "2", "b") and queue.counts().stored == 3


def test_f1_the_content_is_the_id_when_the_queue_says_so(make_fifo):
    queue = make_fifo(ContentBasedDeduplication="true")
    first = send(queue, "x", None)
    (same,) = queue.send("x", message_group_id="h", message_attributes={"other": "attributes"})
    assert same == first and send(queue, "y", None) != first
    assert send(queue, "x", "own-id") != first
    assert queue.counts().stored == 3


def test_f1_recorded_without_either_nothing_is_sent(fifo):
    """Recorded: posting_to_fifo_requires_deduplicationid_group_id, send_batch_missing_deduplication_id_for_fifo_..."""
    said = (
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
    )
    with changing_nothing(fifo), pytest.raises(InvalidParameterValue, match=said):
        fifo.send(
            [
                {"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"},
                {"MessageBody": "y", "MessageGroupId": "g"},
            ]
        )


def test_f1_repeats_within_one_list_are_one_message(fifo):
    entries = [
        {"MessageBody": f"{name} {n}", "MessageGroupId": group, "MessageDeduplicationId": name}
        for n, (name, group) in enumerate([("d", "a"), ("e", "a"), ("d", "b"), ("e", "a"), ("f", "b")])
    ]
    ids = fifo.send(entries)
    assert ids[0] == ids[2] and ids[1] == ids[3] and len(set(ids)) == 3
    assert sorted(bodies(fifo.receive(None))) == ["d 0", "e 1", "f 4"]


@pytest.mark.parametrize("how", ["delete", "expire"])
def test_f1_a_message_that_is_gone_is_still_known(make_fifo, clock, how):
    queue = make_fifo(MessageRetentionPeriod=60)
    first = send(queue, "x", "d")
    if how == "delete":
        queue.receive().delete()
    clock.advance(61)
    with changing_nothing(queue, [first]):
        assert send(queue, "x", "d") == first
        assert not queue.receive()


def test_f1_queues_know_only_their_own_messages(make_fifo):
    one, other = make_fifo(), make_fifo()
    assert send(one, "x", "d") != send(other, "x", "d")
    assert other.receive().messages()[0].body == "x"


def test_f1_recorded_content_based_deduplication_can_be_turned_off(make_fifo):
    """Recorded: fifo_set_content_based_deduplication_strategy."""
    queue = make_fifo(ContentBasedDeduplication="true")
    send(queue, "x")
    queue.set_attributes({"ContentBasedDeduplication": "false"})
    assert queue.attributes()["ContentBasedDeduplication"] == "false"
    with pytest.raises(InvalidParameterValue, match="MessageDeduplicationId"):
        send(queue, "y")
    assert send(queue, "x", "d") and queue.counts().stored == 2


def test_f1_a_dead_letter_and_a_redriven_message_are_known_where_they_were_sent(make_fifo, clock):
    target = make_fifo()
    queue = make_fifo(RedrivePolicy={"deadLetterTargetArn": target.arn, "maxReceiveCount": 1})
    first = send(queue, "x", "d")
    queue.receive(visibility_timeout=0)
    assert not queue.receive() and target.counts().visible == 1
    assert send(queue, "x", "d") == first
    assert send(target, "y", "d") != first, "it was never sent there"
    assert target.redrive([first]) == 1
    assert send(queue, "x", "d") == first
    assert bodies(queue.receive(None)) == ["x"]
    clock.advance(300)
    assert send(queue, "z", "d") != first
