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
from ledger.errors import LedgerDamaged
from ledger.store.delta.model.tables import TABLES

TWO_MESSAGES = (
    "Two messages of the table messages have one place, as two processes gave out the same one (a fork under an "
    "earlier release). Run upkeep (Ledger.upkeep or jobs/upkeep.py), which gives the later one a place of its own: "
    "nothing is lost"
)
#: No revision: they count from 1.
NONE = -1


def require_expected(snapshot: Snapshot, table: str, edits: pa.Table) -> None:
    """Raises Conflict when an edit does not find the table as it supposes: a row to insert that is there, one to update
    or delete that is not or is of another revision, or a partition that was not read.

    Raises LedgerDamaged for an edit of a row that is there twice, and for two inserts of one place, which two messages
    have; ValueError for two edits of another row, which no commit may have.
    """
    known = TABLES[table]
    keys = [*known.partitions, *known.key]
    if edits.num_rows != len(distinct(edits, keys)):
        inserts = edits.filter(pc.equal(edits[OPERATION], "insert"))
        if table == "visibility" and inserts.num_rows != len(distinct(inserts, keys)):
            raise LedgerDamaged(TWO_MESSAGES)
        raise ValueError(f"two edits of {table} are about one row")
    if known.partitions and not all(snapshot.where.covers(**one) for one in distinct(edits, known.partitions)):
        raise Conflict(f"of {table} more is changed than was read")
    row, edit = matches(snapshot.rows, edits, keys)
    there = np.bincount(edit, minlength=edits.num_rows)
    if (there > 1).any():
        raise LedgerDamaged(
            f"A row of the table {table} is there twice. Run upkeep (Ledger.upkeep or jobs/upkeep.py), which repairs it"
        )
    wanted = pc.not_equal(edits[OPERATION], "insert").to_numpy()
    # One that is not there has no revision: none that is expected.
    revision = np.full(edits.num_rows, NONE)
    revision[edit] = _numbers(snapshot.rows["revision"].take(pa.array(row)))
    expected = _numbers(edits[EXPECTED_REVISION])
    if ((there > 0) != wanted).any() or ((expected != NONE) & (expected != revision)).any():
        raise Conflict(f"{table} is not as the decision supposed")


def _numbers(revisions: pa.ChunkedArray) -> np.ndarray:
    numbers: np.ndarray = pc.fill_null(revisions, NONE).to_numpy()
    return numbers
