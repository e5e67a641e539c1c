"""All messages of a queue at one moment, in the order of a copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ledger.clock import Clock
from ledger.delta_log.values import milliseconds
from ledger.rules.copies import Position, segment_numbers
from ledger.store.delta.model.run_algebra import ABSENT, SEGMENT_SHIFT, Runs, positions
from ledger.store.delta.model.where import Where, tuple_of
from ledger.store.delta.state.lane_records import UNKNOWN, Lanes
from ledger.store.delta.state.open_tables import OpenTables
from ledger.store.delta.state.statuses import GONE_STATES
from ledger.store.delta.verbs.granting import GrantRows
from ledger.store.delta.verbs.reading import MOST_SEGMENTS, Reader
from ledger.store.protocol import Contents, Grant, QueueRecord, StoredMessage

#: The first part's messages, the characters that each part aims at, the growth from part to part, the most messages.
FIRST_PART_MESSAGES, PART_CHARACTERS, GROWTH, PART_MESSAGES = 100, 16 << 20, 4, 20_000
_ORDER = ["segment", "seq", "sent_at", "sequence_number"]


class MessagesInOrder(NamedTuple):
    """Messages in the order of a copy: places on the axis (see `run_algebra`), and codes of records."""

    place: np.ndarray
    code: np.ndarray


@dataclass(frozen=True)
class QueueContents:
    opened: OpenTables
    reader: Reader

    def contents(
        self, queue: QueueRecord, clock: Clock, after: Position | None = None, until: int | None = None
    ) -> Contents:
        """Return the queue's contents (see Store.contents). The messages are read later, part by part."""
        loaded = self.opened.load(queue, clock)
        _, _, pieces, state = loaded.classify(self.opened.listings)
        alive = pieces.where(~np.isin(state, GONE_STATES))
        alive = alive.where(np.argsort(alive.first, kind="stable"))
        ordered, latest = self._in_order(loaded.lanes, alive, after, until)
        parts = self._parts(queue, loaded.lanes, ordered)
        return Contents(len(ordered.place), latest, parts)

    def _in_order(
        self, lanes: Lanes, alive: Runs, after: Position | None, until: int | None
    ) -> tuple[MessagesInOrder, int]:
        """Return the messages that the copy asks for, and the last arrival's instant (0: none)."""
        columns = [np.concatenate(column) for column in zip(*self._rows(lanes, alive))]
        if not columns:
            nothing = np.empty(0, dtype=np.int64)
            return MessagesInOrder(nothing, nothing), 0
        place, sent_at, sequence = columns
        code = alive.code[alive.find(place)]
        # -1: no arrival is recorded.
        moved_in = lanes.records.numbers("enqueued_at")[code - ABSENT]
        arrived = np.where(moved_in >= 0, moved_in, sent_at)
        halves = np.array([segment_numbers(name) for name in lanes.segments], dtype=np.int64)[place >> SEGMENT_SHIFT]
        seq = place & ((1 << SEGMENT_SHIFT) - 1)
        keys = [arrived, sent_at, sequence, halves[:, 0], halves[:, 1], seq]
        order = np.lexsort(keys[::-1])
        if until is not None:
            order = order[arrived[order] <= until]
        if after is not None:
            order = order[_is_behind([key[order] for key in keys], after)]
        latest = int(arrived[order].max()) if len(order) else 0
        return MessagesInOrder(place[order], code[order]), latest

    def _rows(self, lanes: Lanes, alive: Runs) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the places, send instants and sequence numbers (0: none) of messages that have rows, by queue."""
        names = [lanes.segments[number] for number in np.unique(alive.segment).tolist()]
        for queue, names_in_queue in self.opened.listings.newest().homes(names).items():
            # For very many segments, reading all of the queue is faster.
            segments = tuple_of(names_in_queue) if len(names_in_queue) <= MOST_SEGMENTS else None
            rows = self.opened.files.messages(Where(queue, None, segments), _ORDER)
            number = lanes.look_up(rows["segment"])
            place = positions(np.maximum(number, 0), rows["seq"].to_numpy())
            is_asked = (number != UNKNOWN) & (alive.find(place) != ABSENT)
            rows, place = rows.filter(pa.array(is_asked)), place[is_asked]
            yield place, milliseconds(rows["sent_at"]).to_numpy(), rows["sequence_number"].fill_null(0).to_numpy()

    def _parts(self, queue: QueueRecord, lanes: Lanes, ordered: MessagesInOrder) -> Iterator[Sequence[StoredMessage]]:
        first, size_of_part = 0, FIRST_PART_MESSAGES
        while first < len(ordered.place):
            part = MessagesInOrder(*(column[first : first + size_of_part] for column in ordered))
            messages = sorted(self.reader.messages(queue, _grant_of(lanes, part)), key=lambda one: one.position)
            size = sum(len(message.body) for message in messages)
            first, size_of_part = (
                first + size_of_part,
                min(max(size_of_part * PART_CHARACTERS // max(size, 1), 1), GROWTH * size_of_part, PART_MESSAGES),
            )
            yield messages


def _is_behind(keys: Sequence[np.ndarray], after: Position) -> np.ndarray:
    behind, equal = np.zeros(len(keys[0]), dtype=bool), np.ones(len(keys[0]), dtype=bool)
    for key, number in zip(keys, after):
        behind |= equal & (key > number)
        equal &= key == number
    return behind


def _grant_of(lanes: Lanes, part: MessagesInOrder) -> Grant:
    rows = GrantRows(lanes)
    return Grant("", 0, 0, 0, rows.of(rows.add(Runs(part.place, part.place, part.code).in_order())))
