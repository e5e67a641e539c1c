"""Runs of messages on one line of numbers (the axis), and sets: scattered messages as one row with bits.

A message's place has its ordinal in the lower 33 bits, and the number of its segment above. Costs grow with runs, not
with messages.

A row of `visibility` without `bits` is about a run, and a row with `bits` about those of its messages that have a bit.
In memory all messages are in runs. Equal states have equal rows. A change touches only rows in the blocks of the
changed messages, and in the blocks where a cut or joined run begins or ends.

**The rows of a state.** A *block* is 2**BLOCK_SHIFT ordinals of a segment. Neighbours under one record are one run. A
run that is in more than one block is a row. The runs within one block that share a record are a *group*. A group is one
row with bits if it has more than MOST_RUNS runs, and at most WORDS_A_RUN words for each. Otherwise each run is a row.

**The words.** A word has the bits of 64 ordinals. The lowest bit is for the lowest ordinal, which is a multiple of 64.
A row's words are those from its first message to its last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.store.delta.model.tables import WORDS

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
        """Return the runs of rows, in their order. `segment` has the number of each row's segment."""
        first, last = (positions(segment, rows[name].to_numpy()) for name in ("first_seq", "last_seq"))
        return Runs(first, last, code)

    @classmethod
    def concatenate(cls: type[Some], parts: Sequence[Some]) -> Some:
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def __len__(self) -> int:
        return len(self.first)

    @property
    def lengths(self) -> np.ndarray:
        messages: np.ndarray = self.last - self.first + 1
        return messages

    @property
    def count(self) -> int:
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

    def recode(self, code: np.ndarray | int) -> Runs:
        """Return the runs with other codes: one for each, or one for all."""
        codes = code if isinstance(code, np.ndarray) else np.full(len(self), code)
        return Runs(self.first, self.last, codes)

    def in_order(self) -> Runs:
        """Return these runs, which may be in any order, sorted and joined."""
        return self.recode(self.code).where(np.argsort(self.first, kind="stable")).joined()

    def joined(self) -> Runs:
        """Return the runs with neighbours of the same code joined."""
        if len(self) < 2:
            return self.recode(self.code)
        border = (self.last[:-1] + 1 != self.first[1:]) | (self.code[:-1] != self.code[1:])
        if border.all():
            return self.recode(self.code)
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
        before `stop`. Clipped to the query, they are the covered pieces. Each may have a gap before it, and the last
        one behind it. So a query gets one entry for its first gap, and two for each covered piece: the piece, and the
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
        outside stay, so the result is disjoint. Neighbours of the same code are always joined, so equal states have
        equal runs.
        """
        joined = self.joined()
        if not len(replacement):
            return joined
        # Runs far from `replacement` stay. A neighbour may be joined with it.
        begin = max(int(np.searchsorted(joined.last, replacement.first[0])) - 1, 0)
        end = int(np.searchsorted(joined.first, replacement.last[-1], "right")) + 1
        near = joined.where(slice(begin, end))
        pieces = replacement.cut(near.first, near.last)
        beside = pieces.recode(near.code[pieces.query]).where(pieces.code == ABSENT)
        painted = Runs.concatenate([beside, replacement]).in_order()
        if begin == 0 and end >= len(joined):
            return painted
        return Runs.concatenate([joined.where(slice(begin)), painted, joined.where(slice(end, None))])

    def split_by(self, by: Runs) -> tuple[Runs, Runs]:
        pieces = by.cut(self.first, self.last)
        inside, parts = pieces.code != ABSENT, pieces.recode(self.code[pieces.query])
        return parts.where(inside), parts.where(~inside)


@dataclass(frozen=True, eq=False)
class Pieces(Runs):
    """Parts of queries: the index of the query, and the code of the run that has the part (or ABSENT)."""

    query: np.ndarray


@dataclass(frozen=True, eq=False)
class Ordered(Runs):
    """Runs in any order. `order` has each run's rank: the run with the smallest rank is taken first."""

    order: np.ndarray


def lay_together(parts: Sequence[Runs]) -> tuple[Runs, Runs]:
    """Return `parts` as one, without the messages that two parts have under different codes. Also return those
    messages, under code 0."""
    together = Runs.concatenate(parts)
    together = together.where(np.argsort(together.first, kind="stable"))
    if not (together.first[1:] <= together.last[:-1]).any():
        return together.joined(), Runs.empty()
    together, disputed = Runs.empty(), Runs.empty()
    for part in parts:
        pieces = together.cut(part.first, part.last)
        differs = (pieces.code != ABSENT) & (pieces.code != part.code[pieces.query])
        together, disputed = together.paint(part), disputed.paint(pieces.where(differs).recode(0))
    return together.split_by(disputed)[1], disputed


def distinct_codes(codes: np.ndarray) -> list[int]:
    # Arrow's `unique` is slower than a dict for a few codes.
    all_codes: list[int] = codes.tolist() if len(codes) <= FEW_CODES else pc.unique(pa.array(codes)).to_pylist()
    return list(dict.fromkeys(all_codes))


def positions(segment: np.ndarray, seq: np.ndarray) -> np.ndarray:
    places: np.ndarray = (segment << SEGMENT_SHIFT) + seq
    return places


def expand_ranges(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return all numbers of ranges, one range after the other."""
    before = np.cumsum(lengths) - lengths
    numbers: np.ndarray = np.repeat(begins - before, lengths) + np.arange(int(lengths.sum()))
    return numbers


def ones(bitmap: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and last positions of the runs of ones in a bitmap, lowest bit first."""
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little")
    steps = np.diff(np.concatenate([[0], bits.astype(np.int8), [0]]))
    return np.flatnonzero(steps == 1), np.flatnonzero(steps == -1) - 1


BLOCK_SHIFT = 15
WORD_SHIFT = 6
#: Tests set a lower number.
MOST_RUNS = 4
WORDS_A_RUN = 16
_IN_WORD = (1 << WORD_SHIFT) - 1
_ALL, _ONE = np.uint64(0xFFFF_FFFF_FFFF_FFFF), np.uint64(1)


@dataclass(frozen=True, eq=False)
class SetRows(Runs):
    """Rows, in any order. A row's bits are the `size` words of `words` from `begin` on (0: no bits)."""

    begin: np.ndarray
    size: np.ndarray
    words: np.ndarray

    def columns(self) -> list[np.ndarray]:
        return [self.first, self.last, self.code, self.begin, self.size]

    def where(self, chosen: np.ndarray | slice) -> SetRows:
        return SetRows(*[column[chosen] for column in self.columns()] + [self.words])

    def bits(self) -> pa.Array:
        """Return the column `bits`. Null: the row is about all messages of its run."""
        offsets = np.concatenate([[0], np.cumsum(self.size)])
        values = pa.array(self.words[self._places()].view(np.int64))
        has_no_bits = pa.array(self.size == 0)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, WORDS, mask=has_no_bits)

    def runs(self) -> tuple[Runs, np.ndarray]:
        """Return all messages as sorted runs, and the index of each run's row."""
        alone = np.flatnonzero(self.size == 0)
        sets = self.where(self.size > 0)
        if not len(sets):
            order = np.argsort(self.first, kind="stable")
            return Runs(self.first, self.last, self.code).where(order), order
        words = sets.words[sets._places()]
        row = np.repeat(np.arange(len(sets)), sets.size)
        begins = np.cumsum(sets.size) - sets.size
        # Each word's place on the axis / 64. Segments begin at multiples of 64.
        place = ((sets.first >> WORD_SHIFT) - begins)[row] + np.arange(len(words))
        same_row = row[1:] == row[:-1]
        before, behind = np.zeros_like(words), np.zeros_like(words)
        before[1:][same_row] = words[:-1][same_row] >> np.uint64(_IN_WORD)
        behind[:-1][same_row] = words[1:][same_row] << np.uint64(_IN_WORD)
        first, at = _ones(words & ~((words << _ONE) | before), place)
        last, _ = _ones(words & ~((words >> _ONE) | behind), place)
        which = np.concatenate([alone, np.flatnonzero(self.size > 0)[row[at]]])
        first, last = np.concatenate([self.first[alone], first]), np.concatenate([self.last[alone], last])
        order = np.argsort(first, kind="stable")
        which = which[order]
        return Runs(first[order], last[order], self.code[which]), which

    def same_bits(self, other: SetRows) -> np.ndarray:
        """Return which rows have the same bits as the row of `other` with their index. The two rows begin and end
        alike."""
        same: np.ndarray = self.size == other.size
        sets_in_both = np.flatnonzero(same & (self.size > 0))
        own_sets, other_sets = self.where(sets_in_both), other.where(sets_in_both)
        differs = own_sets.words[own_sets._places()] != other_sets.words[other_sets._places()]
        same[np.repeat(sets_in_both, own_sets.size)[differs]] = False
        return same

    def _places(self) -> np.ndarray:
        return expand_ranges(self.begin, self.size)


class StoredRuns(NamedTuple):
    """The rows of a table, their messages as sorted runs, and the index of each run's row."""

    rows: SetRows
    runs: Runs
    row: np.ndarray


class Difference(NamedTuple):
    """The edits that turn rows into others. A row in `written` is new, or replaces the row that begins there."""

    written: SetRows
    is_new: np.ndarray
    gone: SetRows


def make_stored_runs(runs: Runs, bits: pa.ChunkedArray | pa.Array | None = None) -> StoredRuns:
    """Return rows as they were read. `runs` may be in any order."""
    zeros = np.zeros(len(runs), dtype=np.int64)
    rows = SetRows(*[*runs.columns(), zeros, zeros, np.empty(0, dtype=np.uint64)])
    if bits is not None and bits.null_count < len(bits):
        bits = bits.combine_chunks() if isinstance(bits, pa.ChunkedArray) else bits
        words = bits.flatten().to_numpy(zero_copy_only=False).astype(np.int64, copy=False).view(np.uint64)
        count = pc.fill_null(pc.list_value_length(bits), 0).to_numpy().astype(np.int64)
        rows = SetRows(*[*runs.columns(), np.cumsum(count) - count, count, words])
    return StoredRuns(rows, *rows.runs())


def make_set_rows(runs: Runs) -> SetRows:
    """Return the rows of a state, from joined runs."""
    runs = runs.recode(runs.code)
    inside = np.flatnonzero(_is_inside(runs))
    group, groups = _number_groups(runs.first[inside] >> BLOCK_SHIFT, runs.code[inside])
    # The last value assigned stays, so the reversed order gives a group's first run.
    first, last, code = (np.zeros(groups, dtype=np.int64) for _ in range(3))
    first[group[::-1]] = runs.first[inside[::-1]]
    last[group], code[group] = runs.last[inside], runs.code[inside]
    count = (last >> WORD_SHIFT) - (first >> WORD_SHIFT) + 1
    members = np.bincount(group, minlength=groups)
    is_set = (members > MOST_RUNS) & (count <= WORDS_A_RUN * members)
    first, last, code, count = first[is_set], last[is_set], code[is_set], count[is_set]
    begin = np.cumsum(count) - count
    number = np.full(groups, -1)
    number[is_set] = np.arange(len(first))
    set_of = number[group] if groups else group
    in_sets = set_of >= 0
    set_of, members_of = set_of[in_sets], inside[in_sets]
    shift = (begin << WORD_SHIFT) - ((first >> WORD_SHIFT) << WORD_SHIFT)
    words = _words(runs.first[members_of] + shift[set_of], runs.last[members_of] + shift[set_of], int(count.sum()))
    alone = np.ones(len(runs), dtype=bool)
    alone[members_of] = False
    single = runs.where(alone)
    zeros = np.zeros(len(single), dtype=np.int64)
    pairs = zip([*single.columns(), zeros, zeros], [first, last, code, begin, count])
    rows = SetRows(*[*map(np.concatenate, pairs), words])
    return rows.where(np.argsort(rows.first, kind="stable"))


def find_difference(old: StoredRuns, new: Runs) -> Difference:
    """Return the edits that turn the stored rows into the rows of the runs `new` (joined).

    Why it holds: a row is about runs of one group, or about one run. The groups of runs that only one state has are
    compared whole. The runs of all other rows are in both states, so these rows stay. No two rows of one state begin at
    one place, so no two edits have one key. In both states, the first message of a row that stays is in no compared
    group. So no new row of a compared group begins there.
    """
    only_old, only_new = _find_differing(old.runs, new)
    if not len(only_old) and not len(only_new):
        no_rows = make_set_rows(Runs.empty())
        return Difference(no_rows, np.empty(0, dtype=bool), no_rows)
    groups = _Groups(old.runs.where(only_old), new.where(only_new))
    touched = np.zeros(len(old.rows), dtype=bool)
    touched[old.row[groups.members(old.runs, only_old)]] = True
    gone = old.rows.where(touched)
    gone = gone.where(np.argsort(gone.first, kind="stable"))
    written = make_set_rows(new.where(groups.members(new, only_new)))
    at = np.searchsorted(gone.first, written.first)
    replaces = at < len(gone)
    replaces[replaces] = gone.first[at[replaces]] == written.first[replaces]
    before, after = gone.where(at[replaces]), written.where(replaces)
    same = (before.last == after.last) & (before.code == after.code)
    same[same] = before.where(same).same_bits(after.where(same))
    stays = np.zeros(len(written), dtype=bool)
    stays[replaces] = same
    is_removed = np.ones(len(gone), dtype=bool)
    is_removed[at[replaces]] = False
    return Difference(written.where(~stays), ~replaces[~stays], gone.where(is_removed))


class _Groups:
    def __init__(self, *parts: Runs) -> None:
        runs = Runs.concatenate([part.recode(part.code) for part in parts])
        runs = runs.where(_is_inside(runs))
        block = runs.first >> BLOCK_SHIFT
        begins = np.ones(len(block), dtype=bool)
        begins[1:] = block[1:] != block[:-1]
        self._blocks = np.unique(block[begins])
        self._codes = int(runs.code.max()) + 1 if len(runs) else 0
        keys = np.searchsorted(self._blocks, block) * self._codes + runs.code
        #: Sorted keys of groups, or a mask in `_there` if few keys are possible.
        self._keys, self._there = None, np.zeros(0, dtype=bool)
        if len(self._blocks) * self._codes <= 8 * len(keys):
            self._there = np.zeros(len(self._blocks) * self._codes, dtype=bool)
            self._there[keys] = True
        else:
            self._keys = np.unique(keys)

    def members(self, runs: Runs, also: np.ndarray) -> np.ndarray:
        """Return the sorted indexes of the runs in these groups, and those in `also`."""
        start = np.searchsorted(runs.first, self._blocks << BLOCK_SHIFT)
        stop = np.searchsorted(runs.first, (self._blocks + 1) << BLOCK_SHIFT)
        near, block = _ranges(start, stop), np.repeat(np.arange(len(start)), stop - start)
        near_runs = runs.where(near)
        inside = _is_inside(near_runs) & (near_runs.code < self._codes)
        near, keys = near[inside], (block * self._codes + near_runs.code)[inside]
        chosen = np.zeros(len(runs), dtype=bool)
        chosen[also] = True
        chosen[near[self._have_keys(keys)]] = True
        return np.flatnonzero(chosen)

    def _have_keys(self, keys: np.ndarray) -> np.ndarray:
        if self._keys is None:
            is_member: np.ndarray = self._there[keys]
            return is_member
        is_key: np.ndarray = self._keys[np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)] == keys
        return is_key


def _is_inside(runs: Runs) -> np.ndarray:
    inside: np.ndarray = runs.first >> BLOCK_SHIFT == runs.last >> BLOCK_SHIFT
    return inside


def _find_differing(old: Runs, new: Runs) -> tuple[np.ndarray, np.ndarray]:
    """Return the indexes of the runs that are only in `old`, and only in `new`."""
    begin, end = _count_alike(old, new)
    old_middle, new_middle = old.where(slice(begin, len(old) - end)), new.where(slice(begin, len(new) - end))
    alike = len(old_middle) == len(new_middle) and bool((old_middle.first == new_middle.first).all())
    at = np.arange(len(old_middle)) if alike else np.searchsorted(old_middle.first, new_middle.first)
    same = at < len(old_middle)
    old_same, new_same = old_middle.where(at[same]), new_middle.where(same)
    same[same] = (
        (old_same.first == new_same.first) & (old_same.last == new_same.last) & (old_same.code == new_same.code)
    )
    only_old = np.ones(len(old_middle), dtype=bool)
    only_old[at[same]] = False
    return begin + np.flatnonzero(only_old), begin + np.flatnonzero(~same)


def _count_alike(old: Runs, new: Runs) -> tuple[int, int]:
    """Return how many runs are shared at the beginning, and how many more at the end."""
    most = min(len(old), len(new))
    same = np.ones(most, dtype=bool)
    for old_column, new_column in zip(old.columns(), new.columns()):
        same &= old_column[:most] == new_column[:most]
    begin = most if same.all() else int(np.argmin(same))
    remaining = most - begin
    same = np.ones(remaining, dtype=bool)
    for old_column, new_column in zip(old.columns(), new.columns()):
        same &= old_column[len(old_column) - remaining :][::-1] == new_column[len(new_column) - remaining :][::-1]
    return begin, remaining if same.all() else int(np.argmin(same))


def _number_groups(block: np.ndarray, code: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the number of each run's group, and a number above all of these. `block` is sorted."""
    if not len(block):
        return block, 0
    codes = int(code.max()) + 1
    rank = np.cumsum(np.concatenate([[0], block[1:] != block[:-1]]))
    groups = (int(rank[-1]) + 1) * codes
    group = rank * codes + code
    if groups > 8 * len(block):
        distinct, group = np.unique(group, return_inverse=True)
        groups = len(distinct)
    return group, groups


def _words(first: np.ndarray, last: np.ndarray, count: int) -> np.ndarray:
    """Return words with the bits from each `first` to its `last`. No two stretches share a bit."""
    words = np.zeros(count, dtype=np.uint64)
    begins, ends = first >> WORD_SHIFT, last >> WORD_SHIFT
    from_first = _ALL << (first & _IN_WORD).astype(np.uint64)
    to_last = _ALL >> (_IN_WORD - (last & _IN_WORD)).astype(np.uint64)
    in_one_word = begins == ends
    np.add.at(words, begins[in_one_word], from_first[in_one_word] & to_last[in_one_word])
    np.add.at(words, begins[~in_one_word], from_first[~in_one_word])
    np.add.at(words, ends[~in_one_word], to_last[~in_one_word])
    words[_ranges(begins[~in_one_word] + 1, ends[~in_one_word])] = _ALL
    return words


def _ones(words: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the ones, and their words. `place` has each word's first place / 64."""
    nonzero = np.flatnonzero(words)
    ones = np.flatnonzero(np.unpackbits(words[nonzero].view(np.uint8), bitorder="little"))
    at = nonzero[ones >> WORD_SHIFT]
    return (place[at] << WORD_SHIFT) + (ones & _IN_WORD), at


def _ranges(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    lengths = np.maximum(stop - start, 0)
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    numbers: np.ndarray = np.repeat(start, lengths) + within
    return numbers
