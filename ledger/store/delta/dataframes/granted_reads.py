"""SQL predicates by which a claim's DataFrame reads its rows of `messages`.

They compare columns with literals, so that Spark can skip files and row groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.values import literal
from ledger.store.delta.model.where import MOST_ALTERNATIVES, MOST_NAMED, Where, tuple_of

#: A read names this many segments at most, in MOST_ALTERNATIVES queues. Beyond MOST_READS, one read covers all queues.
SEGMENTS_BY_NAME = MOST_NAMED - MOST_ALTERNATIVES
MOST_READS = 20
#: Spark compares each row that it reads with all ranges of a read.
MOST_RANGES = 20


def reads_of(runs: pa.Table, homes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return SQL predicates on `messages`. Each message of the runs matches exactly one, and others may match.

    `homes` has, by queue, the segments that were sent to it.
    """
    reads: list[list[tuple[str, Sequence[str]]]] = []
    room = 0
    for queue, segments in homes.items():
        for start in range(0, len(segments), SEGMENTS_BY_NAME):
            named = segments[start : start + SEGMENTS_BY_NAME]
            if len(named) > room or len(reads[-1]) == MOST_ALTERNATIVES:
                reads.append([])
                room = SEGMENTS_BY_NAME
            reads[-1].append((queue, named))
            room -= len(named)
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
    """Return, as SQL, at most MOST_RANGES ranges of `seq` that cover disjoint runs.

    The widest gaps separate ranges. A range may cover parts of several segments with `seq` near each other.
    """
    names = runs["segment"].unique()
    segment = pc.index_in(runs["segment"], names).to_numpy()
    first, last = runs["first_seq"].to_numpy(), runs["last_seq"].to_numpy()
    order = np.lexsort((first, segment))
    segment, first, last = segment[order], first[order], last[order]
    # An infinite gap always cuts two segments apart.
    gap = np.where(segment[1:] == segment[:-1], first[1:] - last[:-1] - 1, np.iinfo(np.int64).max)
    widest = np.argsort(-gap, kind="stable")[: max(MOST_RANGES, len(names)) - 1]
    ends_of_parts = np.sort(widest[gap[widest] > 0])
    begins, ends = np.append(0, ends_of_parts + 1), np.append(ends_of_parts, len(first) - 1)
    near = np.lexsort((last[ends], first[begins]))
    parts = []
    for group in np.array_split(near, min(MOST_RANGES, len(near))):
        segments = ", ".join(literal(names[n].as_py()) for n in np.unique(segment[begins[group]]).tolist())
        lowest, highest = first[begins[group]].min(), last[ends[group]].max()
        parts.append(f"(segment IN ({segments}) AND seq BETWEEN {lowest} AND {highest})")
    return " OR ".join(parts)
