"""A queue: send, receive, look. What users call; the store does the work."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from ledger.acting import Acting
from ledger.arrow_rows import SentTable, entries_of, sent_table
from ledger.claim import Claim
from ledger.clock import Clock
from ledger.ending import LiveClaims
from ledger.entries import EntryList
from ledger.errors import InvalidParameterValue, LedgerError, OutputUnreadable, OverLimit
from ledger.message import Message, public_message
from ledger.results import SendOutcome
from ledger.rules import attempts
from ledger.rules import attributes as attribute_rules
from ledger.rules import limits as bounds
from ledger.rules import message as message_rules
from ledger.settings import Settings
from ledger.store import QueueRecord, Request, Store
from ledger.tabular import ArrowTable, arrow_table, is_spark, listed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ledger.store.delta.dataframes.bulk_send import Sent
    from ledger.store.delta.dataframes.frames import Frames


class Queue(Acting):
    """A queue of a ledger. Threads may share it. Get one from `Ledger.create_queue` or `Ledger.queue`."""

    def __init__(
        self, store: Store, record: QueueRecord, clock: Clock, frames: Frames | None, settings: Settings
    ) -> None:
        super().__init__(store, record, clock, frames, settings.account)
        self._poll_interval = settings.poll_interval
        self._claims = LiveClaims()

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    @overload
    def send(
        self,
        messages: str | Mapping[str, object] | Sequence[str | Mapping[str, object]],
        *,
        attempt_id: str | None = None,
        delay_seconds: int | None = None,
        message_attributes: Mapping[str, object] | None = None,
        message_group_id: str | None = None,
        message_deduplication_id: str | None = None,
        all_or_nothing: bool = False,
    ) -> list[SendOutcome]: ...
    @overload
    def send(self, messages: DataFrame, *, body: str | None = None, attempt_id: str | None = None) -> Sent: ...
    @overload
    def send(self, messages: ArrowTable, *, body: str | None = None, attempt_id: str | None = None) -> SentTable: ...
    def send(
        self,
        messages: str | Mapping[str, object] | Sequence[str | Mapping[str, object]] | DataFrame | ArrowTable,
        *,
        body: str | None = None,
        attempt_id: str | None = None,
        delay_seconds: int | None = None,
        message_attributes: Mapping[str, object] | None = None,
        message_group_id: str | None = None,
        message_deduplication_id: str | None = None,
        all_or_nothing: bool = False,
    ) -> Sent | SentTable | list[SendOutcome]:
        """Sends messages in one commit.

        A DataFrame: every row is a message, its body the column `body` (name another one with `body=`), or the whole
        row as JSON when there is no such column; any number of rows. Beside the body the columns delay_seconds,
        message_attributes, message_group_id and message_deduplication_id count. Answers a `Sent`: count, and `ids()`.
        An Arrow table (or a pandas or polars DataFrame, or what else has Arrow's PyCapsule interface): as a DataFrame,
        through Spark where the ledger has it; `ids()` is a pyarrow.Table.
        A list of strings (or one string), or of SQS's entries ({"MessageBody": ..., "DelaySeconds",
        "MessageAttributes", "MessageGroupId", "MessageDeduplicationId", "AWSTraceHeader"}): answers a SendOutcome for
        each, in order, which is the message's id, and knows its sequence number and MD5s.
        M2: LOOK AT THE OUTCOMES OF A LIST. As in SQS's batches an entry that is wrong is refused alone, and the others
        are sent; its outcome is false and has the error. `all(outcomes)` says whether all were sent, and the log
        ("ledger.send") warns if not. With `all_or_nothing=True` the error is raised, and nothing is sent; so it is
        always for one string or entry without a list, for tables, and, as in the service, for an entry of a FIFO queue
        without its group or deduplication id.
        The keyword arguments hold for all messages of a list that do not say otherwise.
        `attempt_id` makes a retry safe: a send that was committed under it is not sent again, its ids are answered.
        Under an id that stands for another send (other messages, another number of them, another queue of the ledger)
        it is an error: in Airflow, {{ dag.dag_id }}.{{ run_id }}.{{ task.task_id }}.{{ ti.map_index }} tells a task
        from all others. A DataFrame is evaluated once more for it, before it is written.
        The same list again under the same id has the same outcomes.
        FIFO queues (F1) need a group, and know a repeated message by its deduplication id, for 5 minutes.
        What an entry is refused for: InvalidParameterValue for a body that is no string, or over the queue's
        MaximumMessageSize, MissingParameter for an empty body or a missing group, InvalidMessageContents for a body
        with a character that the service does not take (M1). Raises these where all or nothing is
        sent, InvalidParameterValue also for a keyword argument that can hold for no message, and a missing column;
        then nothing was sent.
        """
        attempts.attempt_id(attempt_id, "attempt_id")
        record = self._record()
        message_rules.require_no_attempt(attempt_id, record.attributes)
        common = {
            "delay_seconds": delay_seconds,
            "attributes": message_attributes,
            "message_group_id": message_group_id,
            "message_deduplication_id": message_deduplication_id,
        }
        table = arrow_table("messages", messages)
        if is_spark(messages) or table is not None:
            given = [name for name, value in common.items() if value is not None]
            if given:
                bound, fix = "A DataFrame has it as a column", "Add the column."
                raise InvalidParameterValue(given[0], common[given[0]], bound, fix)
            return self._send_table(record, messages if table is None else table, body, attempt_id)
        if body is not None:
            raise InvalidParameterValue("body", body, "It names a column, and a list has none", "Leave it out.")
        message_rules.require_common(record.attributes, **common)
        single = isinstance(messages, (str, Mapping))
        entries = EntryList(
            [messages] if single else listed("messages", messages), record.attributes, common, in_batch=not single
        )
        entries.require(every=single or all_or_nothing)
        return entries.outcomes(self._store.send(record, entries.entries, self._clock, attempt_id))

    def receive(
        self,
        max_messages: int | None = 1,
        visibility_timeout: int | None = None,
        wait: float | None = None,
        attempt_id: str | None = None,
    ) -> Claim:
        """Claims up to `max_messages` visible messages (None: all there are) under one new receipt, in one commit.

        `visibility_timeout` (seconds) is for this claim; without it the queue's VisibilityTimeout. `wait` (seconds)
        waits for a message when there is none; without it the queue's ReceiveMessageWaitTimeSeconds. The same
        `attempt_id` while that earlier claim is held answers the same claim again, its timeout restarted; it is an
        error when that claim is larger than `max_messages`. Every task needs an id of its own, as for `send`.
        On FIFO queues (F2) a claim has the first messages of groups of which none is in flight, in order: the groups as
        they became receivable (their first message came, or their last hold ended), each drained before the next.
        D1: what was received as often as the queue's RedrivePolicy allows goes to the dead-letter queue instead.
        Q2, Q3: raises OverLimit at the quota of an SQS-limited standard queue, unless it waits; FIFO answers none.
        Raises OutputUnreadable, which names the table, when all there is was left in doubt by a `claim.write` whose
        table cannot be asked; such messages are left alone, and others are received beside them.
        Raises QueueDoesNotExist, also when the queue is deleted while it waits, and made anew or not.
        Answers a Claim; an empty one is false. Never more messages than asked for; fewer when other receivers compete.
        """
        record = self._record()
        limits = attribute_rules.limits_of(record.attributes)
        request = _request(record, max_messages, visibility_timeout, attempt_id)
        wait = bounds.wait(int(record.attributes["ReceiveMessageWaitTimeSeconds"]) if wait is None else wait, limits)
        give_up = time.monotonic() + wait
        while True:
            seen = self._store.change_token() if wait else None
            (received,) = self._store.receive(record, [request], self._clock)
            if isinstance(received, LedgerError):
                # Q2: "with long polling, no new messages are returned until the count drops". And beside messages that
                # are left alone others may come.
                waits = wait and isinstance(received, (OverLimit, OutputUnreadable))
                if not waits or (isinstance(received, OutputUnreadable) and time.monotonic() >= give_up):
                    raise received
                received = None
            if received is not None or time.monotonic() >= give_up:
                return Claim(self, received, request.timeout)
            self._wait_for_change(seen, give_up)
            # Deleted meanwhile, what was recorded about its messages is forgotten: acknowledged ones would come back.
            record = self._record()

    def receive_many(self, requests: Sequence[Sequence[Any]]) -> list[Claim]:
        """Several receives at once, in one commit, which costs about as much as one receive of all their messages.

        Each request is (max_messages, visibility_timeout, attempt_id) as in `receive`, of which later ones may be left
        out; it does not wait. Answers a Claim for each, in their order, with a receipt of its own: what these receives
        would get one after the other at one instant, but that a message goes to one of them only, also with a timeout
        of 0. On FIFO queues (F2) no group goes to two new claims: what one leaves of its last group, nobody gets.
        A request whose attempt holds a claim gets that one again. All claims that are granted have the same `version`.
        What one request alone cannot have leaves the others as they are: its claim is empty and has the `error`:
        OverLimit once a standard queue's quota is used up, by claims of this call too (Q2); InvalidParameterValue when
        its attempt holds more than it asks for; OutputUnreadable as in `receive`.
        Raises InvalidParameterValue, before anything is received, for a request that is wrong, and for an attempt id
        that two requests have. Safe to retry where every request has an attempt id.
        """
        record, asked = self._record(), listed("requests", requests)
        for one in asked:
            if isinstance(one, (str, bytes)) or not isinstance(one, Sequence) or not 1 <= len(one) <= 3:
                bound = "Must be (max_messages, visibility_timeout, attempt_id), of which the last ones may be missing"
                raise InvalidParameterValue("requests", one, bound)
        wanted = [_request(record, *one) for one in asked]
        attempts.require_different([request.attempt_id for request in wanted])
        found = self._store.receive(record, wanted, self._clock) if wanted else []
        return [
            Claim(self, None, request.timeout, error=one)
            if isinstance(one, LedgerError)
            else Claim(self, one, request.timeout)
            for request, one in zip(wanted, found)
        ]

    def claim(self, receipt_id: str) -> Claim:
        """The claim of a receipt, as far as nobody deleted or took its messages: how another process carries on.

        Its `messages()` on a FIFO queue: each group in order and by itself, but the groups as their first messages
        came; in which order they were granted is not recorded. So it is with an attempt that gets its claim again.
        """
        record = self._record()
        # An empty claim has no receipt, and messages that nobody received have none either: those it does not mean.
        grant = self._store.held(record, receipt_id) if receipt_id else None
        return Claim(self, grant, int(record.attributes["VisibilityTimeout"]))

    def peek(self, message_id: str) -> Message:
        """V11: a message whatever its state, without changing anything. Raises MessageDoesNotExist."""
        record = self._record()
        return public_message(record, self._store.peek(record, message_id), self._clock(), None, self._account)

    def lock(self, message_id: str, visibility_timeout: int) -> None:
        """V12: hides a message that nobody holds for so many seconds. Raises LedgerError when it is in flight or
        deleted, MessageDoesNotExist when there is none, OutputUnreadable when a `claim.write` left it in doubt and the
        output table cannot say whether its row is in."""
        record = self._record()
        bounds.visibility_timeout(visibility_timeout, attribute_rules.limits_of(record.attributes))
        if not self._store.lock(record, message_id, visibility_timeout, self._clock):
            raise LedgerError(
                f"Message {message_id} is in flight or deleted; only a message that nobody holds can be locked"
            )

    def purge(self) -> int:
        """Deletes every message there is now, in flight or not; answers how many. What is sent meanwhile stays.

        M3: a FIFO queue forgets all deduplication ids, also when it is empty: what was sent before is sent again.
        Raises PurgeQueueInProgress, with Limits=SQS, within the setting purge_interval (60 s) of the last purge.
        """
        return self._store.purge(self._record(), self._clock)

    def restore(self, receipt_id: str) -> int:
        """Undoes the acknowledgement of a claim: what was deleted under its receipt is visible again; answers how many
        messages. Old receipts stay stale. The receipts ledger keeps both, the deletion and the restoring.

        What a `claim.write` under it left in doubt is given back as well, once its deadline has passed, whether its
        rows are in or not. The output table is asked first: a write that is not in is fenced off, so that a writer that
        stands still somewhere cannot write its rows later. Raises OutputUnreadable, and restores nothing, when the
        table is there and cannot be read or written to. One that is gone (there is none, or another one in its place)
        cannot be fenced off: restore then takes the owner's word that it is gone for good. Should it come back, or be
        made anew, a writer that still stands somewhere could write its rows beside those of the next receiver.
        Restores what is within its retention and not yet forgotten: receipts of deleted messages are kept for the
        setting keep_deleted_receipts. 0: nothing was deleted under it, or it is forgotten, or there is none (None).
        """
        return self._store.restore(self._record(), receipt_id, self._clock) if receipt_id else 0

    def _send_table(
        self, record: QueueRecord, table: DataFrame | pa.Table, body: str | None, attempt_id: str | None
    ) -> Sent | SentTable:
        if is_spark(table):
            return self._spark().send(record, table, body, self._clock, attempt_id)
        if self._frames is not None:
            sent = self._frames.send(record, self._frames.of(table), body, self._clock, attempt_id)
            return SentTable(table.num_rows, sent.ids().toArrow())
        entries = entries_of(table, record.attributes, body)
        return sent_table(entries, self._store.send(record, entries, self._clock, attempt_id))

    def _wait_for_change(self, seen: object, give_up: float) -> None:
        """Sleeps until the tables moved on, or some visibility timeout may have run out, but not past `give_up`."""
        look_again = min(give_up, time.monotonic() + 1.0)
        while time.monotonic() < look_again:
            time.sleep(min(self._poll_interval, max(0.0, look_again - time.monotonic())))
            if self._store.change_token() != seen:
                return


def _request(
    record: QueueRecord, max_messages: int | None = 1, visibility_timeout: int | None = None, attempt_id: Any = None
) -> Request:
    """A receive as it is asked for, within the bounds of the queue. Raises InvalidParameterValue."""
    limits = attribute_rules.limits_of(record.attributes)
    maximum = bounds.maximum_messages(max_messages, limits)
    if visibility_timeout is None:
        visibility_timeout = int(record.attributes["VisibilityTimeout"])
    bounds.visibility_timeout(visibility_timeout, limits)
    return Request(maximum, visibility_timeout, attempts.attempt_id(attempt_id, "ReceiveRequestAttemptId"))
