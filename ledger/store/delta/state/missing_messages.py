"""Messages of a claim that have no row in `messages`, told from the log and without reading data files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.store.delta.model.run_algebra import ABSENT, Runs
from ledger.store.delta.state.listing import Listing
from ledger.store.protocol import RUNS

#: What places messages; the lane is none of it.
PLACES = [name for name in RUNS.names if name != "lane"]


def missing_of(listing: Listing, runs: pa.Table) -> pa.Table:
    """Return those messages of some runs (RUNS and more columns) that no file of the listing has, as RUNS.

    Only segments with gaps between the ordinals of a file are read. Of all others the log tells enough.
    """
    return outside(runs, listing.ordinals(runs["segment"].unique()))


def outside(runs: pa.Table, there: pa.Table) -> pa.Table:
    """Return the messages of some runs that are in none of the runs `there`, as RUNS. Either may have the columns in
    any order, and overlap."""
    names = pc.unique(pa.chunked_array([*runs["segment"].chunks, *there["segment"].chunks], pa.string()))
    known, asked = _united(_on_axis(there, names)), _on_axis(runs, names)
    pieces = known.cut(asked.first, asked.last)
    left = pieces.where(pieces.code == ABSENT)
    rows = runs.select(RUNS.names).take(pa.array(left.query))
    ordinals = [pa.array(left.first_seq), pa.array(left.first_seq + left.lengths - 1)]
    return pa.table([rows["lane"], rows["segment"], *ordinals], schema=RUNS)


def _on_axis(runs: pa.Table, names: pa.Array) -> Runs:
    segment = pc.index_in(runs["segment"], names).to_numpy().astype(np.int64)
    return Runs.from_arrow(runs, segment, np.zeros(runs.num_rows, dtype=np.int64))


def _united(runs: Runs) -> Runs:
    """Return the same places without overlap, in order."""
    ordered = runs.where(np.argsort(runs.first, kind="stable"))
    last = np.maximum.accumulate(ordered.last) if len(ordered) else ordered.last
    first = ordered.first.copy()
    first[1:] = np.maximum(first[1:], last[:-1] + 1)
    return Runs(first, last, ordered.code).where(first <= last).joined()
