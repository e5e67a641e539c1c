"""A row that raises is a row with its error: ledger.functions.safely, and Queue.work(per_row=True)."""

import json
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

from ledger import InvalidParameterValue, LedgerError
from ledger.functions import required, safely
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
    answered = safely(F.udf(required(lambda answer: answer, schema), DoubleType())).func
    for answer in ((1, 2), {"n": 1.0, "half": 2}, Row(half=2.0, n=1)):
        assert answered(answer) == ((1, 2.0), None)
    assert answered({"half": 0.5}) == ((None, 0.5), None)
    for wrong in ((1,), {"n": 2.5}, {"n": "7"}, {"m": 1}, None, "x", [1, 2]):
        value, error = answered(wrong)
        assert value is None and error.startswith(("TypeError: the function returned", "ArrowInvalid: ")), wrong


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
