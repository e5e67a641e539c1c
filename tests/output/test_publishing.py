"""Files are published right behind the version of a table that was looked at, with the statistics of whoever wrote
them: what others commit in between is looked at, too."""

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from ledger.delta_log.protocol import Conflict
from ledger.delta_log.storage import HeldLog
from ledger.errors import StorageFailed
from ledger.output_tables import publishing as output_publishing
from ledger.output_tables.files_aside import staged_file
from ledger.output_tables.publishing import DeltaRsOutputs
from ledger.rules.publishable import FOLDER

WRITE = "019a00000000-0123456789abcdef"
PUBLISHING = DeltaRsOutputs(None)


@pytest.fixture
def table(tmp_path):
    place = str(tmp_path / "output")
    write_deltalake(place, pa.table({"message_id": ["theirs"]}))
    return place


def staged(table, rows, statistics):
    """The file of a write, as if Spark had written it with these statistics."""
    folder = Path(table, FOLDER, WRITE)
    write_deltalake(str(folder), rows)
    log = (folder / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    (add,) = [entry["add"] for entry in map(json.loads, log) if "add" in entry]
    return staged_file(WRITE, {**add, "stats": statistics})


def publish(table, file, target=None):
    PUBLISHING.publish(table, target or PUBLISHING.look(table), [file], ("ledger/x", 1), {})


def meanwhile(monkeypatch, call):
    """Does something once, between the look at the table and the commit."""
    unhindered, calls = output_publishing.require_same, [call]

    def stand_still(*arguments):
        unhindered(*arguments)
        if calls:
            calls.pop()()

    monkeypatch.setattr(output_publishing, "require_same", stand_still)


def commit(table, *actions):
    log = Path(table, "_delta_log")
    (log / f"{DeltaTable(table).version() + 1:020}.json").write_text("\n".join(map(json.dumps, actions)))


def test_a_decimal_of_many_digits_is_found_by_its_value(tmp_path):
    """Read as floats, its bounds would be others, and a reader that filters would pass the file by."""
    value, table = Decimal("0.1234567890123456789"), str(tmp_path / "output")
    rows = pa.table({"d": pa.array([value], pa.decimal128(20, 19))})
    DeltaTable.create(table, rows.schema)
    bounds = f'{{"d":{value}}}'
    publish(table, staged(table, rows, f'{{"numRecords":1,"minValues":{bounds},"maxValues":{bounds}}}'))
    DeltaTable(table).create_checkpoint()
    found = DeltaTable(table).to_pyarrow_dataset().to_table(filter=pc.field("d") == pa.scalar(value, rows["d"].type))
    assert found["d"].to_pylist() == [value]


def test_a_feature_that_a_table_gets_in_the_very_commit_keeps_files_out_that_know_nothing_of_it(table, monkeypatch):
    """Both before and after it the table names its features, which delta-rs takes for no change."""
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]}
    commit(table, {"protocol": protocol})
    file = staged(table, pa.table({"message_id": ["a"]}), '{"numRecords":1}')
    more = {**protocol, "writerFeatures": ["appendOnly", "domainMetadata", "rowTracking"]}
    meanwhile(monkeypatch, lambda: commit(table, {"protocol": more}))
    with pytest.raises(Conflict, match="changed while rows were written"):
        publish(table, file)
    assert DeltaTable(table).transaction_version("ledger/x") is None


@pytest.mark.parametrize("change", ["appended", "overwritten", "compacted", "deleted"])
def test_rows_that_others_write_or_remove_in_the_very_commit_do_not_hold_it_up(table, monkeypatch, change):
    more = pa.table({"message_id": ["more"]})
    write_deltalake(table, more, mode="append")
    does, expected = {
        "appended": (lambda: write_deltalake(table, more, mode="append"), ["a", "more", "more", "theirs"]),
        "overwritten": (lambda: write_deltalake(table, more, mode="overwrite"), ["a", "more"]),
        "compacted": (lambda: DeltaTable(table).optimize.compact(), ["a", "more", "theirs"]),
        "deleted": (lambda: DeltaTable(table).delete("message_id = 'theirs'"), ["a", "more"]),
    }[change]
    meanwhile(monkeypatch, does)
    publish(table, staged(table, pa.table({"message_id": ["a"]}), '{"numRecords":1}'))
    assert sorted(DeltaTable(table).to_pyarrow_table()["message_id"].to_pylist()) == expected
    with pytest.raises(Conflict, match="committed before"):
        publish(table, staged_file(WRITE, {"path": "x", "size": 1, "partitionValues": {}, "modificationTime": 1}))


def test_what_a_vacuum_removed_is_not_published(table):
    """One that keeps files for no time: the table could not be read any more."""
    file = staged(table, pa.table({"message_id": ["a"]}), '{"numRecords":1}')
    DeltaTable(table).vacuum(0, full=True, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(StorageFailed, match="VACUUM"):
        publish(table, file)
    assert DeltaTable(table).to_pyarrow_table()["message_id"].to_pylist() == ["theirs"]


def test_a_commit_that_fails_without_others_is_not_tried_again(table, monkeypatch):
    tried = []

    def taken(*_):
        tried.append(1)
        return False

    monkeypatch.setattr(HeldLog, "put_new", taken)
    with pytest.raises(Conflict, match="version 1 is there, and cannot be read"):
        publish(table, staged(table, pa.table({"message_id": ["a"]}), '{"numRecords":1}'))
    assert tried == [1]
