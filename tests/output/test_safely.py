"""A row that raises is a row with its error: ledger.work.functions.safely, and Queue.work(per_row=True)."""

import json
import math
import pickle
import re
import subprocess
import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

from ledger import InvalidParameterValue, LedgerError
from ledger.work.functions import safely, with_checked_answers
from tests.clock import FrozenClock
from tests.output.conftest import Place


def halved(text):
    return 1 / (int(text) - 3)


def inverse_of_none_of_x(text: pd.Series) -> pd.Series:
    if (text == "x").any():
        raise ValueError("an x")
    return 1 / text.astype(float)


def test_what_an_executor_runs_needs_no_package_of_ours_and_gives_values_or_errors(tmp_path):
    """Without a JVM: what Spark would send is run in a process that knows neither this module nor the ledger."""
    functions = safely(F.udf(halved, DoubleType())).func, safely(F.pandas_udf(inverse_of_none_of_x, DoubleType())).func
    # As functions of a user's script are sent: as what they are.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        (tmp_path / "functions").write_bytes(cloudpickle.dumps(functions))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    script = """
import json, pickle, sys
import pandas as pd
of_values, of_series = pickle.load(open("functions", "rb"))
series = of_series(pd.Series(["1", "2", "x", "4", "x"]))
print(json.dumps([of_values("5"), of_values("3"), series.values.tolist(), "ledger" in sys.modules]))
"""
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    good, bad, series, has_ledger = json.loads(ran.stdout)
    assert good == [0.5, None] and bad[0] is None and bad[1].startswith("ZeroDivisionError: division by zero (")
    assert [value for value, _ in series] == [1.0, 0.5, None, 0.25, None]
    assert [bool(error) for _, error in series] == [False, False, True, False, True]
    assert series[2][1].startswith("ValueError: an x (test_safely.py:") and not has_ledger


def test_an_answer_is_taken_only_as_a_value_of_the_schemas_type():
    schema = pa.schema([("n", pa.int64()), ("half", pa.float64())])
    answered = safely(F.udf(with_checked_answers(lambda answer: answer, schema), DoubleType())).func
    for answer in ((1, 2), {"n": 1.0, "half": 2}, Row(half=2.0, n=1)):
        assert answered(answer) == ((1, 2.0), None)
    assert answered({"half": 0.5}) == ((None, 0.5), None)
    for wrong in ((1,), {"n": 2.5}, {"n": "7"}, {"m": 1}, None, "x", [1, 2]):
        value, error = answered(wrong)
        assert value is None and error.startswith("TypeError: the function returned"), wrong


AWARE = datetime(2020, 1, 1, 5, tzinfo=timezone(timedelta(hours=5)))


class Point(NamedTuple):
    a: int


#: A value, its column's type, and what the column has then.
KEPT = [
    (7.0, pa.int32(), 7),
    (np.int32(7), pa.int64(), 7),
    (np.float64(1.5), pa.float64(), 1.5),
    (5, pa.float64(), 5.0),
    (0.1, pa.float32(), 0.10000000149011612),
    (float("inf"), pa.float32(), float("inf")),
    (np.bool_(True), pa.bool_(), True),
    ("ä", pa.string(), "ä"),
    (bytearray(b"x"), pa.binary(), b"x"),
    (Decimal("1.05"), pa.decimal128(7, 2), Decimal("1.05")),
    (date(2020, 1, 1), pa.date32(), date(2020, 1, 1)),
    (np.datetime64("2020-01-01"), pa.date32(), date(2020, 1, 1)),
    (datetime(2020, 1, 1), pa.timestamp("us", "UTC"), datetime(2020, 1, 1, tzinfo=timezone.utc)),
    (AWARE, pa.timestamp("us", "UTC"), datetime(2020, 1, 1, tzinfo=timezone.utc)),
    (pd.Timestamp("2020-01-01 00:00:00.000001"), pa.timestamp("ns"), datetime(2020, 1, 1, 0, 0, 0, 1)),
    (np.datetime64("2020-01-01T00:00:00.000001000"), pa.timestamp("us"), datetime(2020, 1, 1, 0, 0, 0, 1)),
    (pd.Timedelta(1, "us"), pa.duration("us"), timedelta(microseconds=1)),
    (np.array([1, 2]), pa.list_(pa.float64()), [1.0, 2.0]),
    ((1.0, None, 2), pa.list_(pa.int64()), [1, None, 2]),
    (np.array([0.5], dtype="float32"), pa.list_(pa.float32()), [0.5]),
    (np.array(["2020-01-01"], dtype="M8[ns]"), pa.list_(pa.timestamp("us")), [datetime(2020, 1, 1)]),
    ([], pa.list_(pa.int64()), []),
    ({"a": 1}, pa.struct([("a", pa.int64()), ("b", pa.string())]), (1, None)),
    (Row(b="x", a=1), pa.struct([("a", pa.int64()), ("b", pa.string())]), (1, "x")),
    (Point(1), pa.struct([("a", pa.int64())]), (1,)),
    ([Row(a=1)], pa.list_(pa.struct([("a", pa.int64())])), [(1,)]),
    ({"k": 1}, pa.map_(pa.string(), pa.int64()), {"k": 1}),
    ([("k", {"k": 1.0})], pa.map_(pa.string(), pa.map_(pa.string(), pa.int64())), {"k": {"k": 1}}),
    (np.float32(1.5), pa.float64(), 1.5),
    (None, pa.struct([("a", pa.int64())]), None),
]  # fmt: skip
#: A value, its column's type, and how the column, what stands in it and its type are named.
CHANGED = [
    (2.5, pa.int64(), "2.5 for the column c, which is int64"),
    (True, pa.float64(), "True for the column c, which is double"),
    (True, pa.int64(), "True for the column c, which is int64"),
    (np.bool_(True), pa.float64(), "np.True_ for the column c, which is double"),
    (1e300, pa.float32(), "1e+300 for the column c, which is float"),
    (2**53 + 1, pa.float64(), "9007199254740993 for the column c, which is double"),
    (200, pa.int8(), "200 for the column c, which is int8"),
    (b"x", pa.string(), "b'x' for the column c, which is string"),
    ("x", pa.binary(), "'x' for the column c, which is binary"),
    ("7", pa.int64(), "'7' for the column c, which is int64"),
    ("\ud83d", pa.string(), r"'\ud83d' for the column c, which is string"),
    (7, pa.date32(), "7 for the column c, which is date32[day]"),
    (float("nan"), pa.int64(), "nan for the column c, which is int64"),
    (Decimal("1.005"), pa.decimal128(7, 2), "Decimal('1.005') for the column c, which is decimal128(7, 2)"),
    (datetime(2020, 1, 1), pa.date32(), "datetime.datetime(2020, 1, 1, 0, 0) for the column c, which is date32[day]"),
    (AWARE, pa.timestamp("us"), None),
    (pd.Timestamp(1), pa.timestamp("us"), None),
    (np.datetime64(1, "ns"), pa.timestamp("us"), None),
    (pd.Timedelta(1, "ns"), pa.duration("ns"), None),
    (np.array([1.5]), pa.float64(), "array([1.5]) for the column c, which is double"),
    ([1.5], pa.list_(pa.int64()), "1.5 for the column c[0], which is int64"),
    (np.array([1, 1.5]), pa.list_(pa.int64()), "1.5 for the column c[1], which is int64"),
    ([1.0, True], pa.list_(pa.float64()), "True for the column c[1], which is double"),
    ([1.0, 1e300], pa.list_(pa.float32()), "1e+300 for the column c[1], which is float"),
    ([2**24 + 1], pa.list_(pa.float32()), "16777217 for the column c[0], which is float"),
    ([datetime(2020, 1, 1)], pa.list_(pa.date32()), None),
    (b"12", pa.list_(pa.int64()), "b'12' for the column c, which is list<item: int64>"),
    ([1], pa.list_(pa.int64(), 2), "[1] for the column c, which is fixed_size_list<item: int64>[2]"),
    ({"a": 1.5}, pa.struct([("a", pa.int64())]), "1.5 for the column c.a, which is int64"),
    ({"b": 1}, pa.struct([("a", pa.int64())]), "{'b': 1} for the column c, which is struct<a: int64>"),
    ((1,), pa.struct([("a", pa.int64())]), "(1,) for the column c, which is struct<a: int64>"),
    ({"k": 1.5}, pa.map_(pa.string(), pa.int64()), "1.5 for the column c['k'], which is int64"),
    ({None: 1}, pa.map_(pa.string(), pa.int64()), "None for the column c, which is string not null"),
    ([("k", 1), ("k", 2)], pa.map_(pa.string(), pa.int64()), None),
    (["x" * 200], pa.map_(pa.string(), pa.int64()), None),
]  # fmt: skip


def called_with(value, kind, **settings):
    """What a function of rows that returns a value is sent to executors as, and gives there."""
    schema = pa.schema([pa.field("c", kind, **settings)])
    safe = safely(F.udf(with_checked_answers(lambda row: {"c": value}, schema), DoubleType())).func
    return pickle.loads(cloudpickle.dumps(safe))(None)


@pytest.mark.parametrize(("value", "kind", "kept"), KEPT)
def test_a_value_of_its_columns_type_is_kept(value, kind, kept):
    found, error = called_with(value, kind)
    assert error is None and found == (kept,) and type(found[0]) is type(kept)


@pytest.mark.parametrize(("value", "kind", "said"), CHANGED)
def test_a_value_that_its_columns_type_would_change_is_refused_by_name(value, kind, said):
    found, error = called_with(value, kind)
    assert found is None and error.startswith("TypeError: the function returned ") and " for the column c" in error
    assert said is None or error == f"TypeError: the function returned {said}"
    assert len(error) < 300 and ".py" not in error and ".pxi" not in error


def test_nan_stays_nan_and_null_is_no_value_of_a_column_that_has_none():
    for kind in (pa.float32(), pa.float64()):
        ((found,), error) = called_with(float("nan"), kind)
        assert math.isnan(found) and error is None
    for value, kind in ((None, pa.int64()), (np.datetime64("NaT"), pa.timestamp("us"))):
        assert called_with(value, kind, nullable=True) == ((None,), None)
        _, error = called_with(value, kind, nullable=False)
        assert error.endswith(f" for the column c, which is {kind} not null")


def test_work_per_row_writes_maps_structs_and_lists_and_fails_the_rows_that_would_change(spark, tmp_path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    counts = pa.map_(pa.string(), pa.map_(pa.string(), pa.int64()))
    points = pa.list_(pa.struct([("x", pa.float32()), ("day", pa.date32())]))
    schema = pa.schema([("counts", counts), ("points", points)])
    right = {"counts": {"a": {"b": 1}}, "points": [{"x": 0.5, "day": date(2020, 1, 1)}, Row(x=1.0)]}
    answers = {
        "right": right,
        "fraction": {"counts": {"a": {"b": 1.5}}},
        "infinite": {"points": [{"x": 1e300}]},
        "instant": {"points": [{"day": datetime(2020, 1, 1, 5)}]},
        "unknown": {"points": [{"y": 1.0}]},
    }
    place.queue.send(list(answers))
    done = place.queue.work(
        lambda message: answers[message.body], place.table,
        per_row=True, schema=schema, maximum_receives=1, until="once",
    )  # fmt: skip
    assert (done.messages, done.failed) == (1, 4)
    (row,) = spark.read.format("delta").load(place.table).collect()
    assert row.counts == {"a": {"b": 1}}
    assert row.points == [Row(x=0.5, day=date(2020, 1, 1)), Row(x=1.0, day=None)]
    reasons = {row["reason"] for row in place.ledger.sql("SELECT reason FROM in_flight").to_pylist()}
    said = "TypeError: the function returned "
    assert f"{said}1.5 for the column counts['a']['b'], which is int64" in reasons
    assert f"{said}1e+300 for the column points[0].x, which is float" in reasons and len(reasons) == 4


def of(frame, *columns):
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def test_a_python_udf_gives_each_row_its_value_or_its_error(spark):
    frame = spark.createDataFrame([(str(n),) for n in range(6)] + [("x",)], "text string")
    rows = of(
        frame.withColumn("called", safely(F.udf(halved, "double"))("text")), "text", "called.value", "called.error"
    )
    values = {text: value for text, value, _ in rows}
    errors = {text: error for text, _, error in rows if error}
    assert values["5"] == 0.5 and values["3"] is None and len(errors) == 2
    assert errors["3"].startswith("ZeroDivisionError: ") and "(test_safely.py:" in errors["3"]
    assert errors["x"].startswith("ValueError: invalid literal")


def test_a_pandas_udf_is_called_again_in_halves_until_the_rows_that_raise_stand_alone(spark):
    @F.pandas_udf("double")
    def inverse(text: pd.Series) -> pd.Series:
        if (text == "x").any():
            raise ValueError("an x")
        return 1 / text.astype(float)

    frame = spark.createDataFrame([(str(n),) for n in range(1, 50)] + [("x",)], "text string").coalesce(1)
    rows = of(frame.withColumn("called", safely(inverse)("text")), "text", "called.value", "called.error")
    errors = {text: error for text, _, error in rows if error}
    assert list(errors) == ["x"] and errors["x"].startswith("ValueError: an x (test_safely.py:")
    assert {text: value for text, value, _ in rows}["4"] == 0.25


def test_what_is_no_udf_of_values_or_series_is_refused():
    with pytest.raises(InvalidParameterValue, match="function"):
        safely(halved)


def test_work_per_row_writes_what_succeeds_and_the_others_fail_with_their_errors(spark, tmp_path, capsys):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send([str(n) for n in range(8)] + ["x", "odd", "more", "none"])
    answers = {"odd": {"n": 2.5}, "more": {"n": 1, "m": 2}, "none": None}

    def work(message):
        # A whole number is a value of a column of doubles.
        return answers[message.body] if message.body in answers else (int(message.body), halved(message.body) * 0 or 1)

    schema = pa.schema([("n", pa.int64()), ("half", pa.float64())])
    done = place.queue.work(work, place.table, per_row=True, schema=schema, maximum_receives=1, until="once", bar=True)
    assert "7/12" in capsys.readouterr().err, "the bar tells how far it is"
    assert (done.messages, done.failed) == (7, 5)
    rows = DeltaTable(place.table).to_pyarrow_table()
    assert sorted(rows["n"].to_pylist()) == [0, 1, 2, 4, 5, 6, 7] and set(rows["half"].to_pylist()) == {1.0}
    assert sorted(rows.column_names) == ["half", "message_id", "n"]
    reasons = [row["reason"] for row in place.ledger.sql("SELECT reason FROM in_flight").to_pylist()]
    kinds = sorted(reason.partition(":")[0] for reason in reasons)
    assert kinds == ["TypeError", "TypeError", "TypeError", "ValueError", "ZeroDivisionError"]


def test_a_function_per_row_that_fails_for_everything_alike_parks_nothing(spark, tmp_path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send([str(n) for n in range(6)])

    def broken(message):
        import no_such_module

        return {"n": no_such_module.number(message.body)}

    schema = pa.schema([("n", pa.int64())])
    said = r"everything fails alike.*ModuleNotFoundError: No module named 'no_such_module' \(test_safely.py:\d+\)"
    with pytest.raises(LedgerError, match=said):
        place.queue.work(broken, place.table, per_row=True, schema=schema, until="once")
    assert place.queue.counts().visible == 6 and not DeltaTable.is_deltatable(place.table)
    assert {message.receive_count for message in place.queue.receive(6)} == {1}, "that receive did not count"


def test_two_messages_that_fail_alike_are_all_of_their_claim_and_fail(spark, tmp_path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send(["x", "y"])
    schema, number = pa.schema([("n", pa.int64())]), lambda message: {"n": int(message.body)}
    done = place.queue.work(number, place.table, per_row=True, schema=schema, maximum_receives=1, until="once")
    assert (done.messages, done.failed) == (0, 2)


def test_work_per_row_without_a_schema_is_refused(spark, tmp_path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send("1")
    for wrong in ({}, {"schema": "widen"}, {"schema": pa.schema([("message_id", pa.string())])}):
        with pytest.raises(InvalidParameterValue, match="schema"):
            place.queue.work(halved, place.table, per_row=True, **wrong)
    with pytest.raises(InvalidParameterValue, match="reason"):
        place.queue.work(halved, place.table, per_row=True, schema=pa.schema([("n", pa.int64())]), reason="failed")
    assert place.queue.counts().visible == 1


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (pa.uint8(), "uint8.*pyarrow.int16()"),
        (pa.uint64(), "uint64.*pyarrow.decimal128(20, 0)"),
        (pa.list_(pa.struct([("x", pa.float16())])), "halffloat.*pyarrow.float32()"),
        (pa.string_view(), "string_view.*pyarrow.string()"),
        (pa.list_view(pa.int8()), "list_view.*pyarrow.list_(...)"),
        (pa.date64(), "date64.*pyarrow.date32()"),
        (pa.uuid(), "uuid.*pyarrow.string()"),
        (pa.decimal256(50, 3), "decimal256(50, 3).*pyarrow.decimal128(38, 3)"),
        (pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.uint32())), "uint32.*pyarrow.int64()"),
    ],
    ids=str,
)
def test_a_type_that_spark_does_not_have_is_refused_with_one_to_take(spark, tmp_path, kind, said):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    pattern = f"'odd[a-z.]*' for parameter schema.*{re.escape(said)}".replace(r"\.\*", ".*")
    with pytest.raises(InvalidParameterValue, match=pattern):
        place.queue.work(halved, place.table, per_row=True, schema=pa.schema([("odd", kind)]))


@pytest.mark.parametrize("name", ["receipt_handle", "Receipt_Handle", "message_id", "Message_ID", "_failed", "_FAILED"])
def test_a_name_in_the_schema_that_the_worker_has_a_column_of_its_own_for_is_refused(spark, tmp_path, name):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send("1")
    schema = pa.schema([("n", pa.int64()), (name, pa.string())])
    with pytest.raises(InvalidParameterValue, match=f"'{name}' for parameter schema"):
        place.queue.work(lambda row: {"n": 1, name: "x"}, place.table, per_row=True, schema=schema, until="once")
    assert place.queue.counts().visible == 1


@pytest.mark.parametrize("name", ["receipt_id", "claim_version", "Worker", "written_at"])
def test_a_column_that_stamped_adds_is_refused_in_a_schema_and_in_rows(spark, tmp_path, name):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send("1")
    schema = pa.schema([("n", pa.int64()), (name, pa.string())])
    with pytest.raises(InvalidParameterValue, match=f"'{name}' for parameter schema.*stamped"):
        place.queue.work(
            lambda row: {"n": 1, name: "x"}, place.table, per_row=True, schema=schema, stamped=True, until="once"
        )
    with pytest.raises(InvalidParameterValue, match=f"'{name}' for parameter function.*stamped"):
        place.queue.work(
            lambda messages: messages.select("message_id", F.lit("x").alias(name)), place.table, stamped=True
        )
    assert {message.receive_count for message in place.queue.receive(None).messages()} == {1}
    assert not DeltaTable.is_deltatable(place.table)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (pa.null(), "odd"),
        (pa.list_(pa.null()), "odd"),
        (pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.null())])))]), "odd.b"),
        (pa.map_(pa.string(), pa.null()), "odd"),
        (pa.struct([]), "odd"),
    ],
    ids=str,
)
def test_a_type_that_tells_nothing_is_refused_in_a_schema_by_name(spark, tmp_path, kind, path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send("1")
    schema = pa.schema([("n", pa.int64()), ("odd", kind)])
    said = rf"'{re.escape(path)}' for parameter schema.*has nulls alone, or nothing, inside"
    with pytest.raises(InvalidParameterValue, match=said):
        place.queue.work(halved, place.table, per_row=True, schema=schema)
    with pytest.raises(InvalidParameterValue, match=said):
        place.queue.work(lambda messages: messages.select("message_id"), place.table, schema=schema)
    with pytest.raises(InvalidParameterValue, match=said):
        place.queue.consume(lambda message: {"n": 1}, place.table, schema=schema, until="once")
    assert place.queue.counts().visible == 1
    claim = place.queue.receive()
    with pytest.raises(InvalidParameterValue, match=said):
        claim.write(pa.table({"n": [1]}), place.table, schema=schema)


@pytest.mark.soak_variants("in my log*", "a?nledger*")
@pytest.mark.parametrize(
    "text",
    [
        "ledger refuses a value: mine||1||",
        "in my log: ledger refuses a value: column n is bad||the row of 7||",
        "a\nledger refuses a row:MessageBody|x|61|NULL|",
    ],
)
def test_an_exception_of_the_users_with_our_words_is_told_as_theirs(spark, tmp_path, text):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send(["1", "2", "x"])

    def number(body):
        if body == "x":
            raise ValueError(text)
        return int(body)

    as_number = F.udf(number, "int")
    done = place.queue.work(
        lambda messages: messages.select("message_id", as_number("body").alias("n")),
        place.table, failures=f"{place.table}_failed", maximum_receives=1, until="once",
    )  # fmt: skip
    assert (done.messages, done.failed) == (2, 1)
    (reason,) = DeltaTable(f"{place.table}_failed").to_pyarrow_table()["reason"].to_pylist()
    assert reason.startswith(f"ValueError: {text.splitlines()[0]} (test_safely.py:")
    place.queue.send(["x"])
    claim = place.queue.receive()
    with pytest.raises(LedgerError) as refused:
        claim.write(claim.dataframe.select("message_id", as_number("body").alias("n")), place.table)
    assert "ValueError: " in str(refused.value) and "the row of message" not in str(refused.value)


@pytest.mark.soak_variants("*m||1||")
@pytest.mark.parametrize("text", ["ledger refuses a row:missing|MessageBody||null|", "ledger refuses a value: m||1||"])
def test_an_exception_of_a_frame_that_is_sent_is_told_as_the_users(spark, tmp_path, text):
    place = Place(tmp_path, FrozenClock(), spark=spark)

    def broken(number):
        raise ValueError(text)

    with pytest.raises(InvalidParameterValue, match=r"Spark could not compute its rows.*ValueError: ledger refuses"):
        place.queue.send(spark.range(1).select(F.udf(broken, "string")("id").alias("body")))


def test_a_udf_in_place_of_a_function_of_rows_is_refused(spark, tmp_path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    with pytest.raises(InvalidParameterValue, match=r"It is a UDF.*halved\.func, without @udf"):
        place.queue.work(
            F.udf(halved, "double"), place.table, per_row=True, schema=pa.schema([("n", pa.float64())])
        )  # fmt: skip


def test_a_module_that_makes_a_udf_when_spark_workers_import_it_is_named_as_the_cause(spark, tmp_path, monkeypatch):
    module = tmp_path / "module_with_a_udf.py"
    module.write_text(
        'from pyspark.sql.functions import udf\n\n\n@udf("double")\ndef number(text):\n    return float(text)\n\n\n'
        'def answer(row):\n    return {"n": 1.0}\n'
    )
    spark.sparkContext.addPyFile(str(module))
    monkeypatch.syspath_prepend(str(tmp_path))
    from module_with_a_udf import answer

    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send(["0", "1", "2", "3"])
    said = r"SESSION_OR_CONTEXT_NOT_EXISTS\] Spark's Python workers import this module, and have no session: .*py:4\)"
    with pytest.raises(LedgerError, match=said):
        place.queue.work(answer, place.table, per_row=True, schema=pa.schema([("n", pa.float64())]))
    assert {message.receive_count for message in place.queue.receive(None).messages()} == {1}


def test_a_schema_that_is_not_the_tables_receives_nothing(spark, tmp_path):
    """Nothing of it is about a message: two of them were received until they were parked."""
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send(["1", "2"])
    write_deltalake(place.table, pa.table({"message_id": pa.array([], pa.string()), "n": pa.array([], pa.int64())}))
    schema = pa.schema([("n", pa.float64())])
    said = "'.*out.*' for parameter schema.*column n is bigint in the table, and double in schema="
    for work in (
        lambda: place.queue.work(halved, place.table, per_row=True, schema=schema, until="once"),
        lambda: place.queue.consume(lambda message: {"n": 1.5}, place.table, schema=schema, until="once"),
    ):
        with pytest.raises(InvalidParameterValue, match=said):
            work()
    assert {message.receive_count for message in place.queue.receive(None).messages()} == {1}


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [("a\0b", pa.int64(), "A NUL character is in its name"), ("d", pa.decimal128(5, -2), "no negative scale")],
)
def test_what_no_reader_has_is_refused_in_a_schema(spark, tmp_path, name, kind, said):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send("1")
    schema = pa.schema([("n", pa.int64()), (name, kind)])
    for work in (
        lambda: place.queue.work(halved, place.table, per_row=True, schema=schema),
        lambda: place.queue.consume(lambda message: {"n": 1}, place.table, schema=schema, until="once"),
    ):
        with pytest.raises(InvalidParameterValue, match=said):
            work()
    assert place.queue.counts().visible == 1


def test_rows_of_arrow_without_a_column_go_into_a_table_with_column_mapping(spark, tmp_path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send("1")
    spark.sql(
        f"CREATE TABLE delta.`{place.table}` (message_id STRING, k BIGINT, s STRING) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    claim = place.queue.receive()
    rows = pa.table({"message_id": [one.message_id for one in claim], "k": [5]})
    assert claim.write(rows, place.table, messages="message_id").messages == 1
    assert [(row.k, row.s) for row in spark.read.format("delta").load(place.table).collect()] == [(5, None)]
