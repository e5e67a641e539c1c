"""Messages as rows of the table `messages`, and a cache of those that this process has just sent.

Committed rows of a segment never change, but they may disappear. So `RecentMessages.find` returns only messages that
the given listing has, in the same generation of the ledger's tables.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from ledger.rules import message_id as ids
from ledger.rules.copies import instants_in_target
from ledger.rules.limits import MILLISECONDS
from ledger.rules.message import STORED, Entry
from ledger.rules.message_attributes import SENDER, Attribute
from ledger.rules.visibility import Record
from ledger.runtime.threads import renew_in_child
from ledger.store.delta.model.tables import MESSAGES, instant_column
from ledger.store.delta.state.listing import Listing
from ledger.store.protocol import CopiedMessage, QueueRecord, StoredMessage


def message_rows(
    queue: QueueRecord,
    lane: int,
    segment: str,
    first: int,
    entries: Sequence[Entry],
    now: int,
    sequence_numbers: Sequence[int] | None = None,
    sender: str | None = None,
) -> pa.Table:
    """Return the rows of `messages` for messages that `sender` sends, with ordinals from `first`."""
    count = len(entries)
    columns: dict[str, Any] = {
        "queue": [queue.id] * count,
        "lane": [lane] * count,
        "segment": [segment] * count,
        "seq": range(first, first + count),
        "sent_at": instant_column([now] * count),
        "available_at": instant_column([now + entry.delay_seconds * MILLISECONDS for entry in entries]),
        "sequence_number": sequence_numbers or [None] * count,
        **{field.column: [getattr(entry, field.name) for entry in entries] for field in STORED if field.is_given},
        "message_attributes": [_attributes(entry, sender) for entry in entries],
    }
    kinds = {field.name: field.type for field in MESSAGES}
    arrays = {name: v if isinstance(v, pa.Array) else pa.array(v, kinds[name]) for name, v in columns.items()}
    return pa.table({name: arrays[name] for name in MESSAGES.names}, schema=MESSAGES)


def make_copied_rows(
    queue: QueueRecord,
    lane: int,
    segment: str,
    copies: Sequence[CopiedMessage],
    now: int,
    sequence_numbers: Sequence[int] | None = None,
) -> pa.Table:
    """Return the rows of `messages` for messages that are copied at `now`, with ordinals from 0."""
    in_order = sequence_numbers is not None
    instants = [
        instants_in_target(one.kept_since, one.available_at, now, queue.retention, fifo=in_order) for one in copies
    ]
    rows = message_rows(queue, lane, segment, 0, [one.entry for one in copies], now, sequence_numbers)
    kind = MESSAGES.field("message_attributes").type
    own = {
        "sent_at": instant_column([sent_at for sent_at, _ in instants]),
        "available_at": instant_column([available_at for _, available_at in instants]),
        "message_attributes": pa.array([_attributes(one.entry, one.sender_id) for one in copies], kind),
    }
    return pa.table([own.get(name, rows[name]) for name in MESSAGES.names], schema=MESSAGES)


def _attributes(entry: Entry, sender: str | None) -> list[tuple[str, dict[str, object]]] | None:
    names = ("data_type", "string_value", "binary_value")
    attributes = dict(entry.message_attributes)
    if sender is not None:
        attributes[SENDER] = Attribute("String", sender, None)
    return [(name, dict(zip(names, one))) for name, one in attributes.items()] or None


#: The most bytes of kept rows.
MOST_BYTES = 32 << 20
#: An append of more bytes is not kept.
MOST_BYTES_OF_AN_APPEND = 4 << 20
_GIVEN = tuple(field.name for field in STORED if field.is_given)
_given = attrgetter(*_GIVEN)


class GrantedRun(NamedTuple):
    lane: int
    segment: str
    first_seq: int
    last_seq: int
    record: Record


class Append(NamedTuple):
    """A committed append, in one `generation` of the tables. `size` is in bytes."""

    generation: int
    segment: str
    first_seq: int
    entries: Sequence[Entry]
    sent_at: int
    sequence_numbers: Sequence[int] | None
    size: int

    def message(self, seq: int, lane: int, record: Record, sender: str | None) -> StoredMessage:
        """Return one message, as a read of the table would return it."""
        entry = self.entries[seq - self.first_seq]
        fields = dict(zip(_GIVEN, _given(entry)))
        fields["message_attributes"] = dict(entry.message_attributes)
        numbers = self.sequence_numbers
        return StoredMessage(
            message_id=ids.message_id(self.segment, seq),
            sent_at=self.sent_at,
            available_at=self.sent_at + entry.delay_seconds * MILLISECONDS,
            lane=lane,
            segment=self.segment,
            seq=seq,
            record=record,
            sequence_number=None if numbers is None else numbers[seq - self.first_seq],
            sender_id=sender,
            **fields,
        )


class RecentMessages:
    """The newest appends of one sender (None: messages name no sender). Threads may share the object."""

    def __init__(self, sender: str | None, most_bytes: int = MOST_BYTES) -> None:
        self._sender, self.most_bytes = sender, most_bytes
        self.forget()
        renew_in_child(self, RecentMessages.forget)

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._oldest_first = deque[Append]()
        #: By segment, its appends in order.
        self._by_segment: dict[str, list[Append]] = {}
        self._bytes = 0

    def add(self, append: Append) -> None:
        if append.size > MOST_BYTES_OF_AN_APPEND:
            return
        with self._lock:
            try:
                self._oldest_first.append(append)
                self._by_segment.setdefault(append.segment, []).append(append)
                self._bytes += append.size
                while self._bytes > self.most_bytes:
                    self._forget_oldest()
            except BaseException:
                # An interrupt may have come in the middle of the change.
                self._clear()
                raise

    def find(self, listing: Listing, runs: Iterable[GrantedRun]) -> list[StoredMessage] | None:
        """Return the messages of some runs, in the runs' order, or None if one is not kept or may not exist."""
        messages: list[StoredMessage] = []
        for run in runs:
            if not listing.has_all(run.segment, run.first_seq, run.last_seq):
                return None
            seq = run.first_seq
            while seq <= run.last_seq:
                append = self._append_with(run.segment, seq)
                if append is None or append.generation != listing.generation:
                    return None
                end = min(run.last_seq + 1, append.first_seq + len(append.entries))
                messages += [append.message(at, run.lane, run.record, self._sender) for at in range(seq, end)]
                seq = end
        return messages

    def _append_with(self, segment: str, seq: int) -> Append | None:
        with self._lock:
            appends = self._by_segment.get(segment, ())
            at = bisect_right(appends, seq, key=lambda one: one.first_seq) - 1
            append = appends[at] if at >= 0 else None
        return append if append is not None and seq < append.first_seq + len(append.entries) else None

    def _forget_oldest(self) -> None:
        oldest = self._oldest_first.popleft()
        self._bytes -= oldest.size
        appends = self._by_segment[oldest.segment]
        appends.remove(oldest)
        if not appends:
            del self._by_segment[oldest.segment]
