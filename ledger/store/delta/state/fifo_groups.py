"""The messages of a FIFO queue that a receive may take, in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ledger.delta_log.statements import to_milliseconds
from ledger.rules import fifo
from ledger.rules.visibility import Record, Status
from ledger.store.delta.engine import MessageFiles
from ledger.store.delta.model.message_runs import ABSENT, Ordered, Pieces, expand_ranges, positions
from ledger.store.delta.model.tables import MESSAGES, Where, sort_distinct
from ledger.store.delta.state.lane_records import UNKNOWN, Lanes
from ledger.store.delta.state.listing import GONE_STATES, INDEX, Listing
from ledger.store.delta.state.snapshot import Classified, Loaded
from ledger.store.protocol import QueueRecord

#: An index that lacks more messages than both MOST_BEHIND and 1/PART_BEHIND of all messages is made anew.
MOST_BEHIND, PART_BEHIND = 1_000, 64
_ARRAYS = ("segment", "seq", "sent_at", "available_at", "group")


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

    `segment` has indices into `segments`. `seq` has ordinals. `group` has the numbers of groups, which `names` finds.
    """

    segments: pa.Array
    segment: np.ndarray
    seq: np.ndarray
    sent_at: np.ndarray
    available_at: np.ndarray
    group: np.ndarray
    groups: int
    #: None if these are only some of a queue's messages.
    names: GroupNames | None = None
    last: int | None = None
    index: Index | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.seq)

    def append_later(self, later: Members, names: list[str]) -> Members:
        """Return these messages, then `later`. `names` has the names of the groups of `later`, by number."""
        assert self.names is not None
        segment_numbers = {name: number for number, name in enumerate(self.segments.to_pylist())}
        segment = np.array(
            [segment_numbers.setdefault(name, len(segment_numbers)) for name in later.segments.to_pylist()],
            dtype=np.int64,
        )
        group, grown = self.names.numbers(names)
        added = (segment[later.segment], later.seq, later.sent_at, later.available_at, group[later.group])
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), more]) for name, more in zip(_ARRAYS, added)
        }
        segments = pa.array(list(segment_numbers), pa.string())
        return replace(self, segments=segments, groups=len(grown), names=grown, last=later.last, **columns)

    def add_index(self) -> Members:
        return self if self.index is not None else replace(self, index=Index(self))

    def can_take(self, later: int) -> bool:
        lacking = len(self) + later - (0 if self.index is None else self.index.count)
        return lacking <= max(MOST_BEHIND, len(self) // PART_BEHIND)

    def keep_first_groups(self, lanes: Lanes, pieces: Pieces, state: np.ndarray, most: int) -> Members:
        """Return all messages of some groups, among them the first `most` messages that may be received.

        A group is free if the decision knows all of its messages, and none of these has a record, is delayed or
        expired, or is newer than the index. The index keeps one order for all free groups. The first `most` free groups
        are enough: every later free group has at least `most` messages before it. Groups that are not free, but have
        messages left, are included, too.

        Return all messages if there is no index, if `most` is at least the number of groups, or if the messages are not
        in the order of their send instants.
        """
        index = self.index
        if index is None or not index.in_time or most >= index.groups:
            return self
        plain = (pieces.code == ABSENT) & (state == INDEX[Status.VISIBLE])
        covered = index.found(self, lanes, pieces.where(plain))
        touched = index.by_place[_expand_ranges(*_find_gaps(*covered, index.count))]
        not_gone = pieces.where(~plain & ~np.isin(state, GONE_STATES))
        not_gone = index.by_place[_expand_ranges(*index.found(self, lanes, not_gone))]
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
        chosen = index.by_group[expand_ranges(index.begins[groups], index.size[groups])]
        return self._select(np.concatenate([np.sort(chosen), np.arange(index.count, len(self))]))

    def _select(self, numbers: np.ndarray) -> Members:
        columns: dict[str, Any] = {name: getattr(self, name)[numbers] for name in _ARRAYS}
        groups, group = np.unique(columns["group"], return_inverse=True)
        return replace(self, names=None, index=None, groups=len(groups), **{**columns, "group": group})


class Index:
    """The places of messages and groups in Members, and the order of free groups (see `Members.keep_first_groups`)."""

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


def _expand_ranges(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    return expand_ranges(begins, ends - begins)


def _find_gaps(begins: np.ndarray, ends: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of [0, count) that no range covers. The ranges are sorted and do not overlap."""
    return np.append(0, ends), np.append(begins, count)


_COLUMNS = ["segment", "seq", "sent_at", "available_at", "message_group_id", "sequence_number"]
#: With more than MOST_PIECES chunks, all kept rows but the first chunk are joined. If these are more than 1/PART_LATER
#: of all rows, the first chunk is joined, too.
MOST_PIECES, PART_LATER = 64, 16
#: The low bits of an order number are the message's place. The bits above are the rank of its group.
ORDER_SHIFT = 32
_NAMES = dict.fromkeys(("segment", "message_group_id"), pa.dictionary(pa.int32(), pa.string()))


class Groups:
    """Reads the messages of FIFO queues and their groups, and finds the receivable ones. Threads share this object.

    A later send has higher sequence numbers, so the next read needs only messages behind the kept rows. The kept rows
    may be newer than a decision's listing: the decision skips messages that the listing lacks.
    """

    def __init__(self, engine: MessageFiles, queues: Callable[[], Sequence[QueueRecord]]) -> None:
        self._engine, self._queues = engine, queues
        #: By queue and generation: a version of `messages`, and at least all rows of the queue in this version.
        self._own: dict[tuple[str, int], tuple[int, pa.Table]] = {}
        #: By queue and generation: the version, the segments of other queues, and all members.
        self._kept: dict[tuple[str, int], tuple[int, tuple[Where, ...], Members]] = {}

    def find_receivable(self, loaded: Loaded, classified: Classified, most: int | None = None) -> Ordered:
        """Return the receivable messages of a FIFO queue, as `rules.fifo.select_receivable` does.

        Each run has one message. With `most` the result may lack groups (see `choosing.find_receivable`).
        """
        _, _, pieces, state = classified
        lanes, members = loaded.lanes, self._members(loaded.queue.id, classified)
        if most is not None:
            members = members.keep_first_groups(lanes, pieces, state, most)
        number = lanes.look_up(members.segments)[members.segment]
        position = positions(number, members.seq)
        sort = np.argsort(pieces.first, kind="stable")
        at = pieces.where(sort).find(position)
        inside = (number != UNKNOWN) & (at != ABSENT)
        piece, position, group = sort[at[inside]], position[inside], members.group[inside]
        available_at, sent_at = members.available_at[inside], members.sent_at[inside]
        moved_in = lanes.records.numbers("enqueued_at")[pieces.code - ABSENT]
        arrived_at = np.where(moved_in[piece] < 0, sent_at, moved_in[piece])
        kept_from = np.maximum(arrived_at, sent_at)
        # Messages of one move share an arrival. Their order is that of their send instants, because sequence numbers of
        # several queues cannot be compared.
        if (
            (arrived_at[1:] < arrived_at[:-1]) | ((arrived_at[1:] == arrived_at[:-1]) & (sent_at[1:] < sent_at[:-1]))
        ).any():
            order = np.lexsort((sent_at, arrived_at))
            piece, position, group, arrived_at, available_at, kept_from = (
                column[order] for column in (piece, position, group, arrived_at, available_at, kept_from)
            )
        free = _free_prefix(group, members.groups, state[piece])
        since = np.maximum(arrived_at[free], available_at[free])
        last = _last_holds(loaded, classified, piece, kept_from, group, members.groups)
        turns = _number_turns(group[free], since, last)
        return Ordered(position[free], position[free], pieces.code[piece[free]], turns)

    def _members(self, queue: str, classified: Classified) -> Members:
        """Return all messages that were sent to this queue, and all messages of the segments from which messages were
        moved here."""
        version = classified.listing.version
        homes = classified.listing.homes(classified.files.segment.unique().to_pylist())
        foreign = tuple(Where(home, None, sort_distinct(segments)) for home, segments in homes.items() if home != queue)
        key = queue, classified.listing.generation
        kept = self._kept.get(key)
        if kept is None or kept[0] < version or kept[1] != foreign:
            rows = self._read(queue, classified.listing)
            if kept is None:
                self._let_go()
            if foreign:
                rows = _sort_by_number(
                    [rows, *(_encode_rows(self._engine.messages(where, _COLUMNS)) for where in foreign)]
                )
                members = _members_of(rows)
            else:
                members = _follow_rows(kept[2] if kept is not None and not kept[1] else None, rows).add_index()
            kept = self._kept[key] = version, foreign, members
        return kept[2]

    def _let_go(self) -> None:
        existing = {queue.id for queue in self._queues()}
        cache: dict[tuple[str, int], Any]
        for cache in (self._own, self._kept):
            for key in [one for one in list(cache) if one[0] not in existing or one[1] != self._engine.generation()]:
                cache.pop(key, None)

    def _read(self, queue: str, listing: Listing) -> pa.Table:
        """Return the messages that were sent to a queue, in their order: at least all messages of the listing.

        If the listing has less than half as many messages as the kept rows, all rows are read anew.
        """
        key = queue, listing.generation
        version, rows = self._own.get(key, (-1, None))
        if version < listing.version:
            keep = rows is not None and 0 < rows.num_rows <= 2 * listing.count(queue)
            rows = self._append_later(queue, rows) if keep else self._read_all(queue)
            self._own[key] = listing.version, rows
        return rows

    def _read_all(self, queue: str) -> pa.Table:
        return _sort_by_number([_encode_rows(self._engine.messages(Where(queue), _COLUMNS))])

    def _append_later(self, queue: str, kept: pa.Table) -> pa.Table:
        last = kept["sequence_number"][-1].as_py()
        later = self._engine.messages(Where(queue), _COLUMNS, numbered_after=last)
        return (
            _combine_small_pieces(pa.concat_tables([kept, _sort_by_number([_encode_rows(later)])]))
            if later.num_rows
            else kept
        )


def _encode_rows(rows: pa.Table) -> pa.Table:
    return rows.cast(pa.schema([(name, _NAMES.get(name, MESSAGES.field(name).type)) for name in _COLUMNS]))


def _sort_by_number(tables: list[pa.Table]) -> pa.Table:
    rows = _combine_rows(pa.concat_tables(tables))
    number = rows["sequence_number"].to_numpy()
    return rows if (number[1:] > number[:-1]).all() else rows.take(pa.array(np.argsort(number, kind="stable")))


def _combine_rows(rows: pa.Table) -> pa.Table:
    return rows.unify_dictionaries().combine_chunks()


def _combine_small_pieces(rows: pa.Table) -> pa.Table:
    if rows["seq"].num_chunks <= MOST_PIECES:
        return rows
    first = len(rows["seq"].chunk(0))
    if PART_LATER * (rows.num_rows - first) > rows.num_rows:
        return _combine_rows(rows)
    return pa.concat_tables([rows.slice(0, first), _combine_rows(rows.slice(first))])


def _follow_rows(members: Members | None, rows: pa.Table) -> Members:
    """Return the Members of `rows`, which are the messages of a queue in their order.

    No message is ever sent between known messages. If the last message of `members` has the same place in `rows`, and
    the index is not too old, only the rows behind that message are converted.
    """
    if (
        members is None
        or not 0 < len(members) <= rows.num_rows
        or members.last != rows["sequence_number"][len(members) - 1].as_py()
    ):
        return _members_of(rows)
    if not members.can_take(rows.num_rows - len(members)):
        return _members_of(rows)
    later = _combine_rows(rows.slice(len(members)))
    if not later.num_rows:
        return members
    return members.append_later(_members_of(later), later["message_group_id"].combine_chunks().dictionary.to_pylist())


def _members_of(rows: pa.Table) -> Members:
    if not rows.num_rows:
        empty, names = np.empty(0, dtype=np.int64), pa.array([], pa.string())
        return Members(names, empty, empty, empty, empty, empty, 0, GroupNames(Hashed(names)))
    rows = _combine_rows(rows)
    segment, group = (rows[name].combine_chunks() for name in ("segment", "message_group_id"))
    segment_of, group_of = (one.indices.to_numpy(zero_copy_only=False).astype(np.int64) for one in (segment, group))
    sent_at, available_at = (to_milliseconds(rows[name]).to_numpy() for name in ("sent_at", "available_at"))
    seq, names, last = rows["seq"].to_numpy(), GroupNames(Hashed(group.dictionary)), rows["sequence_number"][-1].as_py()
    return Members(segment.dictionary, segment_of, seq, sent_at, available_at, group_of, len(names), names, last)


def _free_prefix(group: np.ndarray, groups: int, status: np.ndarray) -> np.ndarray:
    """Return the indices of the visible messages before every hidden message (delayed, locked or in flight) of their
    group."""
    visible = status == INDEX[Status.VISIBLE]
    hidden = np.flatnonzero(~visible & ~np.isin(status, GONE_STATES))
    if not len(hidden):
        return np.flatnonzero(visible)
    barrier = np.full(groups, len(group))
    barrier[group[hidden[::-1]]] = hidden[::-1]
    return np.flatnonzero(visible & (np.arange(len(group)) < barrier[group]))


def _last_holds(
    loaded: Loaded, classified: Classified, piece: np.ndarray, kept_from: np.ndarray, group: np.ndarray, groups: int
) -> np.ndarray:
    """Return, for each group, when the last hold of one of its messages ended, up to now; -1 if none.

    A hold ends at the latest when its message expires.
    """
    last = np.full(groups, -1)
    ended = loaded.lanes.per_code(classified.pieces.code, _find_hold_end, np.int64)
    if (ended < 0).all():
        return last
    period, before = loaded.queue.retention
    # The same rule as `Retention.ends`, on arrays: change both together.
    expires = kept_from + period
    expires[kept_from <= before] = np.minimum(expires[kept_from <= before], before)
    ended = np.minimum(ended[piece], expires)
    past = np.flatnonzero((ended >= 0) & (ended <= loaded.now))
    np.maximum.at(last, group[past], ended[past])
    return last


def _find_hold_end(record: Record) -> int:
    ended = fifo.hold_ended(record, sys.maxsize)
    return -1 if ended is None else ended


def _number_turns(group: np.ndarray, since: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return an order number for each receivable message; the smallest comes first.

    No message of another group comes between two messages of one group. The groups have the order of
    `rules.fifo.place_of_group`. The bits from ORDER_SHIFT up are the rank of the group.

    Args:
        group: The group of each receivable message, in order.
        since: The instant from which each of these messages could be received.
        last: When the last hold of each group ended; -1 for none.
    """
    place = np.arange(len(group))
    head = np.empty(len(last), dtype=np.int64)
    # Assigned backwards, so that the first message of each group wins.
    head[group[::-1]] = place[::-1]
    heads = np.flatnonzero(head[group] == place)
    since, last = since[heads], last[group[heads]]
    turn = 2 * np.maximum(since, last) + (last >= since)
    rank = np.empty(len(head), dtype=np.int64)
    rank[group[heads[np.argsort(turn, kind="stable")]]] = np.arange(len(heads))
    turns: np.ndarray = (rank[group] << ORDER_SHIFT) | place
    return turns
