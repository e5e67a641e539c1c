"""Large bodies: files and row groups are bounded in bytes, so that to read one message takes not much more."""

import secrets

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ledger.delta_log import data_files, log
from ledger.delta_log.data_files import Encoded, encode_parquet, split_rows

LARGE = 10_000


def files_of(root):
    """(bytes of rows, rows) of each row group, by the file below a ledger's messages."""
    groups = {}
    for path in sorted((root / "messages").rglob("*.parquet")):
        known = pq.ParquetFile(path).metadata
        groups[path] = [
            (known.row_group(n).total_byte_size, known.row_group(n).num_rows) for n in range(known.num_row_groups)
        ]
    return groups


@pytest.fixture
def small_files(monkeypatch):
    monkeypatch.setattr(data_files, "ROW_GROUP", 4 * LARGE)
    monkeypatch.setattr(log, "FILE", 16 * LARGE)


def test_a_send_of_large_bodies_is_of_several_files_and_row_groups_and_one_commit(
    open_ledger, root, tmp_path, small_files
):
    ledger = open_ledger()
    queue = ledger.create_queue("work", {"Lanes": 1})
    before = ledger.store.engine.version("messages")
    bodies = [secrets.token_hex(LARGE // 2) for _ in range(40)]
    assert all(queue.send(bodies))
    assert ledger.store.engine.version("messages") == before + 1
    files = files_of(tmp_path / "ledger")
    assert len(files) == 4
    assert all(size <= 5 * LARGE and rows <= 4 for groups in files.values() for size, rows in groups)
    assert sum(rows for groups in files.values() for _, rows in groups) == 40
    claims = [queue.receive(7), queue.receive(None)]
    assert [m.body for claim in claims for m in claim] == bodies
    assert queue.send("small")
    assert [m.body for m in open_ledger().queue("work").receive(None)] == ["small"]


def test_small_bodies_are_one_file_of_one_row_group(open_ledger, tmp_path):
    open_ledger().create_queue("work", {"Lanes": 1}).send([f"{n}" for n in range(1_000)])
    (groups,) = files_of(tmp_path / "ledger").values()
    assert [rows for _, rows in groups] == [1_000]


def test_parts_have_all_rows_in_order_and_one_that_is_too_large_is_alone():
    rows = pa.table({"text": ["a" * length for length in (1, 500, 20, 2_000, 1, 1, 1, 90)]})
    parts = list(split_rows(rows, 600))
    assert pa.concat_tables(parts) == rows
    assert all(part.nbytes <= 600 or part.num_rows == 1 for part in parts)
    assert [part.num_rows for part in split_rows(rows.slice(0, 0), 600)] == [0]


def test_a_file_is_the_same_however_often_it_is_made_of_its_rows():
    """Its size is in the log, and a storage that lost it is given it again."""
    files = Encoded({"a": pa.table({"lane": [0, 0], "text": ["x" * 5_000, "y"]})}, ["lane"])
    assert files["a"] == files["a"] == encode_parquet(pa.table({"lane": [0, 0], "text": ["x" * 5_000, "y"]}), ["lane"])
    assert files.sizes == {"a": len(files["a"])}
    assert (list(files), len(files)) == (["a"], 1)
