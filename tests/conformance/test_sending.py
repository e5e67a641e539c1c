"""Sending lists of strings."""

import uuid

import pyarrow as pa
import pytest

from ledger.errors import SparkIsNeeded


def test_one_string_is_one_message(queue):
    ids = queue.send("hello")
    assert len(ids) == 1
    assert [message.body for message in queue.receive(None)] == ["hello"]


def test_the_ids_are_in_the_order_of_the_bodies_unique_and_uuids(queue):
    bodies = [f"body {n}" for n in range(50)]
    ids = queue.send(bodies[:25]) + queue.send(bodies[25:])
    assert len(set(ids)) == 50 and all(str(uuid.UUID(i)) == i for i in ids)
    assert [queue.peek(i).body for i in ids] == bodies


def test_a_body_may_be_any_text(queue):
    bodies = ["'; DROP TABLE messages; --", "\\", "\n\t\x7f\ufffd", "😀é", " ", "null", "[1, 2]", "x" * 100_000]
    ids = queue.send(bodies)
    assert [queue.peek(i).body for i in ids] == bodies
    assert sorted(message.body for message in queue.receive(None)) == sorted(bodies)


def test_equal_bodies_are_different_messages(queue):
    assert len(set(queue.send(["x"] * 10))) == 10
    assert queue.counts().visible == 10


def test_sent_at_is_when_it_was_sent(queue, clock):
    (early,) = queue.send("early")
    clock.advance(1.234)
    (late,) = queue.send("late")
    assert (queue.peek(late).sent_at - queue.peek(early).sent_at).total_seconds() == 1.234
    assert queue.peek(late).sent_at.timestamp() == clock() / 1_000


def test_a_message_is_fresh_when_sent(queue):
    message = queue.peek(queue.send("x")[0])
    assert (message.receive_count, message.first_received_at, message.visible_at) == (0, None, None)
    assert message.status.value == "visible" and dict(message.message_attributes) == {}


def test_sending_nothing_sends_nothing(queue):
    assert queue.send([]) == []
    assert queue.counts().stored == 0


def test_messages_of_one_send_are_received_in_its_order(queue):
    queue.send([f"{n}" for n in range(30)])
    assert [message.body for message in queue.receive(None)] == [f"{n}" for n in range(30)]


def test_a_dataframe_needs_spark_and_says_how_to_get_it(request, queue):
    if request.node.callspec.params["world"].startswith("spark"):
        pytest.skip("there it works")

    class Frame:
        sparkSession = select = None  # noqa: N815 - what tells a DataFrame apart

    for call in (queue.send, queue.delete, lambda frame: queue.change_visibility(frame, 60)):
        with pytest.raises(SparkIsNeeded, match=r"Ledger\.open\(root, spark=spark\)"):
            call(Frame())


def test_a_dictionary_that_is_no_entry_says_how_to_send_it_as_json(queue):
    (outcome,) = queue.send([{"prompt": "a"}])
    assert not outcome and "json.dumps" in str(outcome.error) and "rows of a table" in str(outcome.error)
    (outcome,) = queue.send([{"body": "a"}])
    assert "write MessageBody for body" in str(outcome.error) and "json.dumps" not in str(outcome.error)
    assert queue.counts().stored == 0


def test_an_outcome_shows_what_to_do_and_so_does_the_log(queue, caplog):
    (refused,) = queue.send([{"order": 1}])
    assert "json.dumps" in repr(refused) and "json.dumps" in caplog.text
    (refused,) = queue.send([{"MessageBody": "a", "DelaySeconds": "5"}])
    assert "A whole number is asked for, and this is a str." in repr(refused)
    assert "InvalidParameterValue(" not in repr(refused)


def test_the_log_names_the_columns_of_a_table_that_are_not_sent_once(queue, caplog):
    rows = pa.table({"body": ["a"], "delay_second": [9], "note": ["n"]})
    for _ in range(2):
        assert queue.send(rows).count == 1
    (told,) = [record.getMessage() for record in caplog.records if record.name == "ledger.send"]
    assert told.endswith("the column body is sent; left out: delay_second (is delay_seconds meant?), note")
    caplog.clear()
    queue.send(pa.table({"note": ["n"], "delay_seconds": [0]}), body="note")
    queue.send(pa.table({"note": ["n"], "more": ["m"]}))
    assert not [record for record in caplog.records if record.name == "ledger.send"]
