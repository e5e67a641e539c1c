"""The message groups of FIFO queues: reads the group and the place of each message once."""

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
#: A queue's known messages are kept in at most MOST_PIECES pieces. All pieces are joined into one when the later pieces
#: have more than one message in PART_LATER.
MOST_PIECES, PART_LATER = 64, 16
#: The number of the lowest bits of an order number, which are the message's. The bits above them are the group's.
TURN_SHIFT = 32
_NAMES = dict.fromkeys(("segment", "message_group_id"), pa.dictionary(pa.int32(), pa.string()))


class Groups:
    """Reads the groups of a FIFO queue's messages, and returns the receivable messages in their order, as arrays.

    Rows that were read are kept: sends to a FIFO queue are ordered by their numbers, so only later messages are read.
    Threads share this object, and each may be at another version of the table. So no kept row is dropped while its
    message exists. A decision may use any state that has all messages of the decision's own listing. The decision skips
    messages that its listing does not have.
    """

    def __init__(self, engine: MessageFiles, queues: Callable[[], Sequence[QueueRecord]]) -> None:
        self._engine, self._queues = engine, queues
        #: By queue and generation: a version of `messages`, and rows that contain all messages of that version. A
        #: thread may replace another thread's entry.
        self._own: dict[tuple[str, int], tuple[int, pa.Table]] = {}
        self._kept: dict[tuple[str, int], tuple[int, tuple[Where, ...], Members]] = {}

    def receivable(self, loaded: Loaded, classified: Classified, most: int | None = None) -> Ordered:
        """Return the receivable messages of a FIFO queue, in runs of one message: see `choosing.receivable`.

        This method is the set-based twin of `rules.fifo.receivable` (F1, F2, F4).
        """
        _, _, pieces, state = classified
        lanes, members = loaded.lanes, self._members(loaded.queue.id, classified)
        if most is not None:
            members = members.of_first(lanes, pieces, state, most)
        # A dead letter's segment is registered under its lane in this queue.
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
        # The messages of one move arrived at one instant, perhaps from several queues, whose numbers do not compare.
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
        """Return the queue's own messages, all of them, and those of other queues in the segments of the files.

        Most queues have only messages of their own.
        """
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
        """Forget deleted queues. This method is called when a queue is read for the first time."""
        existing = {queue.id for queue in self._queues()}
        cache: dict[tuple[str, int], Any]
        for cache in (self._own, self._kept):
            for key in [one for one in list(cache) if one[0] not in existing or one[1] != self._engine.generation()]:
                cache.pop(key, None)

    def _read(self, queue: str, listing: Listing) -> pa.Table:
        """Return the messages sent to a queue, in order, at least all of the listing.

        Known messages are not read again, unless upkeep has dropped most of them.
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

    def _later(self, queue: str, known: pa.Table) -> pa.Table:
        """Return the known messages and those that were sent since."""
        last = known["sequence_number"][-1].as_py()
        later = self._engine.messages(Where(queue), _COLUMNS, numbered_after=last)
        return _in_few_pieces(pa.concat_tables([known, _in_order([_encoded(later)])])) if later.num_rows else known


def _encoded(rows: pa.Table) -> pa.Table:
    return rows.cast(pa.schema([(name, _NAMES.get(name, MESSAGES.field(name).type)) for name in _COLUMNS]))


def _in_order(tables: list[pa.Table]) -> pa.Table:
    rows = _in_one_piece(pa.concat_tables(tables))
    number = rows["sequence_number"].to_numpy()
    return rows if (number[1:] > number[:-1]).all() else rows.take(pa.array(np.argsort(number, kind="stable")))


def _in_one_piece(rows: pa.Table) -> pa.Table:
    return rows.unify_dictionaries().combine_chunks()


def _in_few_pieces(rows: pa.Table) -> pa.Table:
    """Return the same rows in few pieces: join the later pieces, and from time to time all pieces."""
    if rows["seq"].num_chunks <= MOST_PIECES:
        return rows
    first = len(rows["seq"].chunk(0))
    if PART_LATER * (rows.num_rows - first) > rows.num_rows:
        return _in_one_piece(rows)
    return pa.concat_tables([rows.slice(0, first), _in_one_piece(rows.slice(first))])


def _followed(known: Members | None, rows: pa.Table) -> Members:
    """Return a queue's messages, which are given in their order, as arrays. Read only those after the known ones.

    No message is ever sent between known ones. So the known messages are the first rows if the row at their count has
    the number of the last known message. Otherwise, or if the index would lack too many messages, all rows are read
    anew.
    """
    if (
        known is None
        or not 0 < len(known) <= rows.num_rows
        or known.last != rows["sequence_number"][len(known) - 1].as_py()
    ):
        return _members_of(rows)
    if not known.takes(rows.num_rows - len(known)):
        return _members_of(rows)
    later = _in_one_piece(rows.slice(len(known)))
    if not later.num_rows:
        return known
    return known.with_later(_members_of(later), later["message_group_id"].combine_chunks().dictionary.to_pylist())


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
    """Return a mask of the messages that may be received. The messages are given in their order.

    A message may be received if it is visible and comes before any hidden message (delayed, locked or in flight) of its
    group.
    """
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
    """Return when the last hold of each group ended; -1 if no hold did.

    This function is the set-based twin of `rules.fifo.hold_ended`. It asks the rule once per distinct record, and adds
    the expiry of each message.
    """
    last = np.full(groups, -1)
    ended = loaded.lanes.per_code(classified.pieces.code, _recorded_end, np.int64)
    if (ended < 0).all():
        return last
    period, before = loaded.queue.retention
    expires = kept_from + period
    expires[kept_from <= before] = np.minimum(expires[kept_from <= before], before)
    # -1, no hold, is less than every instant.
    ended = np.minimum(ended[piece], expires)
    past = np.flatnonzero((ended >= 0) & (ended <= loaded.now))
    np.maximum.at(last, group[past], ended[past])
    return last


def _recorded_end(record: Record) -> int:
    ended = fifo.hold_ended(record, sys.maxsize)
    return -1 if ended is None else ended


def _turns(group: np.ndarray, since: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return an order number for each receivable message; the smallest is received first.

    A group's messages stay together, and the groups have the order of `rules.fifo.turn`. The messages are given in
    their order. `since` is when each message could be received. `last` is when the last hold of each group ended, -1
    for none. The numbers of one group share the bits above TURN_SHIFT, and no other group has these bits.
    """
    place = np.arange(len(group))
    head = np.empty(len(last), dtype=np.int64)
    # If several values are assigned to one place, the last one stays: that of the group's first message.
    head[group[::-1]] = place[::-1]
    heads = np.flatnonzero(head[group] == place)
    since, last = since[heads], last[group[heads]]
    turn = 2 * np.maximum(since, last) + (last >= since)
    rank = np.empty(len(head), dtype=np.int64)
    rank[group[heads[np.argsort(turn, kind="stable")]]] = np.arange(len(heads))
    turns: np.ndarray = (rank[group] << TURN_SHIFT) | place
    return turns
