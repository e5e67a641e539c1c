"""Which files of a partition a small commit writes anew: those with a row that changes, and those that are small.

A row that has a value in one of the columns `ends` of its table's spec hardly ever changes any more. A partition that
gets thirty commits a second has 100,000 such rows after an hour. In one file with the others each commit would write
them again. So they come into files of their own as soon as they are enough, and those files into larger ones, each made
of files that are at most twice as large as what joins them. A row is then written a dozen times, and not with every
commit. A partition has a dozen files, and one for each FULL rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.distinct_rows import matches
from ledger.delta_log.protocol import OPERATION
from ledger.delta_log.spec import TableSpec

#: So many settled rows get a file of their own, and files with fewer rows are written anew with every commit.
ENOUGH = 256
#: Files are joined into one of at most so many rows.
FULL = 50_000


class Regrouped(NamedTuple):
    """The files that give way, and the rows of each that comes in their place."""

    gone: list[str]
    written: list[pa.Table]


def regrouped(files: Mapping[str, pa.Table], edits: pa.Table, table: TableSpec) -> Regrouped:
    """What edits make of a partition's files, whose rows they suppose as they are (see `require_expected`)."""
    rows = pa.concat_tables([table.nothing, *files.values()])
    sizes = np.array([one.num_rows for one in files.values()], dtype=np.int64)
    file_of = np.repeat(np.arange(len(files)), sizes)
    left = np.ones(rows.num_rows, dtype=bool)
    # All of it is of one partition.
    left[matches(rows, edits, table.key)[0]] = False
    coming = _coming(edits, table)
    arriving, staying = _settled(coming, table), _settled(rows, table) & left
    gone = sizes < ENOUGH
    gone[file_of[~left]] = True
    while True:
        count = np.count_nonzero(arriving) + np.count_nonzero(staying[gone[file_of]])
        joined = ~gone & (sizes <= 2 * count)
        # What has become large is left alone: a commit of more rows is a query's, which puts nothing apart.
        if count < ENOUGH or not joined.any() or count + sizes[joined].sum() > FULL:
            break
        gone |= joined
    chosen = left & gone[file_of]
    after = pa.concat_tables([rows.filter(pa.array(chosen)), coming])
    apart = np.concatenate([staying[chosen], arriving]) & (count >= ENOUGH)
    parts = [after.filter(pa.array(mine)) for mine in (~apart, apart)] if apart.any() else [after]
    # In one piece each: they are kept, and the next commit would add one more, and the next.
    written = [part.combine_chunks() for part in parts if part.num_rows]
    return Regrouped([path for path, is_gone in zip(files, gone) if is_gone], written)


def _coming(edits: pa.Table, table: TableSpec) -> pa.Table:
    """The rows that are there behind the edits."""
    stays = pc.not_equal(edits[OPERATION], "delete")
    rows = edits.select(table.schema.names)
    rows = rows if pc.all(stays).as_py() else rows.filter(stays)
    # Arrow casts column by column, to what they are.
    return rows if rows.schema.equals(table.schema) else rows.cast(table.schema)


def _settled(rows: pa.Table, table: TableSpec) -> np.ndarray:
    """Return which rows hardly ever change any more, as the table's spec has it."""
    ended = [pc.is_valid(rows[name]).to_numpy() for name in table.ends if rows[name].null_count < rows.num_rows]
    if not ended:
        return np.zeros(rows.num_rows, dtype=bool)
    found: np.ndarray = np.logical_or.reduce(ended)
    for name, value in (table.changing or {}).items():
        found = found & pc.not_equal(rows[name], value).to_numpy()
    return found
