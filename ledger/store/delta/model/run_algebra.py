"""Runs of messages on one line of numbers: a segment's place on the axis, then the ordinal. All of it vectorized.

Runs are given as arrays `first` and `last` (both ends included), sorted and without overlap, each with a `code` that
stands for what is recorded about it; ABSENT where nothing is. How many runs there are decides the cost, never how
many messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

#: Ordinals stay below 2**32, so neighbouring segments never touch on the axis.
SEGMENT_SHIFT = 33
ABSENT = -1


class Runs(NamedTuple):
    """Sorted runs without overlap."""

    first: np.ndarray
    last: np.ndarray
    code: np.ndarray


class Pieces(NamedTuple):
    """Parts of queries: which query, from where to where, and the code of the run it lies in (or ABSENT)."""

    query: np.ndarray
    first: np.ndarray
    last: np.ndarray
    code: np.ndarray


def empty_runs() -> Runs:
    """No runs."""
    nothing = np.empty(0, dtype=np.int64)
    return Runs(nothing, nothing, nothing)


def cut(runs: Runs, first: np.ndarray, last: np.ndarray) -> Pieces:
    """The queries [first, last] cut at the borders of `runs`; the pieces of a query cover it exactly, in order.

    Why it holds: `runs` are sorted and disjoint, so those that overlap a query are neighbours, `start` to `stop`, and
    their first and last positions both grow. Clipped to the query they are the covered pieces. What is left of the
    query is before each of them, from the end of the one before it (or of nothing: from the query's beginning), and
    behind the last one; of these gaps the empty ones, whose first is beyond their last, are dropped. The queries may
    overlap one another, and be in any order.
    """
    start = np.searchsorted(runs.last, first, "left")
    stop = np.maximum(np.searchsorted(runs.first, last, "right"), start)
    overlaps = stop - start
    query = np.repeat(np.arange(len(first)), overlaps)
    offset = np.arange(len(query)) - np.repeat(np.cumsum(overlaps) - overlaps, overlaps)
    run = start[query] + offset
    covered_first = np.maximum(first[query], runs.first[run])
    covered_last = np.minimum(last[query], runs.last[run])
    # Before each covered piece, and behind the last one of a query, there may be a gap.
    everyone = np.arange(len(first))
    gap_query = np.concatenate([query, everyone])
    gap_last = np.concatenate([covered_first - 1, last])
    follows = offset > 0
    before = first[query]
    before[follows] = covered_last[np.flatnonzero(follows) - 1] + 1
    behind = first.copy()
    ends = np.flatnonzero(overlaps)
    behind[ends] = covered_last[np.cumsum(overlaps)[ends] - 1] + 1
    gap_first = np.concatenate([before, behind])
    real = gap_first <= gap_last
    pieces = Pieces(
        np.concatenate([query, gap_query[real]]),
        np.concatenate([covered_first, gap_first[real]]),
        np.concatenate([covered_last, gap_last[real]]),
        np.concatenate([runs.code[run], np.full(int(real.sum()), ABSENT)]),
    )
    order = np.lexsort((pieces.first, pieces.query))
    return Pieces(*(column[order] for column in pieces))


def paint(runs: Runs, over: Runs) -> Runs:
    """`runs` with `over` laid on top, neighbours of the same code joined.

    Why it holds: cut at the borders of `over`, every piece of a run is either inside `over` or beside all of it. Those
    beside stay and those inside are replaced, so the result is disjoint again. It is also canonical: the same state
    is the same rows, whatever way led to it, as neighbours of one code are always one run.
    """
    pieces = cut(over, runs.first, runs.last)
    kept = pieces.code == ABSENT
    first = np.concatenate([pieces.first[kept], over.first])
    last = np.concatenate([pieces.last[kept], over.last])
    code = np.concatenate([runs.code[pieces.query[kept]], over.code])
    order = np.argsort(first, kind="stable")
    return join(Runs(first[order], last[order], code[order]))


def join(runs: Runs) -> Runs:
    """The same with neighbours of one code made one run."""
    if len(runs.first) < 2:
        return runs
    border = (runs.last[:-1] + 1 != runs.first[1:]) | (runs.code[:-1] != runs.code[1:])
    starts = np.concatenate([[True], border])
    ends = np.concatenate([border, [True]])
    return Runs(runs.first[starts], runs.last[ends], runs.code[starts])


def parted(runs: Runs, by: Runs) -> tuple[Runs, Runs]:
    """What of `runs` is inside of `by`, and what is beside it."""
    pieces = cut(by, runs.first, runs.last)
    inside = pieces.code != ABSENT
    code = runs.code[pieces.query]
    within, beside = (Runs(pieces.first[which], pieces.last[which], code[which]) for which in (inside, ~inside))
    return within, beside


def laid_together(parts: Sequence[Runs]) -> tuple[Runs, Runs]:
    """All of `parts` as one, but for what two of them have under different codes; and that, under the code 0."""
    together = concatenated(parts)
    together = where(together, np.argsort(together.first, kind="stable"))
    if not (together.first[1:] <= together.last[:-1]).any():
        return join(together), empty_runs()
    together, disputed = empty_runs(), empty_runs()
    for part in parts:
        met = cut(together, part.first, part.last)
        differs = (met.code != ABSENT) & (met.code != part.code[met.query])
        found = Runs(met.first[differs], met.last[differs], np.zeros(int(differs.sum()), dtype=np.int64))
        together, disputed = paint(together, part), paint(disputed, found)
    return parted(together, disputed)[1], disputed


def where(runs: Runs, chosen: np.ndarray) -> Runs:
    """The runs that a mask, or their numbers in some order, choose."""
    return Runs(*(column[chosen] for column in runs))


def concatenated(parts: Sequence[Runs]) -> Runs:
    """Runs one after the other."""
    return Runs(*(np.concatenate(column) for column in zip(*parts)))


def lengths(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """How many messages each run holds."""
    messages: np.ndarray = last - first + 1
    return messages


def ones(bitmap: bytes) -> tuple[np.ndarray, np.ndarray]:
    """First and last positions of the runs of ones in a bitmap, lowest bit first."""
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little")
    steps = np.diff(np.concatenate([[0], bits.astype(np.int8), [0]]))
    return np.flatnonzero(steps == 1), np.flatnonzero(steps == -1) - 1
