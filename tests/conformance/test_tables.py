"""Tables without Spark: pandas, pyarrow, and whatever has Arrow's PyCapsule interface, sent and acted on like a
DataFrame; and what is no list and no table, refused instead of guessed at."""

import json
from collections import namedtuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ledger import Ledger
from ledger.errors import InvalidParameterValue, LedgerError, MissingParameter
from tests.clock import FrozenClock
from tests.conformance.looking import changing_nothing, seconds_until, statuses


class Capsule:
    """A table of some other library: all that is known of it is Arrow's PyCapsule interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


KINDS = {
    "pandas": pd.DataFrame,
    "pandas, filtered": lambda columns: pd.DataFrame({n: [None, *c] for n, c in columns.items()}).iloc[1:],
    "a pyarrow.Table": pa.table,
    "a RecordBatch": pa.RecordBatch.from_pydict,
    "a RecordBatchReader": lambda columns: pa.table(columns).to_reader(),
    "the PyCapsule interface": lambda columns: Capsule(pa.table(columns)),
    "views of strings": lambda columns: pa.table({n: pa.array(c).cast(pa.string_view()) for n, c in columns.items()}),
    "a batch of views": lambda columns: KINDS["views of strings"](columns).to_batches()[0],
    "categories": lambda columns: pd.DataFrame(columns).astype("category"),
}


@pytest.fixture(params=KINDS)
def table_of(request):
    """Makes a table of some kind of columns of strings."""
    return KINDS[request.param]


def sent_bodies(queue):
    return sorted(message.body for message in queue.receive(None, visibility_timeout=0))


def test_every_row_of_a_table_is_a_message_and_not_its_columns_names(queue, table_of):
    sent = queue.send(table_of({"other": ["x", "y", "z"], "body": ["a", "ü", "a"]}))
    assert sent.count == 3 and sent.ids()["body"].to_pylist() == ["a", "ü", "a"]
    assert [queue.peek(i).body for i in sent.ids()["message_id"].to_pylist()] == ["a", "ü", "a"]
    assert sent_bodies(queue) == ["a", "a", "ü"]


def test_another_column_is_sent_when_it_is_named(queue, table_of):
    queue.send(table_of({"body": ["x", "y"], "the text": ["a", "b"]}), body="the text")
    assert sent_bodies(queue) == ["a", "b"]


def test_without_a_body_column_rows_are_sent_as_json_without_their_nulls(queue):
    queue.send(pd.DataFrame({"n": [7], "text": ['say "ü"'], "nothing": [None], "list": [[1, 2]]}, index=[41]))
    queue.send(pa.table({"n": [1.5], "yes": [True], "in": [{"a": None, "b": "x"}]}))
    bodies = [message.body for message in queue.receive(None)]
    assert sorted(map(json.loads, bodies), key=lambda row: row["n"]) == [
        {"n": 1.5, "yes": True, "in": {"b": "x"}},
        {"n": 7, "text": 'say "ü"', "list": [1, 2]},
    ]
    assert '"text":"say \\"ü\\""' in "".join(bodies), "as Spark writes it"


def test_what_a_row_says_beside_its_body_counts(queue, clock):
    full = pa.map_(
        pa.string(),
        pa.struct([("data_type", pa.string()), ("string_value", pa.string()), ("binary_value", pa.binary())]),
    )
    one = {"data_type": "Binary", "string_value": None, "binary_value": b"\x00"}
    for kind, given, expected in (
        (pa.map_(pa.string(), pa.string()), [("kind", "express")], "express"),
        (full, [("kind", one)], b"\x00"),
    ):
        table = pa.table(
            {
                "body": ["now", "later"],
                "delay_seconds": [None, 60],
                "message_group_id": ["g", None],
                "message_attributes": pa.array([given, None], kind),
            }
        )
        queue.send(table)
        (message,) = queue.receive(None)
        assert (message.body, message.message_group_id) == ("now", "g")
        assert message.message_attributes["kind"].value == expected
        assert queue.counts().delayed == 1
        clock.advance(60)
        assert [m.body for m in queue.receive(None)][-1] == "later"
        clock.advance(30)
        queue.purge()


def test_a_fifo_queue_takes_its_groups_from_a_table(ledger):
    queue = ledger.create_queue("tables.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    table = pa.table({"message_group_id": ["g", "h", "g"], "body": ["1", "2", "1"], "delay_seconds": [0, None, 0]})
    assert len(set(queue.send(table).ids()["message_id"].to_pylist())) == 2, "a deduplication id is sent once"
    with pytest.raises(InvalidParameterValue, match=r"message_group_id.*FIFO queue needs it"):
        queue.send(table.drop_columns("message_group_id"))
    with pytest.raises(InvalidParameterValue, match=r"DelaySeconds.*not valid for this queue type.*row 0"):
        queue.send(table.set_column(2, "delay_seconds", pa.array([7, 7, 7])))
    with pytest.raises(MissingParameter, match=r"MessageGroupId.*row 1"):
        queue.send(pa.table({"message_group_id": ["g", None], "body": ["8", "9"]}))
    assert queue.counts().stored == 2


def test_a_table_without_rows_sends_and_settles_nothing(queue):
    with changing_nothing(queue):
        sent = queue.send(pa.table({"body": pa.array([], pa.string())}))
        assert (sent.count, sent.ids().num_rows) == (0, 0)
        assert queue.delete(pa.table({"receipt_handle": pa.array([], pa.string())})).num_rows == 0


def rows_of(outcomes):
    assert isinstance(outcomes, pa.Table)
    assert outcomes.column_names == ["receipt_handle", "action", "outcome", "error_code", "error_message"]
    assert [m is None for m in outcomes["error_message"].to_pylist()] == [
        c is None for c in outcomes["error_code"].to_pylist()
    ]
    return [tuple(row.values())[1:4] for row in outcomes.to_pylist()]


def test_handles_in_a_table_are_acted_on_and_answered_row_by_row(queue, table_of, clock):
    ids = queue.send(["a", "b", "c", "d"])
    a, b, c, d = (message.receipt_handle for message in queue.receive(None))
    outcomes = queue.delete(table_of({"n": ["1", "2", "3"], "receipt_handle": [a, "forged", a]}))
    assert outcomes["receipt_handle"].to_pylist() == [a, "forged", a]
    assert rows_of(outcomes) == [
        ("delete", "deleted", None),
        ("delete", "invalid", "ReceiptHandleIsInvalid"),
        ("delete", "deleted", None),
    ]
    assert rows_of(queue.change_visibility(table_of({"receipt_handle": [b]}), 100)) == [("extend", "changed", None)]
    settled = queue.settle(release=table_of({"receipt_handle": [c]}), delete=[d])
    assert rows_of(settled) == [("delete", "deleted", None), ("release", "changed", None)]
    assert statuses(queue, ids) == ["deleted", "in flight", "visible", "deleted"]
    assert seconds_until(queue.peek(ids[1]), clock) == 100


def test_each_row_may_have_its_own_timeout(queue, clock):
    ids = queue.send(["a", "b", "c", "d", "e"])
    handles = [message.receipt_handle for message in queue.receive(None)]
    table = pa.table({"receipt_handle": [*handles, None], "seconds": [10, 0, None, -1, 43_201, 5]})
    refused = ("extend", "beyond the ceiling", "InvalidParameterValue")
    assert rows_of(queue.change_visibility(table, "seconds")) == [
        ("extend", "changed", None),
        ("release", "changed", None),
        *[refused] * 3,
        ("extend", "invalid", "ReceiptHandleIsInvalid"),
    ]
    assert [seconds_until(queue.peek(i), clock) for i in ids] == [10, 0, 30, 30, 30]


Point = namedtuple("Point", "x y")
#: Neither a list nor a table, or a table that is not clear: what is called, and what its error says.
REFUSED = {
    "a set of messages": (lambda q, h: q.send({"x", "y"}), r"'set'.*list\(\.\.\.\)"),
    "a generator of messages": (lambda q, h: q.send(text for text in "xy"), r"'generator'.*Must be a list"),
    "the keys of a dict": (lambda q, h: q.send({"x": 1}.keys()), "'dict_keys'.*Must be a list"),
    "bytes": (lambda q, h: q.send(b"xy"), "Must be a list"),
    "an array of numpy": (lambda q, h: q.send(np.array(["x"])), "'ndarray'.*Must be a list"),
    "a Series of pandas": (lambda q, h: q.send(pd.Series(["x"])), r"'Series'.*list\(\.\.\.\)"),
    "a column of Arrow": (lambda q, h: q.send(pa.chunked_array([["x"]])), r"single column.*list\(column\)"),
    "an array of Arrow": (lambda q, h: q.send(pa.array(["x"])), r"single column.*list\(column\)"),
    "a named tuple": (lambda q, h: q.send(Point("x", "y")), "'Point'.*Must be a list"),
    "a column named for a list": (lambda q, h: q.send(["x"], body="text"), "body.*names a column"),
    "a mixed column of pandas": (lambda q, h: q.send(pd.DataFrame({"body": ["x", 1]})), "several classes.*one class"),
    "two columns of one name": (
        lambda q, h: q.send(pa.table([["x"], ["y"]], names=["body", "body"])), "'body'.*two columns of this name"
    ),
    "a body column of numbers": (lambda q, h: q.send(pa.table({"body": [1]})), "'body'.*int64 and must be string.*Cast"),
    "no such body column": (lambda q, h: q.send(pa.table({"n": [1]}), body="text"), "'text'.*no such column; it has n"),
    "a table without columns": (lambda q, h: q.send(pa.table({})), "no columns"),
    "a body that is null": (lambda q, h: q.send(pa.table({"body": ["x", None]})), r"MessageBody.*row 1.*Nothing was sent"),
    "a body that is empty": (lambda q, h: q.send(pa.table({"body": ["x", ""]})), r"MessageBody.*row 1.*Nothing was sent"),
    "a delay of half seconds": (lambda q, h: q.send(pd.DataFrame({"body": ["x"], "delay_seconds": [.5]})), "double.*int8"),
    "a delay too long": (lambda q, h: q.send(pa.table({"body": ["x"], "delay_seconds": [901]})), "DelaySeconds.*<= 900.*row 0"),
    "a deduplication id for a standard queue": (
        lambda q, h: q.send(pa.table({"body": ["x"], "message_deduplication_id": ["d"]})), "not valid for this queue.*row 0",
    ),
    "a keyword beside a column": (lambda q, h: q.send(pa.table({"body": ["x"]}), delay_seconds=5), "as a column.*Add"),
    "an instant in JSON": (lambda q, h: q.send(pa.table({"at": pa.array([0], pa.timestamp("us"))})), "'at'.*timestamp.*Cast"),
    "a number that JSON has not": (lambda q, h: q.send(pa.table({"n": [float("inf")]})), "row 0.*JSON has no way"),
    "a set of handles": (lambda q, h: q.delete({h}), "Value set .*ReceiptHandle.*list"),
    "a dict of handles": (lambda q, h: q.delete({h: 1}), "Value dict .*ReceiptHandle.*Must be a list"),
    "a generator of handles": (lambda q, h: q.settle(release=(x for x in [h])), "Value generator .*ReceiptHandle"),
    "a Series of handles": (lambda q, h: q.delete(pd.Series([h])), "Value Series .*ReceiptHandle"),
    "a list of messages": (lambda q, h: q.delete([q.peek(q.send("y")[0])]), "Value Message .*message.receipt_handle"),
    "a claim": (lambda q, h: q.settle(extend=q.receive()), "Value Claim .*Must be a list"),
    "a table without handles": (lambda q, h: q.delete(pd.DataFrame({"handle": [h]})), "'receipt_handle'.*it has handle"),
    "handles that are numbers": (lambda q, h: q.delete(pa.table({"receipt_handle": [1]})), "'receipt_handle'.*int64.*string"),
    "no such timeouts": (lambda q, h: q.change_visibility(pa.table({"receipt_handle": [h]}), "s"), "'s'.*no such column"),
    "timeouts that are text": (
        lambda q, h: q.change_visibility(pa.table({"receipt_handle": [h], "s": ["1"]}), "s"), "'s'.*string and must be int8"
    ),
    "a column of timeouts for a list": (
        lambda q, h: q.settle(delete=pa.table({"receipt_handle": [h]}), extend=[h], visibility_timeout="s"), "VisibilityTimeout"
    ),
    "a set of message ids": (lambda q, h: q.redrive({"x"}), "'set'.*where"),
}  # fmt: skip


@pytest.mark.parametrize("refused", REFUSED)
def test_what_is_not_understood_is_refused_and_nothing_is_sent_or_settled(refused):
    """In memory: it is refused before any store is asked."""
    call, says = REFUSED[refused]
    queue = Ledger.in_memory(FrozenClock()).create_queue("jobs")
    (held,) = queue.send("held")
    handle = queue.receive().messages()[0].receipt_handle
    with pytest.raises((InvalidParameterValue, MissingParameter), match=f"(?s){says}") as raised:
        call(queue, handle)
    assert isinstance(raised.value, LedgerError) and len(str(raised.value)) < 500
    assert statuses(queue, [held]) == ["in flight"]
    assert set(sent_bodies(queue)) <= {"y"}


def test_a_selection_without_rows_does_nothing_and_is_no_error(queue):
    """pandas says of a column without rows that it holds nothing at all: "nothing failed" is the usual case."""
    queue.send(["a", "b"])
    claim = queue.receive(None)
    judged = pd.DataFrame([{"receipt_handle": m.receipt_handle, "ok": True} for m in claim])
    outcomes = claim.settle(delete=judged[judged.ok], release=judged[~judged.ok])
    assert outcomes["outcome"].to_pylist() == ["deleted", "deleted"]
    assert queue.send(pd.DataFrame({"body": ["x"]}).query("body == 'y'")).count == 0


def test_m2_one_handle_in_two_actions_is_refused_in_tables_too(queue):
    ids = queue.send(["a", "b"])
    a, b = (message.receipt_handle for message in queue.receive(None))
    outcomes = queue.settle(delete=pa.table({"receipt_handle": [a, b]}), release=pd.DataFrame({"receipt_handle": [b]}))
    refused = ("contradicted", "InvalidParameterValue")
    assert rows_of(outcomes) == [("delete", "deleted", None), ("delete", *refused), ("release", *refused)]
    assert statuses(queue, ids) == ["deleted", "in flight"]


@pytest.mark.spark_too
def test_a_table_with_an_entrys_names_for_columns_is_refused_and_says_what_to_call_them(make_queue):
    queue = make_queue()
    for name, wanted in (("DelaySeconds", "delay_seconds"), ("MessageGroupId", "message_group_id")):
        table = pa.table({"body": ["a", "b"], name: ["900", "900"]})
        with pytest.raises(InvalidParameterValue, match=f"has it in the column {wanted}"):
            queue.send(table)
    assert queue.counts().stored == 0
