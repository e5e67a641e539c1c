"""claim.write of DataFrames: the same, with Spark's commits in the output table."""

import pytest
from pyspark.sql import functions as F

from ledger.errors import InvalidParameterValue, LeaseLost
from tests.clock import FrozenClock
from tests.output.conftest import Place


@pytest.fixture
def place(tmp_path, spark):
    return Place(tmp_path, FrozenClock(), spark=spark)


def rows_of(claim):
    return claim.dataframe.select("message_id", F.length("body").alias("length"), F.lit(claim.receipt_id).alias("by"))


def test_a_dataframe_is_written_and_its_messages_deleted_and_a_retry_does_nothing(place):
    ids = place.queue.send([f"{n}" for n in range(20)])
    claim = place.queue.receive(None)
    assert claim.write(rows_of(claim), place.table).messages == 20
    assert claim.write(rows_of(claim), place.table).messages == 20
    assert place.written() == dict.fromkeys(ids, 1) and place.queue.counts().deleted == 20


def test_a_part_is_named_by_a_dataframe_of_handles(place):
    place.queue.send([f"{n}" for n in range(10)])
    claim = place.queue.receive(None)
    even = claim.dataframe.where("CAST(body AS INT) % 2 = 0")
    assert claim.write(even.select("message_id"), place.table, messages=even).messages == 5
    assert sum(place.written().values()) == 5 and place.queue.counts().in_flight == 5


@pytest.mark.parametrize("claimed", [True, False], ids=["held", "held no more"])
def test_a_streaming_dataframe_is_refused_at_once(place, spark, claimed):
    place.queue.send(["a"])
    claim = place.queue.receive(None)
    stream = spark.readStream.format("rate").load().selectExpr("'x' AS message_id")
    if not claimed:
        claim.release()
        claim = place.queue.claim(claim.receipt_id)
    with pytest.raises(
        InvalidParameterValue, match=r"streaming.*parameter rows.*foreachBatch.*claim\.write\(batch, table\)"
    ):
        claim.write(stream, place.table)
    assert place.queue.counts().in_flight == int(claimed) and not place.written()


@pytest.mark.soak_variants("spark*")
@pytest.mark.parametrize("taker", ["delta-rs", "spark"])
def test_spark_does_not_write_what_another_engine_has_fenced_off(place, at_step, taker):
    ids = place.queue.send(["a", "b"])
    slow, takers = place.queue.receive(None), []

    def taken_over():
        place.clock.advance(31)
        takers.append(place.another(engine=taker).queue("work").receive(None))

    at_step("begun", taken_over)
    with pytest.raises(LeaseLost):
        slow.write(rows_of(slow), place.table)
    assert takers[0].count == 2 and not place.written()
    takers[0].write(rows_of(takers[0]), place.table)
    assert place.written() == dict.fromkeys(ids, 1)


def test_a_table_of_the_catalog_is_written_too(place, spark, tmp_path):
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS written LOCATION '{tmp_path}/schema'")
    try:
        place.queue.send(["a", "b"])
        claim = place.queue.receive(None)
        claim.write(rows_of(claim), "written.output")
        assert spark.table("written.output").count() == 2 and place.queue.counts().deleted == 2
    finally:
        spark.sql("DROP SCHEMA written CASCADE")


#: As tests/output/test_failed.py has them: two values that are reasons, and null.
REASONS = {
    "texts": ("''", "' '"),
    "numbers": ("0", "1"),
    "floats": ("double('NaN')", "0.0D"),
    "booleans": ("false", "true"),
    "lists": ("array()", "array('a')"),
}


@pytest.mark.soak_variants("numbers", "floats", "lists")
@pytest.mark.parametrize(("one", "other"), REASONS.values(), ids=REASONS)
def test_every_value_but_null_is_a_reason(place, one, other):
    ids = place.queue.send(["0", "1", "2"])
    claim = place.queue.receive(None)
    rows = claim.dataframe.selectExpr(
        "message_id", f"CASE body WHEN '0' THEN {one} WHEN '1' THEN {other} END AS reason", "body"
    )
    settled = claim.write(rows, place.table, failed="reason")
    assert (settled.messages, settled.failed) == (1, 2) and place.written() == {ids[2]: 1}
