"""D2: dead letters moved back to where they came from or elsewhere, some or all; those of FIFO queues in order."""

import itertools

import pytest

from ledger.errors import InvalidParameterValue, QueueDoesNotExist, SparkIsNeeded
from tests.conformance.looking import changing_nothing, statuses

_numbers = itertools.count()


def policy(target, count=1):
    return {"deadLetterTargetArn": target.arn, "maxReceiveCount": count}


@pytest.fixture
def dead(make_queue):
    return make_queue(Lanes=2)


@pytest.fixture
def queue(make_queue, dead):
    return make_queue(Lanes=3, RedrivePolicy=policy(dead))


@pytest.fixture
def make_fifo(world):
    def make(**attributes):
        name = f"redrive-{next(_numbers)}.fifo"
        given = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "Lanes": 2, **attributes}
        world.maker.create_queue(name, given)
        return world.ledger.queue(name)

    return make


def die(queue, *bodies, **arguments):
    """Sends messages that are dead letters at once; answers their ids."""
    ids = queue.send(list(bodies), **arguments)
    queue.receive(None, visibility_timeout=0)
    queue.receive(None, visibility_timeout=0)
    return ids


def bodies(claim):
    return [message.body for message in claim]


def test_d2_dead_letters_go_back_to_where_they_came_from_and_are_new_there(queue, dead, clock):
    ids = die(queue, "a", "b", "c")
    clock.advance(100)
    assert dead.redrive() == 3
    assert (dead.counts().stored, dead.counts().moved, queue.counts().visible) == (0, 3, 3)
    assert not dead.receive(None)
    claim = queue.receive(None)
    assert sorted(message.message_id for message in claim) == sorted(ids)
    assert {(m.receive_count, m.first_received_at.timestamp()) for m in claim} == {(1, clock() / 1_000)}
    assert {m.sent_at.timestamp() for m in claim} == {clock() / 1_000 - 100}, "sent when it was sent"
    assert claim.delete().messages == 3
    assert dead.redrive() == 0


def test_d2_a_redriven_message_is_kept_from_the_redrive_on(make_queue, dead, clock):
    queue = make_queue(RedrivePolicy=policy(dead), MessageRetentionPeriod=100)
    ids = die(queue, "a")
    clock.advance(90)
    assert dead.redrive() == 1
    clock.advance(99.999)
    assert statuses(queue, ids) == ["visible"]
    clock.advance(0.001)
    assert statuses(queue, ids) == ["expired"]


def test_d2_a_message_may_die_and_come_back_again_and_again(queue, dead):
    (message_id,) = queue.send(["a"])
    for _ in range(3):
        queue.receive(visibility_timeout=0)
        assert not queue.receive()
        assert dead.peek(message_id).receive_count == 1
        assert dead.redrive() == 1
    assert queue.peek(message_id).body == "a" and queue.receive().messages()[0].receive_count == 1
    assert (queue.counts().in_flight, queue.counts().moved, dead.counts().moved) == (1, 0, 1)


def test_d2_some_go_to_another_queue_by_their_ids_or_by_number(queue, dead, make_queue):
    ids = die(queue, *(str(n) for n in range(10)))
    other = make_queue(Lanes=5)
    assert dead.redrive(ids[2:5], destination=other.name) == 3
    assert dead.redrive(ids[2:5], destination=other.name) == 0
    assert sorted(bodies(other.receive(None))) == ["2", "3", "4"]
    assert dead.redrive(destination=other.name, max_messages=2) == 2
    assert (dead.counts().visible, other.counts().visible, queue.counts().stored) == (5, 2, 0)
    assert dead.redrive(ids, max_messages=1) == 1 and queue.counts().visible == 1
    assert dead.redrive() == 4
    assert dead.counts().stored == 0 and queue.counts().visible == 5
    assert sorted([*bodies(other.receive(None)), *bodies(queue.receive(None)), "2", "3", "4"]) == [
        str(n) for n in range(10)
    ]


def test_d2_each_goes_back_to_its_own_queue_and_what_has_none_any_more_stays(ledger, make_queue, dead):
    sources = [make_queue(RedrivePolicy=policy(dead)) for _ in range(3)]
    for source in sources:
        die(source, source.name)
    dead.send(["sent here"])
    ledger.delete_queue(sources[1].name)
    assert dead.redrive(max_messages=1) == 1 and dead.redrive() == 1
    assert bodies(sources[0].receive(None)) == [sources[0].name] and bodies(sources[2].receive(None)) == [
        sources[2].name
    ]
    assert sorted(bodies(dead.receive(None))) == sorted([sources[1].name, "sent here"])


def test_d2_only_visible_ones_move(queue, dead, clock):
    ids = die(queue, "a", "b", "c")
    dead.lock(ids[0], 60)
    held = dead.receive(1)
    assert dead.redrive(ids) == 1
    clock.advance(60)
    assert dead.redrive(ids) == 2
    assert sorted(bodies(queue.receive(None))) == ["a", "b", "c"]
    with pytest.raises(Exception, match="held any more"):
        held.delete()


def test_d2_a_redrive_is_refused_when_its_destination_is_none(queue, dead, make_fifo):
    ids = die(queue, "a")
    with changing_nothing(dead, ids), changing_nothing(queue):
        with pytest.raises(QueueDoesNotExist, match="nowhere"):
            dead.redrive(destination="nowhere")
        with pytest.raises(InvalidParameterValue, match=r"destination.*another queue"):
            dead.redrive(destination=dead.name)
        with pytest.raises(InvalidParameterValue, match=r"destination.*same type"):
            dead.redrive(destination=make_fifo().name)
        with pytest.raises(InvalidParameterValue, match="MessageId"):
            dead.redrive(["nonsense"])
        with pytest.raises(InvalidParameterValue, match=r"max_messages.*>= 1"):
            dead.redrive(max_messages=0)
        assert dead.redrive([]) == 0
    one, other = make_fifo(Lanes=1), make_fifo(Lanes=2)
    with pytest.raises(InvalidParameterValue, match=r"destination.*equal Lanes"):
        one.redrive(destination=other.name)


def test_d2_choosing_by_a_predicate_needs_spark(queue, dead, request):
    if request.node.callspec.params["world"].startswith("spark"):
        pytest.skip("there it works")
    with pytest.raises(SparkIsNeeded, match=r"predicate.*list of message ids"):
        dead.redrive("receive_count > 3")


def test_d1_fifo_dead_letters_free_their_group_and_keep_their_order(make_fifo):
    dead = make_fifo()
    queue = make_fifo(RedrivePolicy=policy(dead, 2))
    for n in range(4):
        queue.send(f"a{n}", message_group_id="a")
    first = queue.receive(2)
    handles = [message.receipt_handle for message in first]
    queue.change_visibility(handles, 0)
    queue.receive(2).release()
    assert bodies(queue.receive(None)) == ["a2", "a3"], "what was behind the dead letters comes"
    claim = dead.receive(None)
    assert bodies(claim) == ["a0", "a1"] and [m.receive_count for m in claim] == [3, 3]
    assert {m.message_group_id for m in claim} == {"a"}
    assert [m.sequence_number for m in claim] == sorted(m.sequence_number for m in claim)
    claim.release()
    one = dead.receive(1)
    assert bodies(one) == ["a0"] and not dead.receive(), "its group is ordered there, too"


def test_d1_dead_letters_of_a_group_come_in_the_order_in_which_they_died(make_fifo, clock):
    dead = make_fifo()
    queue = make_fifo(RedrivePolicy=policy(dead))
    queue.send("a0", message_group_id="a")
    queue.send("a1", message_group_id="a")
    held = queue.receive(None)
    handles = {message.body: message.receipt_handle for message in held}
    queue.delete(handles["a0"])
    queue.change_visibility(handles["a1"], 0)
    assert not queue.receive()
    clock.advance(1)
    die(queue, "a2", "a3", message_group_id="a")
    assert bodies(dead.receive(None)) == ["a1", "a2", "a3"]


def test_d2_redriven_fifo_messages_come_behind_what_is_there_in_their_order(make_fifo, clock):
    dead = make_fifo()
    queue = make_fifo(RedrivePolicy=policy(dead))
    die(queue, "a0", "a1", message_group_id="a")
    clock.advance(1)
    queue.send("a2", message_group_id="a")
    clock.advance(1)
    assert dead.redrive() == 2
    clock.advance(1)
    queue.send("a3", message_group_id="a")
    claim = queue.receive(None)
    assert bodies(claim) == ["a2", "a0", "a1", "a3"]
    assert bodies(queue.claim(claim.receipt_id)) == ["a2", "a0", "a1", "a3"]


def test_f2_a_redrive_leaves_its_group_where_it_was_in_the_order(make_fifo, clock):
    """A group whose earlier message comes back is received before a group that became receivable later."""
    dead = make_fifo()
    queue = make_fifo(RedrivePolicy=policy(dead), VisibilityTimeout=30)
    queue.send("a0", message_group_id="a", message_deduplication_id="a0")
    queue.receive(1)
    clock.advance(31)
    assert not queue.receive(1)
    for body in ("a1", "b1"):
        queue.send(body, message_group_id=body[0], message_deduplication_id=body)
        clock.advance(1)
    assert dead.redrive() == 1
    assert [message.body for message in queue.receive(10)] == ["a1", "a0", "b1"]
