"""What is written and what is acknowledged are about the same messages, or nothing happens."""

import pyarrow as pa
import pytest

from ledger.errors import InvalidParameterValue
from tests.output.conftest import rows_of


def columns_of(claim, *columns):
    rows = pa.Table.from_pylist([{"message_id": m.message_id, "receipt_handle": m.receipt_handle} for m in claim])
    return rows.select(columns or rows.column_names)


@pytest.mark.parametrize("column", ["message_id", "receipt_handle"])
def test_a_column_of_the_rows_says_which_messages_are_acknowledged(place, column):
    place.queue.send([f"{n}" for n in range(10)])
    claim = place.queue.receive(None)
    some = columns_of(claim).take([1, 2, 7, 7])
    assert claim.write(some, place.table, messages=column).messages == 3
    assert place.written() == {some["message_id"][0].as_py(): 1, some["message_id"][1].as_py(): 1,
                               some["message_id"][2].as_py(): 2}  # fmt: skip
    left = {m.message_id for m in place.queue.claim(claim.receipt_id)}
    assert left == {m.message_id for m in claim} - set(some["message_id"].to_pylist()) and len(left) == 7
    assert claim.write(some.slice(0, 0), place.table, messages=column).messages == 0


def test_a_list_must_name_just_the_messages_that_have_rows(place):
    place.queue.send([f"{n}" for n in range(5)])
    claim = place.queue.receive(None)
    rows, handles = rows_of(claim), [m.receipt_handle for m in claim]
    ids = rows["message_id"].to_pylist()
    for some, named, why in (
        (rows.slice(0, 2), handles, "3 of the messages have no row"),
        (rows, handles[:3], "rows about 2 messages that are not in messages"),
        (rows, ids[:3], "rows about 2 messages"),
        (rows.slice(0, 2), handles[2:4], "rows about 2 messages.*and 2 of the messages have no row"),
        (rows.take([0, 1]).set_column(0, "message_id", [[ids[0], None]]), handles[:1], "1 rows name no message"),
    ):
        with pytest.raises(InvalidParameterValue, match=why):
            claim.write(some, place.table, messages=named)
    assert not place.written() and place.queue.counts().in_flight == 5
    assert claim.write(rows.take([0, 3, 3]), place.table, messages=[ids[0], handles[3]]).messages == 2


def test_rows_of_messages_that_are_not_of_the_claim_are_refused(place):
    place.queue.send(["a", "b", "c"])
    claim, other = place.queue.receive(2), place.queue.receive(1)
    mixed = pa.concat_tables([columns_of(claim), columns_of(other)])
    elsewhere = place.ledger.create_queue("elsewhere")
    elsewhere.send("x")
    foreign = columns_of(elsewhere.receive())
    for rows, messages, why in (
        (mixed, None, "rows about 1 messages that are not in the claim"),
        (mixed, "message_id", "1 are not"),
        (mixed, "receipt_handle", "1 are not"),
        (columns_of(other, "receipt_handle"), None, "not in the claim .* and there are handles of another receipt"),
        (foreign, "message_id", "1 are not"),
        (foreign, "receipt_handle", "1 are neither"),
        (rows_of(claim), [m.receipt_handle for m in other], "1 are not"),
    ):
        with pytest.raises(InvalidParameterValue, match=why):
            claim.write(rows, place.table, messages=messages)
    assert not place.written() and place.queue.counts().in_flight == 3


def test_a_column_that_cannot_name_messages_is_refused(place):
    place.queue.send(["a", "b"])
    claim = place.queue.receive(None)
    rows = rows_of(claim).append_column("number", [[1, 2]]).append_column("text", [["x", None]])
    for column, why in (
        ("number", "is int64 and must be string"), ("text", "2 are neither"), ("missing", "no such column.*message_id"),
        ("", "no such column"),
    ):  # fmt: skip
        with pytest.raises(InvalidParameterValue, match=why):
            claim.write(rows, place.table, messages=column)
    assert not place.written() and place.queue.counts().in_flight == 2


def test_the_whole_claim_is_acknowledged_though_some_messages_have_no_row(place):
    place.queue.send([f"{n}" for n in range(4)])
    claim = place.queue.receive(None)
    assert claim.write(rows_of(claim).slice(0, 1), place.table).messages == 4
    assert sum(place.written().values()) == 1 and place.queue.counts().deleted == 4


def test_a_column_message_id_of_something_else_is_not_taken_for_the_ledgers(place):
    place.queue.send(["a", "b"])
    claim = place.queue.receive(None)
    mails = pa.table({"message_id": ["<1@example>", "<2@example>"]})
    assert claim.write(mails, place.table, messages=[m.receipt_handle for m in claim]).messages == 2
    assert place.written() == {"<1@example>": 1, "<2@example>": 1}


@pytest.mark.parametrize("values", [["x", "y"], [None, None]], ids=["no ids", "nothing"])
def test_rows_of_which_none_names_a_message_acknowledge_none(place, values):
    """A join that found nothing, say: nobody would know that the claim is done with."""
    place.queue.send(["a", "b"])
    claim = place.queue.receive(None)
    with pytest.raises(InvalidParameterValue, match="2 rows name no message of the queue"):
        claim.write(pa.table({"message_id": pa.array(values, pa.string())}), place.table)
    assert place.queue.counts().in_flight == 2
