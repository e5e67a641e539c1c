"""The SQL predicates by which a claim's DataFrame reads `messages`.

The predicates compare columns with literals only, so Delta and Parquet can skip files and row groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.values import literal
from ledger.store.delta.model.where import MOST_ALTERNATIVES, MOST_NAMED, Where, tuple_of

#: One read names at most SEGMENTS_BY_NAME segments in at most MOST_ALTERNATIVES parts, each of one queue (see
#: `Where.bounded`). If more than MOST_READS reads would be needed, one read covers these queues as a whole, and names
#: no segments.
SEGMENTS_BY_NAME = MOST_NAMED - MOST_ALTERNATIVES
MOST_READS = 20
#: A read names at most this many ranges of ordinals: Spark compares each row that it reads with each range.
MOST_RANGES = 20


def reads_of(runs: pa.Table, homes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return SQL predicates on `messages`, at least one, for the runs (segment, first_seq, last_seq).

    Exactly one predicate selects each message of the runs. The predicates also select other messages, which the caller
    has to filter out. `homes` has, by queue, the segments that were sent to it.
    """
    reads: list[list[tuple[str, Sequence[str]]]] = []
    room = 0
    for queue, segments in homes.items():
        for start in range(0, len(segments), SEGMENTS_BY_NAME):
            some = segments[start : start + SEGMENTS_BY_NAME]
            if len(some) > room or len(reads[-1]) == MOST_ALTERNATIVES:
                reads.append([])
                room = SEGMENTS_BY_NAME
            reads[-1].append((queue, some))
            room -= len(some)
    if len(reads) > MOST_READS:
        return [_where([(queue, None) for queue in homes]).bounded().sql()]
    return [f"{_where(read).sql()} AND ({_ranges(_of(runs, read))})" for read in reads] or [Where(None, (-1,)).sql()]


def _where(named: Sequence[tuple[str, Sequence[str] | None]]) -> Where:
    where = None
    for queue, segments in named:
        where = Where(queue, None, None if segments is None else tuple_of(segments), also=where)
    assert where is not None
    return where


def _of(runs: pa.Table, read: Sequence[tuple[str, Sequence[str]]]) -> pa.Table:
    return runs.filter(pc.is_in(runs["segment"], pa.array([name for _, segments in read for name in segments])))


def _ranges(runs: pa.Table) -> str:
    """Return SQL for at most MOST_RANGES ranges of ordinals that together cover the runs. The runs must not overlap.

    If there are at most MOST_RANGES segments, a range lies in one segment, and segments are split at their widest gaps.
    Else several segments share a range: those whose first and last ordinals are close to each other.
    """
    names = runs["segment"].unique()
    segment = pc.index_in(runs["segment"], names).to_numpy()
    first, last = runs["first_seq"].to_numpy(), runs["last_seq"].to_numpy()
    order = np.lexsort((first, segment))
    segment, first, last = segment[order], first[order], last[order]
    # The border between two segments counts as the widest possible gap: ranges are always split there.
    gap = np.where(segment[1:] == segment[:-1], first[1:] - last[:-1] - 1, np.iinfo(np.int64).max)
    widest = np.argsort(-gap, kind="stable")[: max(MOST_RANGES, len(names)) - 1]
    behind = np.sort(widest[gap[widest] > 0])
    begins, ends = np.append(0, behind + 1), np.append(behind, len(first) - 1)
    near = np.lexsort((last[ends], first[begins]))
    parts = []
    for some in np.array_split(near, min(MOST_RANGES, len(near))):
        among = ", ".join(literal(names[n].as_py()) for n in np.unique(segment[begins[some]]).tolist())
        lowest, highest = first[begins[some]].min(), last[ends[some]].max()
        parts.append(f"(segment IN ({among}) AND seq BETWEEN {lowest} AND {highest})")
    return " OR ".join(parts)
