"""The rows of files that were read are kept, as many as memory is meant for."""

import pyarrow as pa
import pytest

from ledger.delta_log import storage
from ledger.delta_log.storage import A_TABLE, FileRows, LocalFiles
from ledger.rules.location import recorded

SCHEMA = pa.schema([("seq", pa.int64())])


def test_small_files_are_kept_as_many_as_their_tables_take_memory(tmp_path, monkeypatch):
    """A table of one row takes a thousand times what its values do."""
    monkeypatch.setattr(storage, "KEPT", 3 * A_TABLE)
    rows = FileRows(SCHEMA, (), LocalFiles(recorded(str(tmp_path))))
    for number in range(4):
        rows.keep(f"{number}", pa.table({"seq": [number]}, schema=SCHEMA))
    rows.keep("3", pa.table({"seq": [3]}, schema=SCHEMA))
    assert [rows.of((), f"{number}")["seq"].to_pylist() for number in (2, 3)] == [[2], [3]]
    with pytest.raises(FileNotFoundError):
        rows.of((), "1")
