"""A claim, and the receive that makes it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledger.client.access import Access, ClaimSettlements
from ledger.client.explanation import CLAIM_VERBS, Explanation, explain, name_arguments
from ledger.client.settling import Settling, apply
from ledger.client.tables import is_empty, require_list
from ledger.clock import instant
from ledger.errors import InvalidParameterValue, LeaseLost, LedgerError, OutputUnreadable, OverLimit
from ledger.heartbeat import Beat, Heartbeat
from ledger.message import Message, public_messages
from ledger.notebook import html_view
from ledger.outputs.write import make_decider, write_output
from ledger.outputs.writers import parse_schema_argument
from ledger.results import Settled
from ledger.rules import attempts
from ledger.rules import attributes as attribute_rules
from ledger.rules import limits as bounds
from ledger.rules.limits import MILLISECONDS
from ledger.rules.visibility import Outcome, Verb, clean_reason
from ledger.runtime.threads import uses_arrow
from ledger.store.protocol import RUNS, Action, Grant, QueueRecord, ReceiveRequest, count_by_outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ledger.client.handles import Handles
    from ledger.client.tables import ArrowTable

log = logging.getLogger("ledger.claims")
#: The outcomes of messages that the claim lost. (A message that was deleted under this receipt is SETTLED.)
LOST_OUTCOMES = (Outcome.STALE, Outcome.NOT_IN_FLIGHT, Outcome.ALREADY_DELETED, Outcome.INVALID, Outcome.EXPIRED)
#: An iteration reads FEW messages first, then parts of about PART characters of bodies. A part has at most GROWTH times
#: as many messages as the part before it, and at most MANY.
FEW, PART, GROWTH, MANY = 100, 16 << 20, 4, 20_000


class Claim(Settling):
    """Messages held under one receipt.

    A claim is false when it holds no message: the receive got none, or the claim is over (see `held`).

    - `receipt_id`: a string, or None when the claim is empty.
    - `count`: how many messages the claim had when this object was made.
    - `version`: the commit that granted the claim, a fencing token that only grows. A later claim of one of its
      messages has a greater version. The claims of one `receive_many` share a version, and have no message in common. A
      claim that `Queue.claim` returns has the grant's version or a greater one.
    - `error`: the LedgerError that refused only this claim's request in `receive_many`, or None.
    - `grant`, `access` and `endings` are for tools and tests.
    """

    def __init__(
        self,
        access: Access,
        grant: Grant | None,
        visibility_timeout: int,
        error: LedgerError | None = None,
        asked: str | None = None,
    ) -> None:
        """`asked` is the receipt that the caller looked the claim up by."""
        super().__init__(access)
        self.grant, self.visibility_timeout, self.error, self._asked = grant, visibility_timeout, error, asked
        self.receipt_id = grant.receipt_id if grant else None
        self.count = grant.count if grant else 0
        self.version = grant.version if grant else None
        self._visible_at = grant.visible_at if grant else 0
        self._is_over = False
        #: True once the caller took `dataframe`.
        self._has_frame = False
        self.endings = ClaimSettlements(self.receipt_id)
        if grant:
            access.endings.add(self.endings)

    def __bool__(self) -> bool:
        return self.held > 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Message]:
        """Yield the messages.

        A standard queue's messages come in parts, each sorted by itself, oldest first. A FIFO queue's messages are read
        all together, in the order of `messages`.
        """
        if self.grant is None:
            return
        record, first, size_of_part = self.access.record(), 0, FEW
        if attribute_rules.is_fifo(record.attributes) or self.count <= FEW:
            yield from self._read(record, self.grant)
            return
        while first < self.count:
            size = 0
            for message in self._read(record, self.grant.part(first, size_of_part)):
                size += len(message.body)
                yield message
            # The next messages may be longer, so bound the growth.
            first, size_of_part = (
                first + size_of_part,
                min(max(size_of_part * PART // max(size, 1), 1), GROWTH * size_of_part, MANY),
            )

    def __repr__(self) -> str:
        held = self.held
        messages = f"{self.count} messages" if held in (0, self.count) else f"{held} of {self.count} messages"
        until = f"until {self.deadline}" if held else "over"
        return f"Claim({messages} of {self.access.name!r}, receipt {self.receipt_id}, {until})"

    def _repr_html_(self) -> str:
        return html_view.render_claim(self)

    @property
    def held(self) -> int:
        """How many messages are still held, as far as this object knows.

        Messages that were deleted or released through this object, or through the queue object that made it, do not
        count. After `release`, `delete`, `extend` or `check` raised LeaseLost, the number is 0. The number does
        not change when `deadline` passes: no table is asked.
        """
        return 0 if self.grant is None or self._is_over else self.endings.left(self.grant.runs)

    @property
    def deadline(self) -> datetime | None:
        """The claim's deadline (UTC) by its grant or last extension through this object; None if nothing is `held`."""
        return instant(self._visible_at) if self.held else None

    @property
    def dataframe(self) -> DataFrame:
        """The messages as a lazy DataFrame, one row each, in no order. Needs Spark.

        Columns: message_id, body (string), message_attributes (map), message_group_id, message_deduplication_id,
        aws_trace_header (string), sequence_number (long), sent_at (timestamp), sender_id (string), first_received_at
        (timestamp), receive_count (int), receipt_handle (string).
        """
        frames = self.access.spark("claim.dataframe", "claim.messages() is a list, and needs none.")
        self._has_frame = True
        return frames.messages(self.access.record(), self.grant)

    def messages(self) -> list[Message]:
        """Return the messages as a list, oldest first. Needs no Spark.

        The whole claim must fit in memory. A FIFO queue's messages are in the order of the receive, or of `Queue.claim`
        if the claim was found again.
        """
        return [] if self.grant is None else self._read(self.access.record(), self.grant)

    def extend(self, visibility_timeout: int | None = None) -> Settled:
        """Set the deadline to so many seconds from now (default: the claim's timeout), in one commit. 0 releases.

        Raises:
            LeaseLost: No message of the claim is held, and some were not settled through this object.
            InvalidParameterValue: The timeout is out of bounds, or passes MaximumVisibilityTimeout since the receive.
        """
        timeout = self.visibility_timeout if visibility_timeout is None else visibility_timeout
        return self._extend(self.access.record(), timeout)

    @uses_arrow
    def check(self) -> None:
        """Raise LeaseLost if some messages were not settled through this object, and none of them is held."""
        if self.grant is None:
            return
        unsettled = self.endings.count_surely_not_ended(self.grant.runs)
        access = self.access
        if unsettled and access.store.held(access.record(), self.grant.receipt_id, access.clock) is None:
            raise self._mark_lost(unsettled)

    def explain(self, verb: str, *arguments: object, **options: object) -> Explanation:
        """Show what extend, release, delete or settle would commit now, and change nothing: see `Queue.explain`.

        `claim.explain("extend", 60)` explains `claim.extend(60)`. Raises what that call raises, and
        InvalidParameterValue for another verb.
        """

        def call(access: Access) -> object:
            same = Claim(access, self.grant, self.visibility_timeout, asked=self._asked)
            # Messages that this object settled would otherwise count as lost.
            same.endings, same._is_over = self.endings.copy(), self._is_over
            return getattr(same, verb)(*arguments, **options)

        return explain(self.access, verb, CLAIM_VERBS, call, name_arguments(arguments, options))

    def release(self, reason: str | None = None, *, counted: bool = True) -> Settled:
        """Release all messages that are still held, in one commit. A second call returns 0 messages.

        Args:
            reason: A text that the views `receipts` and `dead_letters` show, cut at 500 characters.
            counted: False takes this receive back from each message's count. So messages that did not fail come no
                nearer to the RedrivePolicy's `maxReceiveCount`.

        Raises:
            LeaseLost: No message of the claim is held, and some were not settled through this object.
        """
        return self._apply(self.access.record(), Verb.CHANGE, 0, reason=clean_reason(reason), counted=counted)

    def delete(self) -> Settled:
        """Acknowledge the claim's messages, in one commit. Safe to retry.

        Released messages stay released. On a standard queue a message whose deadline has passed is acknowledged, too,
        unless somebody has received it since.

        If `dataframe` was used in a session that ignores missing or corrupt files (spark.sql.files.ignoreMissingFiles,
        ignoreCorruptFiles), the call first reads the claim once more.

        Raises:
            LeaseLost: No message could be acknowledged, and some were not settled through this object. The second of
                two tasks with one attempt id gets this error.
            LedgerDamaged: In such a session, a file of the claim is missing or corrupt. Nothing is acknowledged.
        """
        record = self.access.record()
        frames = self.access.frames
        if self._has_frame and self.grant is not None and frames is not None:
            frames.require_readable(record, self.grant, frames.session)
        return self._apply(record, Verb.DELETE, 0)

    def write(
        self,
        rows: DataFrame | ArrowTable,
        table: str | os.PathLike[str],
        *,
        messages: str | Handles | None = None,
        failed: str | Handles | None = None,
        visibility_timeout: int = 0,
        schema: str | pa.Schema | None = None,
    ) -> Settled:
        """Append `rows` to the Delta table `table` and acknowledge their messages, effectively once.

        A crash at any point neither repeats nor loses a row. The next receive of the messages asks the table whether
        the rows are in it (see `ledger.rules.output_doubts`). If the receive got nothing, the call does nothing. Keep a
        heartbeat running while Spark computes the rows.

        A value that would change to fit a column is refused. docs/reference/sending-and-outputs.md has the rules of
        types.

        **Retries are safe.** If an earlier call wrote the rows of all these messages, this call writes none, and the
        log "ledger.claims" warns. In the result, `messages` counts those messages, and `failed` counts the messages
        that this call gave back. To write a claim in parts, name the messages of each part: `messages="message_id"`.

        Args:
            rows: A DataFrame, which is computed once, before the call changes anything. Or an Arrow table (pyarrow,
                pandas, polars), which needs no Spark. Rows that carry ids of messages outside this claim are refused.
            table: A path (with a / in it, or a pathlib.Path), a URI, or a table of Spark's catalog. The call makes the
                table if there is none.
            messages: Which messages the rows are about:

                - the name of a column of message ids or receipt handles in the rows. Messages that have a row are
                  acknowledged, the others stay held;
                - None: the whole claim, also messages without a row;
                - a list of receipt handles or message ids, or a table with the column receipt_handle. If the rows have
                  a column message_id or receipt_handle, it must name the same messages. A DataFrame of messages is
                  computed apart from the rows, so its results may differ.
            failed: The messages that failed, in place of `messages`. All others are acknowledged. The same commit
                releases the failed messages, or hides them for `visibility_timeout` seconds from now.

                - the name of a column of the rows, which must also have a column message_id or receipt_handle. A
                  message failed if its row has a value in this column, such as a reason. Every value but null counts
                  (in a pandas table NaN means null). Neither the rows of failed messages nor the column are written.
                  The views `receipts` and `dead_letters` show the 100 most frequent reasons;
                - a list of receipt handles or message ids, or a table with a column receipt_handle or message_id.

                If rows carry ids, the rows must be about exactly the messages that did not fail. Without ids, all
                messages that are not named are acknowledged, and a DataFrame of failed messages is refused.

                No heartbeat extends hidden messages. Until they become visible, their handles still change them.
            schema: An Arrow schema with the types of columns of a new table, or of columns that the table lacks.
                "widen" adds the columns that the table lacks. If the rows' types need it, a separate commit rewrites
                the table with wider types.

        Raises:
            LeaseLost: Not all of these messages are held any more, or an earlier call wrote rows for some of them only.
                Or `Queue.claim` found no message held, and there are rows to write.
            InvalidParameterValue: An argument is wrong, or an earlier call wrote the messages to another table.
            OutputNotWritten: The table refuses the rows, or they cannot be computed. Nothing was written.
            UnsafeStorage: On S3, Spark would have to commit (docs/reference/storage.md).
            OutputUnreadable: The table became unreadable during the write: the rows may be in it or not. No receive
                gets the messages until the table can be read.
        """
        if self.grant is None:
            if self._asked is not None and not is_empty(rows):
                raise LeaseLost(
                    f"Nothing is held under the receipt {self._asked} any more: its messages were acknowledged or "
                    "released, or others have received them. None of these rows was written"
                )
            return Settled(0, 0)
        decide = make_decider(self.grant, messages, failed, visibility_timeout)
        column = failed if isinstance(failed, str) else None
        written = write_output(
            self.access, self.grant, rows, table, decide, self.endings.ending, column, parse_schema_argument(schema)
        )
        if written.earlier:
            log.warning(
                "the rows of this call are not in %s: an earlier call wrote rows for the same messages of the claim "
                "%s. To write a claim in parts, name the messages of each part: messages=",
                *(table, self.receipt_id),
            )
        return Settled(written.done, 0, written.changed)

    def heartbeat(self, visibility_timeout: int | None = None, every: float | None = None) -> Heartbeat:
        """Return a context manager that extends the claim in the background while its body works (see Heartbeat)."""
        timeout = self.visibility_timeout if visibility_timeout is None else visibility_timeout
        timeout = bounds.check_visibility_timeout(timeout, bounds.UNBOUNDED)
        return Heartbeat(self.receipt_id, self._beat, timeout, timeout / 3 if every is None else every)

    def _beat(self, timeout: int) -> Beat:
        """Extend the messages that have no later deadline. A beat that reaches the ceiling is the last beat."""
        record = self.access.record()
        ceiling, now = self._find_ceiling(record), self.access.clock()
        last = ceiling is not None and now + timeout * MILLISECONDS > ceiling
        return Beat(self._extend(record, timeout, only_later=True).lost, last)

    def _find_ceiling(self, record: QueueRecord) -> int | None:
        most = attribute_rules.limits_of(record.attributes).maximum_visibility_timeout
        return None if most is None or self.grant is None else self.grant.received_at + most * MILLISECONDS

    def _extend(self, record: QueueRecord, timeout: int, only_later: bool = False) -> Settled:
        ceiling, now = self._find_ceiling(record), self.access.clock()
        settled = self._apply(record, Verb.CHANGE, timeout, only_later)
        if self.grant is not None:
            # The store reads its clock later than `now`, so the deadline is at least this instant.
            requested = now + timeout * MILLISECONDS
            self._visible_at = max(self._visible_at, min(requested, ceiling or requested)) if only_later else requested
            self.grant = replace(self.grant, visible_at=self._visible_at)
        return settled

    @uses_arrow
    def _read(self, record: QueueRecord, grant: Grant) -> list[Message]:
        access, now = self.access, self.access.clock()
        stored = access.store.read(record, grant)
        return public_messages(record, stored, now, self.receipt_id, access.settings.account)

    @uses_arrow
    def _apply(
        self,
        record: QueueRecord,
        verb: Verb,
        timeout: int,
        only_later: bool = False,
        reason: str | None = None,
        counted: bool = True,
    ) -> Settled:
        limits = attribute_rules.limits_of(record.attributes)
        bounds.check_visibility_timeout(timeout, limits)
        if self.grant is None:
            return Settled(0, 0)
        runs = self.grant.runs.select(RUNS.names)
        action = Action(verb, self.grant.receipt_id, runs, timeout, True, only_later, reason, counted)
        # Messages that another holder of the receipt settled count as lost.
        answer, elsewhere = self._apply_and_count_lost(record, action)
        by_outcome = count_by_outcome(answer)
        if by_outcome[Outcome.BEYOND_CEILING]:
            raise InvalidParameterValue(
                "VisibilityTimeout",
                timeout,
                "Total VisibilityTimeout for the claim is beyond the limit "
                f"[{limits.maximum_visibility_timeout} seconds] from its receive",
                "Give at most the time that is left, or raise the queue's MaximumVisibilityTimeout.",
            )
        done = by_outcome[Outcome.CHANGED] + by_outcome[Outcome.DELETED]
        lost = elsewhere + sum(by_outcome[outcome] for outcome in LOST_OUTCOMES)
        if lost and not done:
            raise self._mark_lost(lost)
        self._is_over |= action.ends
        return Settled(done, lost)

    def _apply_and_count_lost(self, record: QueueRecord, action: Action) -> tuple[pa.Table, int]:
        """Apply an action to the claim. Return the answer, and how many messages others settled."""
        if not action.ends:
            answer = apply(self.access, record, [action])[0]
            # Count after the answer: calls of other threads on this object settle messages meanwhile.
            return answer, self.endings.count_surely_not_ended(_select_outcome(answer, Outcome.SETTLED))
        before = self.endings.copy()
        with self.endings.ending(action.runs) as ending:
            answer = apply(self.access, record, [action])[0]
            ending.answered(answer)
        return answer, before.count_surely_not_ended(_select_outcome(answer, Outcome.SETTLED))

    def _mark_lost(self, lost: int) -> LeaseLost:
        self._is_over = True
        log.warning("nothing of the claim %s of %s is held any more", self.receipt_id, self.access.name)
        return LeaseLost(
            f"Nothing of the claim {self.receipt_id} is held any more: of its {self.count} messages {lost} ran out or "
            "were received by others, or were ended by another holder of the receipt (do two tasks share an attempt "
            "id?). Receive again; keep a claim with a longer timeout or a heartbeat"
        )


def _select_outcome(answer: pa.Table, outcome: Outcome) -> pa.Table:
    return answer.filter(pa.compute.equal(answer["outcome"], outcome.value))


class ReceiveAttempt:
    """A receive that may wait `wait` seconds. The constructor checks the arguments."""

    def __init__(
        self,
        access: Access,
        max_messages: int | None,
        visibility_timeout: int | None,
        wait: float | None,
        attempt_id: str | None,
    ) -> None:
        record = access.record()
        limits = attribute_rules.limits_of(record.attributes)
        self._access, self._first_record = access, [record]
        self._request = _make_request(record, max_messages, visibility_timeout, attempt_id)
        default = int(record.attributes["ReceiveMessageWaitTimeSeconds"])
        self.wait = bounds.check_wait(default if wait is None else wait, limits)

    @uses_arrow
    def poll(self, *, last: bool) -> Claim | None:
        """Receive once, in one commit or none. Return the claim, or None if nothing was received.

        The `last` poll returns an empty claim in place of None. Raises what `Queue.receive` raises, but OverLimit only
        without a wait, and OutputUnreadable only without a wait or at the last poll.
        """
        # Read the record again from the second poll on. In a queue deleted meanwhile, messages have lost their records,
        # and acknowledged messages would be received again.
        record = self._first_record.pop() if self._first_record else self._access.record()
        (received,) = self._access.store.receive(record, [self._request], self._access.clock)
        if isinstance(received, LedgerError):
            # SQS: "with long polling, no new messages are returned until the count drops". Messages in doubt let a
            # receive wait, too: other messages may arrive.
            waits = self.wait and isinstance(received, (OverLimit, OutputUnreadable))
            if not waits or (isinstance(received, OutputUnreadable) and last):
                raise received
            received = None
        if received is None and not last:
            return None
        return Claim(self._access, received, self._request.timeout)


def receive(
    access: Access,
    max_messages: int | None,
    visibility_timeout: int | None,
    wait: float | None,
    attempt_id: str | None,
) -> Claim:
    attempt = ReceiveAttempt(access, max_messages, visibility_timeout, wait, attempt_id)
    give_up = time.monotonic() + attempt.wait
    while True:
        change_token = access.store.change_token() if attempt.wait else None
        claim = attempt.poll(last=time.monotonic() >= give_up)
        if claim is not None:
            return claim
        _wait_for_change(access, change_token, give_up)


def receive_many(access: Access, requests: Sequence[Sequence[object]]) -> list[Claim]:
    record, rows = access.record(), require_list("requests", requests)
    for row in rows:
        if isinstance(row, (str, bytes)) or not isinstance(row, Sequence) or not 1 <= len(row) <= 3:
            bound = "Must be (max_messages, visibility_timeout, attempt_id), of which the last ones may be missing"
            raise InvalidParameterValue("requests", row, bound)
    checked = [_make_request(record, *row) for row in rows]
    attempts.require_different([request.attempt_id for request in checked])
    answers = access.store.receive(record, checked, access.clock) if checked else []
    return [
        Claim(access, None, request.timeout, error=answer)
        if isinstance(answer, LedgerError)
        else Claim(access, answer, request.timeout)
        for request, answer in zip(checked, answers)
    ]


def _wait_for_change(access: Access, change_token: object, give_up: float) -> None:
    """Sleep until a commit changes the tables, for at most one second and not past `give_up`.

    A visibility timeout runs out without a commit, so the caller must poll at least once a second.
    """
    look_again = min(give_up, time.monotonic() + 1.0)
    while time.monotonic() < look_again:
        time.sleep(min(access.settings.poll_interval, max(0.0, look_again - time.monotonic())))
        if access.store.change_token() != change_token:
            return


def _make_request(
    record: QueueRecord, max_messages: int | None = 1, visibility_timeout: int | None = None, attempt_id: Any = None
) -> ReceiveRequest:
    limits = attribute_rules.limits_of(record.attributes)
    maximum = bounds.maximum_messages(max_messages, limits)
    if visibility_timeout is None:
        visibility_timeout = int(record.attributes["VisibilityTimeout"])
    bounds.check_visibility_timeout(visibility_timeout, limits)
    return ReceiveRequest(maximum, visibility_timeout, attempts.attempt_id(attempt_id, "ReceiveRequestAttemptId"))
