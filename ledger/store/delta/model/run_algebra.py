"""Arrays of runs of messages on one line of numbers, the axis.

A message's place has its ordinal in the lower 33 bits, and the number of its segment above. Costs grow with runs, not
with messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Ordinals are below 2**32, so neighbouring segments never touch.
SEGMENT_SHIFT = 33
ABSENT = -1
FEW_CODES = 100
Some = TypeVar("Some", bound="Runs")


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of messages: `first` and `last` on the axis, both included, and a `code` for the record (or ABSENT).

    Runs are sorted by place and disjoint, unless a docstring says otherwise.
    """

    first: np.ndarray
    last: np.ndarray
    code: np.ndarray

    @classmethod
    def empty(cls) -> Runs:
        no_numbers = np.empty(0, dtype=np.int64)
        return Runs(no_numbers, no_numbers, no_numbers)

    @classmethod
    def from_arrow(cls, rows: pa.Table, segment: np.ndarray, code: np.ndarray) -> Runs:
        """Return the runs of rows, in their order, with the numbers of their segments."""
        first, last = (positions(segment, rows[name].to_numpy()) for name in ("first_seq", "last_seq"))
        return Runs(first, last, code)

    @classmethod
    def concatenated(cls: type[Some], parts: Sequence[Some]) -> Some:
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def __len__(self) -> int:
        return len(self.first)

    @property
    def lengths(self) -> np.ndarray:
        messages: np.ndarray = self.last - self.first + 1
        return messages

    @property
    def count(self) -> int:
        """Return the number of messages."""
        return int(self.lengths.sum())

    @property
    def segment(self) -> np.ndarray:
        numbers: np.ndarray = self.first >> SEGMENT_SHIFT
        return numbers

    @property
    def first_seq(self) -> np.ndarray:
        ordinals: np.ndarray = self.first - (self.segment << SEGMENT_SHIFT)
        return ordinals

    def columns(self) -> list[np.ndarray]:
        return list(vars(self).values())

    def where(self: Some, chosen: np.ndarray | slice) -> Some:
        return type(self)(*(column[chosen] for column in self.columns()))

    def coded(self, code: np.ndarray | int) -> Runs:
        """Return the runs with other codes: one for each, or one for all."""
        codes = code if isinstance(code, np.ndarray) else np.full(len(self), code)
        return Runs(self.first, self.last, codes)

    def in_order(self) -> Runs:
        """Return these runs, which may be in any order, sorted and joined."""
        return self.coded(self.code).where(np.argsort(self.first, kind="stable")).joined()

    def joined(self) -> Runs:
        """Return the runs with neighbours of one code joined."""
        if len(self) < 2:
            return self.coded(self.code)
        border = (self.last[:-1] + 1 != self.first[1:]) | (self.code[:-1] != self.code[1:])
        if border.all():
            return self.coded(self.code)
        starts = np.concatenate([[True], border])
        ends = np.concatenate([border, [True]])
        return Runs(self.first[starts], self.last[ends], self.code[starts])

    def find(self, places: np.ndarray) -> np.ndarray:
        """Return the index of each place's run, or ABSENT."""
        run = np.searchsorted(self.first, places, "right") - 1
        inside = run >= 0
        inside[inside] = places[inside] <= self.last[run[inside]]
        return np.where(inside, run, ABSENT)

    def cut(self, first: np.ndarray, last: np.ndarray) -> Pieces:
        """Cut the queries [first, last], in any order, at the borders of these runs, into pieces that cover each
        exactly.

        Why it holds: the runs are sorted and disjoint, so those that overlap a query are neighbours, from `start` to
        before `stop`. Clipped to the query, they are the covered pieces. A gap may be before each of them, and one
        behind the last. So a query gets one entry for its first gap, and two for each covered piece: the piece, and the
        gap behind it. Empty gaps, whose first is beyond their last, are dropped.
        """
        start = np.searchsorted(self.last, first, "left")
        stop = np.maximum(np.searchsorted(self.first, last, "right"), start)
        overlaps = stop - start
        if not len(self) or (overlaps <= 1).all():
            is_covered = overlaps > 0
            run = start[is_covered]
            if (self.first[run] <= first[is_covered]).all() and (last[is_covered] <= self.last[run]).all():
                code = np.full(len(first), ABSENT)
                code[is_covered] = self.code[run]
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
        """Return these runs with `replacement` on top of them, joined.

        Why it holds: the runs are cut at the borders of `replacement`. The pieces inside are replaced, and those
        outside stay, so the result is disjoint. Neighbours of one code are always joined, so equal states have equal
        runs, whatever led to them.
        """
        joined = self.joined()
        if not len(replacement):
            return joined
        # Far runs stay. A neighbour may be joined with the replacement.
        begin = max(int(np.searchsorted(joined.last, replacement.first[0])) - 1, 0)
        end = int(np.searchsorted(joined.first, replacement.last[-1], "right")) + 1
        near = joined.where(slice(begin, end))
        pieces = replacement.cut(near.first, near.last)
        beside = pieces.coded(near.code[pieces.query]).where(pieces.code == ABSENT)
        painted = Runs.concatenated([beside, replacement]).in_order()
        if begin == 0 and end >= len(joined):
            return painted
        return Runs.concatenated([joined.where(slice(begin)), painted, joined.where(slice(end, None))])

    def parted(self, by: Runs) -> tuple[Runs, Runs]:
        pieces = by.cut(self.first, self.last)
        inside, parts = pieces.code != ABSENT, pieces.coded(self.code[pieces.query])
        return parts.where(inside), parts.where(~inside)


@dataclass(frozen=True, eq=False)
class Pieces(Runs):
    """Parts of queries: the index of the query, and the code of the run that has the part (or ABSENT)."""

    query: np.ndarray


@dataclass(frozen=True, eq=False)
class Ordered(Runs):
    """Runs in any order, to be taken by rank, the smallest first."""

    order: np.ndarray


def laid_together(parts: Sequence[Runs]) -> tuple[Runs, Runs]:
    """Return `parts` as one, without messages that two parts have under different codes, and these under code 0."""
    together = Runs.concatenated(parts)
    together = together.where(np.argsort(together.first, kind="stable"))
    if not (together.first[1:] <= together.last[:-1]).any():
        return together.joined(), Runs.empty()
    together, disputed = Runs.empty(), Runs.empty()
    for part in parts:
        pieces = together.cut(part.first, part.last)
        differs = (pieces.code != ABSENT) & (pieces.code != part.code[pieces.query])
        together, disputed = together.paint(part), disputed.paint(pieces.where(differs).coded(0))
    return together.parted(disputed)[1], disputed


def distinct_codes(codes: np.ndarray) -> list[int]:
    # Arrow's `unique` is slower than a dict for a few codes.
    all_codes: list[int] = codes.tolist() if len(codes) <= FEW_CODES else pc.unique(pa.array(codes)).to_pylist()
    return list(dict.fromkeys(all_codes))


def positions(segment: np.ndarray, seq: np.ndarray) -> np.ndarray:
    places: np.ndarray = (segment << SEGMENT_SHIFT) + seq
    return places


def numbers_in(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return all numbers of ranges, one range after the other."""
    before = np.cumsum(lengths) - lengths
    numbers: np.ndarray = np.repeat(begins - before, lengths) + np.arange(int(lengths.sum()))
    return numbers


def ones(bitmap: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and last positions of the runs of ones in a bitmap, lowest bit first."""
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little")
    steps = np.diff(np.concatenate([[0], bits.astype(np.int8), [0]]))
    return np.flatnonzero(steps == 1), np.flatnonzero(steps == -1) - 1
