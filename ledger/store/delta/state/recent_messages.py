"""The messages that this process has just sent, so that small claims need no read.

Rows of a segment never change once they are committed, but they may disappear. `find` therefore returns only messages
that the given listing has, in the same generation of the ledger's tables.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from ledger.rules import message_id as ids
from ledger.rules.limits import MILLISECONDS
from ledger.rules.message import Entry
from ledger.rules.message_fields import STORED
from ledger.rules.state import Record
from ledger.runtime.forks import renew_in_child
from ledger.store.delta.state.listing import Listing
from ledger.store.protocol import StoredMessage

#: The most bytes of rows that are kept, those of the newest appends.
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
    """The newest appends of one sender, whom the messages name. Threads may share the object."""

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
        """Return the messages of some runs, in their order. Return None if any is not kept here, or not sure to
        exist."""
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
