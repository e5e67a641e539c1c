"""Runs of messages on one line of numbers, the axis: a segment's place there, then the ordinal. All of it vectorized.

How many runs there are decides the cost, never how many messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Ordinals stay below 2**32, so neighbouring segments never touch on the axis.
SEGMENT_SHIFT = 33
ABSENT = -1
FEW_CODES = 100
Some = TypeVar("Some", bound="Runs")


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of messages: `first` and `last` on the axis, both ends included, each with a `code` that stands for what is
    recorded about it; ABSENT where nothing is. Sorted by place and without overlap, where nothing else is said."""

    first: np.ndarray
    last: np.ndarray
    code: np.ndarray

    @classmethod
    def empty(cls) -> Runs:
        """No runs."""
        nothing = np.empty(0, dtype=np.int64)
        return Runs(nothing, nothing, nothing)

    @classmethod
    def from_arrow(cls, rows: pa.Table, segment: np.ndarray, code: np.ndarray) -> Runs:
        """Rows with the columns first_seq and last_seq, in their order, each in the segment of that number."""
        first, last = (positions(segment, rows[name].to_numpy()) for name in ("first_seq", "last_seq"))
        return Runs(first, last, code)

    @classmethod
    def concatenated(cls: type[Some], parts: Sequence[Some]) -> Some:
        """Runs one after the other, in the order of the parts."""
        return cls(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)))

    def __len__(self) -> int:
        """How many runs these are."""
        return len(self.first)

    @property
    def lengths(self) -> np.ndarray:
        """How many messages each run holds."""
        messages: np.ndarray = self.last - self.first + 1
        return messages

    @property
    def count(self) -> int:
        """How many messages all runs hold."""
        return int(self.lengths.sum())

    @property
    def segment(self) -> np.ndarray:
        """The number of the segment that each run lies in."""
        numbers: np.ndarray = self.first >> SEGMENT_SHIFT
        return numbers

    @property
    def first_seq(self) -> np.ndarray:
        """The ordinal of each run's first message in its segment."""
        ordinals: np.ndarray = self.first - (self.segment << SEGMENT_SHIFT)
        return ordinals

    def columns(self) -> list[np.ndarray]:
        """The arrays, as they are given to make such runs."""
        return list(vars(self).values())

    def where(self: Some, chosen: np.ndarray | slice) -> Some:
        """Those that a mask, a slice, or their numbers in some order choose."""
        return type(self)(*(column[chosen] for column in self.columns()))

    def coded(self, code: np.ndarray | int) -> Runs:
        """The same with other codes: one for each, or one for all."""
        each = code if isinstance(code, np.ndarray) else np.full(len(self), code)
        return Runs(self.first, self.last, each)

    def in_order(self) -> Runs:
        """The same, given in any order, sorted by place, and neighbours of one code made one run."""
        return self.coded(self.code).where(np.argsort(self.first, kind="stable")).joined()

    def joined(self) -> Runs:
        """The same with neighbours of one code made one run."""
        if len(self) < 2:
            return self.coded(self.code)
        border = (self.last[:-1] + 1 != self.first[1:]) | (self.code[:-1] != self.code[1:])
        if border.all():
            return self.coded(self.code)
        starts = np.concatenate([[True], border])
        ends = np.concatenate([border, [True]])
        return Runs(self.first[starts], self.last[ends], self.code[starts])

    def find(self, places: np.ndarray) -> np.ndarray:
        """The number of the run that each place on the axis lies in; ABSENT: in none."""
        run = np.searchsorted(self.first, places, "right") - 1
        inside = run >= 0
        inside[inside] = places[inside] <= self.last[run[inside]]
        return np.where(inside, run, ABSENT)

    def cut(self, first: np.ndarray, last: np.ndarray) -> Pieces:
        """The queries [first, last] cut at the borders of these runs; the pieces of a query cover it exactly, in order.

        Why it holds: the runs are sorted and disjoint, so those that overlap a query are neighbours, `start` to `stop`,
        and their first and last positions both grow. Clipped to the query they are the covered pieces. What is left of
        the query is before each of them, from the end of the one before it (or of nothing: from the query's beginning),
        and behind the last one. So a query has a place for a gap, then for each covered piece one and one for the gap
        behind it; of these gaps the empty ones, whose first is beyond their last, are dropped. The queries may overlap
        one another, and be in any order.
        """
        start = np.searchsorted(self.last, first, "left")
        stop = np.maximum(np.searchsorted(self.first, last, "right"), start)
        overlaps = stop - start
        if not len(self) or (overlaps <= 1).all():
            # Most cuts cut nothing: each query lies in one run, or beside all of them.
            met = overlaps > 0
            run = start[met]
            if (self.first[run] <= first[met]).all() and (last[met] <= self.last[run]).all():
                code = np.full(len(first), ABSENT)
                code[met] = self.code[run]
                return Pieces(first, last, code, np.arange(len(first)))
        through = np.cumsum(overlaps)
        query = np.repeat(np.arange(len(first)), overlaps)
        run = np.arange(len(query)) + (start - through + overlaps)[query]
        covered = 2 * np.arange(len(query)) + query + 1
        begins = np.empty(2 * len(query) + len(first), dtype=np.int64)
        ends, codes = np.empty_like(begins), np.full(len(begins), ABSENT)
        begins[covered] = np.maximum(first[query], self.first[run])
        ends[covered] = np.minimum(last[query], self.last[run])
        codes[covered] = self.code[run]
        begins[covered + 1] = ends[covered] + 1
        ends[covered - 1] = begins[covered] - 1
        behind = 2 * through + np.arange(len(first))
        ends[behind] = last
        begins[behind - 2 * overlaps] = first
        real = begins <= ends
        return Pieces(begins[real], ends[real], codes[real], np.repeat(np.arange(len(first)), 2 * overlaps + 1)[real])

    def paint(self, replacement: Runs) -> Runs:
        """These with `replacement` laid on top, neighbours of the same code joined.

        Why it holds: cut at the borders of `replacement`, every piece of a run is either inside of it or beside all of
        it. Those beside stay and those inside are replaced, so the result is disjoint again. It is also canonical: the
        same state is the same rows, whatever way led to it, as neighbours of one code are always one run.
        """
        mine = self.joined()
        if not len(replacement):
            return mine
        # Those far from it stay as they are; a neighbour may become one with it.
        begin = max(int(np.searchsorted(mine.last, replacement.first[0])) - 1, 0)
        end = int(np.searchsorted(mine.first, replacement.last[-1], "right")) + 1
        near = mine.where(slice(begin, end))
        pieces = replacement.cut(near.first, near.last)
        beside = pieces.coded(near.code[pieces.query]).where(pieces.code == ABSENT)
        painted = Runs.concatenated([beside, replacement]).in_order()
        if begin == 0 and end >= len(mine):
            return painted
        return Runs.concatenated([mine.where(slice(begin)), painted, mine.where(slice(end, None))])

    def parted(self, by: Runs) -> tuple[Runs, Runs]:
        """What of these is inside of `by`, and what is beside it."""
        pieces = by.cut(self.first, self.last)
        inside, mine = pieces.code != ABSENT, pieces.coded(self.code[pieces.query])
        return mine.where(inside), mine.where(~inside)


@dataclass(frozen=True, eq=False)
class Pieces(Runs):
    """Parts of queries, in their order: which query, and the code of the run that the part lies in (or ABSENT)."""

    query: np.ndarray


@dataclass(frozen=True, eq=False)
class Ordered(Runs):
    """Runs in any order, each with its place in another one: a number, smaller for what comes first."""

    order: np.ndarray


def laid_together(parts: Sequence[Runs]) -> tuple[Runs, Runs]:
    """All of `parts` as one, but for what two of them have under different codes; and that, under the code 0."""
    together = Runs.concatenated(parts)
    together = together.where(np.argsort(together.first, kind="stable"))
    if not (together.first[1:] <= together.last[:-1]).any():
        return together.joined(), Runs.empty()
    together, disputed = Runs.empty(), Runs.empty()
    for part in parts:
        met = together.cut(part.first, part.last)
        differs = (met.code != ABSENT) & (met.code != part.code[met.query])
        together, disputed = together.paint(part), disputed.paint(met.where(differs).coded(0))
    return together.parted(disputed)[1], disputed


def distinct_codes(codes: np.ndarray) -> list[int]:
    """Each code once, in the order in which they come first."""
    # To sort a few is slower than to look at each.
    some: list[int] = codes.tolist() if len(codes) <= FEW_CODES else pc.unique(pa.array(codes)).to_pylist()
    return list(dict.fromkeys(some))


def positions(segment: np.ndarray, seq: np.ndarray) -> np.ndarray:
    """Where messages are on the axis, by the numbers of their segments and their ordinals."""
    places: np.ndarray = (segment << SEGMENT_SHIFT) + seq
    return places


def numbers_in(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """All numbers of ranges, one range after the other."""
    before = np.cumsum(lengths) - lengths
    numbers: np.ndarray = np.repeat(begins - before, lengths) + np.arange(int(lengths.sum()))
    return numbers


def ones(bitmap: bytes) -> tuple[np.ndarray, np.ndarray]:
    """First and last positions of the runs of ones in a bitmap, lowest bit first."""
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little")
    steps = np.diff(np.concatenate([[0], bits.astype(np.int8), [0]]))
    return np.flatnonzero(steps == 1), np.flatnonzero(steps == -1) - 1
