"""Rows of a DataFrame lie in the output table where Spark wrote them, and nothing that the table asks is passed by."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from ledger import __version__
from ledger.delta_log.protocol import Conflict, StagedFile
from ledger.errors import OutputNotWritten
from ledger.output_tables import publishing as output_publishing
from ledger.rules import output_doubts, staging
from ledger.rules.publishable import FOLDER
from tests.clock import FrozenClock
from tests.frames import assert_rows
from tests.output.conftest import Place
from tests.output.test_write import Crash, crash

#: Who made a commit.
OURS = f"ledger/{__version__}"


@pytest.fixture
def place(tmp_path, spark):
    return Place(tmp_path, FrozenClock(), spark=spark)


@pytest.fixture
def claim(place):
    place.queue.send([f"{n}" for n in range(6)])
    return place.queue.receive(None)


def rows_of(claim):
    return claim.dataframe.select("message_id", F.col("body").cast("int").alias("n"))


def make(spark, place, columns="message_id STRING, n INT", more=""):
    spark.sql(f"CREATE TABLE delta.`{place.table}` ({columns}) USING delta {more}")


def commits(place):
    """What the table's commits that added rows say of themselves."""
    logs = [[json.loads(line) for line in log.read_text().splitlines()] for log in sorted(place.log.glob("*.json"))]
    return [{name: one[name] for one in log for name in one} for log in logs if any("add" in one for one in log)]


def left(place):
    """What writes have left below the table, without empty folders."""
    return [file for file in Path(place.table, FOLDER).rglob("*") if file.is_file()]


def test_rows_are_published_where_spark_wrote_them_and_both_engines_read_them(place, spark, claim):
    claim.write(rows_of(claim), place.table, messages="message_id")
    (commit,) = commits(place)
    assert commit["add"]["path"].startswith(f"{FOLDER}/") and commit["commitInfo"]["engineInfo"] == OURS
    assert json.loads(commit["commitInfo"]["userMetadata"])["receipt_id"] == claim.receipt_id
    assert json.loads(commit["add"]["stats"])["numRecords"] > 0
    assert sorted(row.n for row in spark.read.format("delta").load(place.table).collect()) == list(range(6))
    assert sorted(DeltaTable(place.table).to_pyarrow_table()["n"].to_pylist()) == list(range(6))
    assert all(file.suffix in (".parquet", ".crc") for file in left(place)), "the log of the folder is gone"


def test_what_a_table_asks_of_its_rows_is_asked_of_rows_that_are_published(place, spark, claim):
    columns = "message_id STRING NOT NULL, n INT, code CHAR(2), twice INT GENERATED ALWAYS AS (n * 2)"
    make(spark, place, columns, "TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    spark.sql(f"ALTER TABLE delta.`{place.table}` ADD CONSTRAINT few CHECK (n < 4)")
    good = rows_of(claim).where("n < 4").withColumn("code", F.lit("x"))
    handles = [message.receipt_handle for message in claim]
    for rows, why in (
        (rows_of(claim), "(?i)few"),
        (good.withColumn("message_id", F.expr("nullif(n, 1)").cast("string")), "(?i)not.null"),
        (good.withColumn("code", F.lit("long")), "(?i)length|exceed"),
        (good.withColumn("twice", F.lit(1)), "(?i)generated|twice"),
        (good.withColumn("other", F.lit(1)), "the table has no column other"),
    ):
        with pytest.raises(OutputNotWritten, match=why):
            claim.write(rows, place.table, messages=handles)
    assert commits(place) == [] and left(place) == []
    assert claim.write(good, place.table, messages="message_id").messages == 4
    (commit,) = commits(place)
    assert commit["commitInfo"]["engineInfo"] == OURS
    table = spark.read.format("delta").load(place.table)
    rows = [(n, "x ", n * 2) for n in range(4)]
    assert_rows(table.select("n", "code", "twice"), "n int, code string, twice int", rows)
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    assert {row[0] for row in changes.load(place.table).select("_change_type").collect()} == {"insert"}


def test_rows_lie_in_the_partitions_of_the_table_whatever_their_values(place, spark, claim):
    make(spark, place, "message_id STRING, n INT, part STRING", "PARTITIONED BY (part)")
    values = ["a b", "a/b", "ü%20", "x=y", None, "plain"]
    part = F.element_at(F.array(*map(F.lit, values)), F.col("n") + 1)
    claim.write(rows_of(claim).withColumn("part", part), place.table, messages="message_id")
    expected = dict(enumerate(values))
    table = spark.read.format("delta").load(place.table)
    assert_rows(table.select("n", "part"), "n int, part string", expected.items())
    rows = DeltaTable(place.table).to_pyarrow_table().to_pylist()
    assert {row["n"]: row["part"] for row in rows} == expected
    one = spark.read.format("delta").load(place.table).where("part = 'a/b'")
    assert [row.n for row in one.collect()] == [1] and commits(place)[0]["commitInfo"]["engineInfo"] == OURS


@pytest.mark.soak_variants("*enableRowTracking*", "*enableDeletionVectors*", "*CLUSTER BY*")
@pytest.mark.parametrize(
    ("columns", "properties"),
    [
        ("n BIGINT GENERATED ALWAYS AS IDENTITY, message_id STRING", ""),
        ("message_id STRING", "TBLPROPERTIES (delta.columnMapping.mode = 'name')"),
        ("message_id STRING", "TBLPROPERTIES (delta.enableRowTracking = true)"),
        ("message_id STRING", "TBLPROPERTIES (delta.enableDeletionVectors = true)"),
        ("message_id STRING", "CLUSTER BY (message_id)"),
    ],
)
def test_a_table_that_asks_for_more_is_committed_to_by_spark(place, spark, claim, columns, properties):
    make(spark, place, columns, properties)
    claim.write(claim.dataframe.select("message_id"), place.table, messages="message_id")
    (commit,) = commits(place)
    assert "Spark" in commit["commitInfo"]["engineInfo"] and not Path(place.table, FOLDER).exists()
    assert place.queue.counts().deleted == 6


def test_a_table_that_was_changed_while_rows_were_written_for_it_gets_none_of_them(place, spark, claim, at_step):
    make(spark, place)
    changed = f"ALTER TABLE delta.`{place.table}` ADD CONSTRAINT few CHECK (n < 4)"
    for step in ("staged", "begun"):
        at_step(step, lambda: spark.sql(changed))
        with pytest.raises(OutputNotWritten, match="changed while rows were written"):
            claim.write(rows_of(claim), place.table, messages="message_id")
        spark.sql(f"ALTER TABLE delta.`{place.table}` DROP CONSTRAINT few")
    assert commits(place) == [] and left(place) == [] and place.queue.counts().in_flight == 6
    assert claim.write(rows_of(claim), place.table, messages="message_id").messages == 6


@pytest.mark.soak_variants("*", but=("?u2028",))
@pytest.mark.parametrize("odd", ["\u2028", "\x85", "\x1c", "\x0c"])
def test_a_text_with_a_line_break_of_unicode_is_written(place, spark, claim, odd):
    """Spark writes bounds of a file as they are. Python's splitlines took such a character for the end of an entry's
    line, and the write failed."""
    make(spark, place, "message_id STRING, text STRING")
    rows = claim.dataframe.select("message_id", F.concat(F.lit(f"a{odd}b"), "body").alias("text"))
    assert claim.write(rows, place.table, messages="message_id").messages == 6
    assert spark.read.format("delta").load(place.table).where(F.col("text").contains(odd)).count() == 6


def test_a_column_that_others_made_wider_meanwhile_is_not_made_narrower(place, spark, claim, at_step):
    make(spark, place)
    beside = place.another(spark=None)
    beside.create_queue("others").send("7")
    other = beside.queue("others").receive(1)
    rows = pa.table({"message_id": [m.message_id for m in other], "n": [7.0]})
    at_step("staged", lambda: other.write(rows, place.table, schema="widen"))
    longer = rows_of(claim).withColumn("n", F.col("n").cast("bigint"))
    with pytest.raises(OutputNotWritten, match="changed while rows were written"):
        claim.write(longer, place.table, messages="message_id", schema="widen")
    assert str(DeltaTable(place.table).schema().fields[1].type.type) == "double"
    assert claim.write(longer, place.table, messages="message_id", schema="widen").messages == 6


def test_work_whose_table_was_changed_meanwhile_computes_its_rows_again(place, spark, at_step):
    make(spark, place)
    place.queue.send(["1", "2"])
    at_step("staged", lambda: spark.sql(f"ALTER TABLE delta.`{place.table}` ADD COLUMN more INT"))
    done = place.queue.work(lambda messages: messages.select("message_id"), place.table)
    assert (done.messages, done.failed, place.queue.counts().deleted) == (2, 0, 2)


def test_a_writer_that_stood_still_in_the_very_commit_publishes_nothing_behind_a_fence(place, spark, monkeypatch):
    """It has looked at the table; then another fences it off, where there are no locks; then it commits."""
    make(spark, place)
    engine, unhindered = place.another(spark=None).store.outputs.foreign, output_publishing.require_same
    publishing, file = (
        engine.output_publishing(place.table),
        StagedFile("part-0.parquet", 1, {}, 1, '{"numRecords": 1}'),
    )

    Path(place.table, file.path).write_bytes(b"rows")

    def stand_still(*arguments):
        unhindered(*arguments)
        engine.fence_output(place.table, "ledger/x", output_doubts.FENCED)

    monkeypatch.setattr(output_publishing, "require_same", stand_still)
    for _ in range(2):
        with pytest.raises(Conflict):
            publishing.publish(place.table, publishing.look(place.table), [file], ("ledger/x", 1), {})
    assert commits(place) == []


def test_nothing_is_made_for_rows_that_are_refused(place, claim):
    with pytest.raises(Exception, match="neither"):
        claim.write(claim.dataframe.select("body", "message_id"), place.table, messages="body")
    with pytest.raises(OutputNotWritten):
        claim.write(claim.dataframe.select(F.raise_error(F.lit("no")).cast("string").alias("message_id")), place.table)
    assert not place.log.exists() and left(place) == [] and place.queue.counts().in_flight == 6


@pytest.mark.soak
def test_what_a_dead_writer_left_is_removed_by_vacuum_and_its_log_by_a_later_write(place, spark, claim, at_step):
    make(spark, place)
    at_step("begun", crash)
    with pytest.raises(Crash):
        claim.write(rows_of(claim), place.table, messages="message_id")
    # It is not removed by who dies; this one was told, and did.
    dead = Path(place.table, FOLDER, staging.new_folder(place.clock()))
    (dead / "_delta_log").mkdir(parents=True)
    (dead / "_delta_log" / f"{0:020}.json").write_text("{}")
    (dead / "part-0.parquet").write_text("rows")
    place.clock.advance(staging.ABANDONED + 1)
    again = place.another().queue("work").receive(None)
    assert again.write(rows_of(again), place.table, messages="message_id").messages == 6
    assert not (dead / "_delta_log").exists() and (dead / "part-0.parquet").exists()
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        spark.sql(f"VACUUM delta.`{place.table}` RETAIN 0 HOURS")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert not (dead / "part-0.parquet").exists()
    assert spark.read.format("delta").load(place.table).count() == 6, "what was published stays"


def test_rows_that_took_longer_than_a_vacuum_waits_are_not_published(place, spark, at_step):
    make(spark, place)
    days = 4 * staging.ABANDONED
    queue = place.ledger.create_queue("slow", {"MaximumVisibilityTimeout": days})
    queue.send(["1", "2"])
    claim = queue.receive(None, days)
    at_step("staged", lambda: place.clock.advance(staging.ABANDONED + 1))
    with pytest.raises(OutputNotWritten, match="so long that a VACUUM"):
        claim.write(rows_of(claim), place.table, messages="message_id")
    assert commits(place) == [] and left(place) == [] and queue.counts().in_flight == 2
