"""What edits suppose of the table, held against the snapshot that they were decided on, before they are committed.

Spark's MERGE statement can raise where an edit does not find its row, delta-rs's lets such an edit pass in silence. Its
commit is made from the snapshot, and fails when others committed to the same partitions since: so what holds of the
snapshot's rows holds of the table, and checking these is enough.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ledger.errors import LedgerDamaged
from ledger.store.delta.engines.protocol import EXPECTED_REVISION, OPERATION, Conflict, Snapshot
from ledger.store.delta.model.tables import TABLES

_THERE = "is there"
#: Up to so many edits Arrow's threads take longer to start than the work takes without them.
FEW = 10_000


def require_expected(snapshot: Snapshot, table: str, edits: pa.Table) -> None:
    """Raises Conflict when an edit does not find the table as it supposes: a row to insert that is there, one to update
    or delete that is not or is of another revision, or a partition that was not read.

    Raises LedgerDamaged for an edit of a row that is there twice; ValueError for two edits of one row, which no commit
    may have.
    """
    known, threads = TABLES[table], edits.num_rows > FEW
    keys, first = [*known.partitions, *known.key], known.key[0]
    if edits.num_rows != edits.group_by(keys, use_threads=threads).aggregate([]).num_rows:
        raise ValueError(f"two edits of {table} are about one row")
    touched = edits.group_by([*known.partitions], use_threads=threads).aggregate([]) if known.partitions else None
    if touched is not None and not all(snapshot.where.covers(**partition) for partition in touched.to_pylist()):
        raise Conflict(f"of {table} more is changed than was read")
    rows = snapshot.rows.filter(pc.is_in(snapshot.rows[first], edits[first].unique()))
    rows = rows.select([*keys, "revision"]).append_column(_THERE, pa.repeat(True, rows.num_rows))
    asked = edits.select([*keys, OPERATION, EXPECTED_REVISION])
    found = asked.join(rows, keys, join_type="left outer", use_threads=threads)
    if found.num_rows != edits.num_rows:
        raise LedgerDamaged(
            f"A row of the table {table} is there twice. Run upkeep (Ledger.upkeep or jobs/upkeep.py), which repairs it"
        )
    there = pc.fill_null(found[_THERE], False)
    wanted = pc.not_equal(found[OPERATION], "insert")
    same = pc.or_kleene(pc.is_null(found[EXPECTED_REVISION]), pc.equal(found[EXPECTED_REVISION], found["revision"]))
    if not pc.all(pc.and_(pc.equal(there, wanted), pc.fill_null(same, False))).as_py():
        raise Conflict(f"{table} is not as the decision supposed")
