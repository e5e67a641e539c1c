"""Edits of `visibility`: the rows that a MERGE is given, made column by column, as each commit makes a few of them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION
from ledger.store.delta.model.tables import VISIBILITY

EDITS = pa.schema([*VISIBILITY, (OPERATION, pa.string()), (EXPECTED_REVISION, pa.int64())])
NO_EDITS = EDITS.empty_table()


def edit_rows(count: int, columns: Mapping[str, pa.Array]) -> pa.Table:
    """So many edits with these columns, and nothing in the others."""
    arrays = [columns[one.name] if one.name in columns else pa.nulls(count, one.type) for one in EDITS]
    return pa.Table.from_arrays(arrays, schema=EDITS)
