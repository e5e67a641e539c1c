"""The messages of a FIFO queue that a receive may take, in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ledger.delta_log.values import milliseconds
from ledger.rules import fifo
from ledger.rules.state import Record, Status
from ledger.store.delta.engine import MessageFiles
from ledger.store.delta.model.run_algebra import ABSENT, Ordered, positions
from ledger.store.delta.model.tables import MESSAGES
from ledger.store.delta.model.where import Where, tuple_of
from ledger.store.delta.state.fifo_members import GroupNames, Hashed, Members
from ledger.store.delta.state.lane_records import UNKNOWN
from ledger.store.delta.state.listing import Listing
from ledger.store.delta.state.snapshot import Classified, Loaded
from ledger.store.delta.state.statuses import GONE_STATES, INDEX
from ledger.store.protocol import QueueRecord

_COLUMNS = ["segment", "seq", "sent_at", "available_at", "message_group_id", "sequence_number"]
#: With more than MOST_PIECES chunks, all kept rows but the first chunk are joined. If these are more than 1/PART_LATER
#: of all rows, the first chunk is joined, too.
MOST_PIECES, PART_LATER = 64, 16
#: The low bits of an order number are the message's place. The bits above are the rank of its group.
ORDER_SHIFT = 32
_NAMES = dict.fromkeys(("segment", "message_group_id"), pa.dictionary(pa.int32(), pa.string()))


class Groups:
    """Reads the messages of FIFO queues and their groups, and finds the receivable ones. Threads share this object.

    A later send has greater sequence numbers, so the next read needs only messages behind the kept rows. The kept rows
    may be newer than a decision's listing: the decision skips the other messages.
    """

    def __init__(self, engine: MessageFiles, queues: Callable[[], Sequence[QueueRecord]]) -> None:
        self._engine, self._queues = engine, queues
        #: By queue and generation: a version of `messages`, and at least all rows of the queue in this version.
        self._own: dict[tuple[str, int], tuple[int, pa.Table]] = {}
        #: The version, the places of messages from other queues, and all members.
        self._kept: dict[tuple[str, int], tuple[int, tuple[Where, ...], Members]] = {}

    def receivable(self, loaded: Loaded, classified: Classified, most: int | None = None) -> Ordered:
        """Return the receivable messages of a FIFO queue, as in `rules.fifo.receivable`; each run has one message.

        With `most` the result may leave out groups (see `choosing.find_receivable`).
        """
        _, _, pieces, state = classified
        lanes, members = loaded.lanes, self._members(loaded.queue.id, classified)
        if most is not None:
            members = members.of_first(lanes, pieces, state, most)
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
        turns = _turns(group[free], since, last)
        return Ordered(position[free], position[free], pieces.code[piece[free]], turns)

    def _members(self, queue: str, classified: Classified) -> Members:
        """Return all messages sent to this queue, and all of segments with messages moved here."""
        version = classified.listing.version
        homes = classified.listing.homes(classified.files.segment.unique().to_pylist())
        foreign = tuple(Where(home, None, tuple_of(segments)) for home, segments in homes.items() if home != queue)
        key = queue, classified.listing.generation
        kept = self._kept.get(key)
        if kept is None or kept[0] < version or kept[1] != foreign:
            rows = self._read(queue, classified.listing)
            if kept is None:
                self._let_go()
            if foreign:
                rows = _in_order([rows, *(_encoded(self._engine.messages(where, _COLUMNS)) for where in foreign)])
                members = _members_of(rows)
            else:
                members = _followed(kept[2] if kept is not None and not kept[1] else None, rows).indexed()
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

        If the listing has less than half as many messages as the known rows, all rows are read anew.
        """
        key = queue, listing.generation
        version, rows = self._own.get(key, (-1, None))
        if version < listing.version:
            keep = rows is not None and 0 < rows.num_rows <= 2 * listing.count(queue)
            rows = self._later(queue, rows) if keep else self._all(queue)
            self._own[key] = listing.version, rows
        return rows

    def _all(self, queue: str) -> pa.Table:
        return _in_order([_encoded(self._engine.messages(Where(queue), _COLUMNS))])

    def _later(self, queue: str, kept: pa.Table) -> pa.Table:
        last = kept["sequence_number"][-1].as_py()
        later = self._engine.messages(Where(queue), _COLUMNS, numbered_after=last)
        return _in_few_pieces(pa.concat_tables([kept, _in_order([_encoded(later)])])) if later.num_rows else kept


def _encoded(rows: pa.Table) -> pa.Table:
    return rows.cast(pa.schema([(name, _NAMES.get(name, MESSAGES.field(name).type)) for name in _COLUMNS]))


def _in_order(tables: list[pa.Table]) -> pa.Table:
    rows = _in_one_piece(pa.concat_tables(tables))
    number = rows["sequence_number"].to_numpy()
    return rows if (number[1:] > number[:-1]).all() else rows.take(pa.array(np.argsort(number, kind="stable")))


def _in_one_piece(rows: pa.Table) -> pa.Table:
    return rows.unify_dictionaries().combine_chunks()


def _in_few_pieces(rows: pa.Table) -> pa.Table:
    if rows["seq"].num_chunks <= MOST_PIECES:
        return rows
    first = len(rows["seq"].chunk(0))
    if PART_LATER * (rows.num_rows - first) > rows.num_rows:
        return _in_one_piece(rows)
    return pa.concat_tables([rows.slice(0, first), _in_one_piece(rows.slice(first))])


def _followed(members: Members | None, rows: pa.Table) -> Members:
    """Return the Members of `rows`, which are the messages of a queue in their order.

    No message is ever sent between known messages. If the last message of `members` has its place in `rows`, only the
    rows behind it are converted.
    """
    if (
        members is None
        or not 0 < len(members) <= rows.num_rows
        or members.last != rows["sequence_number"][len(members) - 1].as_py()
    ):
        return _members_of(rows)
    if not members.takes(rows.num_rows - len(members)):
        return _members_of(rows)
    later = _in_one_piece(rows.slice(len(members)))
    if not later.num_rows:
        return members
    return members.with_later(_members_of(later), later["message_group_id"].combine_chunks().dictionary.to_pylist())


def _members_of(rows: pa.Table) -> Members:
    if not rows.num_rows:
        empty, names = np.empty(0, dtype=np.int64), pa.array([], pa.string())
        return Members(names, empty, empty, empty, empty, empty, 0, GroupNames(Hashed(names)))
    rows = _in_one_piece(rows)
    segment, group = (rows[name].combine_chunks() for name in ("segment", "message_group_id"))
    segment_of, group_of = (one.indices.to_numpy(zero_copy_only=False).astype(np.int64) for one in (segment, group))
    sent_at, available_at = (milliseconds(rows[name]).to_numpy() for name in ("sent_at", "available_at"))
    seq, names, last = rows["seq"].to_numpy(), GroupNames(Hashed(group.dictionary)), rows["sequence_number"][-1].as_py()
    return Members(segment.dictionary, segment_of, seq, sent_at, available_at, group_of, len(names), names, last)


def _free_prefix(group: np.ndarray, groups: int, status: np.ndarray) -> np.ndarray:
    """Return the indices of the visible messages before every hidden one (delayed, locked or in flight) of their
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
    ended = loaded.lanes.per_code(classified.pieces.code, _recorded_end, np.int64)
    if (ended < 0).all():
        return last
    period, before = loaded.queue.retention
    # The twin of `Retention.ends`.
    expires = kept_from + period
    expires[kept_from <= before] = np.minimum(expires[kept_from <= before], before)
    ended = np.minimum(ended[piece], expires)
    past = np.flatnonzero((ended >= 0) & (ended <= loaded.now))
    np.maximum.at(last, group[past], ended[past])
    return last


def _recorded_end(record: Record) -> int:
    ended = fifo.hold_ended(record, sys.maxsize)
    return -1 if ended is None else ended


def _turns(group: np.ndarray, since: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return an order number for each receivable message; the smallest comes first.

    The messages of one group follow each other, and the groups have the order of `rules.fifo.place_of_group`. The bits
    from ORDER_SHIFT up are the group's own.

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
