"""What edits suppose of the table, held against the snapshot that they were decided on, before they are committed.

Spark's MERGE statement can raise where an edit does not find its row, delta-rs's lets such an edit pass in silence. Its
commit is made from the snapshot, and fails when others committed to the same partitions since: so what holds of the
snapshot's rows holds of the table, and checking these is enough.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.distinct_rows import distinct, matches
from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION, Conflict, Snapshot
from ledger.delta_log.spec import TableSpec
from ledger.errors import LedgerDamaged

#: No revision: they count from 1.
NONE = -1


def require_expected(snapshot: Snapshot, table: TableSpec, edits: pa.Table) -> None:
    """Raise Conflict when an edit does not find the table as it supposes.

    It supposes that a row to insert is not there, that one to update or delete is, with the revision that it names, and
    that the partition was read.

    Raises LedgerDamaged for an edit of a row that is there twice, and for two inserts of one key where the table says
    what that means; ValueError for two edits of another row, which no commit may have.
    """
    keys = [*table.partitions, *table.key]
    if edits.num_rows != len(distinct(edits, keys)):
        inserts = edits.filter(pc.equal(edits[OPERATION], "insert"))
        if table.doubled is not None and inserts.num_rows != len(distinct(inserts, keys)):
            raise LedgerDamaged(table.doubled)
        raise ValueError(f"two edits of {table.name} are about one row")
    if table.partitions and not all(snapshot.where.covers(*one.values()) for one in distinct(edits, table.partitions)):
        raise Conflict(f"of {table.name} more is changed than was read")
    row, edit = matches(snapshot.rows, edits, keys)
    there = np.bincount(edit, minlength=edits.num_rows)
    if (there > 1).any():
        raise LedgerDamaged(
            f"A row of the table {table.name} is there twice. Run upkeep (Ledger.upkeep or jobs/upkeep.py), which "
            "repairs it"
        )
    wanted = pc.not_equal(edits[OPERATION], "insert").to_numpy()
    # One that is not there has no revision: none that is expected.
    revision = np.full(edits.num_rows, NONE)
    revision[edit] = _numbers(snapshot.rows["revision"].take(pa.array(row)))
    expected = _numbers(edits[EXPECTED_REVISION])
    if ((there > 0) != wanted).any() or ((expected != NONE) & (expected != revision)).any():
        raise Conflict(f"{table.name} is not as the decision supposed")


def _numbers(revisions: pa.ChunkedArray) -> np.ndarray:
    numbers: np.ndarray = pc.fill_null(revisions, NONE).to_numpy()
    return numbers
