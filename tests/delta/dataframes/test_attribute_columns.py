"""Message attributes of data frames: dicts, structs, lists of structs, maps and JSON texts."""

import datetime
import decimal
import itertools
import json

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ledger import Ledger
from ledger.client import tables
from ledger.errors import InvalidParameterValue

_numbers = itertools.count()
BODIES = ["a", "b", "c"]
#: The same attributes in each form.
GIVEN = [{"kind": "express", "priority": 7}, None, {"weight": 0.5, "seal": b"\1\2"}]
TEXTS = [{"kind": "express", "colour": "red"}, None, {"kind": "slow"}]
KEY_VALUES = [[{"key": k, "value": v} for k, v in one.items()] if one is not None else None for one in TEXTS]


@pytest.fixture(scope="module")
def without_spark(tmp_path_factory):
    return Ledger.open(str(tmp_path_factory.mktemp("attributes") / "ledger"))


@pytest.fixture(params=["without Spark", "Spark"])
def queue(request):
    ledger = request.getfixturevalue("without_spark" if request.param == "without Spark" else "frames_ledger")
    return ledger.create_queue(f"attributes-{next(_numbers)}")


def sent_as(queue, messages):
    """What a receiver reads of them, by body."""
    queue.send(messages)
    return {one.body: one.message_attributes for one in queue.receive(10)}


def of_list(queue, attributes):
    entries = [{"MessageBody": body, "MessageAttributes": one or {}} for body, one in zip(BODIES, attributes)]
    return sent_as(queue, entries)


def arrow(values, kind=None):
    return pa.table({"body": BODIES, "message_attributes": pa.array(values, kind)})


STRUCT = pa.struct([("kind", pa.string()), ("priority", pa.int64()), ("weight", pa.float64()), ("seal", pa.binary())])
POLARS_STRUCT = pl.Struct({"kind": pl.String, "priority": pl.Int64, "weight": pl.Float64, "seal": pl.Binary})
IN_MIXED = [
    pd.DataFrame({"body": BODIES, "message_attributes": GIVEN}),
    pl.DataFrame({"body": BODIES, "message_attributes": pl.Series(GIVEN, dtype=POLARS_STRUCT)}),
    arrow(GIVEN, STRUCT),
]
IN_TEXTS = [
    pd.DataFrame({"body": BODIES, "message_attributes": TEXTS}),
    pl.DataFrame({"body": BODIES, "message_attributes": pl.Series(TEXTS)}),
    pl.DataFrame({"body": BODIES, "message_attributes": KEY_VALUES}),
    pl.DataFrame({"body": BODIES, "message_attributes": pl.Series(TEXTS)}).with_columns(
        pl.col("message_attributes").struct.with_fields(pl.field("kind").cast(pl.Categorical))
    ),
    arrow(TEXTS),
    arrow(KEY_VALUES),
    arrow([list(one.items()) if one else None for one in TEXTS], pa.map_(pa.string(), pa.string())),
    pd.DataFrame(
        {"body": BODIES, "message_attributes": ['{"kind":"express","colour":"red"}', None, '{"kind": "slow"}']}
    ),
    pl.DataFrame({"body": BODIES, "message_attributes": ['{"kind":"express","colour":"red"}', "", '{"kind": "slow"}']}),
]


@pytest.mark.soak_variants("Spark*", but=("Spark-pandas",))
@pytest.mark.parametrize("frame", IN_MIXED, ids=["pandas", "polars", "Arrow"])
def test_texts_numbers_and_bytes_of_a_frame_are_what_they_are_in_a_list(queue, frame):
    assert sent_as(queue, frame) == of_list(queue, GIVEN)


@pytest.mark.soak_variants("Spark*", but=("Spark-0", "Spark-4", "Spark-8"))
@pytest.mark.parametrize("number", range(len(IN_TEXTS)))
def test_each_form_of_a_frame_is_sent_as_the_same_attributes_of_a_list(queue, number):
    assert sent_as(queue, IN_TEXTS[number]) == of_list(queue, TEXTS)


def test_whole_numbers_and_fractions_of_one_name_stay_what_they_are_in_dicts_of_pandas(queue):
    given = [{"n": 7}, {"n": 0.5}, {"n": "seven"}]
    assert sent_as(queue, pd.DataFrame({"body": BODIES, "message_attributes": given})) == of_list(queue, given)


def test_an_index_and_missing_values_of_pandas_harm_nothing(queue):
    frame = pd.DataFrame({"body": BODIES, "message_attributes": [float("nan"), {"kind": "x"}, pd.NA]}, index=[7, 7, 9])
    assert sent_as(queue, frame) == of_list(queue, [None, {"kind": "x"}, None])


def test_maps_to_numbers_and_attributes_in_full_inside_structs_are_taken(queue):
    full = {"data_type": "Number.int", "string_value": "7", "binary_value": None}
    numbers = pa.array([[("n", 7)], None, []], pa.map_(pa.string(), pa.int32()))
    first = sent_as(queue, pa.table({"body": BODIES, "message_attributes": numbers}))
    assert first == of_list(queue, [{"n": 7}, None, None])
    second = sent_as(queue, arrow([{"n": full}, None, {"n": full}]))
    in_full = {"n": {"DataType": "Number.int", "StringValue": "7"}}
    assert second == of_list(queue, [in_full, None, in_full])


@pytest.mark.soak_variants("Spark*", but=("Spark-wrong0",))
@pytest.mark.parametrize(
    "wrong", [{"kind": True}, {"kind": ""}, {"aws.kind": "x"}, {f"n{one}": "x" for one in range(11)}, {"a b": "x"}]
)
def test_what_a_list_refuses_is_refused_in_its_words_with_the_row(queue, wrong):
    with pytest.raises(InvalidParameterValue) as alone:
        queue.send({"MessageBody": "a", "MessageAttributes": wrong})
    for made in (
        pd.DataFrame({"body": ["a", "b"], "message_attributes": [None, wrong]}),
        pl.DataFrame({"body": ["a", "b"], "message_attributes": pl.Series([None, wrong])}),
    ):
        with pytest.raises(InvalidParameterValue) as refused:
            queue.send(made)
        assert refused.value.message == alone.value.message
        assert "It is row 1. Nothing was sent." in str(refused.value)
    assert not list(queue.receive(10))


@pytest.mark.soak_variants("Spark*", but=("Spark-values0*",))
@pytest.mark.parametrize(
    ("values", "kind", "names"),
    [
        (["{", None, None], None, "not JSON"),
        (['{"a": NaN}', None, None], None, "NaN is no JSON"),
        (['{"a": 1, "a": 2}', None, None], None, "'a' is in one object twice"),
        (["[1]", None, None], None, "Must be attributes by name"),
        ([[{"key": "a", "value": "1"}, {"key": "a", "value": "2"}], None, None], None, "twice"),
        ([["a"], None, None], None, "It is list<"),
        ([1, None, None], None, "It is int64"),
        ([[{"name": "a", "value": "1"}], None, None], None, "It is list<"),
        ([{"at": datetime.date(2026, 1, 1)}, None, None], None, "of the type date"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(queue, values, kind, names):
    with pytest.raises(InvalidParameterValue, match=names):
        queue.send(arrow(values, kind))
    assert not list(queue.receive(10))


def test_rows_that_are_sent_whole_keep_the_column_to_themselves(queue):
    queue.send(pd.DataFrame({"id": [1], "message_attributes": [{"kind": "x"}]}))
    (message,) = queue.receive(10)
    assert message.body == '{"id":1,"message_attributes":{"kind":"x"}}' and message.message_attributes == {}


def test_digits_of_json_texts_and_decimals_stay_as_they_are(queue):
    text = '{"a":0.12345678901234567890,"b":1.10,"c":12345678901234567890.5,"d":7}'
    found = sent_as(queue, pa.table({"body": ["x"], "message_attributes": [text]}))["x"]
    assert [found[name].value for name in "abcd"] == [
        "0.12345678901234567890", "1.10", "12345678901234567890.5", "7"
    ]  # fmt: skip
    exact = decimal.Decimal("12345678901234567890.10")
    found = sent_as(queue, [{"MessageBody": "y", "MessageAttributes": {"a": exact}}])["y"]
    assert (found["a"].data_type, found["a"].value) == ("Number", "12345678901234567890.10")
    kind = pa.struct([("a", pa.decimal128(30, 2))])
    table = pa.table({"body": ["z"], "message_attributes": pa.array([{"a": exact}], kind)})
    assert sent_as(queue, table)["z"]["a"].value == "12345678901234567890.10"


class Frame(pd.DataFrame):
    """A class made of pandas' frames, as geopandas' are."""


def test_frames_of_a_class_made_of_pandas_are_read_as_pandas_are(queue):
    given = Frame({"body": ["a", "b"], "message_attributes": [{"n": 1}, {"n": 1.5}]})
    found = sent_as(queue, given)
    assert [found[body]["n"].value for body in "ab"] == ["1", "1.5"]
    mixed = Frame({"body": ["a", "b"], "d": [datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 2, 13, 45)]})
    with pytest.raises(InvalidParameterValue, match=r"column.*d.*Row 1"):
        tables.read_arrow_table("messages", mixed)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])), [None], "An element of the list is null"),
        (pa.struct([("a", pa.timestamp("s"))]), {"a": 2**60}, "must be a struct of attributes"),
        (pa.map_(pa.string(), pa.list_(pa.string())), [("a", ["b"])], "must be a struct of attributes"),
    ],
)
def test_what_no_attribute_can_be_is_refused_by_name(without_spark, kind, value, said):
    queue = without_spark.create_queue(f"refused-{next(_numbers)}")
    table = pa.table({"body": ["a"], "message_attributes": pa.array([value], kind)})
    with pytest.raises(InvalidParameterValue, match=said):
        queue.send(table)
    assert queue.counts().stored == 0


def test_a_fifo_queue_sends_a_whole_row_with_its_attributes_inside(without_spark, frames_ledger):
    """As sending-and-outputs.md says, the group and the deduplication id alone mean something there."""
    for ledger in (without_spark, frames_ledger):
        attributes = {"FifoQueue": True, "ContentBasedDeduplication": True}
        queue = ledger.create_queue(f"whole-{next(_numbers)}.fifo", attributes)
        queue.send(pa.table({"message_group_id": ["g"], "message_attributes": [{"a": "b"}], "delay_seconds": ["x"]}))
        (message,) = queue.receive(1)
        body = {"message_group_id": "g", "message_attributes": {"a": "b"}, "delay_seconds": "x"}
        assert json.loads(message.body) == body and not message.message_attributes
