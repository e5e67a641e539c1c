"""Opening a ledger: what is made, what is refused and with which advice, and that it costs no JVM without Spark."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ledger import Ledger
from ledger.errors import InvalidParameterValue, LedgerDoesNotExist, LedgerTooNew, SparkIsNeeded, UnsafeStorage
from ledger.outputs.targets import place_of
from ledger.settings import Settings
from ledger.store.delta.commit.locks import TableLock
from ledger.store.delta.commit.storage_safety import require_safe_output
from ledger.store.delta.model.tables import TABLES

WITHOUT_SPARK = """
import sys
from ledger import Ledger

ledger = Ledger.open(sys.argv[1])
queue = ledger.create_queue("jobs")
queue.send(["a", "b"])
claim = queue.receive(2)
claim.extend(60)
claim.delete()
ledger.fill_receipts()
ledger.upkeep()
print(sorted(name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j", "delta")))
"""
#: Long enough for a ledger to be opened, on a busy machine, in seconds.
SOON = 20.0


def versions(root):
    return {name: DeltaTable(f"{root}/{name}").version() for name in TABLES}


def test_opening_anew_makes_the_four_tables(tmp_path):
    root = tmp_path / "not" / "there yet"
    Ledger.open(str(root))
    for name, table in TABLES.items():
        made = DeltaTable(str(root / name))
        assert made.metadata().description == table.description
        assert made.metadata().partition_columns == list(table.partitions)
        assert [field.name for field in made.schema().fields] == table.schema.names


def test_opening_an_existing_ledger_finds_what_is_there_and_commits_nothing(root, clock):
    Ledger.open(root, clock=clock).create_queue("jobs").send(["a", "b"])
    before = versions(root)
    again = Ledger.open(root, clock=clock)
    assert versions(root) == before
    assert [message.body for message in again.queue("jobs").receive(2)] == ["a", "b"]


def test_one_root_under_several_names_is_one_ledger_with_one_set_of_locks(tmp_path, monkeypatch):
    """A lock file of another folder would keep nobody out."""
    folder = tmp_path / "with space"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    names = [
        str(folder),
        "with space",
        f"{folder}/",
        "~/with space",
        folder.as_uri(),
        folder.as_uri().replace("file://", "file:"),
        folder.as_uri().replace("file://", "file://localhost"),
        f"{tmp_path}/x/../with space",
    ]
    for number, name in enumerate(names):
        Ledger.open(name).create_queue(f"queue-{number}")
    assert len(Ledger.open(str(folder)).list_queues()) == len(names)
    assert [entry.name for entry in tmp_path.iterdir()] == ["with space"]
    assert {entry.name for entry in folder.iterdir()} == {*TABLES, "_locks"}


def test_opening_an_existing_ledger_waits_for_nobody(root):
    """One process that stood still inside a verb held up whoever opened the ledger; and who did, everybody else."""
    locks, opened = [TableLock(Path(root) / "_locks", name) for name in TABLES], []
    with contextlib.ExitStack() as held:
        for lock in locks:
            held.enter_context(lock.shared())
        threading.Thread(target=lambda: opened.append(Ledger.open(root)), daemon=True).start()
        deadline = time.monotonic() + SOON
        while not opened and time.monotonic() < deadline:
            time.sleep(0.01)
        assert opened


def test_a_table_that_is_missing_is_made_by_one_alone(root):
    shutil.rmtree(f"{root}/queues")
    opened = []
    opening = threading.Thread(target=lambda: opened.append(Ledger.open(root)))
    with TableLock(Path(root) / "_locks", "queues").shared():
        opening.start()
        opening.join(0.3)
        assert not opened and not DeltaTable.is_deltatable(f"{root}/queues")
    opening.join(SOON)
    assert opened and opened[0].list_queues() == []


@pytest.mark.parametrize("below", ["", "/ledger"])
def test_a_root_that_is_a_file_is_refused_by_its_name_and_left_alone(tmp_path, below):
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(InvalidParameterValue, match=r"notes\.txt.*parameter root.*Not a directory.*folder") as refused:
        Ledger.open(f"{file}{below}")
    assert refused.value.field == "root"
    assert file.read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that not even root can write")
def test_a_root_that_cannot_be_written_is_refused_by_its_name():
    with pytest.raises(InvalidParameterValue, match=r"/proc/ledger.*parameter root.*folder"):
        Ledger.open("/proc/ledger")


def test_a_root_that_leads_to_a_place_that_the_engines_cannot_use_is_refused_and_nothing_is_made(tmp_path):
    """delta-rs followed the link, and made the tables of half a ledger in a folder of another name."""
    there, link = tmp_path / "a%20b", tmp_path / "link"
    there.mkdir()
    link.symlink_to(there)
    with pytest.raises(InvalidParameterValue, match="'%20'"):
        Ledger.open(str(link))
    assert not list(there.iterdir()) and sorted(tmp_path.iterdir()) == [there, link]


def test_an_empty_root_is_refused_rather_than_taken_for_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidParameterValue, match="parameter root"):
        Ledger.open("")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_a_later_format_is_refused_and_left_alone(root, table):
    DeltaTable(f"{root}/{table}").alter.set_table_description("ledger format 9")
    before = versions(root)
    with pytest.raises(LedgerTooNew, match=rf"{table} needs .* format 9,.*up to {TABLES[table].format}\. Upgrade"):
        Ledger.open(root)
    assert versions(root) == before


def test_spark_refuses_a_table_of_a_later_format_as_well(root, spark):
    DeltaTable(f"{root}/visibility").alter.set_table_description("ledger format 9")
    with pytest.raises(LedgerTooNew, match="visibility needs a release that knows format 9"):
        Ledger.open(root, spark, "spark")


class Session:
    """As much of a Spark session as the checks of its version and of the storage look at."""

    version = "4.2.0"

    def __init__(self, **log_stores):
        self._settings = {f"spark.delta.logStore.{scheme}.impl": store for scheme, store in log_stores.items()}
        self.conf = self

    def get(self, name, default=None):
        return self._settings.get(name, default)


DYNAMO = "io.delta.storage.S3DynamoDBLogStore"


@pytest.mark.parametrize("session", [Session(), Session(s3=DYNAMO, s3a=DYNAMO)], ids=["no log store", "DynamoDB"])
@pytest.mark.parametrize("one_driver", [False, True])
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_on_s3_spark_does_not_commit_whatever_lock_it_has(scheme, one_driver, session):
    """delta-rs takes part in none of Spark's locks."""
    with pytest.raises(UnsafeStorage, match=r'only delta-rs may commit to a ledger on S3\. Leave out engine="spark"'):
        Ledger.open(f"{scheme}://bucket/ledger", session, "spark", settings=Settings(single_driver=one_driver))


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_on_s3_without_a_session_spark_is_refused_and_no_session_is_asked_for(scheme):
    """It would be refused with one."""
    with pytest.raises(UnsafeStorage, match=r'only delta-rs may commit to a ledger on S3\. Leave out engine="spark"'):
        Ledger.open(f"{scheme}://bucket/ledger", engine="spark")


@pytest.mark.parametrize("value", [None, b"secret", ["secret"]])
def test_an_option_of_the_storage_that_is_no_text_is_refused_by_its_name_and_not_shown(tmp_path, value):
    for root in (str(tmp_path / "ledger"), "s3://bucket/ledger"):
        with pytest.raises(InvalidParameterValue, match=r"aws_session_token.*storage_options.*leave it out") as refused:
            Ledger.open(root, storage_options={"aws_session_token": value})
        assert "secret" not in str(refused.value)
    assert not any(tmp_path.iterdir())


def test_the_name_of_s3_that_is_gone_is_refused_with_the_one_that_is_there():
    with pytest.raises(InvalidParameterValue, match=r"s3n: has gone .* Write s3a://"):
        Ledger.open("s3n://bucket/ledger")


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_an_output_table_on_s3_that_spark_commits_to_needs_a_single_driver(scheme):
    """Spark writes there without a condition, and delta-rs, which fences off what is in doubt, keeps no lock."""
    place = place_of(f"{scheme}://bucket/done", None).text
    with pytest.raises(UnsafeStorage, match="single_driver=True"):
        require_safe_output(place, Settings(), "Spark has to commit")
    require_safe_output(place, Settings(single_driver=True), "")
    require_safe_output("/done", Settings(), "")


@pytest.mark.parametrize("spark, engine", [(None, "auto"), (None, "delta-rs"), (Session(), "delta-rs")])
@pytest.mark.parametrize("root", ["hdfs://namenode/ledger", "hdfs:/x/y", "dbfs:/mnt/x"])
def test_what_only_spark_can_commit_to_is_refused_without_it_and_is_no_local_folder(tmp_path, root, spark, engine):
    with pytest.raises(SparkIsNeeded, match=rf"{root.partition(':')[0]}.*spark=spark"):
        Ledger.open(root, spark, engine)


@pytest.mark.parametrize(
    "root", ["s3a:/bucket/x", "s3a:bucket", "gs:///x", "file://server/x", "schema:a b", "~nobody/x"]
)
def test_a_root_that_could_mean_two_places_is_refused_and_nothing_is_made(tmp_path, monkeypatch, root):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidParameterValue, match="parameter root"):
        Ledger.open(root, Session())
    assert not any(tmp_path.iterdir())


def test_a_scheme_that_nobody_knows_is_named_with_those_that_are(spark):
    known = r"parameter root.*foo: is no storage that is known here.*Known are paths and abfs, .*hdfs"
    for session, engine in ((None, "auto"), (spark, "delta-rs")):
        with pytest.raises(InvalidParameterValue, match=known):
            Ledger.open("foo://bucket/ledger", session, engine)
    for create in (True, False):
        with pytest.raises(InvalidParameterValue, match=r'Spark says: .*No FileSystem for scheme "foo"'):
            Ledger.open("foo://bucket/ledger", spark, create=create)
    with pytest.raises(SparkIsNeeded, match="Only Spark commits to hdfs"):
        Ledger.open("hdfs://name/ledger")


@pytest.mark.parametrize("engine", ["Spark", "delta_rs", "duckdb"])
def test_an_engine_that_does_not_exist_is_refused_with_those_that_do(root, engine):
    for bad in (lambda: Ledger.open(root, engine=engine), lambda: Settings(engine=engine)):
        with pytest.raises(InvalidParameterValue, match=rf"'{engine}' for parameter engine.*auto, spark, delta-rs"):
            bad()


def test_what_needs_spark_says_how_to_give_it(root):
    for need in (lambda: Ledger.open(root, engine="spark"), lambda: Ledger.open("schema:ops")):
        with pytest.raises(SparkIsNeeded, match="spark=spark"):
            need()


def test_a_schema_of_the_catalog_is_a_ledger_that_its_folder_opens_as_well(spark, tmp_path, clock):
    folder = tmp_path / "with space"
    spark.sql(f"CREATE SCHEMA test_opening LOCATION '{folder}'")
    try:
        Ledger.open("schema:test_opening", spark, clock=clock).create_queue("jobs").send("a")
        assert Ledger.open(str(folder), clock=clock).queue("jobs").receive().count == 1
        assert spark.table("test_opening.messages").select("body").first().body == "a"
        assert {entry.name for entry in folder.iterdir()} == {*TABLES, "_locks"}
    finally:
        spark.sql("DROP SCHEMA test_opening CASCADE")


def test_without_spark_no_verb_starts_a_jvm_or_needs_java(tmp_path):
    environment = {**os.environ, "JAVA_HOME": str(tmp_path / "no java"), "PATH": str(tmp_path)}
    command = [sys.executable, "-c", WITHOUT_SPARK, str(tmp_path / "ledger")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[]\n", "")


def everything_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


NO_LEDGER = {
    "nothing": (lambda root: None, "there is nothing"),
    "an empty folder": (lambda root: root.mkdir(), "the folder is empty"),
    "a folder of something else": (
        lambda root: (root / "queues" / "notes").mkdir(parents=True),
        "the folder holds other things",
    ),
    "a file": (lambda root: root.write_text("mine"), "it is a file"),
    "a half-made ledger": (
        lambda root: (Ledger.open(str(root)), shutil.rmtree(root / "tasks"), shutil.rmtree(root / "_locks")),
        "it has tables of a ledger, but not tasks",
    ),
}


@pytest.mark.parametrize("there", NO_LEDGER)
def test_what_must_not_be_made_is_refused_by_its_root_and_left_as_it_is(tmp_path, there):
    """A root with a typing error must not become a new, empty ledger."""
    root = tmp_path / "ledgr"
    make, says = NO_LEDGER[there]
    make(root)
    before = everything_below(tmp_path)
    with pytest.raises(LedgerDoesNotExist, match=rf"no ledger at .*ledgr: {says}.*mistyped.*queues create"):
        Ledger.open(str(root), create=False)
    assert everything_below(tmp_path) == before


def test_a_ledger_that_is_there_is_opened_without_making_one(root, clock):
    Ledger.open(root, clock=clock).create_queue("jobs")
    before = versions(root)
    assert [queue.name for queue in Ledger.open(root, create=False, clock=clock).list_queues()] == ["jobs"]
    assert versions(root) == before


def test_through_spark_nothing_is_made_either(tmp_path, spark):
    with pytest.raises(LedgerDoesNotExist, match="there is nothing"):
        Ledger.open(str(tmp_path / "ledgr"), spark, "spark", create=False)
    assert everything_below(tmp_path) == []
    with pytest.raises(LedgerDoesNotExist, match="schema:ledgr: the catalog has no such schema"):
        Ledger.open("schema:ledgr", spark, create=False)
    with pytest.raises(LedgerDoesNotExist, match="schema:ledgr: the catalog has no such schema"):
        Ledger.open("schema:ledgr", spark, read_only=True)
    spark.sql(f"CREATE SCHEMA ledgr LOCATION '{tmp_path}'")
    try:
        with pytest.raises(LedgerDoesNotExist, match="the schema has no queues, messages"):
            Ledger.open("schema:ledgr", spark, create=False)
        with pytest.raises(LedgerDoesNotExist, match="the schema has no queues, messages"):
            Ledger.open("schema:ledgr", spark, read_only=True)
        # SHOW TABLES lists temporary views of the session in every schema.
        assert spark.sql("SHOW TABLES IN ledgr").where("NOT isTemporary").count() == 0
    finally:
        spark.sql("DROP SCHEMA ledgr")


@pytest.mark.parametrize(
    ("field", "given"), [("root", None), ("root", 5), ("settings", "conf/ledger.toml"), ("settings", {}), ("owner", 5)]
)
def test_what_is_nothing_that_a_ledger_is_opened_by_is_refused(tmp_path, monkeypatch, field, given):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidParameterValue, match=f"parameter {field} "):
        Ledger.open(**{"root": "mine", field: given})
    assert not list(tmp_path.iterdir())
