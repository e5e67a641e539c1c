"""Rows on an object store: small files in one request, and once; large ones by what is needed of them."""

import pytest
from pyarrow import compute as pc

from ledger import Ledger
from ledger.delta_log import storage
from ledger.store.delta.model.tables import Where


@pytest.fixture
def ledger(s3, place):
    return Ledger.open(place, storage_options=s3.options, engine="delta-rs")


@pytest.fixture
def queue(ledger):
    queue = ledger.create_queue("jobs", {"Lanes": 2})
    queue.send([f"message {n}" for n in range(20)])
    return queue


def reads_of(s3, since, kind=".parquet"):
    return [one for one in s3.requests()[since:] if one.method == "GET" and one.path.endswith(kind)]


@pytest.mark.parametrize("small", [storage.SMALL, 100], ids=["small files", "large files"])
def test_rows_are_those_that_were_written(queue, ledger, small, monkeypatch):
    monkeypatch.setattr(storage, "SMALL", small)
    claim = queue.receive(12)
    assert {message.body for message in claim} <= {f"message {n}" for n in range(20)} and len(claim) == 12
    engine = ledger.store.engine
    everything = engine.messages(Where(), ["segment", "seq", "body", "queue"])
    assert sorted(everything["body"].to_pylist()) == sorted(f"message {n}" for n in range(20))
    some = engine.messages(Where(), ["body"], first_seq=3, last_seq=5)
    assert some.column_names == ["body"] and 0 < some.num_rows <= 6
    assert engine.messages(Where("nobody-00000000"), ["body"]).num_rows == 0
    heads = engine.load("visibility", Where()).rows
    assert heads.filter(pc.equal(heads["segment"], ""))["revision"].to_pylist() == [1] * len(
        set(heads["lane"].to_pylist())
    )


def test_a_small_file_is_read_once_and_what_was_written_here_not_at_all(queue, s3):
    claim = queue.receive(5)
    since = len(s3.requests())
    claim.extend(60)
    queue.counts()
    assert reads_of(s3, since) == [], "this process wrote it"


def test_another_process_reads_each_file_once(queue, s3, place):
    queue.receive(5)
    other = Ledger.open(place, storage_options=s3.options, engine="delta-rs").queue("jobs")
    since = len(s3.requests())
    for _ in range(3):
        other.counts()
    paths = [one.path for one in reads_of(s3, since)]
    assert paths and len(paths) == len(set(paths))


def test_looking_for_nothing_new_takes_one_request_a_table(queue, s3):
    queue.counts()
    since = len(s3.requests())
    queue.counts()
    asked = s3.requests()[since:]
    assert len(asked) <= 4 and {one.method for one in asked} <= {"HEAD", "GET"}


def test_where_a_log_ends_is_one_request_for_each_table_whatever_others_committed(queue, ledger, s3, place):
    other = Ledger.open(place, storage_options=s3.options, engine="delta-rs")
    tables = ["messages", "queues"]
    before = ledger.store.engine.newest_versions(tables)
    for number in range(12):
        other.queue("jobs").send(f"later {number}")
    since = len(s3.requests())
    found = ledger.store.engine.newest_versions(tables)
    asked = s3.requests()[since:]
    assert found == {**before, "messages": before["messages"] + 12}
    assert found == {table: other.store.engine.version(table) for table in tables}
    assert len(asked) == 2 and all("start-after" in one.query for one in asked)
