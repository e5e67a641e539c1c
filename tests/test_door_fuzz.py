"""No error of a library crosses the door: random columns are sent and written, or refused by an error of ours."""

import datetime
import decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import Ledger
from ledger.errors import LedgerError

UNITS = st.sampled_from(["s", "ms", "us", "ns"])
#: Of so many bytes at random each value is made: instants that no calendar has, texts that are not UTF-8.
FIXED = st.one_of(
    st.sampled_from(
        [
            pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
            pa.uint64(),
            pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"),
            pa.decimal128(38, 2), pa.decimal256(76, 2), pa.binary(8), pa.month_day_nano_interval(),
        ]
    ),
    UNITS.map(pa.timestamp), UNITS.map(pa.duration), UNITS.map(lambda unit: pa.timestamp(unit, "+02:00")),
)  # fmt: skip
WIDTHS = {"bool": 1, "decimal256(76, 2)": 32, "decimal128(38, 2)": 16, "month_day_nano_interval": 16}


@st.composite
def of_bytes(draw):
    """An array of fixed width, or of texts, over bytes at random."""
    count = draw(st.integers(0, 3))
    if draw(st.booleans()):
        kind = draw(FIXED)
        width = WIDTHS.get(str(kind)) or kind.bit_width // 8
        data = draw(st.binary(min_size=width * count, max_size=width * count))
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data or b"\0")])
    kind = draw(st.sampled_from([pa.string(), pa.binary()]))
    data = draw(st.binary(min_size=count, max_size=count))
    offsets = pa.array(range(count + 1), pa.int32()).buffers()[1]
    return pa.Array.from_buffers(kind, count, [None, offsets, pa.py_buffer(data or b"\0")])


@st.composite
def columns(draw, depth=2):
    """An array: plain, encoded, or nested."""
    inner = of_bytes() if not depth else st.one_of(of_bytes(), columns(depth - 1))
    array = draw(inner)
    count = len(array)
    how = draw(
        st.sampled_from(
            ["plain", "list", "large", "fixed", "view", "struct", "twice", "dictionary", "runs", "null", "slice"]
        )
    )
    try:
        if how in ("list", "large", "view", "fixed"):
            made = {"list": pa.ListArray, "large": pa.LargeListArray}.get(how, pa.ListArray)
            if how == "fixed":
                return pa.FixedSizeListArray.from_arrays(array, 1)
            kind = pa.int64() if how == "large" else pa.int32()
            lists = made.from_arrays(pa.array(range(count + 1), kind), array)
            return lists.cast(pa.list_view(array.type)) if how == "view" else lists
        if how in ("struct", "twice"):
            names = ["a", "a"] if how == "twice" else ["a", "b"]
            return pa.StructArray.from_arrays([array, array], names=names)
        if how == "dictionary":
            return pa.DictionaryArray.from_arrays(pa.array(list(range(count)), pa.int8()), array)
        if how == "runs":
            return pa.RunEndEncodedArray.from_arrays(pa.array([n + 1 for n in range(count)], pa.int32()), array)
        if how == "null":
            return pa.nulls(count, array.type)
        return array.slice(1) if how == "slice" else array
    except (pa.ArrowException, ValueError):
        return array


#: What users put into columns of objects.
OBJECTS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=3), st.binary(max_size=3),
    st.dates(), st.datetimes(), st.times(), st.timedeltas(), st.decimals(), st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(0, 3), max_size=2), st.just(object()), st.complex_numbers(),
    st.just(pd.NaT), st.just(pd.NA), st.just(decimal.Decimal("NaN")), st.just(datetime.datetime.max),
)  # fmt: skip
NAMES = st.sampled_from(
    ["body", "x", "message_id", "message_group_id", "delay_seconds", "message_attributes", "receipt_handle", ""]
)


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    ledger = Ledger.open(str(folder / "ledger"))
    queues = [ledger.create_queue("work"), ledger.create_queue("work.fifo", {"FifoQueue": True})]
    source = ledger.create_queue("source")

    def through(number, table):
        """Sends it, takes it for handles, and writes it; an error of ours is an answer."""
        for queue in queues:
            for act in (queue.send, queue.delete, lambda given, queue=queue: queue.settle(release=given)):
                try:
                    act(table)
                except LedgerError as error:
                    assert str(error)
        source.send("a")
        claim = source.receive()
        for arguments in ({}, {"messages": "message_id"}, {"schema": "widen"}):
            try:
                claim.write(table, str(folder / f"output-{number % 20}"), **arguments)
            except LedgerError as error:
                assert str(error)

    return through


KEPT = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)


@KEPT
@given(st.data())
def test_columns_of_arrow(door, data):
    first = data.draw(columns())
    names = data.draw(st.lists(NAMES, min_size=1, max_size=3))
    arrays = [first, *(data.draw(columns()) for _ in names[1:])]
    length = min(map(len, arrays))
    door(data.draw(st.integers(0, 99)), pa.table([array.slice(0, length) for array in arrays], names=names))


@KEPT
@given(st.lists(OBJECTS, max_size=3), NAMES, st.integers(0, 99))
def test_columns_of_objects_of_pandas(door, values, name, number):
    door(number, pd.DataFrame({name: pd.Series(values, dtype=object), "message_id": ["x"] * len(values)}))


@KEPT
@given(st.lists(OBJECTS, max_size=3), NAMES, st.integers(0, 99))
def test_columns_of_objects_of_polars(door, values, name, number):
    try:
        frame = pl.DataFrame({name: pl.Series(values, strict=False), "n": range(len(values))})
    except BaseException:
        # polars itself does not take them.
        return
    door(number, frame)


@KEPT
@given(OBJECTS)
def test_attributes_of_messages(value):
    try:
        Ledger.in_memory().create_queue("q").send("a", message_attributes={"k": value})
    except LedgerError as error:
        assert str(error)
