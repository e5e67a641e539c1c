"""The protocol that every store implements: its verbs and their rows.

A verb names messages as runs. A *run* is a row (lane, segment, first_seq, last_seq): neighbouring messages of a
segment, both ends included.

Instants are integer milliseconds UTC, and durations are seconds. A verb reads its clock at each decision, also at each
retry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ledger.clock import Clock
from ledger.errors import LedgerError
from ledger.rules import visibility
from ledger.rules.attributes import is_fifo, not_understood, retention_period
from ledger.rules.copies import CopyProgress, Position, position
from ledger.rules.limits import Limits
from ledger.rules.message import Entry
from ledger.rules.message_attributes import Attribute
from ledger.rules.output_columns import ColumnsAsked
from ledger.rules.redrive import MoveTask
from ledger.rules.visibility import Outcome, Receipts, Record, Retention, Status, Verb, arrived_at, deadline


@dataclass(frozen=True)
class QueueRecord:
    """A queue as the store knows it. A queue that is made again under the same name has another `id`."""

    id: str
    name: str
    attributes: Mapping[str, str]
    tags: Mapping[str, str]
    created_at: int
    modified_at: int
    revision: int = 1
    #: Messages that arrived up to this instant count as expired, whatever the retention period is now (-1: none). See
    #: Retention.
    expired_before: int = -1
    #: When `expired_before` was noted, by the noting process's clock (-1: not known).
    expiry_noted_at: int = -1

    @cached_property
    def not_understood(self) -> str | None:
        return not_understood(self.attributes)

    @property
    def retention(self) -> Retention:
        return Retention(retention_period(self.attributes), self.expired_before)

    @property
    def noted_at(self) -> int:
        """When `expired_before` was noted.

        Earlier releases did not record it: their notes are no later than `modified_at`.
        """
        if self.expired_before < 0:
            return -1
        return max(self.expired_before, self.modified_at if self.expiry_noted_at < 0 else self.expiry_noted_at)

    @property
    def latest(self) -> int:
        return max(self.created_at, self.modified_at, self.noted_at)

    def put_back(self, now: int, skew: int) -> QueueRecord:
        """Return the queue after the repair of a clock that was ahead: no instant is later than `now` + `skew`.

        Returns the queue itself if that is true already.
        """
        if self.latest <= now + skew:
            return self
        made = replace(
            self,
            created_at=min(self.created_at, now),
            modified_at=min(self.modified_at, now),
            revision=self.revision + 1,
        )
        if self.noted_at <= now + skew:
            return made
        return replace(made, expired_before=self.retention.put_back(now).expired_before, expiry_noted_at=now)

    def changed(self, attributes: Mapping[str, str], tags: Mapping[str, str], now: int) -> QueueRecord:
        """Return the queue with these attributes and tags. Returns the queue itself if it has them."""
        if (attributes, tags) == (self.attributes, self.tags):
            return self
        made = replace(
            self,
            attributes=attributes,
            tags=tags,
            modified_at=max(now, self.modified_at),
            revision=self.revision + 1,
        )
        before = self.retention.changed(retention_period(attributes), now).expired_before
        return made._note_expiry(before, now, self.noted_at)

    def expired(self, at: int) -> QueueRecord:
        """Return the queue with a note of what had expired at `at`. Returns the queue itself if it has the note."""
        before = self.retention.expired(at)
        if before == self.expired_before:
            return self
        return replace(self, revision=self.revision + 1)._note_expiry(before, at, self.noted_at)

    def _note_expiry(self, expired_before: int, now: int, noted_at: int) -> QueueRecord:
        if expired_before == self.expired_before:
            return self
        return replace(self, expired_before=expired_before, expiry_noted_at=max(now, noted_at))


#: Returns a queue's new attributes and tags, from its present record and all queues of the ledger.
Change = Callable[[QueueRecord, Sequence[QueueRecord]], tuple[Mapping[str, str], Mapping[str, str]]]


class CopiedMessage(NamedTuple):
    """A message to copy. Its source has kept it since `kept_since`."""

    entry: Entry
    kept_since: int
    available_at: int
    sender_id: str | None = None


class ArrowOutputs(Protocol):
    """Writes Arrow tables, without Spark, to Delta tables outside the ledger."""

    def prepare_output(
        self,
        location: str,
        rows: pa.Table,
        columns_asked: ColumnsAsked,
        exclusively: Callable[[], AbstractContextManager[Any]],
    ) -> pa.Table:
        """Return the rows with the columns of the output table, ready to be appended.

        Inside the context of `exclusively`, makes a missing table, or widens columns if the rows or `columns_asked`
        demand it.

        Raises:
            OutputNotWritten: The rows do not fit. Nothing was made or changed.
        """

    def append_output(
        self,
        location: str,
        rows: pa.Table,
        application: str,
        version: int,
        metadata: Mapping[str, Any],
        columns_asked: ColumnsAsked,
    ) -> None:
        """Append rows under a transaction id (`application`) that has no committed version yet.

        The same commit, or one right before it, adds missing columns. Raises any error of the write.
        """


class OutputWrites(Protocol):
    """The store's part in a write of output (see `rules.output_doubts`).

    `runs` are RUNS: the messages whose rows are written.
    """

    @property
    def owner(self) -> str:
        """The name of the writer."""

    def require_allowed(self, location: str) -> None:
        """Raise InvalidParameterValue for a location that is, lies in, or contains a table of the ledger."""

    def require_safe(self, location: str, why: str) -> None:
        """Raise UnsafeStorage for a location where Spark and other writers could overwrite each other's commits.

        `why` is the reason why Spark commits there.
        """

    def publishing(self, location: str) -> Any:
        """Return the publisher of files at a location, or None if Spark has to commit.

        Raises UnsafeStorage if one commit there could overwrite another.
        """

    def writes_arrow(self) -> bool:
        """Return whether this ledger writes Arrow tables without Spark."""

    def is_new_here(self, location: str) -> bool:
        """Return True at the first call for each location, then False."""

    def require_arrow_writer(self) -> ArrowOutputs:
        """Return the writer of Arrow tables. Raises InvalidParameterValue if this ledger writes DataFrames only."""

    def table_id(self, location: str) -> str:
        """Return the id of a table before a write to it. Raises OutputUnreadable."""

    def require_held(self, queue: QueueRecord, receipt_id: str, runs: pa.Table, clock: Clock) -> None:
        """Raise LeaseLost unless the queue's records say that the receipt holds all of these messages.

        Does not check messages for which this receipt began a write. Call it before making a table for the rows.
        """

    def begin(
        self, queue: QueueRecord, receipt_id: str, runs: pa.Table, table: str, table_id: str, clock: Clock
    ) -> str | None:
        """Record that the messages are about to be written, and return the write's id.

        If an earlier call wrote the rows of all these messages, acknowledges them and returns None.

        Raises:
            LeaseLost: The receipt does not hold all of the messages, or an earlier call wrote the rows of some only.
            InvalidParameterValue: An earlier call wrote their rows to another table.
            OutputUnreadable: The table of an earlier call cannot be asked.
        """

    def is_fenced(self, location: str, identifier: str) -> bool:
        """Return whether a fence keeps a write out of the table for good. Raises OutputUnreadable."""

    def confirm_or_fence(self, location: str, identifier: str) -> bool:
        """Return whether a write is in the table. If it is not, commit a fence to the table.

        Waits without a limit for other writers of the table. Raises OutputUnreadable.
        """

    def finish(
        self, queue: QueueRecord, runs: pa.Table, identifier: str, clock: Clock, further_actions: Sequence[Any] = ()
    ) -> int:
        """Delete the messages whose rows are written. Apply `further_actions` to other messages in the same commit.

        Messages that are already deleted stay as they are. Returns how many messages `further_actions` changed.

        Raises:
            LeaseLost: No record of these messages has the write's id, for example after a restore. Nothing is changed.
        """

    def undo(self, queue: QueueRecord, runs: pa.Table, identifier: str, clock: Clock) -> None:
        """Record that a fence keeps a write out: its messages are as before the write began."""

    def require_writable(self) -> None:
        """Raise LedgerIsReadOnly if the ledger is open read-only."""

    def step(self, name: str) -> None:
        """Tell the listener, if there is one, which step a write has reached."""


RUN_FIELDS = [
    pa.field("lane", pa.int32()),
    pa.field("segment", pa.string()),
    pa.field("first_seq", pa.int64()),
    pa.field("last_seq", pa.int64()),
]
#: The messages of a grant, and fields of their records.
GRANTED_RUNS = pa.schema(
    [
        *RUN_FIELDS,
        pa.field("receive_count", pa.int32()),
        pa.field("first_received_at", pa.int64()),
        pa.field("origin_queue", pa.string()),
        pa.field("enqueued_at", pa.int64()),
    ]
)
RUNS = pa.schema(RUN_FIELDS)
OUTCOME_RUNS = pa.schema([*RUN_FIELDS, pa.field("outcome", pa.string())])


@dataclass(frozen=True)
class Grant:
    """The messages of one receipt (`runs` as GRANTED_RUNS).

    `version` is the commit that granted them, or the version at which the grant was found again (see `Store.held`).

    `order` has a number for each message: smaller numbers come first. Only a grant of a FIFO queue may have it.
    """

    receipt_id: str
    visible_at: int
    received_at: int
    version: int
    runs: pa.Table
    order: pa.Array | None = None

    @property
    def count(self) -> int:
        return count_messages(self.runs)

    def part(self, first: int, count: int) -> Grant:
        """Return up to `count` messages of a grant without `order`, from number `first` (counted from 0)."""
        lowest, highest = self.runs["first_seq"].to_numpy(), self.runs["last_seq"].to_numpy()
        ends = np.cumsum(highest - lowest + 1)
        begins = ends - (highest - lowest + 1)
        is_in_part = pa.array((begins < first + count) & (ends > first))
        cut = {
            "first_seq": lowest + np.maximum(first - begins, 0),
            "last_seq": highest - np.maximum(ends - first - count, 0),
        }
        columns = [pa.array(cut[name]) if name in cut else self.runs[name] for name in self.runs.column_names]
        return replace(self, runs=pa.table(columns, schema=self.runs.schema).filter(is_in_part))


class ReceiveRequest(NamedTuple):
    """A receive of at most `maximum` messages (None: all), for `timeout` seconds."""

    maximum: int | None
    timeout: int
    attempt_id: str | None = None


#: The answer to a ReceiveRequest. None: no message is left for it.
Received = Grant | LedgerError | None


class Postponed(str, Enum):
    """Why messages are released and hidden: for a planned retry, or because they failed too often."""

    RETRY = "postponed"
    PARKED = "parked"


@dataclass(frozen=True)
class Action:
    """A verb on the `runs` of one receipt. `timeout` is for Verb.CHANGE, and 0 releases.

    `whole_claim`, `only_later`, `counted` and `mark` are as in `visibility.change`. `reason` goes into the table
    `receipts`. `postponed` releases the messages, and hides them until the deadline.
    """

    verb: Verb
    receipt_id: str
    runs: pa.Table
    timeout: int = 0
    whole_claim: bool = False
    only_later: bool = False
    reason: str | None = None
    counted: bool = True
    postponed: Postponed | None = None
    mark: int = 0

    @property
    def ends(self) -> bool:
        return self.verb is Verb.DELETE or not self.timeout or self.postponed is not None

    @property
    def event(self) -> str:
        """The action's event in `receipts`."""
        if self.verb is Verb.DELETE:
            return "deleted"
        if self.timeout:
            return "extended" if self.postponed is None else self.postponed.value
        return "released"

    @property
    def name(self) -> str:
        """The action's name in logs and commits. A postponed action is an extend."""
        return "delete" if self.verb is Verb.DELETE else "extend" if self.timeout else "release"


@dataclass(frozen=True)
class StoredMessage:
    """A stored message and its record."""

    message_id: str
    body: str
    sent_at: int
    available_at: int
    lane: int
    segment: str
    seq: int
    record: Record
    message_attributes: Mapping[str, Attribute] = field(default_factory=dict)
    message_group_id: str | None = None
    message_deduplication_id: str | None = None
    sequence_number: int | None = None
    aws_trace_header: str | None = None
    sender_id: str | None = None

    @property
    def position(self) -> Position:
        """Return the message's place in the order in which its queue is copied."""
        arrived = arrived_at(self.record, self.sent_at)
        return position(arrived, self.sent_at, self.sequence_number, self.segment, self.seq)


@dataclass(frozen=True)
class Contents:
    """The contents of a queue at one moment, or a part of them (see `Store.contents`).

    `until` is when the last message arrived. `parts` are the messages by position; each part fits in memory.
    """

    count: int
    until: int
    parts: Iterator[Sequence[StoredMessage]]


@dataclass(frozen=True)
class StateCounts:
    """The number of messages in each state, and when the oldest message not GONE was sent."""

    by_status: Mapping[Status, int]
    oldest_sent_at: int | None


class Lease(NamedTuple):
    """Messages that share a receipt and a deadline. `messages` is their number."""

    receipt_id: str
    attempt_id: str | None
    visible_at: int
    messages: int


class StoredSend(NamedTuple):
    """The id of a sent message, and on FIFO queues its sequence number. A duplicate has those of its original."""

    message_id: str
    sequence_number: int | None = None


class Store(Protocol):
    """The contract of a store. Unless stated otherwise, a verb is one atomic commit, or none if it changes nothing.

    A receive, a lock, a redrive and a restore may also commit fences to output tables.
    """

    def create_queue(
        self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], clock: Clock
    ) -> QueueRecord:
        """Return the queue of this name, and make it if there is none.

        Raises:
            InvalidParameterValue: The new queue's RedrivePolicy names a queue that cannot be its target.
            QueueDeletedRecently: The new queue has intervals (`rules.limits`), and a queue of the name was deleted
                less than deletion_interval (a setting) ago.
        """

    def queue(self, name: str) -> QueueRecord:
        """Return the queue of this name. Raises QueueDoesNotExist, and LedgerTooNew for an unknown attribute value."""

    def queues(self) -> list[QueueRecord]:
        """Return all queues, by name."""

    def change_queue(self, queue: QueueRecord, change: Change, clock: Clock) -> QueueRecord:
        """Change the queue's attributes and tags.

        Calls `change` again after another change committed first. Raises QueueDoesNotExist, and what `change` raises.
        """

    def delete_queue(self, queue: QueueRecord, clock: Clock) -> None:
        """Remove the queue and its messages (on Delta tables by up to three commits). Raises QueueDoesNotExist.

        After the return no message is moved to the queue.
        """

    def send(
        self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock, attempt_id: str | None
    ) -> list[StoredSend]:
        """Store messages, and return the StoredSend of each, in order.

        A second call with the same attempt id and entries stores nothing, and returns the same. A FIFO queue stores no
        duplicate of a message that it got within 5 minutes, and since its last purge.

        Raises:
            InvalidParameterValue: Another send was committed under the attempt id.
            OverLimit: The queue has no room for all messages. Nothing is stored.
        """

    def receive(self, queue: QueueRecord, requests: Sequence[ReceiveRequest], clock: Clock) -> list[Received]:
        """Grant up to `maximum` visible messages to a new receipt for each request, all in one commit.

        A request whose attempt holds messages gets these again. No two requests may have the same attempt id. Each
        message goes to one request only.

        The answer to a request may be an error: OverLimit, OutputUnreadable, or InvalidParameterValue (its attempt
        holds more messages than `maximum`).
        """

    def apply(
        self, queue: QueueRecord, actions: Sequence[Action], limits: Limits, receipts: Receipts, clock: Clock
    ) -> list[pa.Table]:
        """Apply all actions. Return OUTCOME_RUNS for each action, which cover its runs exactly.

        If two actions would record different things about a message, neither changes it.
        """

    def reject(self, queue: QueueRecord, actions: Sequence[Action], clock: Clock) -> int | None:
        """Release messages, and move them to the dead-letter queue. Return how many moved.

        Each action is a release with its own reason. Messages that its receipt does not hold stay as they are. Does
        nothing and returns None if no other queue is the queue's dead-letter queue.
        """

    def redrive(
        self,
        source: QueueRecord,
        target: QueueRecord | None,
        maximum: int | None,
        chosen: pa.Table | None,
        clock: Clock,
    ) -> int:
        """Move visible messages to `target`, or to the queue that each came from. Return how many.

        Moves only messages of `chosen` (RUNS), if given. Messages whose origin is gone, or cannot take them, stay. A
        FIFO queue gives the messages that a receive would take, in the receive's order. Raises QueueDoesNotExist, and
        InvalidParameterValue if `target` cannot take the messages.
        """

    def restore(self, queue: QueueRecord, receipt_id: str, clock: Clock) -> int:
        """Make visible the messages of a receipt that are deleted, or in doubt and no longer held. Return how many.

        Raises OutputUnreadable when an output table exists and cannot be asked or fenced.
        """

    def lock(self, queue: QueueRecord, message_id: str, timeout: int, clock: Clock) -> bool:
        """Hide a message that nobody holds. Return False when the message is in flight or deleted.

        Raises MessageDoesNotExist, and OutputUnreadable when the message is in doubt and its output table cannot
        answer.
        """

    def peek(self, queue: QueueRecord, message_id: str) -> StoredMessage:
        """Return a message in any state. Raises MessageDoesNotExist."""

    def leases(self, queue: QueueRecord, clock: Clock) -> list[Lease]:
        """Return the leases of the messages that are held now, sorted by receipt and deadline."""

    def postponed(self, queue: QueueRecord, clock: Clock) -> list[Lease]:
        """Return, as `leases` does, the messages that were released and are hidden until a deadline."""

    def given_back(self, queue: QueueRecord, clock: Clock) -> Mapping[str, pa.Table]:
        """Return the messages of `postponed` as RUNS, by the receipt under which they were released."""

    def held(self, queue: QueueRecord, receipt_id: str, clock: Clock | None = None) -> Grant | None:
        """Return the messages that a receipt still holds, or None.

        Without a clock, messages stay held after their deadline, until somebody receives them again.
        """

    def read(self, queue: QueueRecord, grant: Grant) -> list[StoredMessage]:
        """Return the messages of a grant, oldest first.

        FIFO queues return them in the order of the grant, or of `fifo.order_by_group` if the grant was found again.
        Leaves out messages without a row, but raises LedgerDamaged if the receipt still holds one.
        """

    def require_messages(self, queue: QueueRecord, grant: Grant, runs: pa.Table) -> None:
        """Raise LedgerDamaged if one of these messages of the grant (RUNS) is still held and has no row any more."""

    def purge(self, queue: QueueRecord, clock: Clock, older_than: int | None = None) -> int:
        """Delete every message stored now. Return how many.

        A FIFO queue forgets all deduplication ids (on Delta tables by further commits). On queues with intervals
        (`Limits.has_intervals`), raises PurgeQueueInProgress for purge_interval (a setting) after the last purge.

        With `older_than`, delete only messages sent more than these milliseconds before the call. Such a purge keeps
        all deduplication ids, has no interval and begins none.
        """

    def contents(
        self, queue: QueueRecord, clock: Clock, after: Position | None = None, until: int | None = None
    ) -> Contents:
        """Return every message that is not deleted, expired or moved, held or not.

        If given, `after` is a position before all of these messages, and `until` an instant at which all had arrived. A
        message that is deleted meanwhile may be missing.
        """

    @property
    def place(self) -> str:
        """The ledger's place: the same for every process that opened it, and no other ledger's."""

    def copy_progress(self, queue: QueueRecord, key: str) -> CopyProgress | None:
        """Return the progress of the copy `key` into the queue, or None if no part of it is committed."""

    def add_copies(
        self, queue: QueueRecord, messages: Sequence[CopiedMessage], key: str, progress: CopyProgress, clock: Clock
    ) -> bool:
        """Store the next part of a copy and the copy's progress, whatever the messages' deduplication ids.

        Returns False and stores nothing unless the part follows the last stored part.
        """

    def counts(self, queue: QueueRecord, clock: Clock) -> StateCounts:
        """Count messages by state. Reads no body."""

    def tasks(self) -> list[MoveTask]:
        """Return all message move tasks."""

    def put_task(self, task: MoveTask) -> bool:
        """Store a task if `redrive.is_next_revision` accepts it. Return whether it did."""

    def change_token(self) -> object:
        """Return a value that differs after each commit to messages or their records."""

    def require_tables(self) -> None:
        """Raise StorageFailed unless the store's tables are there."""

    def require_ready(self, free_bytes: int) -> None:
        """Check that there is room for commits, and that clocks agree.

        Raises:
            StorageFailed: The disk has fewer than `free_bytes` free, or takes no file.
            TableAltered: Somebody altered one of the tables, and verbs that need it fail.
            ClocksDisagree: This machine's clock is too far from the storage's clock, or from the newest commit.
        """

    def refusals(self) -> Mapping[str, tuple[str, str]]:
        """Return what was done to each altered table whose verbs fail, and the remedy."""

    @property
    def outputs(self) -> OutputWrites:
        """The store's part in `Claim.write`. Raises LedgerError on a store without tables."""


def apply_action(
    queue: QueueRecord, action: Action, record: Record, limits: Limits, receipts: Receipts, now: int
) -> tuple[Outcome, Record]:
    fifo = is_fifo(queue.attributes)
    if action.verb is Verb.DELETE:
        return visibility.delete(record, action.receipt_id, now, whole_claim=action.whole_claim, fifo=fifo)
    return visibility.change(
        record,
        action.receipt_id,
        action.timeout,
        now,
        ceiling=limits.maximum_visibility_timeout,
        receipts=receipts,
        fifo=fifo,
        whole_claim=action.whole_claim,
        only_later=action.only_later,
        postpones=action.postponed is not None,
        counted=action.counted,
        mark=action.mark,
    )


def leases_of(records: Iterable[tuple[Record, int]], now: int, *, postponed: bool) -> list[Lease]:
    """Return the leases of held (or `postponed`) messages. `records` has each record's number of messages."""
    count_by_lease: Counter[tuple[str, str | None, int]] = Counter()
    for record, messages in records:
        receipt = record.receipt_id or ""
        if visibility.is_postponed(record, now) if postponed else visibility.is_held(record, receipt, now):
            count_by_lease[receipt, record.attempt_id, deadline(record)] += messages
    return [Lease(*key, count_by_lease[key]) for key in sorted(count_by_lease, key=lambda key: (key[0], key[2]))]


def count_messages(runs: pa.Table) -> int:
    return int(_lengths(runs).sum())


def count_by_outcome(answer: pa.Table) -> Counter[Outcome]:
    outcomes = answer["outcome"].combine_chunks().dictionary_encode()
    counted = np.bincount(outcomes.indices, _lengths(answer), len(outcomes.dictionary))
    return Counter({Outcome(name): int(count) for name, count in zip(outcomes.dictionary.to_pylist(), counted)})


def _lengths(runs: pa.Table) -> np.ndarray:
    lengths: np.ndarray = runs["last_seq"].to_numpy() - runs["first_seq"].to_numpy() + 1
    return lengths
