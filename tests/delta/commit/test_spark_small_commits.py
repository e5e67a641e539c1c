"""Small commits where Spark is all there is: written out, through Hadoop and Delta's LogStore, and no job runs."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ledger import Ledger
from ledger.delta_log import data_files, log, spark_replay
from ledger.delta_log.protocol import Conflict
from ledger.delta_log.spark_replay import HadoopFiles
from ledger.delta_log.spark_sessions import create_table
from ledger.store.delta.model.tables import TABLES
from tests.delta.commit.test_engines import CHANGED, HELD, Decision, recorded
from tests.delta.commit.test_merging import operation, table_of


@pytest.fixture
def through_hadoop(monkeypatch):
    """As on storage that only Spark reaches."""
    monkeypatch.setattr(spark_replay, "files_at", HadoopFiles)


@pytest.fixture
def jobs(spark):
    """How many jobs the session has run."""
    store = spark.sparkContext._jsc.sc().statusStore()

    def count():
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        return store.jobsList(None).size()

    return count


def test_a_file_is_made_read_and_removed_and_an_entry_of_the_log_only_where_there_is_none(spark, tmp_path):
    create_table(spark, f"delta.`{tmp_path}/table`", TABLES["tasks"])
    files = HadoopFiles(f"{tmp_path}/table", lambda: spark)
    files.write({"a b/x": b"one\ntwo", "y": b""})
    assert (files.read("a b/x"), files.read("y"), files.read("z")) == (b"one\ntwo", b"", None)
    assert files.has("a b/x") and not files.has("z")
    files.remove("y")
    files.remove("z")
    assert not files.has("y")
    entry = "_delta_log/00000000000000000001.json"
    content = '{"commitInfo":{"operation":"first ü"}}\n{"txn":{"appId":"a","version":1}}'.encode()
    assert files.put_new(entry, content) and not files.put_new(entry, b"{}")
    # Line by line: a LogStore ends the last one, too.
    assert files.read(entry).strip() == content
    with pytest.raises(FileNotFoundError):
        files.open("z")
    files.write({"rows": data_files.encode_parquet(pa.table({"a": [1]}), [])})
    assert files.open("rows").read().to_pylist() == [{"a": 1}]


def test_as_on_hdfs_an_entry_is_synced_before_it_has_its_name_and_made_only_where_there_is_none(
    spark, tmp_path, monkeypatch
):
    """By Hadoop's file system of this machine; tests/power/test_hdfs.py has a name node."""
    monkeypatch.setattr(HadoopFiles, "_is_hdfs", lambda files: True)
    create_table(spark, f"delta.`{tmp_path}/table`", TABLES["tasks"])
    files, entry = HadoopFiles(f"{tmp_path}/table", lambda: spark), "_delta_log/00000000000000000001.json"
    assert files.put_new(entry, b'{"commitInfo":{}}\n') and not files.put_new(entry, b"{}")
    assert files.read(entry) == b'{"commitInfo":{}}\n'
    assert [name for name in (tmp_path / "table" / "_delta_log").iterdir() if name.suffix == ".tmp"] == []


def test_spark_commits_what_is_small_without_a_job(engine_of, root, through_hadoop, jobs):
    engine, other = engine_of("spark"), engine_of("delta-rs")
    Decision(engine).commit()
    before = jobs()
    for record in (CHANGED, HELD, CHANGED):
        Decision(engine, record, 5, 9).commit({"operation": "", "verb": "extend"})
    assert recorded(engine) == recorded(other) == [(0, 4, HELD.visible_at), (5, 9, CHANGED.visible_at)]
    assert jobs() == before and operation(root) == "written out"
    assert [commit.metadata for commit in other.history("visibility", 1)] == [{"operation": "", "verb": "extend"}] * 3


def test_who_comes_second_through_hadoop_changes_nothing(engine_of, through_hadoop):
    one, other = engine_of("spark"), engine_of("spark")
    Decision(one).commit()
    late = Decision(one, CHANGED)
    Decision(other, CHANGED, 0, 4).commit()
    with pytest.raises(Conflict):
        late.commit()
    assert recorded(one) == [(0, 4, CHANGED.visible_at), (5, 9, HELD.visible_at)]


def test_spark_sums_up_its_log(engine_of, root, through_hadoop, monkeypatch):
    engine = engine_of("spark")
    Decision(engine).commit()
    monkeypatch.setattr(log, "is_due", lambda stored, version: version == 50)
    for n in range(50 - engine.version("visibility")):
        Decision(engine, (CHANGED, HELD)[n % 2], 5, 9).commit()
    found = [path.name for path in Path(root, "visibility", "_delta_log").glob("*.checkpoint*.parquet")]
    assert found and all(name.startswith(f"{50:020d}") for name in found)
    assert table_of(root).version() == 50 and len(recorded(engine)) == len(recorded(engine_of("delta-rs")))


def test_an_answer_of_the_log_that_was_lost_is_found_in_it(engine_of, through_hadoop, monkeypatch):
    engine, put_new = engine_of("spark"), HadoopFiles.put_new
    Decision(engine).commit()
    monkeypatch.setattr(HadoopFiles, "put_new", lambda *arguments: put_new(*arguments) and False)
    version = engine.version("visibility")
    assert Decision(engine, CHANGED).commit() == version + 1 == engine.version("visibility")


def test_verbs_through_hadoop_do_what_they_say(spark, tmp_path, through_hadoop):
    queue = Ledger.open(str(tmp_path / "ledger"), spark, engine="spark").create_queue("work", {"Lanes": 2})
    queue.send(["a", "b", "c", "d"])
    claim, rest = queue.receive(2, 60), queue.receive(None, 60)
    claim.delete()
    rest.extend(600)
    rest.release()
    assert (queue.counts().deleted, queue.counts().visible) == (2, 2)
    assert queue.restore(claim.receipt_id) == 2 and queue.counts().visible == 4
    assert DeltaTable(str(tmp_path / "ledger" / "visibility")).protocol().min_writer_version == 2
