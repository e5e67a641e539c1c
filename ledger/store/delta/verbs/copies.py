"""Copies of a queue: its messages at one moment, and the commits of the parts to the target."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ledger.clock import Clock
from ledger.delta_log.statements import to_milliseconds
from ledger.rules import copies, fifo, instants
from ledger.rules import message_id as ids
from ledger.rules.attributes import is_fifo
from ledger.rules.copies import CopyProgress, Position, segment_numbers
from ledger.runtime.threads import uses_arrow
from ledger.store.delta.commit.locks import releasing
from ledger.store.delta.engine import Engine
from ledger.store.delta.model.message_runs import ABSENT, SEGMENT_SHIFT, Runs, positions
from ledger.store.delta.model.tables import Where, sort_distinct
from ledger.store.delta.state.lane_records import UNKNOWN, Lanes
from ledger.store.delta.state.listing import GONE_STATES
from ledger.store.delta.state.send_history import find_last_send
from ledger.store.delta.state.sent_messages import make_copied_rows
from ledger.store.delta.state.snapshot import OpenTables
from ledger.store.delta.verbs.granting import GrantRows
from ledger.store.delta.verbs.queues import Queues
from ledger.store.delta.verbs.reading import MOST_SEGMENTS, Reader
from ledger.store.delta.verbs.sending import Quotas, size_of_messages
from ledger.store.protocol import Contents, CopiedMessage, Grant, QueueRecord, StoredMessage

#: The messages of the first part, the characters that a part aims at, the most growth from part to part, and the most
#: messages of a part.
FIRST_PART_MESSAGES, PART_CHARACTERS, GROWTH, PART_MESSAGES = 100, 16 << 20, 4, 20_000
_ORDER = ["segment", "seq", "sent_at", "sequence_number"]


class MessagesInOrder(NamedTuple):
    """Messages in the order of a copy: places on the axis (see `message_runs`), and codes of records."""

    place: np.ndarray
    code: np.ndarray


@dataclass(frozen=True)
class QueueContents:
    opened: OpenTables
    reader: Reader

    def contents(
        self, queue: QueueRecord, clock: Clock, after: Position | None = None, until: int | None = None
    ) -> Contents:
        """See Store.contents. The messages are read later, part by part."""
        loaded = self.opened.load(queue, clock)
        _, _, pieces, state = loaded.classify(self.opened.listings)
        alive = pieces.where(~np.isin(state, GONE_STATES))
        alive = alive.where(np.argsort(alive.first, kind="stable"))
        ordered, latest = self._order_messages(loaded.lanes, alive, after, until)
        parts = self._parts(queue, loaded.lanes, ordered)
        return Contents(len(ordered.place), latest, parts)

    def _order_messages(
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
        """For each queue that messages were sent to, yield the places, send instants and sequence numbers (0: none) of
        those with rows."""
        names = [lanes.segments[number] for number in np.unique(alive.segment).tolist()]
        for queue, names_in_queue in self.opened.listings.newest().homes(names).items():
            # For very many segments, reading all of the queue is faster.
            segments = sort_distinct(names_in_queue) if len(names_in_queue) <= MOST_SEGMENTS else None
            rows = self.opened.files.messages(Where(queue, None, segments), _ORDER)
            number = lanes.look_up(rows["segment"])
            place = positions(np.maximum(number, 0), rows["seq"].to_numpy())
            is_asked = (number != UNKNOWN) & (alive.find(place) != ABSENT)
            rows, place = rows.filter(pa.array(is_asked)), place[is_asked]
            yield place, to_milliseconds(rows["sent_at"]).to_numpy(), rows["sequence_number"].fill_null(0).to_numpy()

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


class Copies:
    def __init__(self, opened: OpenTables, engine: Engine, queues: Queues) -> None:
        self._opened, self._engine, self._queues = opened, engine, queues
        self._transactions, self._settings, self._quotas = opened.transactions, opened.settings, Quotas(opened)

    def progress(self, queue: QueueRecord, key: str) -> CopyProgress | None:
        """See Store.copy_progress.

        The number of parts is read first. If another process then commits a part, `add` refuses this process's next
        part.
        """
        parts = self._version(copies.application(key))
        if parts is None:
            return None
        marks: list[int] = []
        for number in count():
            mark = self._version(copies.mark_application(key, number))
            if mark is None:
                break
            marks.append(mark)
        messages = self._version(copies.messages_application(key)) or 0
        # The caller continues after these parts, so they must survive a power cut.
        self._opened.tables.make_durable("messages", self._opened.tables.version("messages"))
        return CopyProgress(parts, messages, tuple(marks))

    @uses_arrow
    @releasing
    def add(
        self, queue: QueueRecord, messages: Sequence[CopiedMessage], key: str, progress: CopyProgress, clock: Clock
    ) -> bool:
        """See Store.add_copies.

        On a FIFO queue a part counts as the queue's next send. If another send commits first, the part is made anew.
        Raises ClocksDisagree, OverLimit, QueueDoesNotExist, StorageFailed and ContentionOutlastedRetries.
        """
        self._opened.times.require(queue, clock)
        in_order = is_fifo(queue.attributes)
        first, *further_transactions = progress.transactions(key)
        attempts = self._transactions.attempts("send")
        for losses in attempts:
            with self._transactions.turn("messages", queue.id if in_order else None, losses):
                # A copy takes long, so the queue may have other attributes by now.
                queue = self._queues.current(queue)
                sends, bounded = self._version(fifo.sends_application(queue.id)) or 0, self._quotas.next_send(queue)
                if (self._version(first[0]) or 0) != progress.parts - 1:
                    return False
                size = size_of_messages(message.entry for message in messages)
                self._quotas.require_room(queue, len(messages), size, clock)
                since, now = self._opened.tables.version("messages"), clock()
                generation = self._opened.tables.generation()
                if in_order:
                    now = self._advance_to_last_send(queue, now)
                    rows, counted = (
                        _rows_in_order(queue, messages, sends + 1, now),
                        [(fifo.sends_application(queue.id), sends + 1)],
                    )
                else:
                    rows, counted = _rows(queue, messages, progress, key, now), [] if bounded is None else [bounded]
                metadata = self._transactions.metadata(secrets.token_hex(8), "send", queue.id, now, [])
                self._transactions.step("chosen")
                append = partial(self._opened.tables.append, "messages", rows, metadata, [first, *counted])
                write = partial(append, generation=generation, beside=further_transactions)
                if self._transactions.commit("messages", metadata, since, write, attempts) is not None:
                    self._transactions.step("committed")
                    return True
        raise attempts.give_up()

    def _advance_to_last_send(self, queue: QueueRecord, now: int) -> int:
        skew = self._settings.maximum_clock_skew
        last = find_last_send(
            self._engine, queue.id, self._opened.listings.newest().find_last_send_time(queue.id), now, skew
        )
        return instants.advance_to_last_commit(now, last, skew)

    def _version(self, application: str) -> int | None:
        return self._opened.tables.transaction_version("messages", application)


def _rows(
    queue: QueueRecord, messages: Sequence[CopiedMessage], progress: CopyProgress, key: str, now: int
) -> pa.Table:
    segment = ids.segment(ids.new_send_key(), 0)
    lane = (progress.parts + int(key[:8], 16)) % int(queue.attributes["Lanes"])
    return make_copied_rows(queue, lane, segment, messages, now)


def _rows_in_order(queue: QueueRecord, messages: Sequence[CopiedMessage], send: int, now: int) -> pa.Table:
    """Return the rows of a part for a FIFO queue, with sequence numbers in the order of the messages.

    `send` is the part's number among the queue's sends.
    """
    key, by_lane = ids.new_send_key(), dict[int, list[int]]()
    for ordinal, message in enumerate(messages):
        by_lane.setdefault(fifo.lane(message.entry.group, int(queue.attributes["Lanes"])), []).append(ordinal)
    tables = [
        make_copied_rows(
            queue,
            lane,
            ids.segment(key, lane),
            [messages[ordinal] for ordinal in ordinals],
            now,
            [fifo.sequence_number(send, ordinal) for ordinal in ordinals],
        )
        for lane, ordinals in by_lane.items()
    ]
    return pa.concat_tables(tables)
