"""Rows about sets of messages: what is scattered over a block of a segment under one record is a row, not a row a run.

A row of `visibility` is about a run, or, where it has `bits`, about those messages from its first to its last that have
a bit. In memory these are runs, all of them; here alone they become rows and come back. What the rows of a state are is
canonical, so equal states are equal rows, and a change touches the rows of its blocks only. All of it vectorized.

**The rows of a state.** Neighbours under one record are one run. A run that lies in more than one block (BLOCK ordinals
of a segment) is a row. The runs within one block that share a record, a *group*, are one row with bits when they are
more than MOST_RUNS and take no more than WORDS_A_RUN words for each of them; else each is a row. So what few bits would
be scattered over many words stays rows: never is a state larger than that many words for each of its runs.

**The words.** A word has the bits of 64 ordinals, the lowest bit for the lowest, and begins at a multiple of 64. The
first word has the row's first message, the last word its last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.store.delta.model.run_algebra import Runs, numbers_in
from ledger.store.delta.model.tables import WORDS

#: So many ordinals (two to the power of) are a block.
BLOCK_SHIFT = 15
#: So many ordinals (two to the power of) have their bits in one word.
WORD_SHIFT = 6
#: Up to so many runs of a group are rows of their own. Tests set it to less.
MOST_RUNS = 4
#: So many words may a run of a group take, at most.
WORDS_A_RUN = 16
_IN_WORD = (1 << WORD_SHIFT) - 1
_ALL, _ONE = np.uint64(0xFFFF_FFFF_FFFF_FFFF), np.uint64(1)


@dataclass(frozen=True, eq=False)
class SetRows(Runs):
    """Rows, in any order: runs that hold each of their messages, or, with `size` words from `begin` on in `words`,
    those that have a bit. The words are shared by what is made of the same rows."""

    begin: np.ndarray
    size: np.ndarray
    words: np.ndarray

    def columns(self) -> list[np.ndarray]:
        return [self.first, self.last, self.code, self.begin, self.size]

    def where(self, chosen: np.ndarray | slice) -> SetRows:
        return SetRows(*[column[chosen] for column in self.columns()] + [self.words])

    def bits(self) -> pa.Array:
        """The column `bits`; null where all messages of a run are meant."""
        offsets = np.concatenate([[0], np.cumsum(self.size)])
        values = pa.array(self.words[self._places()].view(np.int64))
        nothing = pa.array(self.size == 0)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, WORDS, mask=nothing)

    def runs(self) -> tuple[Runs, np.ndarray]:
        """All messages as runs, sorted by place, and the number of the row that each comes from."""
        alone = np.flatnonzero(self.size == 0)
        sets = self.where(self.size > 0)
        if not len(sets):
            order = np.argsort(self.first, kind="stable")
            return Runs(self.first, self.last, self.code).where(order), order
        words = sets.words[sets._places()]
        row = np.repeat(np.arange(len(sets)), sets.size)
        begins = np.cumsum(sets.size) - sets.size
        # Where each word's first ordinal is on the axis: segments begin at multiples of 64 there, too.
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
        """Which rows have the bits of the row of `other` in the same place. Both have the same first and last
        messages."""
        same: np.ndarray = self.size == other.size
        both = np.flatnonzero(same & (self.size > 0))
        mine, theirs = self.where(both), other.where(both)
        differs = mine.words[mine._places()] != theirs.words[theirs._places()]
        same[np.repeat(both, mine.size)[differs]] = False
        return same

    def _places(self) -> np.ndarray:
        """Where the words are, row by row."""
        return numbers_in(self.begin, self.size)


class StoredRuns(NamedTuple):
    """The rows of a table, and the same as runs, sorted by place, each with the number of its row."""

    rows: SetRows
    runs: Runs
    row: np.ndarray


class Difference(NamedTuple):
    """What makes other rows of some: rows to write, each either new or in the place of the one that begins where it
    does, and rows to remove."""

    written: SetRows
    is_new: np.ndarray
    gone: SetRows


def stored(runs: Runs, bits: pa.ChunkedArray | pa.Array | None = None) -> StoredRuns:
    """Rows as they were read: where they begin and end with their codes, in any order, and their column `bits`; None
    where the table has none."""
    nothing = np.zeros(len(runs), dtype=np.int64)
    rows = SetRows(*[*runs.columns(), nothing, nothing, np.empty(0, dtype=np.uint64)])
    if bits is not None and bits.null_count < len(bits):
        bits = bits.combine_chunks() if isinstance(bits, pa.ChunkedArray) else bits
        words = bits.flatten().to_numpy(zero_copy_only=False).astype(np.int64, copy=False).view(np.uint64)
        count = pc.fill_null(pc.list_value_length(bits), 0).to_numpy().astype(np.int64)
        rows = SetRows(*[*runs.columns(), np.cumsum(count) - count, count, words])
    return StoredRuns(rows, *rows.runs())


def rows_of(runs: Runs) -> SetRows:
    """The rows of a state, given as runs that are sorted by place with neighbours joined."""
    runs = runs.coded(runs.code)
    inside = np.flatnonzero(_is_inside(runs))
    group, groups = _numbered(runs.first[inside] >> BLOCK_SHIFT, runs.code[inside])
    # Sorted by place: the last one that is assigned is a group's first run, from behind, and its last one.
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
    mine = number[group] if groups else group
    in_sets = mine >= 0
    mine, members_of = mine[in_sets], inside[in_sets]
    shift = (begin << WORD_SHIFT) - ((first >> WORD_SHIFT) << WORD_SHIFT)
    words = _words(runs.first[members_of] + shift[mine], runs.last[members_of] + shift[mine], int(count.sum()))
    alone = np.ones(len(runs), dtype=bool)
    alone[members_of] = False
    rest = runs.where(alone)
    nothing = np.zeros(len(rest), dtype=np.int64)
    pairs = zip([*rest.columns(), nothing, nothing], [first, last, code, begin, count])
    rows = SetRows(*[*map(np.concatenate, pairs), words])
    return rows.where(np.argsort(rows.first, kind="stable"))


def difference(old: StoredRuns, new: Runs) -> Difference:
    """What makes of the stored rows those of the runs `new` (sorted, joined), wherever the two differ; see `rows_of`.

    Why it holds: a row, old or new, is about runs of one group, or about one run. The groups of all runs that are only
    in one of the two states are looked at whole, with the rows of their old runs; all other rows stay, and so do their
    runs, which are in both. Of disjoint sets no two begin at one place. So rows are compared by where they begin, and
    no two edits are about one key: a row that stays has its first message in both states, in one group, which is none
    of those, and no new row of theirs begins there.
    """
    only_old, only_new = _differing(old.runs, new)
    if not len(only_old) and not len(only_new):
        nothing = rows_of(Runs.empty())
        return Difference(nothing, np.empty(0, dtype=bool), nothing)
    groups = _Groups(old.runs.where(only_old), new.where(only_new))
    touched = np.zeros(len(old.rows), dtype=bool)
    touched[old.row[groups.members(old.runs, only_old)]] = True
    gone = old.rows.where(touched)
    gone = gone.where(np.argsort(gone.first, kind="stable"))
    written = rows_of(new.where(groups.members(new, only_new)))
    at = np.searchsorted(gone.first, written.first)
    known = at < len(gone)
    known[known] = gone.first[at[known]] == written.first[known]
    before, after = gone.where(at[known]), written.where(known)
    same = (before.last == after.last) & (before.code == after.code)
    same[same] = before.where(same).same_bits(after.where(same))
    stays = np.zeros(len(written), dtype=bool)
    stays[known] = same
    left = np.ones(len(gone), dtype=bool)
    left[at[known]] = False
    return Difference(written.where(~stays), ~known[~stays], gone.where(left))


class _Groups:
    """The groups of some runs."""

    def __init__(self, *some: Runs) -> None:
        runs = Runs.concatenated([part.coded(part.code) for part in some])
        runs = runs.where(_is_inside(runs))
        block = runs.first >> BLOCK_SHIFT
        begins = np.ones(len(block), dtype=bool)
        begins[1:] = block[1:] != block[:-1]
        self._blocks = np.unique(block[begins])
        self._codes = int(runs.code.max()) + 1 if len(runs) else 0
        keys = np.searchsorted(self._blocks, block) * self._codes + runs.code
        #: The keys of the groups, sorted; or for each key whether there is such a group, where these are not too many.
        self._keys, self._there = None, np.zeros(0, dtype=bool)
        if len(self._blocks) * self._codes <= 8 * len(keys):
            self._there = np.zeros(len(self._blocks) * self._codes, dtype=bool)
            self._there[keys] = True
        else:
            self._keys = np.unique(keys)

    def members(self, runs: Runs, also: np.ndarray) -> np.ndarray:
        """The numbers of the runs (sorted by place) in these groups, and `also`, which are such numbers too; sorted."""
        start = np.searchsorted(runs.first, self._blocks << BLOCK_SHIFT)
        stop = np.searchsorted(runs.first, (self._blocks + 1) << BLOCK_SHIFT)
        near, block = _ranges(start, stop), np.repeat(np.arange(len(start)), stop - start)
        mine = runs.where(near)
        inside = _is_inside(mine) & (mine.code < self._codes)
        near, keys = near[inside], (block * self._codes + mine.code)[inside]
        chosen = np.zeros(len(runs), dtype=bool)
        chosen[also] = True
        chosen[near[self._are_there(keys)]] = True
        return np.flatnonzero(chosen)

    def _are_there(self, keys: np.ndarray) -> np.ndarray:
        if self._keys is None:
            there: np.ndarray = self._there[keys]
            return there
        found: np.ndarray = self._keys[np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)] == keys
        return found


def _is_inside(runs: Runs) -> np.ndarray:
    """Which runs lie in one block."""
    inside: np.ndarray = runs.first >> BLOCK_SHIFT == runs.last >> BLOCK_SHIFT
    return inside


def _differing(old: Runs, new: Runs) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the runs that are only in the one, or only in the other. Both are sorted by place."""
    begin, end = _alike(old, new)
    mine, theirs = old.where(slice(begin, len(old) - end)), new.where(slice(begin, len(new) - end))
    alike = len(mine) == len(theirs) and bool((mine.first == theirs.first).all())
    at = np.arange(len(mine)) if alike else np.searchsorted(mine.first, theirs.first)
    same = at < len(mine)
    found, there = mine.where(at[same]), theirs.where(same)
    same[same] = (found.first == there.first) & (found.last == there.last) & (found.code == there.code)
    left = np.ones(len(mine), dtype=bool)
    left[at[same]] = False
    return begin + np.flatnonzero(left), begin + np.flatnonzero(~same)


def _alike(old: Runs, new: Runs) -> tuple[int, int]:
    """How many runs are the same at the beginning of both, and how many of the others at the end: most changes are of a
    small part."""
    most = min(len(old), len(new))
    same = np.ones(most, dtype=bool)
    for ours, theirs in zip(old.columns(), new.columns()):
        same &= ours[:most] == theirs[:most]
    begin = most if same.all() else int(np.argmin(same))
    rest = most - begin
    same = np.ones(rest, dtype=bool)
    for ours, theirs in zip(old.columns(), new.columns()):
        same &= ours[len(ours) - rest :][::-1] == theirs[len(theirs) - rest :][::-1]
    return begin, rest if same.all() else int(np.argmin(same))


def _numbered(block: np.ndarray, code: np.ndarray) -> tuple[np.ndarray, int]:
    """The group of each run, by its block and its code, as numbers from 0 on, and how many there are. `block` grows."""
    if not len(block):
        return block, 0
    codes = int(code.max()) + 1
    rank = np.cumsum(np.concatenate([[0], block[1:] != block[:-1]]))
    groups = (int(rank[-1]) + 1) * codes
    group = rank * codes + code
    if groups > 8 * len(block):
        known, group = np.unique(group, return_inverse=True)
        groups = len(known)
    return group, groups


def _words(first: np.ndarray, last: np.ndarray, count: int) -> np.ndarray:
    """So many words with the bits from `first` to `last` set, for disjoint stretches of bits."""
    words = np.zeros(count, dtype=np.uint64)
    begins, ends = first >> WORD_SHIFT, last >> WORD_SHIFT
    from_first = _ALL << (first & _IN_WORD).astype(np.uint64)
    to_last = _ALL >> (_IN_WORD - (last & _IN_WORD)).astype(np.uint64)
    one = begins == ends
    # Bits that are disjoint add up.
    np.add.at(words, begins[one], from_first[one] & to_last[one])
    np.add.at(words, begins[~one], from_first[~one])
    np.add.at(words, ends[~one], to_last[~one])
    words[_ranges(begins[~one] + 1, ends[~one])] = _ALL
    return words


def _ones(words: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the ones are in words that lie in some places, and the number of the word of each."""
    some = np.flatnonzero(words)
    ones = np.flatnonzero(np.unpackbits(words[some].view(np.uint8), bitorder="little"))
    at = some[ones >> WORD_SHIFT]
    return (place[at] << WORD_SHIFT) + (ones & _IN_WORD), at


def _ranges(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """The numbers from each start up to its stop, one behind the other."""
    lengths = np.maximum(stop - start, 0)
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    numbers: np.ndarray = np.repeat(start, lengths) + within
    return numbers
