"""Messages on the way to a queue that is deleted meanwhile are in one queue all the time: they stay where they were."""

import pytest

from ledger.errors import QueueDoesNotExist

POLICY = {"deadLetterTargetArn": "dead", "maxReceiveCount": 1}


@pytest.fixture
def one(open_ledger):
    return open_ledger(keep_deleted_receipts=1, open_segment_seconds=1)


@pytest.fixture
def other(open_ledger):
    return open_ledger(keep_deleted_receipts=1, open_segment_seconds=1)


def before_the_lanes_are_read(ledger, monkeypatch, deed):
    """Does `deed` once, when the next decision has looked up its queues and is about to read its lanes."""
    engine, left = ledger.store.engine, [deed]
    load = engine.load

    def first_the_deed(table, where):
        # A decision that moves messages reads the lanes of two queues at once.
        if table == "visibility" and where.also is not None and left:
            left.pop()()
        return load(table, where)

    monkeypatch.setattr(engine, "load", first_the_deed)
    return left


def visible(ledger, name):
    return ledger.queue(name).counts().visible


def dead_letter_to_be(ledger, clock):
    """A queue with a message that was received as often as it may be."""
    ledger.create_queue("dead", {"Lanes": 1})
    queue = ledger.create_queue("jobs", {"Lanes": 1, "RedrivePolicy": POLICY})
    queue.send("tried")
    queue.receive(1, 10)
    clock.advance(10)
    return queue


def test_a_message_is_not_buried_in_a_queue_deleted_since_it_was_looked_up(one, other, clock, monkeypatch):
    queue = dead_letter_to_be(one, clock)

    def deed():
        other.delete_queue("dead")
        other.upkeep()

    left = before_the_lanes_are_read(one, monkeypatch, deed)
    assert [message.body for message in queue.receive(1, 10)] == ["tried"] and not left
    clock.advance(10)
    other.upkeep()
    assert visible(other, "jobs") == 1


def test_a_message_is_buried_in_the_queue_that_has_the_name_once_its_lanes_are_read(one, other, clock, monkeypatch):
    queue = dead_letter_to_be(one, clock)

    def deed():
        other.delete_queue("dead")
        other.create_queue("dead", {"Lanes": 1})
        other.upkeep()

    left = before_the_lanes_are_read(one, monkeypatch, deed)
    assert queue.receive(1, 10).count == 0 and not left
    assert (visible(other, "jobs"), visible(other, "dead")) == (0, 1)


@pytest.mark.parametrize("destination", ["beside", None])
def test_a_redrive_moves_nothing_to_a_queue_deleted_since_it_was_looked_up(one, other, clock, monkeypatch, destination):
    queue = dead_letter_to_be(one, clock)
    one.create_queue("beside", {"Lanes": 1})
    assert queue.receive(1, 10).count == 0

    def deed():
        other.delete_queue(destination or "jobs")
        other.upkeep()

    left, dead = before_the_lanes_are_read(one, monkeypatch, deed), one.queue("dead")
    if destination is None:
        # The other origin is still there, and so is what came from there.
        assert dead.redrive() == 0
    else:
        with pytest.raises(QueueDoesNotExist):
            dead.redrive(destination=destination)
    assert not left
    other.upkeep()
    assert visible(other, "dead") == 1
