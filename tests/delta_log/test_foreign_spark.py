"""What others do to a table through Spark: the client reads on as every reader does, or refuses."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pytest

from ledger.errors import StorageFailed
from tests.delta_log import by_hand as hand
from tests.delta_log.engines import ByClient
from tests.delta_log.readers import delta_rs, duckdb, require_same, spark_reader, told, told_of
from tests.delta_log.tables import THINGS, merge, opened, rows_of, thing
from tests.delta_log.test_foreign import IN_A, IN_ALL, ROWS, A, filled, require_goes_on

__all__ = ["filled"]


@pytest.fixture
def run(spark, location):
    """Runs a statement about the table T."""
    return lambda sql: spark.sql(re.sub(r"\bT\b", f"delta.`{location}`", sql))


def test_the_client_goes_on_behind_a_checkpoint_of_spark_s(filled, location, run):
    filled.load("things", IN_ALL)
    run("ALTER TABLE T SET TBLPROPERTIES ('delta.checkpointInterval'='2')")
    run("DELETE FROM T WHERE id = 0")
    (version,) = hand.checkpoints_of(location)
    left = [row for row in ROWS if row["id"]]
    assert version == 4 and require_same(location) == told_of(left)
    for old in range(version):
        hand.entry_path(location, old).unlink()
    for one in (filled, opened(Path(location).parent, THINGS)):
        assert told(one.load("things", IN_ALL).rows) == told_of(left)
        assert one.transaction_version("things", "app") == 2
    merge(filled, THINGS, IN_A, [("delete", left[0])])
    assert told(hand.rows_of(location)) == told(duckdb(location)) == told(delta_rs(location)) == told_of(left[1:])


@pytest.mark.soak
def test_the_client_goes_on_after_an_optimize_and_a_restore_of_spark_s(filled, location, run, spark):
    rows = require_goes_on(filled, location, ROWS)
    run("OPTIMIZE T")
    assert told(filled.load("things", IN_ALL).rows) == require_same(location) == told_of(rows)
    run("RESTORE TABLE T TO VERSION AS OF 2")
    require_goes_on(filled, location, ROWS, spark_reader(spark))


def test_a_shallow_clone_is_refused_as_one_and_its_source_stays_as_it_is(filled, location, spark, tmp_path):
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/clone` SHALLOW CLONE delta.`{location}`")
    clone = opened(tmp_path, THINGS, locations={"things": f"{tmp_path}/clone"})
    for verb in (
        lambda: clone.load("things", IN_ALL),
        lambda: merge(clone, THINGS, IN_A, [("delete", ROWS[0])]),
        lambda: clone.rows("things", IN_A, ["id"]),
    ):
        with pytest.raises(StorageFailed, match="is a shallow clone: its log names a file of another table"):
            verb()
    assert hand.versions_of(f"{tmp_path}/clone") == [0] and require_same(location) == told_of(ROWS)


@pytest.mark.soak
def test_spark_s_engine_commits_to_a_shallow_clone_and_not_to_its_source(filled, location, spark, tmp_path):
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/clone` SHALLOW CLONE delta.`{location}`")
    ByClient(THINGS, f"{tmp_path}/clone", spark).merge(IN_A, [("delete", ROWS[0])])
    assert told(spark_reader(spark)(f"{tmp_path}/clone")) == told_of(ROWS[1:])
    assert require_same(location) == told_of(ROWS)


@pytest.mark.soak
def test_a_folder_of_parquet_that_spark_converted_is_a_table(tmp_path, spark):
    location = f"{tmp_path}/things"
    columns = pa.schema([THINGS.schema.field(name) for name in THINGS.partitions])
    pads.write_dataset(
        rows_of(THINGS, ROWS), location, format="parquet", partitioning=pads.partitioning(columns, flavor="hive")
    )
    spark.sql(f"CONVERT TO DELTA parquet.`{location}` PARTITIONED BY (lot INT, place STRING)")
    require_goes_on(opened(tmp_path, THINGS), location, ROWS, spark_reader(spark))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("statements", "feature"),
    [
        (["ALTER TABLE T SET TBLPROPERTIES ('delta.checkpointPolicy'='v2')"], "v2Checkpoint"),
        (
            [
                "ALTER TABLE T SET TBLPROPERTIES ('delta.columnMapping.mode'='name')",
                "ALTER TABLE T RENAME COLUMN text TO words",
            ],
            "columnMapping",
        ),
        (
            ["ALTER TABLE T SET TBLPROPERTIES ('delta.enableDeletionVectors'='true')", "DELETE FROM T WHERE id = 0"],
            "deletionVectors",
        ),
        (["ALTER TABLE T SET TBLPROPERTIES ('delta.enableTypeWidening'='true')"], "typeWidening"),
        (["ALTER TABLE T SET TBLPROPERTIES ('delta.enableInCommitTimestamps'='true')"], "inCommitTimestamp"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_feature_of_spark_s_is_refused_by_its_name_or_read_as_spark_reads_it(
    filled, location, run, spark, statements, feature
):
    filled.load("things", IN_ALL)
    for one in statements:
        run(one)
    before, there = hand.versions_of(location)[-1], told(spark_reader(spark)(location))
    for one in (filled, opened(Path(location).parent, THINGS)):
        with pytest.raises(StorageFailed, match=f"gave the table things .*{feature}"):
            merge(one, THINGS, IN_A, [("insert", {**A, **thing(70)})])
    assert hand.versions_of(location)[-1] == before
    assert told(spark_reader(spark)(location)) == there
