"""The columns of an Arrow table that is sent: with Spark and without, a ledger accepts and refuses the same types."""

import itertools

import pyarrow as pa
import pytest

from ledger import Ledger
from ledger.errors import LedgerError

_numbers = itertools.count()
BODIES = ["a", "b", "c"]
NONE = [None, None, None]
NAN = float("nan")
FULL = [[("n", {"data_type": "Number", "string_value": "7", "binary_value": None})], None, []]
TURNED = pa.struct([("string_value", pa.string()), ("binary_value", pa.binary()), ("data_type", pa.string())])
WITHOUT_BYTES = pa.struct([("data_type", pa.string()), ("string_value", pa.string()), ("binary_value", pa.null())])
LARGE = pa.struct(
    [("data_type", pa.large_string()), ("string_value", pa.string()), ("binary_value", pa.large_binary())]
)
FIFO = {"FifoQueue": True, "ContentBasedDeduplication": True}

ACCEPTED = [
    *(("delay_seconds", [0, None, 5], kind) for kind in (pa.float64(), pa.float32(), pa.int8(), pa.int64())),
    ("delay_seconds", [0, NAN, 5], pa.float64()),
    *(("delay_seconds", NONE, kind) for kind in (pa.string(), pa.null(), pa.float64(), pa.uint8(), pa.date32())),
    *(("message_group_id", NONE, kind) for kind in (pa.int64(), pa.null(), pa.struct([("a", pa.int8())]))),
    ("message_group_id", [NAN, NAN, NAN], pa.float64()),
    ("message_deduplication_id", NONE, pa.int64()),
    ("aws_trace_header", NONE, pa.int64()),
    *(("message_attributes", NONE, kind) for kind in (pa.string(), pa.int64(), pa.null(), TURNED)),
    *(("message_attributes", FULL, pa.map_(pa.string(), item)) for item in (TURNED, WITHOUT_BYTES, LARGE)),
    # These columns are not sent, and Spark has no such values.
    ("other", [1, None, 3], pa.uint64()),
    ("other", [1, None, 3], pa.timestamp("ns")),
]
REFUSED = [
    ("delay_seconds", [1.5, None, 2.0], pa.float64()),
    ("delay_seconds", [1e30, None, 2.0], pa.float64()),
    ("delay_seconds", ["1", None, "2"], pa.string()),
    ("delay_seconds", [1, None, 2], pa.uint8()),
    ("message_group_id", [1, None, 2], pa.int64()),
    ("aws_trace_header", [1, None, 2], pa.int64()),
    ("message_attributes", [1, None, 2], pa.int64()),
    ("body", [1, None, 2], pa.int64()),
    ("body", NONE, pa.int64()),
    ("MessageGroupId", BODIES, pa.string()),
    ("Delay_Seconds", [1, None, 2], pa.int64()),
]


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory, frames_clock, frames_ledger):
    """A ledger without Spark, and one with Spark."""
    return Ledger.open(str(tmp_path_factory.mktemp("columns") / "ledger"), clock=frames_clock), frames_ledger


def named(cases):
    return [f"{name}-{kind}-{number}" for number, (name, _, kind) in enumerate(cases)]


def table_of(name, values, kind):
    return pa.table({"body": BODIES, name: pa.array(values, kind)})


def sent(ledgers, frames_clock, table, attributes=()):
    """What receivers of a queue of each ledger get at once and 5 seconds later, after a send of the table."""
    suffix = ".fifo" if attributes else ""
    queues = [ledger.create_queue(f"columns-{next(_numbers)}{suffix}", dict(attributes)) for ledger in ledgers]
    assert [queue.send(table).count for queue in queues] == [len(table), len(table)]
    found = [[received(queue)] for queue in queues]
    frames_clock.advance(5)
    return [(*first, received(queue)) for first, queue in zip(found, queues)]


def received(queue):
    return sorted(
        (one.body, one.message_group_id or "", one.aws_trace_header, sorted(one.message_attributes.items()))
        for one in queue.receive(10, 600)
    )


def refusal(queue, table):
    with pytest.raises(LedgerError) as refused:
        queue.send(table)
    assert queue.counts().stored == 0
    return type(refused.value), refused.value


@pytest.mark.soak_variants(
    "*", but=("*-double-[04]", "*-string-*", "message_group_id-int64-*", "*map*", "other-uint64-*")
)
@pytest.mark.parametrize(("name", "values", "kind"), ACCEPTED, ids=named(ACCEPTED))
def test_a_table_gives_the_same_messages_with_spark_and_without(ledgers, frames_clock, name, values, kind):
    without, with_spark = sent(ledgers, frames_clock, table_of(name, values, kind))
    assert with_spark == without
    assert sum(map(len, without)) == 3
    assert [body for body, *_ in without[1]] == (["c"] if values[2] == 5 else [])
    assert any(attributes for *_, attributes in without[0]) == (values is FULL)


def test_a_table_for_a_fifo_queue_does_too_also_if_its_rows_are_sent_whole(ledgers, frames_clock):
    table = pa.table(
        {
            "message_group_id": pa.array(["g", "g", "h"], pa.large_string()),
            "message_deduplication_id": pa.nulls(3, pa.int64()),
            "delay_seconds": pa.array([None, 0.0, None]),
            "message_attributes": pa.nulls(3),
            "text": BODIES,
        }
    )
    whole, of_bodies = table.drop_columns("delay_seconds"), table.rename_columns([*table.column_names[:-1], "body"])
    for given in (whole, of_bodies):
        without, with_spark = sent(ledgers, frames_clock, given, FIFO)
        assert with_spark == without and len(without[0]) == 3


def test_a_table_without_rows_may_have_any_types(ledgers, frames_clock):
    table = pa.table({name: pa.array([], pa.date32()) for name in ("body", "delay_seconds", "message_attributes")})
    assert sent(ledgers, frames_clock, table) == [([], []), ([], [])]


@pytest.mark.parametrize(("name", "values", "kind"), REFUSED, ids=named(REFUSED))
def test_a_table_is_refused_in_the_same_words_with_spark_and_without(ledgers, name, values, kind):
    queues = [ledger.create_queue(f"columns-{next(_numbers)}") for ledger in ledgers]
    (kind_without, without), (kind_with, with_spark) = (
        refusal(queue, table_of(name, values, kind)) for queue in queues
    )
    assert kind_with is kind_without and with_spark.message == without.message
    # A row is refused by Spark's tasks, which know no numbers of rows.
    assert without.advice == with_spark.advice or without.advice == "It is row 0. Nothing was sent."
