"""The table that a write names: one place however it is spelled, refused when it is none, and said when it fails."""

import re
import resource
import secrets
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ledger.delta_log.protocol import reason
from ledger.errors import InvalidParameterValue, LeaseLost, OutputNotWritten, SparkIsNeeded
from tests.output.conftest import rows_of


def test_one_table_under_several_names_is_one_table(place, tmp_path, monkeypatch):
    """They meant one place for Ledger.open, and others here."""
    folder = tmp_path / "home" / "a b"
    folder.parent.mkdir()
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("HOME", str(folder.parent))
    uri = folder.as_uri()
    names = [
        str(folder), f"{folder}/", folder, "~/a b", "./a b", "x/../a b", uri, uri.replace("///", "/"),
        uri.replace("///", "//localhost/"), Path("a b"),
    ]  # fmt: skip
    for name in names:
        place.queue.send("a")
        claim = place.queue.receive()
        claim.write(rows_of(claim), name)
        assert claim.write(rows_of(claim), str(folder)).messages == 1, "the same write again, by another name"
    assert DeltaTable(str(folder)).to_pyarrow_table().num_rows == len(names)
    assert [entry.name for entry in folder.parent.iterdir()] == [folder.name]


def test_what_is_no_table_of_this_machine_is_refused_and_nothing_is_made(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    place.queue.send("a")
    claim, before = place.queue.receive(), sorted(tmp_path.rglob("*"))
    for table, error, why in (
        ("results", SparkIsNeeded, r"\./results"), ("a.b", SparkIsNeeded, "a table of Spark's catalog"),
        ("my-results", InvalidParameterValue, r"\./NAME"), ("~", InvalidParameterValue, "Must be a path"),
        ("s3a:/b", InvalidParameterValue, "says no bucket"), ("file://server/x", InvalidParameterValue, "machine"),
        ("./notes", InvalidParameterValue, r"'mine\.txt'"), ("./file", InvalidParameterValue, "no folder"),
        ("./file/x", InvalidParameterValue, "no folder"), ("/a[1]/x", InvalidParameterValue, "cannot use"),
        (None, InvalidParameterValue, "Must be a path"), (7, InvalidParameterValue, "Must be a path"),
    ):  # fmt: skip
        with pytest.raises(error, match=why):
            claim.write(rows_of(claim), table)
    assert sorted(tmp_path.rglob("*")) == before and place.queue.counts().in_flight == 1


def test_another_storage_than_delta_rs_knows_is_no_local_folder(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place.queue.send("a")
    claim = place.queue.receive()
    for table, error, why in (
        ("dbfs:/mnt/x", SparkIsNeeded, "Only Spark writes to dbfs:"), ("hdfs://name/x", SparkIsNeeded, "hdfs:"),
        ("foo://bucket/x", InvalidParameterValue, "foo: is no storage that is known here.*Known are paths and abfs"),
    ):  # fmt: skip
        with pytest.raises(error, match=why):
            claim.write(rows_of(claim), table)
    assert [entry.name for entry in tmp_path.iterdir()] == ["ledger"] and place.queue.counts().in_flight == 1


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that not even root can write")
def test_a_folder_that_cannot_be_written_is_named(place):
    place.queue.send("a")
    claim = place.queue.receive()
    with pytest.raises(OutputNotWritten, match="/proc/output"):
        claim.write(rows_of(claim), "/proc/output")
    assert claim.write(rows_of(claim), place.table).messages == 1


def test_a_full_disk_is_said_and_the_claim_can_be_written_again(place, at_step):
    ids = place.queue.send(["a", "b"])
    claim = place.queue.receive(None)
    large = rows_of(claim).append_column("text", [[secrets.token_hex(200_000)] * 2])
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    at_step("begun", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, unlimited[1])))
    at_steps = place.ledger.store.transactions.on_step

    def and_there_is_room_again(step):
        at_steps(step)
        if step == "written":
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)

    place.ledger.store.transactions.on_step = and_there_is_room_again
    try:
        with pytest.raises(OutputNotWritten, match=place.table):
            claim.write(large, place.table)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert not place.written() and place.queue.counts().in_flight == 2
    assert claim.write(large, place.table).messages == 2 and place.written() == dict.fromkeys(ids, 1)


def test_a_damaged_log_is_said_before_anything_has_begun(place):
    place.queue.send(["a", "b"])
    claim = place.queue.receive(1)
    claim.write(rows_of(claim), place.table)
    for entry in place.log.glob("*.json"):
        entry.write_text("{ this was a commit")
    other = place.queue.receive()
    with pytest.raises(OutputNotWritten, match=place.table):
        other.write(rows_of(other), place.table)
    assert other.write(rows_of(other), f"{place.table}-2").messages == 1, "nothing was begun, so nothing is in doubt"


def test_what_the_table_refuses_leaves_nothing_in_doubt(place):
    place.queue.send(["a", "b"])
    DeltaTable.create(place.table, pa.schema([("message_id", pa.string())]))
    DeltaTable(place.table).alter.add_constraint({"known": "message_id <> 'x'"})
    claim = place.queue.receive(None)
    handles = [m.receipt_handle for m in claim]
    for rows, why in (
        (pa.table({"message_id": ["x"]}), "breaks the table's constraint known"),
        (pa.table({"other": [1]}), r"the table has no column other \(bigint\): .* schema=\"widen\""),
        (pa.table({"Message_ID": [[1, 2]]}), "column Message_ID is array<bigint>, and string in the table"),
    ):
        with pytest.raises(OutputNotWritten, match=place.table) as refused:
            claim.write(rows, place.table, messages=handles)
        assert re.search(why, str(refused.value)), refused.value
    place.clock.advance(31)
    assert place.queue.receive(None).count == 2 and not place.written()
    with pytest.raises(LeaseLost):
        claim.write(rows_of(claim).select(["message_id"]), place.table)


def test_the_ledgers_own_tables_take_no_output(place):
    place.queue.send("a")
    claim = place.queue.receive()
    for table in ("messages", "visibility", "receipts/below"):
        with pytest.raises(InvalidParameterValue, match="ledger's own"):
            claim.write(rows_of(claim), f"{place.root}/{table}")
    assert claim.write(rows_of(claim), f"{place.root}/results").messages == 1


def test_an_error_of_sparks_says_what_caused_it_first():
    told = """An error occurred while calling o1.save.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.sql.X
Caused by: java.io.IOException: no connection
\tat org.apache.hadoop.Y
Caused by: software.amazon.awssdk.S3Exception: Access Denied
"""
    said = reason(Exception(told))
    assert said.startswith("org.apache.spark.SparkException: Job aborted.") and said.endswith(
        "S3Exception: Access Denied)"
    )
    assert reason(Exception("all in a line")) == "Exception: all in a line"
