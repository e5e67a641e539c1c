"""V1 to V14 of SEMANTICS.md through the public API, a test named after each rule."""

import pytest

from ledger.errors import InvalidParameterValue, LeaseLost, LedgerError, MessageNotInflight, ReceiptHandleIsInvalid
from tests.conformance.looking import changing_nothing, seconds_until, statuses


def received(queue, **arguments):
    """The one message of a receive."""
    (message,) = queue.receive(**arguments).messages()
    return message


def test_v1_the_queues_default_is_30_seconds_and_is_set_and_read_as_an_attribute(queue, clock):
    assert queue.attributes()["VisibilityTimeout"] == "30"
    queue.send("x")
    queue.set_attributes({"VisibilityTimeout": 100})
    assert queue.attributes()["VisibilityTimeout"] == "100"
    assert seconds_until(received(queue), clock) == 100


@pytest.mark.parametrize("timeout", [0, 43_200])
def test_v1_the_timeout_may_be_0_and_43200_seconds(queue, clock, timeout):
    queue.send("x")
    assert seconds_until(received(queue, visibility_timeout=timeout), clock) == timeout
    assert bool(queue.receive()) == (timeout == 0)


def test_v2_a_receive_may_carry_its_own_timeout_and_the_queues_stays(queue, clock):
    queue.send("x")
    assert seconds_until(received(queue, visibility_timeout=5), clock) == 5
    assert queue.attributes()["VisibilityTimeout"] == "30"
    clock.advance(5)
    assert seconds_until(received(queue), clock) == 30


def test_v3_a_message_is_in_flight_until_its_deadline_and_then_receivable_again(queue, clock):
    ids = queue.send(["x"])
    first = received(queue)
    clock.advance(29.999)
    assert statuses(queue, ids) == ["in flight"] and not queue.receive()
    clock.advance(0.001)
    assert statuses(queue, ids) == ["visible"]
    again = received(queue)
    assert again.message_id == first.message_id == ids[0] and again.body == "x"


def test_v4_a_change_counts_from_the_call_and_replaces_the_deadline(queue, clock):
    # S0: 20 seconds into 30, a change to 60 ends 60 seconds from now.
    queue.send("x")
    message = received(queue)
    clock.advance(20)
    queue.change_visibility(message.receipt_handle, 60)
    assert seconds_until(queue.peek(message.message_id), clock) == 60
    clock.advance(59.999)
    assert not queue.receive()
    clock.advance(0.001)
    assert queue.receive()


def test_v5_a_change_holds_for_this_receipt_only(queue, clock):
    queue.send("x")
    queue.change_visibility(received(queue).receipt_handle, 600)
    clock.advance(600)
    assert seconds_until(received(queue), clock) == 30


def test_v6_a_change_to_0_makes_the_message_receivable_at_once(queue):
    ids = queue.send(["x"])
    queue.change_visibility(received(queue).receipt_handle, 0)
    assert statuses(queue, ids) == ["visible"]
    assert received(queue).receive_count == 2


def test_v7_a_change_beyond_twelve_hours_from_the_receive_is_an_error_that_changes_nothing(queue, clock):
    ids = queue.send(["x"])
    handle = received(queue).receipt_handle
    clock.advance(20)
    with changing_nothing(queue, ids), pytest.raises(InvalidParameterValue, match=r"VisibilityTimeout.*43200 seconds"):
        queue.change_visibility(handle, 43_181)
    queue.change_visibility(handle, 43_180)


def test_v7_extending_does_not_move_the_ceiling(make_queue, clock):
    queue = make_queue(MaximumVisibilityTimeout=100, VisibilityTimeout=30)
    queue.send("x")
    claim = queue.receive()
    for _ in range(3):
        clock.advance(24)
        claim.extend(28)
    clock.advance(27)
    with changing_nothing(queue), pytest.raises(InvalidParameterValue, match="100 seconds"):
        claim.extend(2)
    claim.extend(1)


def test_v8_through_a_replaced_receipt_nothing_changes(queue, clock):
    ids = queue.send(["x"])
    stale = received(queue).receipt_handle
    clock.advance(30)
    received(queue)
    clock.advance(1)
    with changing_nothing(queue, ids):
        with pytest.raises(ReceiptHandleIsInvalid, match="replaced"):
            queue.change_visibility(stale, 60)
        with pytest.raises(ReceiptHandleIsInvalid, match="replaced"):
            queue.change_visibility(stale, 0)
        queue.delete(stale)


def test_v8_a_replaced_receipt_stays_stale_after_the_later_one_ran_out(queue, clock):
    ids = queue.send(["x"])
    stale = received(queue).receipt_handle
    clock.advance(30)
    received(queue)
    clock.advance(30)
    with changing_nothing(queue, ids):
        queue.delete(stale)
        with pytest.raises(ReceiptHandleIsInvalid):
            queue.change_visibility(stale, 60)


def test_v9_a_change_after_the_deadline_is_not_in_flight(queue, clock):
    ids = queue.send(["x"])
    handle = received(queue).receipt_handle
    clock.advance(30)
    with changing_nothing(queue, ids), pytest.raises(MessageNotInflight, match="run out"):
        queue.change_visibility(handle, 60)


def test_v9_a_queue_with_late_change_accept_extends_what_nobody_else_received(make_queue, clock):
    queue = make_queue(LateChange="accept")
    ids = queue.send(["x"])
    handle = received(queue).receipt_handle
    clock.advance(31)
    queue.change_visibility(handle, 60)
    assert seconds_until(queue.peek(ids[0]), clock) == 60 and not queue.receive()
    clock.advance(60)
    received(queue)
    with pytest.raises(ReceiptHandleIsInvalid):
        queue.change_visibility(handle, 60)


def test_v8_v9_a_queue_of_recorded_receipts_takes_changes_through_replaced_ones(make_queue, clock):
    queue = make_queue(Receipts="recorded")
    assert queue.attributes()["LateChange"] == "accept"
    ids = queue.send(["x"])
    replaced = received(queue).receipt_handle
    clock.advance(30)
    newer = received(queue).receipt_handle
    queue.change_visibility(replaced, 60)
    assert seconds_until(queue.peek(ids[0]), clock) == 60
    queue.change_visibility(newer, 50)
    assert seconds_until(queue.peek(ids[0]), clock) == 50
    clock.advance(51)
    assert queue.change_visibility([replaced], [40])[0].successful and not queue.receive()
    queue.delete(replaced)
    assert statuses(queue, ids) == ["in flight"]
    queue.delete(newer)
    assert statuses(queue, ids) == ["deleted"]


def test_v8_a_claim_never_extends_what_another_receiver_has_whatever_the_queue_takes(make_queue, clock):
    queue = make_queue(Receipts="recorded")
    ids = queue.send(["x"])
    claim = queue.receive(1, 30)
    clock.advance(30)
    received(queue)
    with pytest.raises(LeaseLost):
        claim.extend(600)
    assert seconds_until(queue.peek(ids[0]), clock) == 30


def test_v8_on_a_fifo_queue_a_replaced_receipt_changes_nothing_whatever_its_receipts(ledger, clock):
    queue = ledger.create_queue("recorded.fifo", {"FifoQueue": True, "Receipts": "recorded", "VisibilityTimeout": 30})
    queue.send([{"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "1"}])
    replaced = received(queue).receipt_handle
    clock.advance(30)
    received(queue)
    with pytest.raises(ReceiptHandleIsInvalid):
        queue.change_visibility(replaced, 60)


def test_v13_a_change_of_a_deleted_message_is_the_services_error_and_a_delete_succeeds(queue):
    ids = queue.send(["x"])
    handle = received(queue).receipt_handle
    queue.delete(handle)
    reason = "Message does not exist or is not available for visibility timeout change."
    for timeout in (0, 60):
        with pytest.raises(InvalidParameterValue) as caught:
            queue.change_visibility(handle, timeout)
        assert caught.value.message == f"Value {handle} for parameter ReceiptHandle is invalid. Reason: {reason}"
        assert queue.change_visibility([handle], timeout)[0].error_code == "InvalidParameterValue"
    queue.delete(handle)
    assert statuses(queue, ids) == ["deleted"]


def test_v10_a_delete_after_the_deadline_deletes_what_nobody_received_again(queue, clock):
    ids = queue.send(["x"])
    handle = received(queue).receipt_handle
    clock.advance(31)
    queue.delete(handle)
    assert statuses(queue, ids) == ["deleted"] and not queue.receive()


def test_v11_a_peek_reads_a_message_whatever_its_state_and_changes_nothing(queue, clock):
    ids = queue.send(["x"])
    seen = [queue.peek(ids[0]), queue.peek(ids[0])]
    claim = queue.receive()
    seen += [queue.peek(ids[0]), queue.peek(ids[0])]
    claim.delete()
    seen += [queue.peek(ids[0])]
    assert [message.status.value for message in seen] == ["visible"] * 2 + ["in flight"] * 2 + ["deleted"]
    assert [message.receive_count for message in seen] == [0, 0, 1, 1, 1]
    assert {(message.body, message.receipt_handle) for message in seen} == {("x", None)}


def test_v12_a_lock_hides_a_message_never_received_and_leaves_its_count(queue, clock):
    ids = queue.send(["x"])
    queue.lock(ids[0], 60)
    assert statuses(queue, ids) == ["locked"] and not queue.receive()
    assert (queue.counts().locked, queue.counts().in_flight) == (1, 0)
    clock.advance(60)
    message = received(queue)
    assert message.receive_count == 1 and seconds_until(message, clock) == 30


def test_v12_a_message_in_flight_or_deleted_cannot_be_locked(queue):
    ids = queue.send(["x"])
    claim = queue.receive()
    with changing_nothing(queue, ids), pytest.raises(LedgerError, match="in flight or deleted"):
        queue.lock(ids[0], 60)
    claim.delete()
    with changing_nothing(queue, ids), pytest.raises(LedgerError, match="in flight or deleted"):
        queue.lock(ids[0], 60)


def test_v12_a_lock_replaces_a_receipt_that_ran_out(queue, clock):
    ids = queue.send(["x"])
    handle = received(queue).receipt_handle
    clock.advance(30)
    queue.lock(ids[0], 60)
    with changing_nothing(queue, ids):
        queue.delete(handle)
        with pytest.raises(ReceiptHandleIsInvalid):
            queue.change_visibility(handle, 0)


def test_v12_a_lock_of_0_seconds_ends_a_lock(queue):
    ids = queue.send(["x"])
    queue.lock(ids[0], 60)
    queue.lock(ids[0], 0)
    assert queue.receive()


def test_v13_a_deleted_message_never_comes_back(queue, clock):
    ids = queue.send(["x"])
    handle = received(queue).receipt_handle
    queue.delete(handle)
    clock.advance(100_000)
    with changing_nothing(queue, ids):
        assert not queue.receive()
        queue.delete(handle)
        with pytest.raises(InvalidParameterValue):
            queue.change_visibility(handle, 60)


def test_v14_every_receive_gives_a_new_handle_and_keeps_count_and_first_receive(queue, clock):
    queue.send("x")
    seen = []
    for _ in range(3):
        clock.advance(30)
        seen.append(received(queue))
    assert [message.receive_count for message in seen] == [1, 2, 3]
    assert len({message.receipt_handle for message in seen}) == 3
    assert len({message.first_received_at for message in seen}) == 1
    assert seen[0].first_received_at.timestamp() == clock() / 1_000 - 60
    assert len({message.sent_at for message in seen}) == 1
