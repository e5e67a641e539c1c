"""The rows of files that were read are kept, as many as memory is meant for."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from ledger.delta_log import storage
from ledger.delta_log.storage import TABLE_OVERHEAD, FileRows, LocalFiles
from ledger.rules.location import recorded

SCHEMA = pa.schema([("seq", pa.int64())])


def test_small_files_are_kept_as_many_as_their_tables_take_memory(tmp_path, monkeypatch):
    """A table of one row takes a thousand times what its values do."""
    monkeypatch.setattr(storage, "KEPT", 3 * TABLE_OVERHEAD)
    rows = FileRows(SCHEMA, (), LocalFiles(recorded(str(tmp_path))))
    for number in range(4):
        rows.keep(f"{number}", pa.table({"seq": [number]}, schema=SCHEMA))
    rows.keep("3", pa.table({"seq": [3]}, schema=SCHEMA))
    assert [rows.of((), f"{number}")["seq"].to_pylist() for number in (2, 3)] == [[2], [3]]
    with pytest.raises(FileNotFoundError):
        rows.of((), "1")


def test_rows_of_a_file_that_a_commit_removed_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "KEPT", 3 * TABLE_OVERHEAD)
    rows = FileRows(SCHEMA, (), LocalFiles(recorded(str(tmp_path))))
    for number in range(2):
        rows.keep(f"{number}", pa.table({"seq": [number]}, schema=SCHEMA))
    rows.forget(["0", "unknown"])
    with pytest.raises(FileNotFoundError):
        rows.of((), "0")
    rows.keep("2", pa.table({"seq": [2]}, schema=SCHEMA))
    assert [rows.of((), name)["seq"].to_pylist() for name in "12"] == [[1], [2]], "there is room for both"


def test_a_process_keeps_rows_of_no_file_that_its_verbs_replaced(open_ledger, monkeypatch):
    forgotten = []
    forget = FileRows.forget
    monkeypatch.setattr(FileRows, "forget", lambda self, paths: forget(self, forgotten.extend(p := list(paths)) or p))
    ledger = open_ledger()
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b", "c"])
    for _ in range(3):
        queue.receive(1).delete()
    log = Path(ledger.store.engine.place("visibility")) / "_delta_log"
    actions = [json.loads(line) for entry in log.glob("*.json") for line in entry.read_text().splitlines()]
    removed = [action["remove"]["path"] for action in actions if "remove" in action]
    assert len(removed) == 5 and set(removed) <= set(forgotten)
