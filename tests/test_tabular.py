"""The one door for tables: whatever pandas, polars and pyarrow hand over is read as what it stands for, or refused."""

import datetime
import json
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from ledger import Ledger
from ledger.client.tables import (
    UnreadableByLibrary,
    convert_for_spark,
    is_integer,
    is_text,
    read_arrow_table,
    reading_by_library,
    require_column,
)
from ledger.errors import InvalidParameterValue, LedgerError

TEXTS = ["a", "b", "a"]
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), pa.array(TEXTS))
VIEWS = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["a", "b"], pa.string_view()))
#: Three texts, as each library has them.
OF_TEXTS = {
    "polars String": pl.DataFrame({"body": TEXTS}),
    "polars Categorical": pl.DataFrame({"body": TEXTS}, schema={"body": pl.Categorical}),
    "polars Enum": pl.DataFrame({"body": TEXTS}, schema={"body": pl.Enum(["a", "b"])}),
    "pandas object": pd.DataFrame({"body": TEXTS}),
    "pandas string": pd.DataFrame({"body": pd.array(TEXTS, "string")}),
    "pandas of Arrow": pd.DataFrame({"body": pd.array(TEXTS, pd.ArrowDtype(pa.string()))}),
    "pandas view of Arrow": pd.DataFrame({"body": pd.array(TEXTS, pd.ArrowDtype(pa.string_view()))}),
    "pandas categories": pd.DataFrame({"body": pd.Categorical(TEXTS)}),
    "a part of a frame": pd.DataFrame({"body": ["x", *TEXTS]}).query("body != 'x'"),
    "string": pa.table({"body": TEXTS}),
    "large_string": pa.table({"body": pa.array(TEXTS, pa.large_string())}),
    "string_view": pa.table({"body": pa.array(TEXTS, pa.string_view())}),
    "dictionary": pa.table({"body": pa.array(TEXTS).dictionary_encode()}),
    "dictionary of views": pa.table({"body": VIEWS}),
    "chunks": pa.table({"body": pa.chunked_array([VIEWS[:1], VIEWS[:0], VIEWS[1:]])}),
    "run-end encoded": pa.table({"body": RUNS}),
    "json": pa.table({"body": pa.ExtensionArray.from_storage(pa.json_(pa.utf8()), pa.array(TEXTS))}),
    "a batch": pa.RecordBatch.from_pydict({"body": TEXTS}),
}
ONCE = {
    "a reader": lambda: pa.table({"body": TEXTS}).to_reader(),
    "a dataset": lambda: ds.dataset(pa.table({"body": TEXTS})),
    "a scanner": lambda: ds.dataset(pa.table({"body": TEXTS})).scanner(),
}


@pytest.fixture
def queue(tmp_path):
    return Ledger.open(str(tmp_path / "ledger")).create_queue("work")


@pytest.mark.parametrize("name", [*OF_TEXTS, *ONCE])
def test_texts_are_texts_in_every_encoding(queue, name):
    queue.send(OF_TEXTS[name] if name in OF_TEXTS else ONCE[name]())
    assert [message.body for message in queue.receive(None)] == TEXTS


@pytest.mark.parametrize("name", OF_TEXTS)
def test_receipt_handles_groups_and_ids_are_read_in_every_encoding(tmp_path, name):
    ledger = Ledger.open(str(tmp_path / "ledger"))
    fifo = ledger.create_queue("work.fifo", {"FifoQueue": True, "ContentBasedDeduplication": False})
    texts = read_arrow_table("rows", OF_TEXTS[name])["body"]
    encoded = pa.chunked_array(read_arrow_table("rows", OF_TEXTS[name])["body"].chunks)
    given = pa.table({"body": TEXTS, "message_group_id": encoded, "message_deduplication_id": ["1", "2", "3"]})
    assert fifo.send(given).count == len(texts)
    claim = fifo.receive(None)
    assert sorted(message.message_group_id for message in claim) == sorted(TEXTS)
    handles = [message.receipt_handle for message in claim]
    frame = pl.DataFrame({"receipt_handle": handles}, schema={"receipt_handle": pl.Categorical})
    assert set(fifo.delete(frame)["outcome"].to_pylist()) == {"deleted"}


def test_a_whole_row_is_sent_as_json_whatever_its_lists_are(queue):
    rows = [
        pl.DataFrame({"x": [["a"]], "y": [{"z": ["b"]}], "n": [1]}),
        pl.DataFrame({"x": [["a"]], "y": [{"z": ["b"]}], "n": [1]}, schema_overrides={"x": pl.Array(pl.String, 1)}),
        pd.DataFrame({"x": [["a"]], "y": [{"z": ["b"]}], "n": pd.array([1], "Int64")}),
        pa.table({"x": pa.array([["a"]], pa.list_view(pa.string_view())), "y": [{"z": ["b"]}], "n": [1]}),
        pa.table({"x": pa.array([["a"]], pa.large_list_view(pa.string_view())), "y": [{"z": ["b"]}], "n": [1]}),
    ]
    for one in rows:
        queue.send(one)
    assert [json.loads(message.body) for message in queue.receive(None)] == [
        {"x": ["a"], "y": {"z": ["b"]}, "n": 1}
    ] * 5


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_nested_values_are_the_same_behind_an_offset_and_beside_nulls(offset):
    views = pa.array(["a", None, "b"], pa.string_view())
    lists = pa.array([["a"], None, ["b", None], []], pa.list_(pa.string_view()))[offset:]
    structs = pa.array([{"x": "a"}, None, {"x": None}, {"x": "b"}], pa.struct([("x", pa.string_view())]))[offset:]
    maps = pa.array([[("a", "x")], None, [("b", None)], []], pa.map_(pa.string(), pa.string_view()))[offset:]
    deep = pa.array([[["a"], None], None, [], [["b"]]], pa.list_view(pa.large_list(pa.string_view())))[offset:]
    given = pa.table({"lists": lists, "structs": structs, "maps": maps, "deep": deep})
    read = read_arrow_table("rows", given)
    assert read.to_pydict() == given.to_pydict() and "view" not in str(read.schema)
    read.validate(full=True)
    assert read_arrow_table("rows", pa.table({"x": views[offset:]}))["x"].to_pylist() == views[offset:].to_pylist()


def test_extension_types_are_read_or_refused_by_name():
    number = uuid.UUID("12345678123456781234567812345678")
    read = read_arrow_table(
        "rows",
        pa.table({"x": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([number.bytes, None], pa.binary(16)))}),
    )
    assert read["x"].to_pylist() == [str(number), None]
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 3)))
    assert read_arrow_table("rows", pa.table({"x": tensors}))["x"].to_pylist() == [[1.0] * 3] * 2
    refused = {
        "fixed_shape_tensor": pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 3, 4)))}),
        "pandas.period": pd.DataFrame({"x": pd.period_range("2024-01", periods=2, freq="M")}),
        "pandas.interval": pd.DataFrame({"x": pd.interval_range(0, 2)}),
        "Int128": pl.DataFrame({"x": [1]}, schema={"x": pl.Int128}),
        "Object": pl.DataFrame({"x": pl.Series([object()], dtype=pl.Object)}),
        "union": pa.table({"x": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])}),
        "unknown": pa.table(
            [pa.array([1])], schema=pa.schema([pa.field("x", pa.int64(), metadata={"ARROW:extension:name": "unknown"})])
        ),
    }
    for name, table in refused.items():
        with pytest.raises(InvalidParameterValue, match=name) as error:
            read_arrow_table("rows", table)
        assert (error.value.field, error.value.value) == ("column", "x") and error.value.fix


NOT_UTF8 = pa.Array.from_buffers(
    pa.string(), 3, [None, pa.array([0, 1, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(b"ab\xff")]
)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: pa.table({"body": NOT_UTF8}), "Row 2 holds a value"),
        (lambda: pa.table({"body": pa.chunked_array([pa.array(["a"]), NOT_UTF8])}), "Row 3 holds a value"),
        (
            lambda: pa.table({"body": pa.StructArray.from_arrays([pa.array([1])] * 2, names=["a", "a"])}),
            "two fields 'a'",
        ),
        (lambda: pa.table([pa.array([1])] * 2, names=["body", "body"]), "two columns of this name"),
        (lambda: pd.DataFrame({"n": [1], "body": [2**70]}), "too large"),
        (lambda: pd.DataFrame({"n": [1, 2], "body": [1, "a"]}), r"Row 1 is 'a' \(str\), and row 0 is 1"),
        (lambda: pd.DataFrame({"body": [object()]}), "did not recognize"),
        (lambda: pd.DataFrame({"body": pd.array([1.5], dtype="Sparse[float]")}), "not supported"),
        (lambda: pl.DataFrame({"body": [[1]]}, schema={"body": pl.List(pl.UInt128)}), "UInt128"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_by_its_column(queue, make, said):
    with pytest.raises(InvalidParameterValue, match=said) as error:
        queue.send(make())
    assert (error.value.field, error.value.value) == ("column", "body") and error.value.fix
    assert queue.counts().stored == 0


def test_what_is_no_table_is_said():
    for value, said in (
        (pl.Series(["a"]), "single column"), (pl.DataFrame({"a": [1]}).lazy(), "collect"),
        (pa.array([1]), "single column"),
    ):  # fmt: skip
        with pytest.raises(InvalidParameterValue, match=said):
            read_arrow_table("rows", value)


def test_a_panic_of_a_rust_library_is_an_error_of_ours():
    with pytest.raises(pl.exceptions.PanicException):
        raise pl.exceptions.PanicException("index out of bounds")
    with pytest.raises(UnreadableByLibrary, match="index out of bounds"), reading_by_library():
        raise pl.exceptions.PanicException("index out of bounds")

    class Panics:
        def __arrow_c_stream__(self, requested_schema=None):
            raise pl.exceptions.PanicException("index out of bounds")

    with pytest.raises(InvalidParameterValue, match="index out of bounds"):
        read_arrow_table("rows", Panics())
    with pytest.raises(KeyboardInterrupt), reading_by_library():
        raise KeyboardInterrupt


def test_a_key_of_the_attributes_that_stands_twice_is_refused(queue):
    maps = pa.map_(pa.string(), pa.string())
    for pairs in ([("k", "v"), ("k", "w")], [("k", "v"), ("l", "v"), ("k", "v")]):
        rows = pa.table({"body": ["a", "b"], "message_attributes": pa.array([[("k", "v")], pairs], maps)})
        with pytest.raises(InvalidParameterValue, match=r"this attribute twice.*It is row 1"):
            queue.send(rows)
    assert queue.counts().stored == 0


def test_numbers_of_numpy_are_numbers(queue):
    given = {
        "a": np.int64(7),
        "b": np.float64(1.5),
        "c": np.float32(0.1),
        "d": np.str_("x"),
        "e": np.bytes_(b"y"),
        "f": np.uint8(3),
    }
    assert queue.send("a", message_attributes=given)
    known = queue.receive().messages()[0].message_attributes
    assert {name: one.value for name, one in known.items()} == {
        "a": "7",
        "b": "1.5",
        "c": "0.1",
        "d": "x",
        "e": b"y",
        "f": "3",
    }
    for wrong, said in (
        (np.bool_(True), "bool"), (np.datetime64("2024-01-01"), "datetime64"), (datetime.date(2024, 1, 1), "type date"),
        (True, "type bool"), (pd.NA, "NAType"), (10**5000, "number"), (float("nan"), "number"), ([1], "list"),
    ):  # fmt: skip
        with pytest.raises(LedgerError, match=said):
            queue.send("a", message_attributes={"a": wrong})


def test_an_empty_table_is_pardoned_whatever_its_types_are(queue):
    empty = pd.DataFrame({"body": ["a"], "delay_seconds": [1], "message_attributes": [{}]}).query("body == 'b'")
    assert queue.send(empty).count == 0 and queue.send(pl.DataFrame({"body": []})).count == 0
    assert queue.delete(pd.DataFrame({"receipt_handle": []})).num_rows == 0
    assert queue.delete(pl.DataFrame({"receipt_handle": pl.Series([], dtype=pl.Int64)})).num_rows == 0


def test_pandas_makes_floats_of_what_is_missing():
    """Of a column without values, and of whole numbers beside a missing one."""
    frame = pd.DataFrame({"reason": [np.nan, np.nan], "seconds": [30.0, np.nan], "half": [0.5, 1.0]})
    table = read_arrow_table("rows", frame)
    assert require_column(table, "reason", is_text, "string").to_pylist() == [None, None]
    assert require_column(table, "seconds", is_integer, "int64").to_pylist() == [30, None]
    for name, right in (("half", is_integer), ("seconds", is_text)):
        with pytest.raises(InvalidParameterValue, match="It is double and must be"):
            require_column(table, name, right, "another")


DAY, INSTANT = datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1, 5)
KEPT = [
    [DAY, datetime.datetime(2024, 1, 2)],
    [DAY, pd.NaT, None],
    [datetime.datetime(2024, 1, 2), pd.NA],
    [b"a", None],
    ["a", None],
    [{"d": DAY}, None],
]


@pytest.mark.parametrize(
    ("values", "row"),
    [
        ([DAY, INSTANT], 1),
        ([DAY, None, pd.Timestamp(INSTANT)], 2),
        ([{"d": DAY}, {"d": INSTANT}], 1),
        ([[DAY], [DAY, INSTANT]], 1),
        (["a", b"b"], 0),
        ([b"b", "a"], 1),
        ([{"d": b"b"}, {"d": "a"}], 1),
    ],
)
def test_a_value_of_pandas_objects_that_arrow_would_change_is_refused_with_its_row(values, row):
    frame = pd.DataFrame({"n": range(len(values)), "v": pd.Series(values, dtype=object)})
    with pytest.raises(InvalidParameterValue, match=f"Row {row} is of the class") as raised:
        read_arrow_table("rows", frame)
    assert raised.value.value == "v"


@pytest.mark.parametrize("values", [*KEPT, [[DAY], []]])
def test_values_of_pandas_objects_that_stay_as_they_are_are_taken(values):
    table = read_arrow_table("rows", pd.DataFrame({"v": pd.Series(values, dtype=object)}))
    assert table.num_rows == len(values)


NANOSECOND = pd.Timestamp("2020-01-01 00:00:00.000000999")


@pytest.mark.parametrize("value", [NANOSECOND, {"t": NANOSECOND}, [NANOSECOND], {"t": [{"u": NANOSECOND}]}])
def test_nanoseconds_inside_objects_of_pandas_are_refused_and_not_dropped(value):
    whole = NANOSECOND.floor("us")
    frame = pd.DataFrame({"x": pd.Series([None, value], dtype="object")})
    with pytest.raises(InvalidParameterValue, match="Row 1 is of the class") as raised:
        read_arrow_table("rows", frame)
    assert raised.value.value == "x" and ".floor('us')" in raised.value.advice
    assert read_arrow_table("rows", pd.DataFrame({"x": pd.Series([{"t": whole}], dtype="object")})).num_rows == 1


@pytest.mark.parametrize("rows", [{"a\0b": [1]}, {"a": [{"k\0m": 1}]}], ids=["column", "field"])
@pytest.mark.parametrize(
    "library", [pa.table, pl.DataFrame, lambda rows: pa.table(rows).to_pandas(types_mapper=pd.ArrowDtype)]
)
def test_a_name_with_a_nul_is_refused(rows, library):
    """Arrow's C interface ends it there: it would be the name of another column, perhaps. Polars aborts the process."""
    with pytest.raises(InvalidParameterValue, match="NUL"):
        read_arrow_table("rows", library(rows))


def test_for_spark_nanoseconds_are_microseconds_or_an_error():
    fine = pa.table({"x": pa.array([[{"t": 1_000}]], pa.list_(pa.struct([("t", pa.timestamp("ns", "UTC"))])))})
    assert str(convert_for_spark(fine).schema.field("x").type).count("timestamp[us") == 1
    with pytest.raises(InvalidParameterValue, match="nanoseconds, which Spark does not keep"):
        convert_for_spark(pa.table({"x": pa.array([1_001], pa.timestamp("ns"))}))


INTERVALS = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
UNION = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])


@pytest.mark.parametrize(
    ("inner", "says"),
    [(UNION, "which is a value of several types"), (INTERVALS, "for which Delta tables have no type")],
    ids=["union", "interval"],
)
def test_a_refusal_of_a_type_names_its_path_inside_the_column(queue, tmp_path, inner, says):
    offsets = pa.array([0, 1], pa.int32())
    struct = pa.StructArray.from_arrays([inner, pa.array([1])], ["c", "d"])
    nested = pa.StructArray.from_arrays([pa.ListArray.from_arrays(offsets, struct), pa.array([1])], ["b", "n"])
    for path, column in (
        ("a.b.element.c", nested),
        ("a.value.c", pa.MapArray.from_arrays(offsets, pa.array(["k"]), struct)),
        ("a", inner),
    ):
        queue.send("x")
        with pytest.raises(LedgerError, match=rf"({path}:|'{path}' for).*It is (?!struct|list|map).*{says}"):
            queue.receive().write(pa.table({"a": column}), str(tmp_path / "output"))
        with pytest.raises(InvalidParameterValue, match=rf"'{path}' for.*It is (?!struct|list|map)|'a' for.*It is map"):
            queue.send(pa.table({"a": column}))
    double = pa.StructArray.from_arrays([pa.array([1]), pa.array([1])], ["c", "c"])
    with pytest.raises(InvalidParameterValue, match=r"'a\.element' for parameter column.*two fields 'c'"):
        queue.send(pa.table({"a": pa.ListArray.from_arrays(offsets, double)}))
