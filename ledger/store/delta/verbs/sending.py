"""Small sends: each call is one append to `messages`, or none if it only repeats earlier sends.

Two sends at once cannot exceed a bound together. A send to a bounded queue first reads the count of sends in the log.
Then it counts the queue's messages, and commits only if no send was counted since. Moves and restores are not bounded:
a dead letter must have a queue to go to.

The bytes of stored messages are those of their data files (compressed Parquet). A send of a DataFrame counts its own
files. All other sends count their messages as SQS measures them, and can pass the bound by what Parquet adds to small
files.

An append takes open segments out of `OpenSegments`, and gives them back once its commit's outcome is known. Two threads
therefore never append to one segment at once. A segment is not given back after an error, or if another writer has
extended it.

Most appends extend an open segment, which belongs to one writer and to one lane. A send to a FIFO queue may extend
segments in several lanes. A send under an attempt id writes a segment of its own, whose name follows from the id.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ledger.clock import Clock
from ledger.delta_log.protocol import Conflict, Seen
from ledger.errors import StorageFailed
from ledger.rules import fifo, instants, limits
from ledger.rules import message_id as ids
from ledger.rules.attempts import Attempt, hash_content
from ledger.rules.attributes import is_fifo, limits_of
from ledger.rules.limits import DEDUPLICATION_INTERVAL, MILLISECONDS
from ledger.rules.message import Entry, deduplication_key, size_of_message
from ledger.runtime.threads import renew_in_child
from ledger.store.delta.commit.locks import releasing
from ledger.store.delta.commit.transactions import Attempts
from ledger.store.delta.engine import SegmentEnd, SegmentTaken
from ledger.store.delta.model.tables import Where
from ledger.store.delta.state.send_history import drop_set_aside, find_earlier_send, find_last_counted
from ledger.store.delta.state.sent_messages import Append, RecentMessages, message_rows
from ledger.store.delta.state.snapshot import OpenTables
from ledger.store.protocol import QueueRecord, StoredSend


def is_bounded(queue: QueueRecord) -> bool:
    return bool(bounds_of(queue))


def bounds_of(queue: QueueRecord) -> list[str]:
    return [name for name in ("MaximumMessages", "MaximumStoredBytes") if int(queue.attributes.get(name, 0))]


def size_of_messages(entries: Iterable[Entry]) -> Callable[[], int]:
    return lambda: sum(map(size_of_message, entries))


@dataclass(frozen=True)
class Quotas:
    opened: OpenTables

    def next_send(self, queue: QueueRecord) -> tuple[str, int] | None:
        """Return the transaction that a send to a bounded queue commits with, else None. FIFO sends are counted by
        another transaction.

        Call this method before the send reads anything else that the send decides on.
        """
        if not is_bounded(queue):
            return None
        application = limits.counted_sends_application(queue.id)
        return application, (self.opened.tables.transaction_version("messages", application) or 0) + 1

    def require_room(self, queue: QueueRecord, more: int, size: Callable[[], int], clock: Clock) -> None:
        """Raise OverLimit if the queue has no room for `more` messages, or for their bytes.

        `size` returns these bytes. It is called only for a queue with MaximumStoredBytes.
        """
        if not is_bounded(queue):
            return
        bounds, classified = limits_of(queue.attributes), self.opened.load(queue, clock).classify(self.opened.listings)
        limits.require_room(queue.name, classified.count_stored_messages(), more, bounds)
        if bounds.maximum_stored_bytes is not None:
            limits.require_bytes(queue.name, classified.count_stored_bytes(), size(), bounds)


#: Lanes without open segments are forgotten only beyond this number of lanes.
FEW_OPEN = 64


class OpenSegment(NamedTuple):
    """A segment of a queue's lane.

    `following` is the ordinal of its next message. `opened_at` is in milliseconds. `appends` counts the appends since
    its files were joined.
    """

    queue: str
    lane: int
    name: str
    following: int
    opened_at: int
    appends: int = 0

    @property
    def end(self) -> SegmentEnd:
        return SegmentEnd(self.queue, self.lane, self.name, self.following - 1 if self.following else None)

    def extend_by(self, count: int) -> OpenSegment:
        return self._replace(following=self.following + count, appends=self.appends + 1)


class OpenSegments:
    """The open segments that no append has taken out. Threads may share this object."""

    def __init__(self, open_seconds: float) -> None:
        self._open_milliseconds = open_seconds * MILLISECONDS
        self._idle: dict[tuple[str, int], deque[OpenSegment]] = {}
        self._most = FEW_OPEN
        renew_in_child(self, OpenSegments._renew)

    def _renew(self) -> None:
        """Start anew in a forked child, because its parent goes on with these segments."""
        self._idle = {}

    def __len__(self) -> int:
        return sum(map(len, list(self._idle.values())))

    def take(self, queue: str, lane: int, now: int) -> OpenSegment:
        """Return a segment of a lane, idle or new. No other append gets the segment until it is given back."""
        idle = self._idle.get((queue, lane), ())
        while idle:
            try:
                segment = idle.pop()
            except IndexError:
                # Another thread was first.
                break
            if self._is_open(segment, now):
                return segment
        return OpenSegment(queue, lane, ids.segment(ids.new_send_key(), 0, is_open=True), 0, now)

    def give_back(self, segment: OpenSegment, now: int) -> None:
        """Give back a segment as it is after the commit, or as it was if the commit lost."""
        self._idle.setdefault((segment.queue, segment.lane), deque()).append(segment)
        if len(self._idle) > self._most:
            self._let_go(now)

    def _let_go(self, now: int) -> None:
        kept = {key: [one for one in list(idle) if self._is_open(one, now)] for key, idle in list(self._idle.items())}
        self._idle = {key: deque(idle) for key, idle in kept.items() if idle}
        self._most = max(FEW_OPEN, 2 * len(self._idle))

    def _is_open(self, segment: OpenSegment, now: int) -> bool:
        return 0 <= now - segment.opened_at < self._open_milliseconds


Key = tuple[str, str]
#: Appends after which the writer joins an open segment's files. A join takes as long as three sends, and every file
#: slows each verb.
WORTH_JOINING = 32
_DUPLICATE_COLUMNS = ["segment", "seq", "sent_at", "message_group_id", "message_deduplication_id", "sequence_number"]
log = logging.getLogger("ledger.verbs")


@dataclass
class _Append:
    """The facts about an append, besides its rows.

    Attributes:
        segments: The open segments that the append extends, as they are before and after it.
        is_taken: Whether one of the segments does not end where this writer left it, or its end is not known.
        entries: The entries for each open segment, with their sequence numbers on a FIFO queue.
    """

    segments: dict[OpenSegment, OpenSegment]
    transactions: Sequence[tuple[str, int]] = ()
    is_taken: bool = False
    entries: dict[OpenSegment, tuple[Sequence[Entry], Sequence[int] | None]] = field(default_factory=dict)

    def extend(self, segment: OpenSegment, entries: Sequence[Entry], numbers: Sequence[int] | None = None) -> None:
        self.segments[segment] = segment.extend_by(len(entries))
        self.entries[segment] = entries, numbers


class Sender:
    """Appends small sends. A Sender is the only writer of its open segments, and numbers their messages.

    If a Sender exists twice (on two copies of a running machine), one of them gets SegmentTaken.
    """

    def __init__(self, opened: OpenTables, sender: str | None, recent: RecentMessages) -> None:
        self._opened, self._transactions, self._settings = opened, opened.transactions, opened.settings
        self._sender, self._recent = sender, recent
        self._segments = OpenSegments(opened.settings.open_segment_seconds)
        self._quotas = Quotas(opened)
        self._turn = secrets.randbelow(1 << 16)

    @releasing
    def send(
        self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock, attempt_id: str | None
    ) -> list[StoredSend]:
        """Send messages, and return a StoredSend for each, in the order of `entries`.

        A repeated call under an attempt id sends nothing, and returns the first call's ids. A FIFO queue takes no
        attempt id. Raises ClocksDisagree (see `LaneTimes`), OverLimit, and InvalidParameterValue if another send was
        committed under the attempt id.
        """
        if not entries:
            return []
        self._opened.times.require(queue, clock)
        if is_fifo(queue.attributes):
            return self._send_in_order(queue, entries, clock)
        lanes = int(queue.attributes["Lanes"])
        if attempt_id is None:
            self._turn += 1
            lane, segment, first, attempt = self._turn % lanes, "", 0, None
        else:
            attempt = Attempt(attempt_id, queue.id, hash_content(queue.id, entries))
            lane, segment, first = int(attempt.key[:8], 16) % lanes, ids.segment(attempt.key, 0), 0
        attempts = self._transactions.attempts("send")
        for losses in attempts:
            with self._transactions.turn("messages", losses=losses):
                # Read the count first: if another process commits the attempt later, the count grows, and this send
                # does not commit.
                counted = self._quotas.next_send(queue)
                earlier_send = attempt and find_earlier_send(self._opened.tables, attempt)
                if earlier_send:
                    return [
                        StoredSend(ids.message_id(ids.segment(earlier_send, 0), seq)) for seq in range(len(entries))
                    ]
                self._quotas.require_room(queue, len(entries), size_of_messages(entries), clock)
                now = clock()
                carried = [one for one in (counted, attempt and attempt.transaction) if one is not None]
                append = _Append({}, carried)
                if attempt is None:
                    taken = self._segments.take(queue.id, lane, now)
                    append.extend(taken, entries)
                    segment, first = taken.name, taken.following
                rows = message_rows(queue, lane, segment, first, entries, now, sender=self._sender)
                if self._append(queue, rows, now, append, attempts):
                    return [StoredSend(ids.message_id(segment, first + n)) for n in range(len(entries))]
        raise attempts.give_up()

    def _send_in_order(self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock) -> list[StoredSend]:
        """Send to a FIFO queue. The log counts the sends, and a send commits only as the next of the count."""
        application = fifo.sends_application(queue.id)
        attempts = self._transactions.attempts("send")
        for losses in attempts:
            with self._transactions.turn("messages", queue.id, losses):
                count = self._opened.tables.transaction_version("messages", application) or 0
                sent_by_key, at = self._find_earlier_sends(queue, entries, clock)
                keys: list[Key] = []
                new: set[Key] = set()
                fresh: dict[int, list[tuple[int, Entry, Key]]] = {}
                for entry in entries:
                    key = deduplication_key(queue.attributes, entry.group, entry.deduplication)
                    if key not in sent_by_key and key not in new:
                        lane = fifo.lane(entry.group, int(queue.attributes["Lanes"]))
                        fresh.setdefault(lane, []).append((len(keys), entry, key))
                        new.add(key)
                    keys.append(key)
                size = size_of_messages(entry for lane_entries in fresh.values() for _, entry, _ in lane_entries)
                self._quotas.require_room(queue, len(new), size, clock)
                tables = []
                append = _Append({}, [(application, count + 1)])
                for lane, lane_entries in fresh.items():
                    taken = self._segments.take(queue.id, lane, at)
                    segment, first = taken.name, taken.following
                    numbers = [fifo.sequence_number(count + 1, ordinal) for ordinal, *_ in lane_entries]
                    sent = [entry for _, entry, _ in lane_entries]
                    append.extend(taken, sent, numbers)
                    tables.append(message_rows(queue, lane, segment, first, sent, at, numbers, self._sender))
                    places = (ids.message_id(segment, first + n) for n in range(len(lane_entries)))
                    sent_by_key.update(
                        {key: StoredSend(*one) for (_, _, key), one in zip(lane_entries, zip(places, numbers))}
                    )
                if not tables:
                    # The answer reports sends that must survive a power cut.
                    self._opened.tables.make_durable()
                if not tables or self._append(queue, pa.concat_tables(tables), at, append, attempts):
                    return [sent_by_key[key] for key in keys]
        raise attempts.give_up()

    def _find_earlier_sends(
        self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock
    ) -> tuple[dict[Key, StoredSend], int]:
        """Return the sends that `entries` repeat within the deduplication interval, by key, and this send's instant.

        This send's instant is not before the instant of any earlier send that counts (see `state.send_history`). Raises
        ClocksDisagree.
        """
        since = clock() - DEDUPLICATION_INTERVAL * MILLISECONDS
        rows = self._opened.files.messages(Where(queue.id), _DUPLICATE_COLUMNS, sent_after=since)
        last = (pc.max(rows["sent_at"].cast(pa.int64())).as_py() or 0) // 1_000
        # This process may have been suspended meanwhile.
        now, skew = clock(), self._settings.maximum_clock_skew
        if last > now + round(skew * MILLISECONDS):
            last = find_last_counted(self._opened.tables, queue.id, rows)
        at = instants.advance_to_last_commit(now, last, skew)
        deduplication_ids = pa.array([entry.message_deduplication_id for entry in entries], pa.string())
        # Look up the last purge after the count of sends, so that no purge in between is missed.
        purged = self._opened.tables.transaction_version("messages", fifo.purges_application(queue.id)) or 0
        rows = rows.filter(pc.greater_equal(rows["sequence_number"], fifo.first_remembered(purged)))
        rows = drop_set_aside(self._opened.tables, queue.id, rows)
        sent_by_key: dict[Key, StoredSend] = {}
        for row in rows.filter(pc.is_in(rows["message_deduplication_id"], deduplication_ids)).to_pylist():
            if fifo.is_duplicate(round(row["sent_at"].timestamp() * MILLISECONDS), at):
                key = deduplication_key(queue.attributes, row["message_group_id"], row["message_deduplication_id"])
                sent_by_key[key] = StoredSend(ids.message_id(row["segment"], row["seq"]), row["sequence_number"])
        return sent_by_key, at

    def _append(self, queue: QueueRecord, rows: pa.Table, now: int, append: _Append, attempts: Attempts) -> bool:
        """Commit one append, and give back the open segments that it extends. Return False if another writer was first.

        After an error, or if one of the segments is taken, none of them is used again.
        """
        tables = self._opened.tables
        began, generation, since = time.monotonic(), tables.generation(), tables.version("messages")
        metadata = self._transactions.metadata(secrets.token_hex(8), "send", queue.id, now, [], attempts.losses)
        self._transactions.step("chosen")

        def write() -> int:
            try:
                ends = [segment.end for segment in append.segments]
                seen = Seen(since, began)
                return tables.append("messages", rows, metadata, append.transactions, ends, seen=seen)
            except SegmentTaken as taken:
                append.is_taken = True
                log.info("a send begins a new segment: %s", taken)
                raise

        if self._transactions.commit("messages", metadata, since, write, attempts) is None:
            for before in append.segments if not append.is_taken else ():
                self._segments.give_back(before, now)
            return False
        self._transactions.step("committed")
        self._remember(append, generation, now, rows)
        for after in append.segments.values() if tables.extends_segments() else ():
            self._segments.give_back(after if after.appends < WORTH_JOINING else after._replace(appends=0), now)
            if after.appends >= WORTH_JOINING:
                self._join(after)
        return True

    def _remember(self, append: _Append, generation: int, sent_at: int, rows: pa.Table) -> None:
        for segment, (entries, numbers) in append.entries.items():
            size = rows.nbytes * len(entries) // rows.num_rows
            self._recent.add(Append(generation, segment.name, segment.following, entries, sent_at, numbers, size))

    def _join(self, segment: OpenSegment) -> None:
        """Join the files of an open segment. After a failure, a later call or upkeep joins them."""
        try:
            self._opened.tables.compact(Where(segment.queue, (segment.lane,), (segment.name,)), growing=True)
        except (Conflict, StorageFailed) as error:
            log.info("the files of %s are joined later: %s", segment.name, error)
