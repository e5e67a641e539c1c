"""claim.write with failed=: all but the exceptions are acknowledged, in one commit with what becomes of these."""

import pandas as pd
import pyarrow as pa
import pytest

from ledger.errors import InvalidParameterValue, LeaseLost
from tests.output.conftest import rows_of
from tests.output.test_write import STEPS, Crash, crash

IDS = "message_id"


@pytest.fixture
def claim(place):
    place.queue.send([f"{n}" for n in range(6)])
    return place.queue.receive(None)


def with_reasons(claim, *failed):
    """A row for each message; a reason for those of these numbers."""
    reasons = ["no good" if number in failed else None for number in range(claim.count)]
    return rows_of(claim).append_column("reason", pa.array(reasons, pa.string()))


def visibility_commits(place):
    return place.ledger.store.engine.version("visibility")


def test_a_column_names_the_exceptions_which_are_not_written_and_are_released(place, claim):
    before = visibility_commits(place)
    settled = claim.write(with_reasons(claim, 1, 4), place.table, failed="reason")
    assert (settled.messages, settled.failed, settled.lost) == (4, 2, 0)
    assert visibility_commits(place) == before + 2, "what begins the write, and one commit for all that ends it"
    counts = place.queue.counts()
    assert (counts.deleted, counts.visible, counts.in_flight) == (4, 2, 0)
    ids = rows_of(claim)[IDS].to_pylist()
    assert place.written() == dict.fromkeys(ids[:1] + ids[2:4] + ids[5:], 1)
    assert {message.message_id for message in place.queue.receive(None)} == {ids[1], ids[4]}


@pytest.mark.parametrize(
    "form",
    [
        lambda messages: [message.receipt_handle for message in messages],
        lambda messages: tuple(message.message_id for message in messages),
        lambda messages: pa.table({"receipt_handle": [message.receipt_handle for message in messages]}),
        lambda messages: pa.table({IDS: [m.message_id for m in messages], "reason": ["x"] * len(messages)}),
    ],
)
def test_a_list_or_a_table_names_them_and_they_stay_hidden_for_as_long_as_is_said(place, claim, form):
    rows, messages = rows_of(claim), claim.messages()
    settled = claim.write(rows.slice(2), place.table, failed=form(messages[:2]), visibility_timeout=100)
    assert (settled.messages, settled.failed) == (4, 2) and place.queue.counts().in_flight == 2
    place.clock.advance(99)
    assert place.queue.receive(None).count == 0
    place.clock.advance(1)
    assert place.queue.receive(None).count == 2


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("failed", ["reason", "a list"])
def test_a_message_that_has_neither_a_row_nor_a_reason_is_not_acknowledged(place, claim, rows, failed):
    """However few rows there are: of the exceptions alone, or none."""
    some = with_reasons(claim, 0).slice(0, rows) if failed == "reason" else rows_of(claim).slice(1, max(rows - 1, 0))
    named = failed if failed == "reason" else [claim.messages()[0].message_id]
    with pytest.raises(InvalidParameterValue, match="of the messages have no row"):
        claim.write(some, place.table, failed=named)
    counts = place.queue.counts()
    assert (counts.deleted, counts.in_flight) == (0, 6) and place.written() == {}


@pytest.mark.parametrize("named", ["reason", "a list"])
def test_an_empty_column_of_handles_says_nothing_beside_one_that_names_messages(place, claim, named):
    rows = with_reasons(claim, 1).append_column("receipt_handle", pa.nulls(claim.count, pa.string()))
    if named == "a list":
        rows = pa.concat_tables([rows.slice(0, 1), rows.slice(2)])
    failed = "reason" if named == "reason" else [claim.messages()[1].message_id]
    assert claim.write(rows, place.table, failed=failed).messages == 5


def test_without_exceptions_all_is_acknowledged_and_with_nothing_else_nothing_is_written(place, claim):
    assert claim.write(with_reasons(claim), place.table, failed="reason") == claim.write(
        rows_of(claim), place.table, failed=[]
    )
    assert place.queue.counts().deleted == 6
    place.queue.send(["a", "b"])
    other = place.queue.receive(None)
    settled = other.write(with_reasons(other, 0, 1), f"{place.table}-2", failed="reason")
    assert (settled.messages, settled.failed) == (0, 2) and place.queue.counts().visible == 2


def test_rows_that_carry_no_ids_are_about_all_but_the_exceptions(place, claim):
    settled = claim.write(pa.table({"sum": [7]}), place.table, failed=[claim.messages()[0].message_id])
    assert (settled.messages, settled.failed) == (5, 1)


def test_what_contradicts_itself_is_refused_and_nothing_changes(place, claim):
    rows, reasons, messages = rows_of(claim), with_reasons(claim, 0), claim.messages()
    first = [messages[0].message_id]
    place.queue.send("x")
    stranger = [place.queue.receive().messages()[0].message_id]
    for given, arguments, why in (
        (rows, {"failed": first}, "Leave out the rows of failed messages"),
        (rows.slice(2), {"failed": first}, "have no row.*name each message without a row in failed="),
        (reasons.slice(1), {"failed": "reason"}, "1 of the messages have no row.*rows without a value in reason"),
        (pa.concat_tables([reasons, with_reasons(claim)]), {"failed": "reason"}, "rows about 1 messages"),
        (rows, {"failed": stranger}, "Must be messages of the claim .* 1 are not"),
        (rows, {"failed": ["no id"]}, "neither a message id nor a receipt handle"),
        (rows, {"failed": "reason"}, "no such column"),
        (reasons.drop_columns([IDS]), {"failed": "reason"}, "They have no column message_id"),
        (rows, {"failed": [], "messages": IDS}, "Give one of them"),
        (rows, {"visibility_timeout": 5}, "Give failed="),
        (rows, {"failed": first, "visibility_timeout": -1}, "VisibilityTimeout"),
    ):
        with pytest.raises(InvalidParameterValue, match=why) as raised:
            claim.write(given, place.table, **arguments)
        assert 'messages="' not in str(raised.value), "it would acknowledge failed messages that have rows"
    assert not place.written() and place.queue.counts().in_flight == 7


@pytest.mark.parametrize(("step", "times", "rows_are_in"), STEPS)
def test_after_a_crash_at_any_step_the_retry_does_what_is_missing(place, at_step, step, times, rows_are_in):
    ids = place.queue.send([f"{n}" for n in range(6)])
    claim = place.queue.receive(None, attempt_id="job")
    at_step(step, crash, times)
    with pytest.raises(Crash):
        claim.write(with_reasons(claim, 1, 4), place.table, failed="reason")
    again = claim.write(with_reasons(claim, 1, 4), place.table, failed="reason")
    assert again.messages == 4 and again.failed == (0 if (step, times) == ("committed", 2) else 2)
    assert place.written() == dict.fromkeys(ids[:1] + ids[2:4] + ids[5:], 1)
    assert (place.queue.counts().deleted, place.queue.counts().visible) == (4, 2)


def test_who_lost_the_lease_meanwhile_takes_nothing_away_from_the_next_receiver(place, claim, at_step):
    takers = []

    def taken_over():
        place.clock.advance(31)
        takers.append(place.another().queue("work").receive(None))

    at_step("written", taken_over)
    settled = claim.write(with_reasons(claim, 1, 4), place.table, failed="reason")
    assert (settled.messages, settled.failed) == (4, 0) and takers[0].count == 2
    assert place.queue.counts().in_flight == 2
    rows = with_reasons(claim, 1, 4)
    with pytest.raises(LeaseLost):
        place.queue.send("y")
        other = place.queue.receive()
        place.clock.advance(31)
        place.queue.receive(None)
        other.write(rows_of(other), place.table, failed=[])
    assert rows.num_rows == 6


def test_a_heartbeat_does_not_take_what_failed_for_lost(place, claim):
    claim.write(with_reasons(claim, 1), place.table, failed="reason")
    claim.check()


#: A column's values, and whether each is a reason: whatever is not null is one.
REASONS = {
    "texts": (pa.array(["", " ", None]), [True, True, False]),
    "numbers": (pa.array([0, 1, None]), [True, True, False]),
    "floats": (pa.array([float("nan"), 0.0, None]), [True, True, False]),
    "booleans": (pa.array([False, True, None]), [True, True, False]),
    "lists": (pa.array([[], ["a"], None], pa.list_(pa.string())), [True, True, False]),
    "nothing": (pa.nulls(3), [False, False, False]),
}


@pytest.mark.parametrize(("values", "are_reasons"), REASONS.values(), ids=REASONS)
def test_every_value_but_null_is_a_reason(place, values, are_reasons):
    place.queue.send(["0", "1", "2"])
    claim = place.queue.receive(None)
    rows = rows_of(claim).append_column("reason", values)
    settled = claim.write(rows, place.table, failed="reason")
    ids = [message for message, failed in zip(rows[IDS].to_pylist(), are_reasons) if not failed]
    assert (settled.messages, settled.failed) == (len(ids), sum(are_reasons))
    assert place.written() == dict.fromkeys(ids, 1)


@pytest.mark.parametrize("kind", [object, float, "Float64", "boolean", "category"])
def test_what_pandas_has_in_place_of_none_is_no_reason(place, kind):
    place.queue.send(["0", "1", "2"])
    claim = place.queue.receive(None)
    rows = rows_of(claim).to_pandas()
    rows["reason"] = pd.Series([None, 1.0, float("nan")], dtype=kind)
    settled = claim.write(rows, place.table, failed="reason")
    assert (settled.messages, settled.failed) == (2, 1)
    assert place.written() == dict.fromkeys([rows[IDS][0], rows[IDS][2]], 1)
