"""What `claim.write` says of rows that it refuses: the column, the row, the value, and what to do."""

import datetime
import decimal
import json
import re
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import StructType
from pyspark.sql import functions as F

from ledger.errors import InvalidParameterValue, OutputNotWritten
from tests.clock import FrozenClock
from tests.output.conftest import Place

TABLE = pa.table(
    {
        "message_id": ["of before"],
        "n": pa.array([1], pa.int64()),
        "s": pa.array([{"a": 1}], pa.struct([("a", pa.int32())])),
        "l": pa.array([[1]], pa.list_(pa.int32())),
        "at": pa.array([datetime.date(2024, 1, 1)]),
    }
)
#: By the column: its values for three messages, and what is said of the second one.
REFUSED = {
    "a fraction": ("n", [1.0, 9.99, 3.0], r"column n is double, .* the value 9\.99 .* makes the column double"),
    "NaN": ("n", [1.0, float("nan"), 3.0], "which has no value nan; give NULL for it in the rows"),
    "infinity": ("n", [1.0, float("inf"), 3.0], "which has no value inf; give NULL for it in the rows"),
    "inside a struct": (
        "s", [{"a": 1}, {"a": 2**40}, None], r"the value \{'a': 1099511627776\} .* makes the column struct<a:bigint>",
    ),
    "inside a list": ("l", [[1], [2**40], []], "makes the column array<bigint>"),
    "no midnight": (
        "at", [datetime.datetime(2024, 1, 1, hour) for hour in (0, 7, 0)], "would be changed.*\"widen\" does not help",
    ),
}  # fmt: skip


@pytest.fixture
def ids(place):
    write_deltalake(place.table, TABLE)
    place.queue.send(["a", "b", "c"])
    place.claim = place.queue.receive(3)
    return [message.message_id for message in place.claim]


def refused(place, rows, error=OutputNotWritten, **arguments):
    with pytest.raises(error) as raised:
        place.claim.write(rows, place.table, messages="message_id", **arguments)
    assert ".." not in str(raised.value).replace("...", "")
    return str(raised.value)


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_value_is_named_with_its_message_or_its_row(place, ids, case):
    column, values, said = REFUSED[case]
    rows = pa.table({"message_id": ids, column: values})
    found = refused(place, rows)
    assert re.search(said, found), found
    assert f"{place.table}: the row of message {ids[1]}: column {column} is" in found
    with pytest.raises(OutputNotWritten, match=r"output: row 1: column"):
        place.claim.write(rows.drop_columns(["message_id"]), place.table)


def test_texts_for_numbers_are_refused_with_the_first_of_them(place, ids):
    found = refused(place, pa.table({"message_id": ids, "n": [None, "007", "8"]}))
    assert "column n is string, and bigint in the table: its first value is '007'; " in found
    assert 'make n bigint in the rows (pandas: pd.to_numeric(..., errors="coerce"))' in found
    assert ' (schema="widen" does not help: no wider type holds both)' in found


@pytest.mark.parametrize(
    ("value", "shown", "fix"),
    [
        (datetime.time(1), "01:00:00", 'column.cast("string")'),
        (datetime.timedelta(seconds=5), "0:00:05", ".dt.total_seconds()"),
        (pa.scalar((1, 2, 3), pa.month_day_nano_interval()), "MonthDayNano", "Make columns of its parts"),
    ],
)
def test_types_that_delta_has_not_are_named_with_a_value_and_the_cast(place, ids, value, shown, fix):
    found = refused(place, pa.table({"message_id": ids, "x": pa.array([value] * 3)}))
    assert "column x: It is " in found and f"Its first value is {shown}" in found and fix in found


@pytest.mark.parametrize(
    ("values", "said", "fix"),
    [
        ([1, "a", 2.5], "Row 1 is 'a' (str), and row 0 is 1 (int)", "pd.to_numeric"),
        ([None, {"a": 1}, "a"], "Row 2 is 'a' (str), and row 1 is {'a': 1} (dict)", ".astype(str)"),
        ([1, 2**70, 3], "Row 1 is 1180591620717411303424 (int)", "decimal.Decimal(value)"),
        ([1j, 2j, 3j], "Row 0 is 1j (complex)", ".astype(str)"),
        ([1, object(), 3], "Row 1 is <object", ".astype(str)"),
    ],
)
def test_objects_of_pandas_that_no_column_holds_are_named(place, ids, values, said, fix):
    frame = pd.DataFrame({"message_id": ids, "x": pd.Series(values, dtype=object)})
    found = refused(place, frame, InvalidParameterValue)
    assert "Value 'x' for parameter column" in found and said in found and fix in found


def test_two_columns_of_one_name_are_said_to_be_so_whatever_made_them(place, ids):
    frame = pd.DataFrame([[name, 1, 2] for name in ids], columns=["message_id", "n", "n"])
    assert "two columns of this name. Rename one" in refused(place, frame, InvalidParameterValue)


def test_a_list_of_dictionaries_says_how_to_make_a_table_of_it(place, ids):
    with pytest.raises(InvalidParameterValue, match=r"pa\.Table\.from_pylist\(rows\)"):
        place.claim.write([{"message_id": ids[0], "n": 1}], place.table)


def test_rows_about_no_message_and_messages_without_a_row_are_named(place, ids):
    found = refused(place, pa.table({"message_id": [ids[0], None, "zz"], "n": [1, 2, 3]}), InvalidParameterValue)
    assert "2 are neither a message id nor a receipt handle of the queue (row 1 for one)" in found
    stranger = place.queue.send("d")[0]
    found = refused(place, pa.table({"message_id": [*ids, str(stranger)]}), InvalidParameterValue)
    assert f"1 are not, message {stranger} for one" in found
    with pytest.raises(InvalidParameterValue, match=f"1 of the messages have no row .message {ids[2]} for one"):
        place.claim.write(pa.table({"message_id": ids[:2]}), place.table, messages=ids)
    assert place.claim.delete().messages == 3


@pytest.mark.soak_variants("infinity", "inside a struct", "a fraction")
@pytest.mark.parametrize("case", ["a fraction", "NaN", "infinity", "inside a struct", "inside a list"])
def test_a_refused_value_of_a_dataframe_is_named_with_its_message(spark, tmp_path, case):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    write_deltalake(place.table, TABLE)
    place.queue.send(["0", "1", "2"])
    place.claim = place.queue.receive(3)
    column, values, _ = REFUSED[case]
    rows = spark.createDataFrame(pa.table({"body": ["0", "1", "2"], column: values}))
    rows = place.claim.dataframe.select("message_id", "body").join(rows, "body").drop("body")
    bad = next(message.message_id for message in place.claim if message.body == "1")
    found = refused(place, rows)
    assert f"{place.table}: the row of message {bad}: column " in found and 'schema="widen"' in found
    said = {
        "a fraction": "round n in the rows (round(n)), and give NULL for what bigint has no room for",
        "inside a struct": "column s.a is bigint, and int in the table: the value 1099511627776 would be changed; "
        "to change the values on purpose, give NULL (try_cast(... AS int), inside s by withField or transform) for "
        'what int has no room for, or leave these rows out, or give schema="widen", which makes s.a bigint',
        "inside a list": "column l.element is bigint, and int in the table",
    }
    assert said.get(case, "") in found
    if case in ("NaN", "infinity"):
        assert "give NULL for it in the rows" in found


def test_a_worker_has_one_reason_for_all_messages_with_a_value_alike(spark, tmp_path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    write_deltalake(place.table, TABLE.select(["message_id", "n"]))
    place.queue.send([str(n) for n in range(8)])
    place.queue.work(
        lambda m: m.select("message_id", F.when(F.col("body") < "2", 9.99).otherwise(1.0).alias("n")),
        place.table, maximum_receives=1, until="once",
    )  # fmt: skip
    (parked,) = place.ledger.sql("SELECT reason, messages FROM in_flight").to_pylist()
    assert parked["messages"] == 2
    assert parked["reason"].startswith("OutputNotWritten: column n is double, and bigint in the table: the value 9.99")


@pytest.mark.soak_variants("spark*")
@pytest.mark.parametrize("engine", ["delta-rs", "spark"])
def test_names_that_spark_does_not_write_are_refused_before_anything_is_made(spark, tmp_path, engine):
    place = Place(tmp_path, FrozenClock(), spark=spark, engine=engine)
    place.queue.send(["0"])
    place.claim = place.queue.receive()
    for column, name in (("1 AS `a b`", "a b"), ("array(named_struct('c{d}', 1)) AS x", "c{d}")):
        found = refused(place, place.claim.dataframe.selectExpr("message_id", column))
        assert f"the column '{name}' has one of the characters" in found and "withColumnRenamed" in found
        assert not Path(place.table).exists()
    spark.conf.set("spark.databricks.delta.properties.defaults.columnMapping.mode", "name")
    try:
        rows = place.claim.dataframe.selectExpr("message_id", "1 AS `a b`")
        assert place.claim.write(rows, place.table, messages="message_id").messages == 1
    finally:
        spark.conf.unset("spark.databricks.delta.properties.defaults.columnMapping.mode")


@pytest.mark.soak_variants("what raises")
@pytest.mark.parametrize("why", ["a value", "what raises", "an id", "an id in a folder that was there"])
def test_a_refused_write_of_a_new_table_leaves_no_folder(spark, tmp_path, why):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send(["0"])
    place.claim, table = place.queue.receive(), tmp_path / "deep" / "output"
    columns = {
        "a value": ("message_id", "DATE'0001-01-01' - INTERVAL 500 DAYS AS d"),
        "what raises": ("message_id", "CAST(raise_error('mine') AS STRING) AS s"),
    }.get(why, ("'zz' AS message_id", "1 AS n"))
    if "there" in why:
        table.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises((OutputNotWritten, InvalidParameterValue)):
        place.claim.write(place.claim.dataframe.selectExpr(*columns), table, messages="message_id")
    own = tmp_path / "ledger"
    assert [one for one in sorted(tmp_path.rglob("*")) if own not in one.parents] == [
        one for one in before if own not in one.parents
    ]


def test_a_table_that_cannot_be_widened_gets_no_files(place, ids):
    write_deltalake(
        place.table, TABLE.slice(0, 0).select(["message_id", "n"]), mode="overwrite", schema_mode="overwrite"
    )
    write_deltalake(place.table, pa.table({"message_id": ["x"], "n": [2**53 + 1]}), mode="append")
    before = sorted(Path(place.table).rglob("*.parquet"))
    rows = pa.table({"message_id": ids, "n": [0.5, 1.5, 2.5]})
    assert "n cannot be widened: of the stored rows" in refused(place, rows, schema="widen")
    assert sorted(Path(place.table).rglob("*.parquet")) == before and not (Path(place.table) / "ledger_writes").exists()


def test_a_table_goes_by_the_types_of_rows_when_it_is_widened(place, ids, caplog):
    caplog.set_level("INFO", "ledger.output")
    place.claim.write(
        pa.table({"message_id": ids, "n": [7.0, 8.0, 9.0]}), place.table, messages="message_id", schema="widen"
    )
    assert DeltaTable(place.table).to_pyarrow_table().schema.field("n").type == pa.float64()
    assert "was written anew: its columns n are wider now" in caplog.text


@pytest.mark.parametrize("feature", ["allowColumnDefaults", "rowTracking", "typeWidening", "domainMetadata"])
def test_a_table_that_delta_rs_cannot_commit_to_is_refused_before_a_write_begins(place, ids, feature):
    """Else nobody could tell whether the rows are there, and the messages were held for good."""
    entry = Path(place.table, "_delta_log", f"{0:020d}.json")
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}
            if feature == "typeWidening":
                line["protocol"] |= {"minReaderVersion": 3, "readerFeatures": [feature]}
    entry.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = refused(place, pa.table({"message_id": ids, "n": [1, 2, 3]}))
    assert f"the feature {feature}, with which delta-rs writes no rows" in found and "DataFrame" in found
    assert place.claim.extend(60).messages == 3 and place.claim.release().messages == 3
    assert place.queue.receive(3).count == 3


def once(found):
    """The error of a claim that is held, in which nothing is said twice."""
    assert found.count("Nothing was written") == found.count("The claim is held as before") == 1, found
    assert "OutputNotWritten" not in found
    return found


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__", b"a"])
def test_a_text_that_cannot_be_a_partition_is_refused_with_its_message(place, value):
    kind = pa.binary() if isinstance(value, bytes) else pa.string()
    before = pa.table({"message_id": ["m"], "part": pa.array([None], kind), "x": [1]})
    write_deltalake(place.table, before, partition_by=["part"])
    place.queue.send(["a", "b"])
    place.claim = place.queue.receive(2)
    ids = [message.message_id for message in place.claim]
    found = once(refused(place, pa.table({"message_id": ids, "part": pa.array([None, value], kind), "x": [1, 2]})))
    assert f"{place.table}: the row of message {ids[1]}: column part has" in found


def test_columns_that_another_writer_changes_meanwhile_are_told_once(place, ids, at_step):
    rows = pa.table({"message_id": ids, "n": [1, 2, 3]})
    texts = pa.table({"message_id": ["m"], "n": ["a"]})
    at_step("begun", lambda: write_deltalake(place.table, texts, mode="overwrite", schema_mode="overwrite"))
    assert "column n is bigint, and string in the table: its first value is 1" in once(refused(place, rows))
    assert place.claim.delete().messages == 3


def test_a_dataframe_for_a_table_that_is_changed_meanwhile_is_refused_once(spark, tmp_path, monkeypatch):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send(["0"])
    place.claim = place.queue.receive()
    monkeypatch.setattr("ledger.outputs.spark_writers.StagedRows.is_too_old", lambda self, now: True)
    rows = place.claim.dataframe.select("message_id")
    assert "the rows took so long that a VACUUM could remove them" in once(refused(place, rows))


def test_names_and_values_with_bars_stand_in_the_refusal_of_a_dataframe_as_they_are(spark, tmp_path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    table = pa.table({"message_id": ["of before"], "a||b|.|c": pa.array([1], pa.int32()), "part": ["p"], "v": [1]})
    write_deltalake(place.table, table, partition_by=["part"])
    place.queue.send(["0"])
    place.claim = place.queue.receive()
    bad = place.claim.messages()[0].message_id
    rows = place.claim.dataframe.select("message_id", F.lit(1.5).alias("a||b|.|c"), F.lit("p").alias("part"))
    found = refused(place, rows)
    assert f"the row of message {bad}: column a||b|.|c is double, and int in the table: the value 1.5 would be" in found
    assert "round(`a||b|.|c`)" in found
    rows = place.claim.dataframe.select("message_id", F.expr("array(array('||x'))").alias("v"))
    assert "column v is array<array<string>>, and bigint in the table" in refused(place, rows)


#: By the type of the column: values that it refuses, what the error says, what that makes of them with pandas and with
#: Arrow, and what is stored then.
ADVISED = {
    "whole numbers": (
        pa.int64(), pa.array([9.99, 7.0]), "round c in the rows (pandas: .round(0), pyarrow.compute.round)",
        lambda values: values.round(0), pa.compute.round, [10, 7],
    ),
    "decimals": (
        pa.decimal128(5, 2), pa.array([9.999, 7.0]), "pandas: .round(2), pyarrow.compute.round",
        lambda values: values.round(2), lambda values: pa.compute.round(values, 2),
        [decimal.Decimal("10.00"), decimal.Decimal("7.00")],
    ),
    "doubles": (
        pa.float64(), pa.array([2**53 + 1, 7]), 'pandas: .astype("float64"), pyarrow: .cast("float64", safe=False)',
        lambda values: values.astype("float64"), lambda values: values.cast("float64", safe=False), [2.0**53, 7.0],
    ),
    "floats": (
        pa.float32(), pa.array([0.1, 7.0]), 'pandas: .astype("float32"), pyarrow: .cast("float32", safe=False)',
        lambda values: values.astype("float32"), lambda values: values.cast("float32", safe=False),
        [pytest.approx(0.1), 7.0],
    ),
    "days": (
        pa.date32(), pa.array([datetime.datetime(2024, 1, 1, 5)] * 2),
        'pandas: .dt.floor("D"), pyarrow: .cast("date32", safe=False)',
        lambda values: values.dt.floor("D"), lambda values: values.cast("date32", safe=False),
        [datetime.date(2024, 1, 1)] * 2,
    ),
    "texts": (
        pa.string(), pa.array([1, 2]), 'pandas: .astype("string"), pyarrow: .cast("string")',
        lambda values: values.astype("string"), lambda values: values.cast("string"), ["1", "2"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
@pytest.mark.parametrize("case", ADVISED)
def test_the_advice_is_one_that_the_library_of_the_rows_has_and_that_works(place, case, library):
    kind, values, advice, by_pandas, by_arrow, stored = ADVISED[case]
    before = pa.table({"message_id": ["m"], "c": pa.array([None], kind)})
    write_deltalake(place.table, before)
    place.queue.send(["a", "b"])
    place.claim = place.queue.receive(2)
    rows = pa.table({"message_id": [message.message_id for message in place.claim], "c": values})
    assert advice in refused(place, rows)
    made = by_pandas(values.to_pandas()) if library == "pandas" else by_arrow(values)
    rows = pd.DataFrame({"message_id": rows["message_id"].to_pylist(), "c": made})
    if library == "pyarrow":
        rows = pa.table({"message_id": pa.array(rows["message_id"].tolist()), "c": made})
    place.claim.write(rows, place.table, messages="message_id")
    assert [one for one in DeltaTable(place.table).to_pyarrow_table()["c"].to_pylist() if one is not None] == stored


def test_the_advice_for_a_dataframe_works_inside_lists_and_structs_too(spark, tmp_path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    write_deltalake(place.table, TABLE)
    place.queue.send(["0"])
    place.claim = place.queue.receive()
    ids = place.claim.dataframe.select("message_id")
    rows = ids.select("*", F.expr("named_struct('a', 1.5D) AS s"), F.expr("array(2.5D) AS l"))
    found = refused(place, rows.drop("l"))
    assert "column s.a is double, and int in the table: the value 1.5 would be changed; " in found
    assert "round s.a in the rows (round(...), inside s by withField or transform)" in found
    assert "column l.element is double, and int in the table: the value 2.5" in refused(place, rows.drop("s"))
    texts = ids.select("*", F.expr("array('a') AS l"))
    assert "make it int in the rows (try_cast(... AS int), inside l by withField" in refused(place, texts)
    rows = rows.withColumn("s", F.col("s").withField("a", F.round("s.a")))
    place.claim.write(
        rows.withColumn("l", F.transform("l", lambda one: F.round(one))), place.table, messages="message_id"
    )
    assert {"s": {"a": 2}, "l": [3]} in DeltaTable(place.table).to_pyarrow_table().select(["s", "l"]).to_pylist()


@pytest.fixture
def constrained(place):
    """A table with NOT NULL and CHECK."""

    def make(*, inside=True, **checks):
        inside = StructType([Field("a", "long", nullable=not inside)])
        fields = [Field("message_id", "string"), Field("n", "long", nullable=False), Field("s", inside)]
        DeltaTable.create(place.table, Schema(fields))
        for name, expression in checks.items():
            DeltaTable(place.table).alter.add_constraint({name: expression})
        place.queue.send(["a", "b"])
        place.claim = place.queue.receive(2)
        return [message.message_id for message in place.claim]

    return make


OF_STRUCTS = pa.struct([("a", pa.int64())])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"n": [1, None]}, "the row of message {}: column n is NOT NULL in the table, and NULL here: give a value"),
        ({}, "the rows have no column n, which is NOT NULL in the table: add it to them"),
        (
            {"n": [1, 2], "s": pa.array([{"a": 1}, {"a": None}], OF_STRUCTS)},
            "the row of message {}: column s.a is NOT NULL in the table, and NULL here",
        ),
        (
            {"n": [1, 2], "s": pa.array([{}, {}], pa.struct([]))},
            "the rows have no column s.a, which is NOT NULL in the table",
        ),
    ],
)
def test_a_null_that_the_table_does_not_take_is_named(place, constrained, columns, said):
    ids = constrained()
    assert said.format(ids[1]) in once(refused(place, pa.table({"message_id": ids, **columns})))
    rows = {"message_id": ids, "n": [1, 2], "s": pa.array([{"a": 1}, {"a": 2}], OF_STRUCTS)}
    place.claim.write(pa.table(rows), place.table, messages="message_id")


@pytest.mark.parametrize("value", [-2, 7])
def test_a_constraint_that_a_row_breaks_is_named_with_the_row(place, constrained, value):
    ids = constrained(inside=False, small="n < 6", positive="n > 0")
    found = once(refused(place, pa.table({"message_id": ids, "n": [1, value]})))
    broken = "positive CHECK (n > 0)" if value < 0 else "small CHECK (n < 6)"
    assert f"the row of message {ids[1]}: the row breaks the table's constraint {broken}: mend the row" in found
    place.claim.write(pa.table({"message_id": ids, "n": [1, 2]}), place.table, messages="message_id")


def test_a_dataframe_is_written_to_a_table_that_arrow_made_with_a_name_that_spark_makes_no_table_of(spark, tmp_path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    write_deltalake(place.table, pa.table({"message_id": ["m"], "a b": [1], "n": [1]}))
    place.queue.send(["0"])
    place.claim = place.queue.receive()
    found = refused(place, place.claim.dataframe.selectExpr("message_id", "1 AS `c d`"), schema="widen")
    assert "the column 'c d' has one of the characters" in found
    rows = place.claim.dataframe.selectExpr("message_id", "2L AS n", "3L AS `a b`")
    place.claim.write(rows, place.table, messages="message_id")
    assert sorted(DeltaTable(place.table).to_pyarrow_table()["a b"].to_pylist()) == [1, 3]
