"""Whole lives of messages, many rules a test: what runs on every engine by default, Spark included."""

import pytest

from ledger.errors import InvalidParameterValue, MessageNotInflight, ReceiptHandleIsInvalid
from tests.conformance.looking import changing_nothing, seconds_until, statuses

pytestmark = pytest.mark.spark_too


@pytest.mark.spark_statement_too
def test_a_message_is_received_extended_late_received_again_and_deleted(queue, clock):
    ids = queue.send(["x"])
    (first,) = queue.receive().messages()
    assert (first.message_id, first.body, first.receive_count) == (ids[0], "x", 1)
    clock.advance(20)
    queue.change_visibility(first.receipt_handle, 60)  # V4
    assert seconds_until(queue.peek(ids[0]), clock) == 60
    with changing_nothing(queue, ids):
        assert not queue.receive()
        with pytest.raises(InvalidParameterValue, match="43200 seconds"):  # V7
            queue.change_visibility(first.receipt_handle, 43_181)
    clock.advance(60)
    with changing_nothing(queue, ids), pytest.raises(MessageNotInflight):  # V9
        queue.change_visibility(first.receipt_handle, 60)
    (second,) = queue.receive(visibility_timeout=7).messages()  # V2, V5
    assert second.receive_count == 2 and seconds_until(second, clock) == 7
    assert second.first_received_at == first.first_received_at and second.receipt_handle != first.receipt_handle
    with changing_nothing(queue, ids):  # V8
        queue.delete(first.receipt_handle)
        with pytest.raises(ReceiptHandleIsInvalid):
            queue.change_visibility(first.receipt_handle, 0)
    queue.delete(second.receipt_handle)
    clock.advance(100_000)
    assert statuses(queue, ids) == ["deleted"] and not queue.receive()  # V13


def test_a_claim_of_many_is_split_by_handles_and_settled_as_a_whole(queue, clock):
    ids = queue.send([f"body {n}" for n in range(100)])
    claim = queue.receive(None, attempt_id="job")
    assert claim.count == 100
    clock.advance(10)
    again = queue.receive(None, attempt_id="job")  # F3
    assert (again.receipt_id, again.count) == (claim.receipt_id, 100) and seconds_until(again, clock) == 30
    messages = again.messages()
    handles = [message.receipt_handle for message in messages]
    outcomes = queue.settle(delete=handles[:10], release=handles[50:55], extend=handles[90:], visibility_timeout=500)
    assert [outcome.outcome for outcome in outcomes] == ["deleted"] * 10 + ["changed"] * 15
    assert (queue.counts().deleted, queue.counts().visible, queue.counts().in_flight) == (10, 5, 85)
    other = queue.receive(3)
    assert again.extend(100).messages == 85
    assert again.delete().messages == 85
    counts = queue.counts()
    assert (counts.deleted, counts.visible, counts.in_flight) == (95, 2, 3)
    assert {message.message_id for message in other} <= {message.message_id for message in messages[50:55]}
    assert sum(status == "deleted" for status in statuses(queue, ids[45:60])) == 10


def test_a_lock_hides_a_purge_deletes_and_a_queue_made_anew_is_empty(ledger, queue, clock):
    ids = queue.send(["x", "y"])
    queue.lock(ids[0], 60)  # V12
    assert statuses(queue, ids) == ["locked", "visible"]
    assert [message.body for message in queue.receive(None)] == ["y"]
    assert queue.purge() == 2 and queue.purge() == 0
    assert statuses(queue, ids) == ["deleted", "deleted"]
    ledger.delete_queue(queue.name)
    anew = ledger.create_queue(queue.name)
    assert anew.counts().stored == 0 and not anew.receive(None)
