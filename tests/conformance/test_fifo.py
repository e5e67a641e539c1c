"""F2, F4: order within a group, one holder at a time, and what frees a group."""

import pytest

from ledger.errors import InvalidParameterValue, LeaseLost, MessageNotInflight, MissingParameter
from tests.conformance.looking import changing_nothing, statuses


@pytest.fixture
def fifo(make_fifo):
    return make_fifo(Lanes=4)


def send(queue, *bodies):
    """Sends bodies such as "a1" each by itself; the letter is the group."""
    return [queue.send(body, message_group_id=body[0])[0] for body in bodies]


def bodies(claim):
    return [message.body for message in claim]


def by_group(claim):
    found = {}
    for message in claim:
        found.setdefault(message.message_group_id, []).append(message.body)
    return found


def test_f2_a_group_comes_in_order_as_many_as_fit_and_no_more_of_it_while_one_is_in_flight(fifo, clock):
    send(fifo, "a1", "b1", "a2", "a3", "b2")
    first = fifo.receive(None)
    assert by_group(first) == {"a": ["a1", "a2", "a3"], "b": ["b1", "b2"]}
    send(fifo, "a4", "c1")
    assert bodies(fifo.receive(None)) == ["c1"]
    handles = {message.body: message.receipt_handle for message in first}
    fifo.delete([handles["a1"], handles["a2"]])
    with changing_nothing(fifo):
        assert not fifo.receive(None), "a3 is still in flight"
    fifo.delete(handles["a3"])
    assert bodies(fifo.receive(None)) == ["a4"]
    clock.advance(30)
    assert by_group(fifo.receive(None)) == {"a": ["a4"], "b": ["b1", "b2"], "c": ["c1"]}


def test_f2_a_receive_of_some_takes_the_beginning_of_a_group(make_fifo):
    queue = make_fifo(Lanes=1)
    send(queue, "a1", "a2", "a3", "b1")
    assert bodies(queue.receive(2)) == ["a1", "a2"]
    assert bodies(queue.receive(2)) == ["b1"]
    assert not queue.receive(), "a3 waits for a1 and a2"


def test_f4_released_messages_come_again_in_their_order(fifo):
    send(fifo, "a1", "a2", "a3")
    for _ in range(3):
        claim = fifo.receive(2)
        assert bodies(claim) == ["a1", "a2"]
        claim.release()
    assert bodies(fifo.receive(None)) == ["a1", "a2", "a3"]


@pytest.mark.parametrize(
    ("released", "comes"), [([], []), ([0], ["a1"]), ([0, 1], ["a1", "a2"]), ([0, 2], ["a1"]), ([1, 2], []), ([2], [])]
)
def test_f2_recorded_what_was_released_comes_again_up_to_the_first_that_is_still_held(fifo, released, comes):
    """Recorded: fifo_group_visibility_extends_with_change_message_visibility."""
    send(fifo, "a1", "a2", "a3")
    handles = [message.receipt_handle for message in fifo.receive(None)]
    fifo.change_visibility([handles[n] for n in released], 0)
    assert bodies(fifo.receive(None)) == comes


def test_f4_after_the_deadline_the_group_goes_on_from_its_first_member(fifo, clock):
    send(fifo, "a1", "a2")
    fifo.receive(1, visibility_timeout=10)
    send(fifo, "a3")
    clock.advance(9.999)
    assert not fifo.receive()
    clock.advance(0.001)
    again = fifo.receive(None)
    assert bodies(again) == ["a1", "a2", "a3"] and [message.receive_count for message in again] == [2, 1, 1]


def test_f2_a_locked_message_holds_back_what_follows_it(fifo, clock):
    ids = send(fifo, "a1", "a2", "a3")
    fifo.lock(ids[1], 60)
    claim = fifo.receive(None)
    assert bodies(claim) == ["a1"]
    claim.delete()
    assert not fifo.receive()
    clock.advance(60)
    assert bodies(fifo.receive(None)) == ["a2", "a3"]


def test_f2_groups_on_all_lanes_are_received_together_and_each_once(fifo):
    names = [f"{chr(97 + n % 26)}{n}" for n in range(78)]
    fifo.send([{"MessageBody": name, "MessageGroupId": name[0]} for name in names[:70]])
    send(fifo, *names[70:])
    seen = {}
    while claim := fifo.receive(7):
        assert claim.count <= 7
        for group, members in by_group(claim).items():
            assert group not in seen, "a group of which something is in flight"
            seen[group] = members
    assert all(members == sorted(members, key=lambda body: int(body[1:])) for members in seen.values())
    assert fifo.counts().in_flight == sum(map(len, seen.values())) and set(seen) == {chr(97 + n) for n in range(26)}


def test_f2_a_long_list_keeps_its_order_within_every_group(fifo):
    fifo.send([{"MessageBody": str(n), "MessageGroupId": str(n % 7)} for n in range(2_000)])
    fifo.send([{"MessageBody": str(n), "MessageGroupId": str(n % 7)} for n in range(2_000, 2_500)])
    claim = fifo.receive(None)
    assert claim.count == 2_500
    for group, members in by_group(claim).items():
        assert members == [str(n) for n in range(int(group), 2_500, 7)]
    assert bodies(claim) == [str(n) for first in range(7) for n in range(first, 2_500, 7)], "sent in one instant"


def test_f2_sequence_numbers_grow_and_stay_with_their_message(fifo, world, clock):
    elsewhere = world.open_another().queue(fifo.name)
    ids = send(fifo, "a1", "b1") + send(elsewhere, "a2", "b2") + send(fifo, "a3")
    ids += fifo.send(["x", "y", "z"], message_group_id="x")
    numbers = [fifo.peek(message_id).sequence_number for message_id in ids]
    assert numbers == sorted(set(numbers))
    first = fifo.receive(None)
    clock.advance(30)
    again = fifo.receive(None)
    assert (
        {m.message_id: m.sequence_number for m in first}
        == {m.message_id: m.sequence_number for m in again}
        == dict(zip(ids, numbers))
    )
    text = again.messages()[0].attributes()["SequenceNumber"]
    assert len(text) == 20 and int(text) == again.messages()[0].sequence_number


def test_recorded_a_fifo_messages_attributes(make_fifo):
    """Recorded: fifo_message_attributes."""
    queue = make_fifo()
    queue.send("message-body-1", message_group_id="group-1", message_deduplication_id="dedup-1")
    (message,) = queue.receive().messages()
    assert message.md5_of_body == "19c9e282d65f9733bc6b35d50062c7ee"
    found = message.attributes()
    assert (found["MessageGroupId"], found["MessageDeduplicationId"]) == ("group-1", "dedup-1")
    assert set(found) == {
        "ApproximateFirstReceiveTimestamp", "ApproximateReceiveCount", "MessageDeduplicationId", "MessageGroupId",
        "SenderId", "SentTimestamp", "SequenceNumber",
    }  # fmt: skip


def test_v10_recorded_a_delete_after_the_deadline_is_refused_on_fifo_queues(fifo, clock):
    """Recorded: fifo_delete_after_visibility_timeout."""
    ids = send(fifo, "a1")
    (message,) = fifo.receive().messages()
    clock.advance(30)
    with changing_nothing(fifo, ids):
        with pytest.raises(InvalidParameterValue) as raised:
            fifo.delete(message.receipt_handle)
        assert (raised.value.field, raised.value.bound) == ("ReceiptHandle", "The receipt handle has expired")
        (outcome,) = fifo.delete([message.receipt_handle])
        assert (outcome.outcome, outcome.error_code) == ("the receipt handle has expired", "InvalidParameterValue")
        with pytest.raises(MessageNotInflight):
            fifo.change_visibility(message.receipt_handle, 60)


def test_v10_recorded_an_extended_handle_deletes_on_fifo_queues(fifo, clock):
    """Recorded: fifo_delete_after_visibility_timeout_extended."""
    ids = send(fifo, "a1")
    (message,) = fifo.receive().messages()
    fifo.change_visibility(message.receipt_handle, 60)
    clock.advance(31)
    fifo.delete(message.receipt_handle)
    assert statuses(fifo, ids) == ["deleted"]


def test_v10_a_claim_that_ran_out_is_lost_on_fifo_queues_and_a_released_part_is_settled(fifo, clock):
    send(fifo, "a1", "a2", "b1")
    claim = fifo.receive(None)
    handles = {message.body: message.receipt_handle for message in claim}
    fifo.change_visibility(handles["a1"], 0)
    with pytest.raises(InvalidParameterValue, match="expired"):
        fifo.delete(handles["a1"])
    assert (claim.delete().messages, claim.delete().messages) == (2, 0)
    late = fifo.receive()
    clock.advance(30)
    for verb in (late.delete, late.extend):
        with pytest.raises(LeaseLost):
            verb()


def test_f3_the_same_attempt_gets_the_same_messages_of_its_groups(fifo, clock):
    send(fifo, "a1", "a2", "b1")
    first = fifo.receive(None, attempt_id="job")
    send(fifo, "a3", "c1")
    clock.advance(20)
    again = fifo.receive(None, attempt_id="job")
    assert [m.receipt_handle for m in again] == [m.receipt_handle for m in first] and len(bodies(first)) == 3
    clock.advance(20)
    assert bodies(fifo.receive(None)) == ["c1"], "the timeout was restarted"


def test_a_purge_empties_every_group_and_what_is_sent_later_is_received(fifo):
    send(fifo, "a1", "a2", "b1")
    fifo.receive(1)
    assert fifo.purge() == 3
    send(fifo, "a3")
    assert bodies(fifo.receive(None)) == ["a3"]


def test_f2_a_message_needs_a_group_and_nothing_is_sent_without(fifo):
    with changing_nothing(fifo):
        with pytest.raises(MissingParameter, match="MessageGroupId"):
            fifo.send(["x"])
        with pytest.raises(MissingParameter, match="MessageGroupId"):
            fifo.send([{"MessageBody": "x", "MessageGroupId": "g"}, "y"])
        with pytest.raises(InvalidParameterValue, match="DelaySeconds"):
            fifo.send(["x"], message_group_id="g", delay_seconds=1)
        with pytest.raises(InvalidParameterValue, match=r"attempt_id.*deduplication id"):
            fifo.send(["x"], message_group_id="g", attempt_id="run-1")


def test_v9_a_late_change_never_gives_a_group_a_second_receiver(make_fifo, clock):
    """With LateChange=accept it took back "a2" while "a1" was another receiver's: on FIFO queues it has no effect."""
    fifo = make_fifo(LateChange="accept", VisibilityTimeout=30)
    ids = send(fifo, "a1", "a2")
    first = fifo.receive(2)
    handle = next(message.receipt_handle for message in first if message.body == "a2")
    clock.advance(30)
    second = fifo.receive(1)
    assert bodies(second) == ["a1"]
    with changing_nothing(fifo, ids):
        with pytest.raises(LeaseLost):
            first.extend(60)
        with pytest.raises(MessageNotInflight, match="run out"):
            fifo.change_visibility(handle, 60)
    assert fifo.counts().in_flight == 1 and not fifo.receive(None)
    second.delete()
    assert bodies(fifo.receive(None)) == ["a2"]


def test_v9_a_late_change_on_a_fifo_queue_is_not_in_flight_whoever_else_received(make_fifo, clock):
    fifo = make_fifo(LateChange="accept", VisibilityTimeout=30)
    ids = send(fifo, "a1")
    handle = fifo.receive(1).messages()[0].receipt_handle
    clock.advance(30)
    with changing_nothing(fifo, ids), pytest.raises(MessageNotInflight, match="run out"):
        fifo.change_visibility(handle, 60)
