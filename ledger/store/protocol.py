"""The seam that every store stands behind: set-shaped verbs, a run of messages in, an outcome per run out.

A *run* is a row (lane, segment, first_seq, last_seq): neighbouring messages of a segment, both ends included. A claim
of a million messages sent in bulk is a run or two, whatever it costs to say so in rows of one message each.
All instants are integer milliseconds UTC and all durations seconds. A verb is given a clock and not an instant: it
reads it at each decision, when it has waited for its turn and read what it decides on, and anew when it tries again.

`OutputWrites` is the part of the seam for writes of a claim's output to a Delta table, see `rules.output_doubts`.
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
from ledger.rules.move_task import MoveTask
from ledger.rules.output_columns import ColumnsAsked
from ledger.rules.state import Record, Retention, Status, arrived_at, deadline
from ledger.rules.visibility import Outcome, Receipts, Verb


@dataclass(frozen=True)
class QueueRecord:
    """A queue as the store knows it. `id` names this very queue: made again under the same name, it has another."""

    id: str
    name: str
    attributes: Mapping[str, str]
    tags: Mapping[str, str]
    created_at: int
    modified_at: int
    revision: int = 1
    #: Q7: see Retention. What had expired when the period was changed, or an upkeep dropped it.
    expired_before: int = -1
    #: By the clock that noted that, when it did; -1: not known.
    expiry_noted_at: int = -1

    @cached_property
    def not_understood(self) -> str | None:
        """See rules.attributes.not_understood."""
        return not_understood(self.attributes)

    @property
    def retention(self) -> Retention:
        """How long its messages are kept."""
        return Retention(retention_period(self.attributes), self.expired_before)

    @property
    def noted_at(self) -> int:
        """The latest instant that a clock has said when it noted what had expired; -1: nothing is noted. An earlier
        release did not record it: there it was no later than the last change."""
        if self.expired_before < 0:
            return -1
        return max(self.expired_before, self.modified_at if self.expiry_noted_at < 0 else self.expiry_noted_at)

    @property
    def latest(self) -> int:
        """The latest instant that is known of it."""
        return max(self.created_at, self.modified_at, self.noted_at)

    def put_back(self, now: int, skew: int) -> QueueRecord:
        """The queue as it is after a clock more than `skew` ahead of `now` has made or changed it; itself where none
        has."""
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
        """The queue with these attributes and tags from `now` on; itself, when it has them."""
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
        return made._noting(before, now, self.noted_at)

    def expired(self, at: int) -> QueueRecord:
        """The queue with what had expired at the instant `at` noted for good; itself, when all that is noted."""
        before = self.retention.expired(at)
        if before == self.expired_before:
            return self
        return replace(self, revision=self.revision + 1)._noting(before, at, self.noted_at)

    def _noting(self, expired_before: int, now: int, noted_at: int) -> QueueRecord:
        if expired_before == self.expired_before:
            return self
        return replace(self, expired_before=expired_before, expiry_noted_at=max(now, noted_at))


#: What a change makes of the queue as it is now, given all queues of the ledger: its attributes and its tags.
Change = Callable[[QueueRecord, Sequence[QueueRecord]], tuple[Mapping[str, str], Mapping[str, str]]]


class CopiedMessage(NamedTuple):
    """A message of another queue: what was sent, since when its queue keeps it, from when it may be received
    (milliseconds), and who sent it."""

    entry: Entry
    kept_since: int
    available_at: int
    sender_id: str | None = None


class ArrowOutputs(Protocol):
    """Writes Arrow tables to Delta tables that are none of the ledger's, without Spark."""

    def prepare_output(
        self, location: str, rows: pa.Table, asked: ColumnsAsked, alone: Callable[[], AbstractContextManager[Any]]
    ) -> pa.Table:
        """Return the rows with the columns of such a table, to be appended.

        Make the table, empty, where there is none, and widen its columns where that is asked, `alone` meanwhile. Raises
        OutputNotWritten for rows that do not fit, before it makes or changes anything."""

    def append_output(
        self,
        location: str,
        rows: pa.Table,
        application: str,
        version: int,
        metadata: Mapping[str, Any],
        asked: ColumnsAsked,
    ) -> None:
        """Append rows, under a transaction of which no version was committed yet.

        The columns that the table lacks are added by the same commit, or by one right before it. The rows are fitted to
        the very version of the table that the commit stands on. Raises whatever goes wrong."""


class OutputWrites(Protocol):
    """What a store does about writes: it records when one is begun and how it ended, and asks the output table in
    between. `runs` are RUNS: the messages that are written."""

    @property
    def owner(self) -> str:
        """Who writes."""

    def require_allowed(self, location: str) -> None:
        """Raises InvalidParameterValue for a place that is, or lies in, one of the ledger's own tables."""

    def require_safe(self, location: str, why: str) -> None:
        """Raises UnsafeStorage where Spark's commits could be written over, or write over others; `why`: what makes
        Spark commit there."""

    def publishing(self, location: str) -> Any:
        """What publishes files at a place; None where Spark has to commit. Raises UnsafeStorage for a store that lets
        one commit be put over another."""

    def writes_arrow(self) -> bool:
        """Whether Arrow tables are written without Spark."""

    def is_new_here(self, location: str) -> bool:
        """True once for each place."""

    def without_spark(self) -> ArrowOutputs:
        """What writes Arrow tables. Raises InvalidParameterValue when this ledger writes DataFrames alone."""

    def table_id(self, location: str) -> str:
        """The id of a table that is about to be written to. Raises OutputUnreadable."""

    def require_held(self, queue: QueueRecord, receipt_id: str, runs: pa.Table, clock: Clock) -> None:
        """Raises LeaseLost when the receipt does not hold one of these messages, as far as the queue alone tells:
        before a table is made for their rows."""

    def begin(
        self, queue: QueueRecord, receipt_id: str, runs: pa.Table, table: str, table_id: str, clock: Clock
    ) -> str | None:
        """Records that messages are about to be written; returns the write's id. None: an earlier call has written them
        all. Raises LeaseLost when the receipt does not hold one of them, or an earlier call wrote only some of them,
        InvalidParameterValue when it wrote them to another table: then nothing is to be written."""

    def is_fenced(self, location: str, identifier: str) -> bool:
        """Whether somebody saw to it that a write never gets in. Raises OutputUnreadable."""

    def written_or_fenced(self, location: str, identifier: str) -> bool:
        """Whether a write is in. If not, this commits to the table: the write is fenced off, and never will be in.
        Waits for others that write to the table now, as long as it takes. Raises OutputUnreadable."""

    def finish(
        self, queue: QueueRecord, runs: pa.Table, identifier: str, clock: Clock, beside: Sequence[Any] = ()
    ) -> int:
        """Deletes what was written, unless whoever took the messages over has recorded that already, and applies the
        actions `beside`, on other messages, in the same commit; returns of how many messages they changed something.

        Raises LeaseLost, and changes nothing, where no record of these messages knows of the write: the ledger was
        replaced meanwhile, or they were restored."""

    def undo(self, queue: QueueRecord, runs: pa.Table, identifier: str, clock: Clock) -> None:
        """Records that a write is fenced off: its messages are held, or received again, as if it had not begun."""

    def require_writable(self) -> None:
        """Raises LedgerIsReadOnly where nothing may be written."""

    def step(self, name: str) -> None:
        """Tells whoever listens that a write has come so far."""


RUN_FIELDS = [
    pa.field("lane", pa.int32()),
    pa.field("segment", pa.string()),
    pa.field("first_seq", pa.int64()),
    pa.field("last_seq", pa.int64()),
]
#: The messages of a grant: where they are and what was recorded about them before.
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
#: What became of the messages of an action.
OUTCOME_RUNS = pa.schema([*RUN_FIELDS, pa.field("outcome", pa.string())])


@dataclass(frozen=True)
class Grant:
    """What a receive was granted: `runs` as GRANTED_RUNS; `version` is the commit that granted it.

    `order`: of a FIFO queue's receive, where its store keeps it here, a number for each message of `runs`, smaller for
    what comes first; runs of neighbours would not be as few in that order.
    """

    receipt_id: str
    visible_at: int
    received_at: int
    version: int
    runs: pa.Table
    order: pa.Array | None = None

    @property
    def count(self) -> int:
        """How many messages were granted."""
        return count_messages(self.runs)

    def part(self, first: int, count: int) -> Grant:
        """At most so many of its messages, from that one on, in the order of the runs; of a grant without `order`."""
        lowest, highest = self.runs["first_seq"].to_numpy(), self.runs["last_seq"].to_numpy()
        ends = np.cumsum(highest - lowest + 1)
        begins = ends - (highest - lowest + 1)
        some = pa.array((begins < first + count) & (ends > first))
        cut = {
            "first_seq": lowest + np.maximum(first - begins, 0),
            "last_seq": highest - np.maximum(ends - first - count, 0),
        }
        columns = [pa.array(cut[name]) if name in cut else self.runs[name] for name in self.runs.column_names]
        return replace(self, runs=pa.table(columns, schema=self.runs.schema).filter(some))


class ReceiveRequest(NamedTuple):
    """One receive: of at most `maximum` messages (None: all), for `timeout` seconds."""

    maximum: int | None
    timeout: int
    attempt_id: str | None = None


#: The answer to one request of a receive: None when nothing is visible, or the error that it alone meets.
Received = Grant | LedgerError | None


class Postponed(str, Enum):
    """Why messages are given back and hidden: for a retry at a planned time, or because they failed too often."""

    RETRY = "postponed"
    PARKED = "parked"


@dataclass(frozen=True)
class Action:
    """One verb on the `runs` that were handed out under one receipt. `timeout` is for Verb.CHANGE; 0 releases.

    `whole_claim`, `only_later`, `counted` and `mark` are as in `visibility.change`. `reason` is what the receipts
    ledger says of it. `postponed`: the action gives the messages back now, hidden until the deadline; it names the
    event, too.
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
        """Whether it ends the hold on the messages: deletes or gives them back."""
        return self.verb is Verb.DELETE or not self.timeout or self.postponed is not None

    @property
    def event(self) -> str:
        """What the receipts ledger calls it."""
        if self.verb is Verb.DELETE:
            return "deleted"
        if self.timeout:
            return "extended" if self.postponed is None else self.postponed.value
        return "released"

    @property
    def name(self) -> str:
        """What users call it, in logs and commits, too: delete, extend or release."""
        return "delete" if self.verb is Verb.DELETE else "extend" if self.timeout else "release"


@dataclass(frozen=True)
class StoredMessage:
    """A message as it lies in the store, and what is recorded about it. `record.receipt_id` may be None."""

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
        """Its place in the order in which its queue is copied."""
        arrived = arrived_at(self.record, self.sent_at)
        return position(arrived, self.sent_at, self.sequence_number, self.segment, self.seq)


@dataclass(frozen=True)
class Contents:
    """What a queue has, as of one moment: how many messages, when the last of them arrived (milliseconds), and the
    messages in the order of their positions, some at a time: each part fits in memory."""

    count: int
    until: int
    parts: Iterator[Sequence[StoredMessage]]


@dataclass(frozen=True)
class StateCounts:
    """How many messages of a queue are in each state, and when the oldest not deleted one was sent (None: none)."""

    by_status: Mapping[Status, int]
    oldest_sent_at: int | None


class Lease(NamedTuple):
    """Messages in flight that share a receipt and a deadline, and how many they are."""

    receipt_id: str
    attempt_id: str | None
    visible_at: int
    messages: int


class StoredSend(NamedTuple):
    """What is known of a message once it is sent; FIFO queues number theirs. Of a duplicate (F1): what the first is."""

    message_id: str
    sequence_number: int | None = None


class Store(Protocol):
    """What a store must do. Every verb is one atomic commit; one that changes nothing commits nothing."""

    def create_queue(
        self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], clock: Clock
    ) -> QueueRecord:
        """The queue of this name, made if there is none. Raises InvalidAttributeValue when the RedrivePolicy of one
        that would be made names a queue that cannot be its target, and QueueDeletedRecently within the setting
        deletion_interval of the deletion of the last queue of the name, where the new one has intervals (M3)."""

    def queue(self, name: str) -> QueueRecord:
        """The queue of this name; raises QueueDoesNotExist."""

    def queues(self) -> list[QueueRecord]:
        """All queues, by name."""

    def change_queue(self, queue: QueueRecord, change: Change, clock: Clock) -> QueueRecord:
        """Changes attributes and tags of this very queue, by its id, in one commit.

        `change` is asked in the decision, and again whenever another change was first. Raises QueueDoesNotExist, and
        what `change` raises.
        """

    def delete_queue(self, queue: QueueRecord, clock: Clock) -> None:
        """Removes this very queue, by its id, and with it its messages; raises QueueDoesNotExist. No message is moved
        there once this has returned."""

    def send(
        self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock, attempt_id: str | None
    ) -> list[StoredSend]:
        """Stores messages; returns what is known of each, in order. The same attempt id again sends nothing, and
        returns the same.

        F1: on FIFO queues what was sent under the same deduplication id within 5 minutes is not sent again.
        Raises OverLimit, and stores nothing, where the queue would have more messages than its MaximumMessages.
        """

    def receive(self, queue: QueueRecord, requests: Sequence[ReceiveRequest], clock: Clock) -> list[Received]:
        """Grants to each request's new receipt up to `maximum` visible messages, or again what its attempt holds: all
        of it in one commit, whose version they share. No two attempt ids may be the same.

        As receives one after the other would, but that a message goes to one of them only, whatever the timeouts. An
        error is one request's own: OverLimit, OutputUnreadable, and InvalidParameterValue when its attempt holds more.
        """

    def apply(
        self, queue: QueueRecord, actions: Sequence[Action], limits: Limits, receipts: Receipts, clock: Clock
    ) -> list[pa.Table]:
        """Applies all actions in one commit; returns OUTCOME_RUNS for each, which cover its runs exactly. M2: where two
        of them would record different things about a message, neither changes it."""

    def reject(self, queue: QueueRecord, actions: Sequence[Action], clock: Clock) -> int | None:
        """Gives messages back, each action (a release) for its reason, and moves them to the dead-letter queue in the
        same commit, as if they had been received too often; returns how many. What the actions' receipts do not hold
        stays as it is. None, and nothing is done: the queue has no other queue as its dead-letter queue."""

    def redrive(
        self,
        source: QueueRecord,
        target: QueueRecord | None,
        maximum: int | None,
        chosen: pa.Table | None,
        clock: Clock,
    ) -> int:
        """D2: moves visible messages, at most `maximum` and of `chosen` (RUNS) when given, to `target`, or without one
        to where each came from; returns how many. Messages whose origin is gone stay. On FIFO queues those that a
        receive would take, in the order in which it would."""

    def restore(self, queue: QueueRecord, receipt_id: str, clock: Clock) -> int:
        """Makes what was deleted under a receipt visible again, and what is in doubt under it; returns how many
        messages. Raises OutputUnreadable when the output table of some is there and cannot be fenced off."""

    def lock(self, queue: QueueRecord, message_id: str, timeout: int, clock: Clock) -> bool:
        """V12; False when the message is in flight or deleted. Raises MessageDoesNotExist, and OutputUnreadable when it
        is in doubt and its output table cannot say whether it is written."""

    def peek(self, queue: QueueRecord, message_id: str) -> StoredMessage:
        """V11; raises MessageDoesNotExist."""

    def leases(self, queue: QueueRecord, clock: Clock) -> list[Lease]:
        """Who holds messages now, and until when: a Lease for each receipt and deadline, in that order."""

    def postponed(self, queue: QueueRecord, clock: Clock) -> list[Lease]:
        """What was given back and is hidden until a deadline, as `leases`: nobody works on it."""

    def given_back(self, queue: QueueRecord, clock: Clock) -> Mapping[str, pa.Table]:
        """The messages of `postponed` by the receipt that they were given back under, as RUNS."""

    def held(self, queue: QueueRecord, receipt_id: str, clock: Clock | None = None) -> Grant | None:
        """What is recorded under a receipt and neither deleted nor given back, or None; with a clock only what is in
        flight by it."""

    def read(self, queue: QueueRecord, grant: Grant) -> list[StoredMessage]:
        """The messages of a grant, oldest first; on FIFO queues in the order in which they were granted, or in that of
        `fifo.drained` when the grant was found again. Raises LedgerDamaged where the grant holds a message that has no
        row any more."""

    def require_messages(self, queue: QueueRecord, grant: Grant, runs: pa.Table) -> None:
        """Raise LedgerDamaged where some of these messages (RUNS), which are of the grant, have no row any
        more, and the grant still holds them. Ask before they are acknowledged; it reads no message."""

    def purge(self, queue: QueueRecord, clock: Clock, older_than: int | None = None) -> int:
        """Deletes every message stored now; returns how many. M3: a FIFO queue forgets all deduplication ids until now.
        Raises PurgeQueueInProgress within the setting purge_interval of the last one, on queues with intervals.

        With `older_than` (milliseconds) only those that were sent earlier than so long ago: no deduplication id is
        forgotten, and no interval is kept or begun."""

    def contents(
        self, queue: QueueRecord, clock: Clock, after: Position | None = None, until: int | None = None
    ) -> Contents:
        """Every message that the queue has now, held or not: not those that are deleted, expired or moved. Only
        what is behind the position `after`, and arrived no later than `until`. What is deleted while parts are read may
        be there, or not."""

    @property
    def place(self) -> str:
        """Where the ledger lies: the same for all who have opened it, and no other's."""

    def copy_progress(self, queue: QueueRecord, key: str) -> CopyProgress | None:
        """How far the copy of this name is, which ends in the queue; None: no part of it is committed."""

    def add_copies(
        self, queue: QueueRecord, messages: Sequence[CopiedMessage], key: str, progress: CopyProgress, clock: Clock
    ) -> bool:
        """Stores the next part of a copy: all of these messages, whatever their deduplication ids, and the copy's
        progress with them. False, and nothing is stored, where another part than the one before it is the last."""

    def counts(self, queue: QueueRecord, clock: Clock) -> StateCounts:
        """Counts by state, from metadata and records alone."""

    def tasks(self) -> list[MoveTask]:
        """All message move tasks."""

    def put_task(self, task: MoveTask) -> bool:
        """Stores a task if `move_task.follows` says so of what is stored, in one commit; False, and nothing, if not."""

    def change_token(self) -> object:
        """Differs whenever something was committed since; for waiting."""

    def require_tables(self) -> None:
        """Looks whether what it keeps everything in is there. Raises StorageFailed."""

    def require_ready(self, free_bytes: int) -> None:
        """Look whether there is room for commits, and whether clocks agree.

        Raises:
            StorageFailed: The disk has fewer than `free_bytes` free, or takes no file.
            TableAltered: Somebody altered one of the tables, and no verb can use it.
            ClocksDisagree: This machine's clock is too far from the storage's, or from the newest commit.
        """

    def refusals(self) -> Mapping[str, tuple[str, str]]:
        """Return, by table, what somebody did to it so that no verb can use it, and what to do; nothing for others."""

    @property
    def outputs(self) -> OutputWrites:
        """What it does for `Claim.write`. Raises LedgerError on a store that has no tables beside which to write."""


def apply_action(
    queue: QueueRecord, action: Action, record: Record, limits: Limits, receipts: Receipts, now: int
) -> tuple[Outcome, Record]:
    """What an action does to one message, by the rules."""
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
    """The leases that messages are held under, or if `postponed` were given back under; of (record, messages)."""
    found: Counter[tuple[str, str | None, int]] = Counter()
    for record, messages in records:
        receipt = record.receipt_id or ""
        if visibility.is_postponed(record, now) if postponed else visibility.is_held(record, receipt, now):
            found[receipt, record.attempt_id, deadline(record)] += messages
    return [Lease(*key, found[key]) for key in sorted(found, key=lambda key: (key[0], key[2]))]


def count_messages(runs: pa.Table) -> int:
    """How many messages some runs hold."""
    return int(_lengths(runs).sum())


def count_by_outcome(answer: pa.Table) -> Counter[Outcome]:
    """How many messages have each outcome. Of OUTCOME_RUNS."""
    outcomes = answer["outcome"].combine_chunks().dictionary_encode()
    counted = np.bincount(outcomes.indices, _lengths(answer), len(outcomes.dictionary))
    return Counter({Outcome(name): int(count) for name, count in zip(outcomes.dictionary.to_pylist(), counted)})


def _lengths(runs: pa.Table) -> np.ndarray:
    lengths: np.ndarray = runs["last_seq"].to_numpy() - runs["first_seq"].to_numpy() + 1
    return lengths
