"""A FIFO queue's messages as arrays, and the choice of those that a small receive looks at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ledger.rules.state import Status
from ledger.store.delta.model.run_algebra import ABSENT, Pieces, numbers_in, positions
from ledger.store.delta.state.lane_records import UNKNOWN, Lanes
from ledger.store.delta.state.statuses import GONE_STATES, INDEX

#: An index that lacks more messages than both MOST_BEHIND and 1/PART_BEHIND of all is made anew.
MOST_BEHIND, PART_BEHIND = 1_000, 64
_COLUMNS = ("segment", "seq", "sent_at", "available_at", "group")


class Hashed:
    """The numbers of the texts of an Arrow array, found by hash."""

    def __init__(self, texts: pa.Array) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def find(self, text: str) -> int:
        hashes, order = self._sorted
        begin, end = (np.searchsorted(hashes, hash(text), side) for side in ("left", "right"))
        return next((n for n in order[begin:end].tolist() if self._texts[n].as_py() == text), UNKNOWN)

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        hashes = np.fromiter(map(hash, self._texts.to_pylist()), np.int64, len(self._texts))
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order


class GroupNames:
    def __init__(self, names: Hashed, further: dict[str, int] | None = None) -> None:
        self._names, self._further = names, further or {}

    def __len__(self) -> int:
        return len(self._names) + len(self._further)

    def numbers(self, names: list[str]) -> tuple[np.ndarray, GroupNames]:
        """Return the number of each name, and a GroupNames in which each new name has the next number."""
        further, numbers = dict(self._further), []
        for name in names:
            number = further.get(name, UNKNOWN)
            number = self._names.find(name) if number == UNKNOWN else number
            numbers.append(further.setdefault(name, len(self._names) + len(further)) if number == UNKNOWN else number)
        return np.array(numbers, dtype=np.int64), GroupNames(self._names, further)


@dataclass(frozen=True)
class Members:
    """Messages as arrays, in the order of their SequenceNumbers.

    `segment` has indices into `segments`, `seq` ordinals, and `group` the numbers of groups, which `names` finds.
    """

    segments: pa.Array
    segment: np.ndarray
    seq: np.ndarray
    sent_at: np.ndarray
    available_at: np.ndarray
    group: np.ndarray
    groups: int
    #: None for only some of a queue's messages.
    names: GroupNames | None = None
    last: int | None = None
    index: Index | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.seq)

    def with_later(self, later: Members, names: list[str]) -> Members:
        """Return these messages followed by `later`, whose group names by number are `names`."""
        assert self.names is not None
        segment_numbers = {name: number for number, name in enumerate(self.segments.to_pylist())}
        segment = np.array(
            [segment_numbers.setdefault(name, len(segment_numbers)) for name in later.segments.to_pylist()],
            dtype=np.int64,
        )
        group, grown = self.names.numbers(names)
        added = (segment[later.segment], later.seq, later.sent_at, later.available_at, group[later.group])
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), more]) for name, more in zip(_COLUMNS, added)
        }
        segments = pa.array(list(segment_numbers), pa.string())
        return replace(self, segments=segments, groups=len(grown), names=grown, last=later.last, **columns)

    def indexed(self) -> Members:
        return self if self.index is not None else replace(self, index=Index(self))

    def takes(self, later: int) -> bool:
        lacking = len(self) + later - (0 if self.index is None else self.index.count)
        return lacking <= max(MOST_BEHIND, len(self) // PART_BEHIND)

    def of_first(self, lanes: Lanes, pieces: Pieces, state: np.ndarray, most: int) -> Members:
        """Return all messages of some groups, among them the first `most` messages that may be received.

        A group is free if the decision knows all of its messages and none is recorded, delayed, expired or newer than
        the index. The index keeps one order for all free groups. The first `most` free groups are enough: every later
        one has at least `most` messages before it. All other groups with messages left are included, too.

        Return all messages if there is no index, if `most` is at least the number of groups, or if the messages are not
        in the order of their send instants.
        """
        index = self.index
        if index is None or not index.in_time or most >= index.groups:
            return self
        plain = (pieces.code == ABSENT) & (state == INDEX[Status.VISIBLE])
        covered = index.found(self, lanes, pieces.where(plain))
        touched = index.by_place[_between(*_beside(*covered, index.count))]
        not_gone = pieces.where(~plain & ~np.isin(state, GONE_STATES))
        not_gone = index.by_place[_between(*index.found(self, lanes, not_gone))]
        remaining = (
            index.size - _counts(self.group[touched], index.groups) + _counts(self.group[not_gone], index.groups)
        )
        looked_at = np.zeros(index.groups, dtype=bool)
        looked_at[self.group[touched]] = True
        later = self.group[index.count :]
        indexed_groups = later[later < index.groups]
        looked_at[indexed_groups], remaining[indexed_groups] = True, 1
        first = index.waiting[: most + np.count_nonzero(looked_at)]
        groups = np.concatenate([np.flatnonzero(looked_at & (remaining > 0)), first[~looked_at[first]][:most]])
        chosen = index.by_group[numbers_in(index.begins[groups], index.size[groups])]
        return self._some(np.concatenate([np.sort(chosen), np.arange(index.count, len(self))]))

    def _some(self, numbers: np.ndarray) -> Members:
        columns: dict[str, Any] = {name: getattr(self, name)[numbers] for name in _COLUMNS}
        groups, group = np.unique(columns["group"], return_inverse=True)
        return replace(self, names=None, index=None, groups=len(groups), **{**columns, "group": group})


class Index:
    """The places of messages and groups in Members, and the order of free groups (see `Members.of_first`)."""

    def __init__(self, members: Members) -> None:
        self.count, self.groups = len(members), members.groups
        self.in_time = not (members.sent_at[1:] < members.sent_at[:-1]).any()
        place = positions(members.segment, members.seq)
        #: The members sorted by segment and ordinal (`by_place`), and by group (`by_group`, where each group begins at
        #: `begins`).
        self.by_place = np.argsort(place, kind="stable")
        self._places = place[self.by_place]
        self.by_group = np.argsort(members.group, kind="stable")
        self.size = _counts(members.group, self.groups)
        self.begins = np.append(0, np.cumsum(self.size))
        head = self.by_group[self.begins[:-1][self.size > 0]]
        head.sort()
        since = np.maximum(members.sent_at[head], members.available_at[head])
        #: The groups, in the order in which a receive takes them if all are free.
        self.waiting = members.group[head[np.argsort(since, kind="stable")]]

    def found(self, members: Members, lanes: Lanes, pieces: Pieces) -> tuple[np.ndarray, np.ndarray]:
        """Return where the members of each piece begin and end in `by_place`.

        Pieces of segments without members are left out. The others are in the order of `by_place`.
        """
        number = lanes.look_up(members.segments)
        registered = np.flatnonzero(number != UNKNOWN)
        here = np.full(len(lanes.segments), UNKNOWN)
        here[number[registered]] = registered
        segment = here[pieces.segment]
        pieces, segment = pieces.where(segment != UNKNOWN), segment[segment != UNKNOWN]
        first = positions(segment, pieces.first_seq)
        order = np.argsort(first, kind="stable")
        last = (first + pieces.lengths - 1)[order]
        return np.searchsorted(self._places, first[order], "left"), np.searchsorted(self._places, last, "right")


def _counts(group: np.ndarray, groups: int) -> np.ndarray:
    return np.bincount(group, minlength=groups)


def _between(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    return numbers_in(begins, ends - begins)


def _beside(begins: np.ndarray, ends: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the gaps between sorted ranges that do not overlap, from 0 to before `count`."""
    return np.append(0, ends), np.append(begins, count)
