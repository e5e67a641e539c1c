"""The same of DataFrames: staged rows that delta-rs publishes, and tables that Spark commits to."""

import datetime
import decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F

from ledger.errors import LeaseLost, OutputNotWritten
from tests.clock import FrozenClock
from tests.output.conftest import Place
from tests.output.test_new_tables import types_of


@pytest.fixture(params=["delta-rs", "Spark"])
def write(request, spark, tmp_path):
    """Writes the columns that expressions make for one message, and returns the table's rows without ids."""
    place = Place(tmp_path, FrozenClock(), spark=spark)
    if request.param == "Spark":
        # Spark has to make tables that have defaults of the session, and to commit to those.
        spark.conf.set("spark.databricks.delta.properties.defaults.columnMapping.mode", "name")

    def write(*columns, **arguments):
        place.queue.send("a")
        claim = place.queue.receive()
        rows = claim.dataframe.selectExpr("message_id", *columns)
        claim.write(rows, place.table, messages="message_id", **arguments)
        if request.param == "delta-rs":
            return sorted(DeltaTable(place.table).to_pyarrow_table().drop_columns("message_id").to_pylist(), key=str)
        found = spark.read.format("delta").load(place.table).drop("message_id").collect()
        return sorted((row.asDict(recursive=True) for row in found), key=str)

    write.place = place
    yield write
    spark.conf.unset("spark.databricks.delta.properties.defaults.columnMapping.mode")


#: Columns that a table of a price, a number and a struct refuses, and what is said of each.
REFUSED = {
    "9.99D AS price": "column price is double, and bigint in the table: the value 9.99 would be changed",
    "'007' AS price": "column price is string, and bigint in the table",
    "true AS price": "column price is boolean, and bigint",
    "3000000000L AS n": "column n is bigint, and int in the table: the value 3000000000 would be changed",
    "named_struct('a', array(9.5D)) AS s": r"column s\.a\.element is double, and bigint in the table: the value 9\.5",
    "1 AS other": "the table has no column other",
}
#: A number, a text, and what lies in a list in a struct.
SOME_REFUSED = ["9.99D AS price", "'007' AS price", "named_struct('a', array(9.5D)) AS s"]


@pytest.mark.soak_variants("*", but=("Spark-some",))
@pytest.mark.parametrize("columns", [pytest.param(SOME_REFUSED, id="some"), pytest.param(list(REFUSED), id="all")])
def test_a_value_of_a_dataframe_is_stored_as_itself_or_refused(write, columns):
    write("10L AS price", "1 AS n", "named_struct('a', array(1L)) AS s")
    for column in columns:
        with pytest.raises(OutputNotWritten, match=REFUSED[column]):
            write(column)
    assert write("7.0D AS price", "7L AS n", "named_struct('a', array(9D)) AS s")[1] == {
        "price": 7, "n": 7, "s": {"a": [9]},
    }  # fmt: skip
    assert write.place.queue.counts().deleted == 2


@pytest.mark.soak_variants("delta-rs*")
def test_what_the_first_rows_do_not_tell_is_added_by_the_first_that_do(write):
    untold = ("NULL AS note", "array() AS list", "named_struct('a', 1, 'b', NULL) AS s")
    assert write("1 AS n", *untold) == [{"n": 1, "s": {"a": 1}}]
    assert write("2 AS n", *untold)[1] == {"n": 2, "s": {"a": 1}}
    assert write("3 AS n", "'x' AS note", "array(1) AS list")[2] == {"n": 3, "s": None, "note": "x", "list": [1]}


@pytest.mark.soak_variants("Spark*")
def test_the_writer_of_a_dataframe_may_give_types(write):
    schema = pa.schema([("note", pa.string()), ("n", pa.int64())])
    assert write("1 AS n", "NULL AS note", schema=schema) == [{"n": 1, "note": None}]
    rows = write("1 AS n", "'x' AS note", "2 AS more", schema="widen")
    assert len(rows) == 2 and {"n": 1, "note": "x", "more": 2} in rows


def test_columns_of_a_published_table_are_widened_when_that_is_asked(spark, tmp_path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    for column, schema in (("10 AS price", None), ("9.99D AS price", "widen")):
        place.queue.send("a")
        claim = place.queue.receive()
        claim.write(claim.dataframe.selectExpr("message_id", column), place.table, messages="message_id", schema=schema)
    assert types_of(place)["price"] == "double"
    assert sorted(DeltaTable(place.table).to_pyarrow_table()["price"].to_pylist()) == [9.99, 10.0]


@pytest.mark.soak_variants("PARTITIONED*")
@pytest.mark.parametrize(
    "properties", ["", "TBLPROPERTIES (delta.enableChangeDataFeed = true)", "PARTITIONED BY (part)"]
)
def test_widening_is_offered_for_tables_alone_that_are_widened(spark, tmp_path, properties):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    spark.sql(f"CREATE TABLE delta.`{place.table}` (message_id STRING, n INT, part STRING) USING delta {properties}")
    place.queue.send("a")
    claim = place.queue.receive()
    with pytest.raises(OutputNotWritten) as refused:
        claim.write(claim.dataframe.selectExpr("message_id", "1099511627776L AS n", "'a' AS part"), place.table)
    assert ('or give schema="widen"' in str(refused.value)) == (not properties), str(refused.value)
    assert ('(schema="widen" does not, because of ' in str(refused.value)) == bool(properties)
    done = place.queue.work(
        lambda messages: messages.selectExpr("message_id", "1099511627776L AS n", "'a' AS part"),
        place.table, failures=f"{place.table}_failed", maximum_receives=1, until="once",
    ) if claim.release() else None  # fmt: skip
    assert done.failed == 1
    (reason,) = DeltaTable(f"{place.table}_failed").to_pyarrow_table()["reason"].to_pylist()
    assert ('or give schema="widen"' in reason) == (not properties), reason


def test_a_lease_that_is_lost_makes_no_table(write):
    place = write.place
    place.queue.send("a")
    lost = place.queue.receive(visibility_timeout=30)
    rows = lost.dataframe.selectExpr("message_id", "1 AS n")
    place.clock.advance(31)
    place.queue.receive(visibility_timeout=0)
    with pytest.raises(LeaseLost):
        lost.write(rows, place.table, messages="message_id")
    assert not DeltaTable.is_deltatable(place.table)


@pytest.mark.soak_variants("Spark*")
def test_an_empty_text_in_a_column_of_partitions_is_refused(write, spark):
    place = write.place
    spark.sql(
        f"CREATE TABLE delta.`{place.table}` (message_id STRING, part STRING, n INT) USING delta PARTITIONED BY (part)"
    )
    for text in ("", "__HIVE_DEFAULT_PARTITION__"):
        with pytest.raises(
            OutputNotWritten, match=r"column part has an empty text, or __HIVE.*, and the table is part"
        ):
            write(f"'{text}' AS part", "1 AS n")
    assert write("'a' AS part", "1 AS n") == [{"part": "a", "n": 1}]


@pytest.mark.soak_variants("Spark*")
def test_timestamps_without_a_zone_may_be_in_maps(write):
    assert len(write("map('k', timestamp_ntz'2024-01-01 00:00:00') AS x")) == 1
    assert len(write("map('k', timestamp_ntz'2024-01-02 00:00:00') AS x")) == 2


@pytest.mark.soak_variants("Spark*", "delta-rs-timestamp*", but=("Spark-date_add*",))
@pytest.mark.parametrize(
    "column",
    [
        "date_add(date'1970-01-01', 3700000) AS x",
        "timestamp_micros(253402300800000000) AS x",
        "timestamp_ntz'9999-12-31 23:59:59' + interval 1 day AS x",
        "array(date'2024-01-01', date_add(date'1970-01-01', 3700000)) AS x",
        "map('k', named_struct('a', array(timestamp_micros(253402300800000000)))) AS x",
    ],
)
def test_days_and_instants_that_readers_fail_on_are_refused(write, column):
    with pytest.raises(OutputNotWritten, match=r"column x has the value .*[0-9]-.*, which lies outside the years"):
        write(column)
    assert not DeltaTable.is_deltatable(write.place.table)


@pytest.mark.soak_variants("Spark*")
def test_a_map_with_a_key_twice_is_refused(write, spark, tmp_path):
    """Spark makes none, and reads them from files of others."""
    counted = pa.map_(pa.string(), pa.int64())
    twice = {"x": pa.array([[("k", 1), ("k", 2)]], counted)}
    twice["y"] = pa.array([[{"a": twice["x"][0]}]], pa.list_(pa.struct([("a", counted)])))
    pq.write_table(pa.table(twice), tmp_path / "twice.parquet")
    rows = spark.read.parquet(str(tmp_path / "twice.parquet"))
    write.place.queue.send("a")
    claim = write.place.queue.receive()
    for column in rows.columns:
        given = claim.dataframe.select("message_id").crossJoin(rows.select(column))
        with pytest.raises(OutputNotWritten, match=f"column {column} has a map with the key among .* twice"):
            claim.write(given, write.place.table, messages="message_id")
    assert not DeltaTable.is_deltatable(write.place.table)
    assert write("map('k', 1, 'j', 1) AS x", "array(named_struct('a', map('k', 1))) AS y")


@pytest.mark.soak_variants("*", but=("delta-rs-array*",))
@pytest.mark.parametrize("column", ["{} AS x", "map({}, 1) AS x", "array(named_struct('a', {})) AS x"])
def test_a_text_that_is_no_utf8_is_refused(write, column):
    with pytest.raises(OutputNotWritten, match="column x has a text that is no UTF-8"):
        write(column.format("CAST(X'ff41' AS STRING)"))
    assert not DeltaTable.is_deltatable(write.place.table)
    assert len(write(column.format("CAST(X'c3a441' AS STRING)"))) == 1


def test_fields_of_structs_in_other_capitals_are_refused(write, spark):
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(OutputNotWritten, match=r"two columns x\.element\.A, in other capitals"):
            write("array(named_struct('a', 1, 'A', 2)) AS x")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.soak_variants("Spark*")
def test_the_first_and_the_last_day_are_written(write):
    days = "date'9999-12-31' AS x", "date'0001-01-01' AS y", "timestamp'9999-12-30 00:00:00+00:00' AS z"
    assert len(write(*days)) == 1


@pytest.mark.soak_variants("Spark*")
def test_instants_are_stored_in_microseconds_whatever_the_session_says(write, spark):
    """INT96, Spark's default, is another instant to pyarrow outside the years 1677 to 2262."""
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    instants = ["timestamp'9999-12-31 23:59:59+00:00' AS x", "array(timestamp'1500-01-01 00:00:00+00:00') AS y"]
    assert len(write(*instants)) == 1 and len(write(*instants)) == 2
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == before == "INT96"
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.timezone.utc)
    for file in DeltaTable(write.place.table).file_uris():
        columns = pq.read_table(file).select(range(1, 3)).to_pydict()
        assert list(columns.values()) == [[last], [[last.replace(1500, 1, 1, 0, 0, 0)]]]


@pytest.mark.soak_variants("delta-rs*")
def test_what_columns_ask_where_they_came_from_is_nothing_to_a_new_table(write, spark):
    """Spark applied it to the rows, with the table made already."""
    place = write.place
    place.queue.send("a")
    claim = place.queue.receive()
    made = {"short": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(1)"}, "sum": {"delta.generationExpression": "1 + 1"}}
    rows = claim.dataframe.select("message_id", F.lit("long").alias("short"), F.lit(7).alias("sum"))
    for name, metadata in made.items():
        rows = rows.withMetadata(name, metadata)
    claim.write(rows, place.table, messages="message_id")
    (row,) = spark.read.format("delta").load(place.table).collect()
    assert (row.short, row.sum) == ("long", 7)


@pytest.mark.soak_variants("Spark*", but=("Spark-parse_json*",))
@pytest.mark.parametrize("column", ["parse_json('1') AS x", "array(parse_json('1')) AS x", "INTERVAL '1' DAY AS x"])
def test_a_type_that_many_readers_lack_is_refused(write, column):
    with pytest.raises(OutputNotWritten, match=r"column x is (variant|interval day), or has such a value inside"):
        write(column)
    assert not DeltaTable.is_deltatable(write.place.table)


@pytest.mark.soak_variants("Spark*")
def test_a_refused_value_is_said_first(write, spark):
    write("1 AS n")
    with pytest.raises(
        OutputNotWritten,
        match=r"output: the row of message .*: column n is bigint, and int in the table: the value 9999",
    ):
        write("99999999999L + length(body) - 1 AS n")


@pytest.mark.soak_variants("Spark*")
def test_a_column_of_nulls_alone_is_computed(write):
    """It is left out of the table. What checks rows has this type, too."""
    with pytest.raises(OutputNotWritten, match="bad body"):
        write("1 AS n", "assert_true(body <> 'a', 'bad body') AS checked")
    assert write("1 AS n", "assert_true(body = 'a', 'bad body') AS checked") == [{"n": 1}]


def test_what_arrow_writes_spark_finds(spark, tmp_path):
    """By a filter on a value that the bounds in the log do not tell of, and by an instant that partitions the table."""
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send(["a", "b"])
    claim = place.queue.receive(2)
    at = datetime.datetime(2024, 1, 1, 1, 2, 3, 4, tzinfo=datetime.timezone.utc)
    number = decimal.Decimal("12345678901234567890.123456789")
    kinds = {"message_id": pa.string(), "x": pa.float64(), "s": pa.struct([("x", pa.float64())])}
    kinds |= {"d": pa.struct([("d", pa.decimal128(38, 18))]), "at": pa.timestamp("us", "UTC")}
    write_deltalake(place.table, pa.schema(list(kinds.items())).empty_table(), partition_by=["at"])
    rows = [
        {"message_id": message.message_id, "x": x, "s": {"x": x}, "d": {"d": number}, "at": at}
        for message, x in zip(claim.messages(), (1.0, float("nan")))
    ]
    claim.write(pa.Table.from_pylist(rows, pa.schema(list(kinds.items()))), place.table)
    found = spark.read.format("delta").load(place.table)
    for condition in ("x > 5", "x = double('NaN')", "s.x > 5"):
        assert found.where(condition).count() == 1, condition
    assert found.where(f"d.d = {number}BD").count() == 2
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        (instant,) = {row[0] for row in found.selectExpr("unix_micros(at)").collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert instant == 1_704_070_923_000_004
    table = DeltaTable(place.table)
    assert table.to_pyarrow_dataset().to_table(filter=pc.field("x") == 1.0).num_rows == 1
    assert table.to_pyarrow_dataset().to_table(filter=pc.field("at") == pa.scalar(at, kinds["at"])).num_rows == 2
