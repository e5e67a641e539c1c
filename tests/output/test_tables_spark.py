"""Output tables of Spark's: what is computed once, names of the catalog, what tables refuse, and fences."""

import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from ledger.delta_log.protocol import Conflict
from ledger.errors import InvalidParameterValue, OutputNotWritten, OutputUnreadable
from ledger.rules import output_doubts
from tests.clock import FrozenClock
from tests.output.conftest import Place
from tests.output.conftest import rows_of as arrow_rows
from tests.output.test_write import Crash, crash


@pytest.fixture
def place(tmp_path, spark):
    return Place(tmp_path, FrozenClock(), spark=spark)


def rows_of(claim):
    return claim.dataframe.select("message_id", F.length("body").alias("length"), F.lit(claim.receipt_id).alias("by"))


#: Other rows each time that anybody looks; rand() draws the same ones again.
BY_CHANCE = "CAST(reflect('java.lang.Math', 'random') AS DOUBLE) < 0.7"


@pytest.fixture(params=["delta-rs", "Spark"])
def committer(request, place, spark):
    """Who commits to the output table: Spark does where its columns have names of their own in the files."""
    if request.param == "Spark":
        spark.sql(
            f"CREATE TABLE delta.`{place.table}` (message_id STRING, length INT, by STRING) USING delta "
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
        )
    return request.param


@pytest.fixture
def written(place, spark):
    """The ids in the output table, in order."""
    return lambda: sorted(row.message_id for row in spark.read.format("delta").load(place.table).collect())


@pytest.fixture
def stored(spark):
    """What Spark keeps, but for the state that Delta keeps of the tables that it met."""

    def stored():
        there = spark.sparkContext._jsc.getPersistentRDDs()
        return {number for number in there if not str(there[number].name()).startswith("Delta Table State")}

    return stored


@pytest.fixture
def catalog(spark, tmp_path):
    """A schema of the catalog, which is the session's current one."""
    spark.sql(f"CREATE SCHEMA written LOCATION '{tmp_path}/schema'")
    spark.sql("USE written")
    yield "written"
    spark.sql("USE default")
    spark.sql("DROP SCHEMA written CASCADE")


def test_a_name_is_a_table_of_the_catalog_and_no_folder(place, spark, catalog, tmp_path, monkeypatch):
    """An unqualified name was taken for a folder here, and the catalog's table stayed as it was."""
    monkeypatch.chdir(tmp_path)
    spark.sql("CREATE TABLE results (message_id STRING, length INT, by STRING) USING delta")
    place.queue.send(["a", "b"])
    for table in ("results", f"{catalog}.made"):
        claim = place.queue.receive()
        claim.write(rows_of(claim), table, messages="message_id")
        assert spark.table(table).count() == 1
    assert place.queue.counts().deleted == 2 and {e.name for e in tmp_path.iterdir()} == {"ledger", "schema"}


def test_what_is_no_delta_table_is_refused_and_left_alone(place, spark, catalog, tmp_path):
    spark.sql("CREATE TABLE plain (message_id STRING) USING parquet")
    spark.sql("CREATE VIEW seen AS SELECT 'x' AS message_id")
    spark.range(1).createOrReplaceTempView("passing")
    place.queue.send("a")
    claim = place.queue.receive()
    folder = tmp_path / "schema" / "plain"
    spark.sql("INSERT INTO plain VALUES ('x')")
    for table, why in (
        ("plain", "format parquet"), ("seen", "It is a view"), ("passing", "It is a view"),
        (str(folder), "no Delta table"), ("no-name", "Must be a path"), ("no name", "Must be a path"),
        ("delta.`/x`", "cannot use"),
    ):  # fmt: skip
        with pytest.raises(InvalidParameterValue, match=why) as refused:
            claim.write(claim.dataframe.select("message_id"), table)
        assert refused.value.field == "table"
    assert not (folder / "_delta_log").exists() and place.queue.counts().in_flight == 1
    spark.catalog.dropTempView("passing")


def test_what_the_table_refuses_is_said_and_the_claim_stays_as_it_was(place, spark, catalog):
    spark.sql("CREATE TABLE checked (message_id STRING, length INT, by STRING) USING delta")
    spark.sql("ALTER TABLE checked ADD CONSTRAINT short CHECK (length < 2)")
    spark.sql("CREATE TABLE numbered (n BIGINT GENERATED ALWAYS AS IDENTITY, message_id STRING) USING delta")
    place.queue.send(["too long", "a"])
    claim = place.queue.receive(None)
    for rows, table, why in (
        (rows_of(claim), "checked", "short"),
        (rows_of(claim).drop("length").withColumn("other", F.lit(1)), "checked", "the table has no column other"),
        (rows_of(claim).withColumn("by", F.array("by")), "checked", "column by is array<string>, and string in"),
        (claim.dataframe.selectExpr("message_id", "1L AS n"), "numbered", "(?i)identity|generated"),
    ):
        with pytest.raises(OutputNotWritten, match=why):
            claim.write(rows, table)
    assert claim.write(rows_of(claim).where("length < 2"), "checked", messages="message_id").messages == 1
    left = place.queue.claim(claim.receipt_id)
    assert left.write(left.dataframe.select("message_id"), "numbered").messages == 1
    assert spark.table("checked").count() == spark.table("numbered").count() == 1
    assert place.queue.counts().stored == 0


@pytest.mark.soak_variants("Spark*")
def test_rounds_through_one_folder_write_their_own_rows_and_leave_nothing_cached(
    place, spark, tmp_path, committer, written, stored
):
    """The first round's rows were served from Spark's cache to all that came after, and acknowledged for them."""
    staging, ids = tmp_path / "staging", []
    staging.mkdir()
    kept = spark.range(3).cache()
    kept.count()
    before = stored()
    for number in range(3):
        ids += place.queue.send([f"{number}"])
        claim = place.queue.receive()
        # Not by Spark: it would forget by itself what it keeps of a folder that it writes.
        pq.write_table(pa.table({"message_id": ids[-1:], "by": [claim.receipt_id]}), staging / "rows.parquet")
        rows = spark.read.schema("message_id STRING, by STRING").parquet(str(staging))
        claim.write(rows, place.table, messages="message_id")
        assert rows.first().message_id == ids[-1]
    assert written() == sorted(ids) and place.queue.counts().deleted == 3
    assert stored() == before and kept.storageLevel.useMemory
    kept.unpersist()


@pytest.mark.soak_variants("Spark*")
def test_a_frame_that_its_user_cached_and_wrote_stays_cached(place, committer, written, stored):
    place.queue.send(["a", "b"])
    claim = place.queue.receive(None)
    rows = rows_of(claim).cache()
    rows.count()
    before = stored()
    claim.write(rows, place.table)
    assert len(written()) == 2 and rows.storageLevel.useMemory and stored() == before
    rows.unpersist()


def test_one_evaluation_decides_what_is_written_and_what_is_acknowledged(place, committer, written):
    """A work that comes to other results each time: handles that were computed apart acknowledged what had no row."""
    ids = place.queue.send([f"{n}" for n in range(60)])
    claim = place.queue.receive(None)
    mostly = claim.dataframe.where(BY_CHANCE)
    done = mostly.select("message_id", F.lit("x").alias("by"))
    with pytest.raises(InvalidParameterValue, match=r"have no row|not in messages"):
        claim.write(done, place.table, messages=mostly)
    assert not (written() if committer == "Spark" else place.written()) and place.queue.counts().in_flight == 60
    count = claim.write(done, place.table, messages="message_id").messages
    held = [message.message_id for message in place.queue.claim(claim.receipt_id)]
    assert 0 < count == len(written()) < 60 and sorted(written() + held) == sorted(ids)
    rest = place.queue.claim(claim.receipt_id)
    assert rest.write(rest.dataframe.select("receipt_handle"), f"{place.table}-2", messages="receipt_handle").messages


@pytest.mark.soak_variants("Spark*")
def test_one_evaluation_decides_what_is_written_and_what_failed(place, committer, written):
    ids = place.queue.send([f"{n}" for n in range(60)])
    claim = place.queue.receive(None)
    reason = F.expr(f"CASE WHEN {BY_CHANCE} THEN NULL ELSE 'no good' END")
    settled = claim.write(rows_of(claim).withColumn("reason", reason), place.table, failed="reason")
    counts = place.queue.counts()
    assert settled.messages == counts.deleted == len(written()) > 0 and settled.failed == counts.visible > 0
    back = [message.message_id for message in place.queue.receive(None)]
    assert sorted(written() + back) == sorted(ids), "each has a row, or is given back"


@pytest.mark.parametrize("fencer", ["delta-rs", "spark"])
def test_no_fence_is_laid_over_a_write_that_landed(place, spark, fencer):
    """Between the look and the fence the write may land; Delta lets a DataFrame's later version pass."""
    engine, rows = place.another(engine=fencer).store.outputs.foreign, spark.range(1)
    rows.write.format("delta").save(place.table)
    assert engine.read_output_log(place.table, "ledger/x").committed is None
    writer = rows.write.format("delta").mode("append").option("txnAppId", "ledger/x")
    writer.option("txnVersion", output_doubts.WRITTEN).save(place.table)
    with pytest.raises(Conflict):
        engine.fence_output(place.table, "ledger/x", output_doubts.FENCED)
    assert engine.read_output_log(place.table, "ledger/x").committed == output_doubts.WRITTEN


def test_spark_decides_where_delta_rs_cannot_commit(place, spark, catalog, at_step):
    """A table with a feature that delta-rs does not write: without Spark its messages are left alone."""
    spark.sql("CREATE TABLE numbered (n BIGINT GENERATED ALWAYS AS IDENTITY, message_id STRING) USING delta")
    place.queue.send("a")
    claim = place.queue.receive()
    at_step("begun", crash)
    with pytest.raises(Crash):
        claim.write(claim.dataframe.select("message_id"), "numbered")
    place.clock.advance(31)
    with pytest.raises(OutputUnreadable, match="IdentityColumns"):
        place.another(spark=None).queue("work").receive()
    assert place.another().queue("work").receive().count == 1


@pytest.mark.parametrize("who", ["Spark", "delta-rs", "nobody but delta-rs"])
def test_a_table_that_forgets_transactions_is_refused(place, spark, catalog, who, tmp_path):
    """Two hours after a write that it remembers for one, the table said that there was none: its rows came twice."""
    properties = "'delta.setTransactionRetentionDuration' = 'interval 1 hour'"
    properties += ", 'delta.columnMapping.mode' = 'name'" if who == "Spark" else ""
    spark.sql(
        f"CREATE TABLE forgetful (message_id STRING, length INT, by STRING) USING delta TBLPROPERTIES ({properties})"
    )
    place.queue.send("a")
    claim = place.queue.receive()
    rows, table = rows_of(claim), "forgetful"
    if who == "nobody but delta-rs":
        table = str(tmp_path / "schema" / "forgetful")
        rows = pa.table({"message_id": [claim.messages()[0].message_id]})
    with pytest.raises(OutputNotWritten, match="UNSET TBLPROPERTIES"):
        claim.write(rows, table, messages="message_id")
    assert place.queue.counts().in_flight == 1 and spark.table("forgetful").count() == 0


def test_a_table_that_begins_to_forget_is_not_believed_that_it_has_no_write(place, at_step):
    """What it does not remember may be in it: the messages stay in doubt until it remembers again."""
    place.queue.send(["a", "b"])
    claim = place.queue.receive(None)
    DeltaTable.create(place.table, schema=pa.schema([("message_id", pa.string()), ("receipt_id", pa.string())]))
    at_step("written", crash)
    with pytest.raises(Crash):
        claim.write(arrow_rows(claim), place.table)
    forgets = {"delta.setTransactionRetentionDuration": "interval 1 second"}
    DeltaTable(place.table).alter.set_table_properties(forgets, raise_if_not_exists=False)
    time.sleep(1.1)
    place.clock.advance(31)
    for another in (place.another(spark=None), place.another()):
        with pytest.raises(OutputUnreadable, match="UNSET TBLPROPERTIES"):
            another.queue("work").receive(None)
    assert sum(place.written().values()) == 2
