"""A claim: what a receive answers, however many messages it holds; and the receive that makes it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledger.client.access import Access
from ledger.client.explanation import OF_CLAIM, Explanation, explain, numbered
from ledger.client.settlements import ClaimSettlements
from ledger.client.settling import Settling, apply
from ledger.client.tables import is_empty, listed
from ledger.clock import instant
from ledger.errors import InvalidParameterValue, LeaseLost, LedgerError, OutputUnreadable, OverLimit
from ledger.heartbeat import Beat, Heartbeat
from ledger.message import Message, public_message
from ledger.notebook import html_view
from ledger.outputs.write import decided_by, write_output
from ledger.outputs.writers import columns_asked
from ledger.results import Settled
from ledger.rules import attempts
from ledger.rules import attributes as attribute_rules
from ledger.rules import limits as bounds
from ledger.rules.limits import MILLISECONDS
from ledger.rules.reasons import reason_of
from ledger.rules.visibility import Outcome, Verb
from ledger.store.protocol import RUNS, Action, Grant, QueueRecord, ReceiveRequest, count_by_outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ledger.client.handles import Handles
    from ledger.client.tables import ArrowTable

log = logging.getLogger("ledger.claims")
#: What becomes of a message that others have by now. Already deleted, and not under this receipt: by another receiver.
LOST = (Outcome.STALE, Outcome.NOT_IN_FLIGHT, Outcome.ALREADY_DELETED, Outcome.INVALID, Outcome.EXPIRED)
#: Who iterates reads at first so many messages, then as many as have so many characters in their bodies by those
#: before them, so many times as many as these at most, and no more than MANY.
FEW, PART, GROWTH, MANY = 100, 16 << 20, 4, 20_000


class Claim(Settling):
    """Messages held under one receipt. False when there are none: nothing was received, or it is over (see `held`).

    `receipt_id` (string, None when empty), `count` (how many were received; that stays), `version`:
    the commit that granted it, a fencing token that only grows: whoever gets one of its messages later has a greater
    one. (Claims of one `receive_many`, which have no message in common, share it.) Of a claim that is found again, by
    `Queue.claim` or by a retried attempt, it is the version by which it was: as great as before, or greater.
    `error`: of a `receive_many`, the LedgerError because of which this request alone has no messages, or None.
    `grant` is what the store granted, None when empty, `access` what its verbs act through, and `endings` what was
    ended through this object: for tools and tests.
    """

    def __init__(
        self,
        access: Access,
        grant: Grant | None,
        visibility_timeout: int,
        error: LedgerError | None = None,
        asked: str | None = None,
    ) -> None:
        """`asked`: the receipt that it was asked for by."""
        super().__init__(access)
        self.grant, self.visibility_timeout, self.error, self._asked = grant, visibility_timeout, error, asked
        self.receipt_id = grant.receipt_id if grant else None
        self.count = grant.count if grant else 0
        self.version = grant.version if grant else None
        self._visible_at = grant.visible_at if grant else 0
        #: A verb ended all of it, or found that it was lost.
        self._is_over = False
        #: Its DataFrame was asked for, which its caller's session reads, as that session's settings say.
        self._has_frame = False
        self.endings = ClaimSettlements(self.receipt_id)
        if grant:
            access.endings.add(self.endings)

    def __bool__(self) -> bool:
        return self.held > 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Message]:
        """Its messages, as `messages` has them. A standard queue's are read some at a time, about PART bytes of bodies,
        so that a claim of any size fits in memory; oldest first are those of each time."""
        if self.grant is None:
            return
        record, first, some = self.access.record(), 0, FEW
        if attribute_rules.is_fifo(record.attributes) or self.count <= FEW:
            yield from self._read(record, self.grant)
            return
        while first < self.count:
            size = 0
            for message in self._read(record, self.grant.part(first, some)):
                size += len(message.body)
                yield message
            # Those that come next may be longer.
            first, some = first + some, min(max(some * PART // max(size, 1), 1), GROWTH * some, MANY)

    def __repr__(self) -> str:
        held = self.held
        messages = f"{self.count} messages" if held in (0, self.count) else f"{held} of {self.count} messages"
        until = f"until {self.deadline}" if held else "over"
        return f"Claim({messages} of {self.access.name!r}, receipt {self.receipt_id}, {until})"

    def _repr_html_(self) -> str:
        return html_view.of_claim(self)

    @property
    def held(self) -> int:
        """How many of its messages are still held, as far as this object knows: without those that were deleted or
        released through it, or through the queue object that it came from; none once a verb raised LeaseLost. Asks
        nobody: of a lease that ran out, `deadline` is in the past, and `check` finds out."""
        return 0 if self.grant is None or self._is_over else self.endings.left(self.grant.runs)

    @property
    def deadline(self) -> datetime | None:
        """When the hold ends (UTC), as of the last extension through this object; None when nothing is `held`."""
        return instant(self._visible_at) if self.held else None

    @property
    def dataframe(self) -> DataFrame:
        """The messages, a row each: message_id, body (string), message_attributes (map), message_group_id,
        message_deduplication_id, aws_trace_header (string), sequence_number (long), sent_at (timestamp), sender_id
        (string), first_received_at (timestamp), receive_count (int), receipt_handle (string). Lazy and without an
        order; needs Spark."""
        frames = self.access.spark("claim.dataframe", "claim.messages() is a list, and needs none.")
        self._has_frame = True
        return frames.messages(self.access.record(), self.grant)

    def messages(self) -> list[Message]:
        """The messages as a list, oldest first, on FIFO queues in the order in which `Queue.receive` granted them; for
        claims that fit in memory. Needs no Spark."""
        return [] if self.grant is None else self._read(self.access.record(), self.grant)

    def extend(self, visibility_timeout: int | None = None) -> Settled:
        """The deadline becomes so many seconds from now (default: the claim's timeout). Costs the same for any size.

        Raises LeaseLost when nothing of the claim is held any more, InvalidParameterValue beyond the ceiling (V7).
        """
        timeout = self.visibility_timeout if visibility_timeout is None else visibility_timeout
        return self._extend(self.access.record(), timeout)

    def check(self) -> None:
        """Looks whether anything of the claim is still held, and changes nothing. Raises LeaseLost when nothing is, of
        what was not settled through this object: it ran out, or others received, released or deleted it."""
        if self.grant is None:
            return
        left = self.endings.outside(self.grant.runs)
        access = self.access
        if left and access.store.held(access.record(), self.grant.receipt_id, access.clock) is None:
            raise self._lost(left)

    def explain(self, verb: str, *arguments: object, **options: object) -> Explanation:
        """Show what extend, release, delete or settle would commit now, and change nothing: see `Queue.explain`.
        `claim.explain("extend", 60)` is about `claim.extend(60)`. Raises what the verb does, and InvalidParameterValue
        for another verb."""

        def call(access: Access) -> object:
            same = Claim(access, self.grant, self.visibility_timeout, asked=self._asked)
            return getattr(same, verb)(*arguments, **options)

        return explain(self.access, verb, OF_CLAIM, call, numbered(arguments, options))

    def release(self, reason: str | None = None, *, counted: bool = True) -> Settled:
        """Gives back all that is still held, at once; for a `reason`, which the view `receipts` has, and `dead_letters`
        should they die of it (500 characters of it). `counted=False` takes the receive back from the count of each
        message: give messages back so that did not fail, and they come no nearer to the `maxReceiveCount` of the
        queue's RedrivePolicy. Raises LeaseLost when others ended or hold all of it; what was
        ended through this object is not lost, so that a second call gives back nothing and says so."""
        return self._apply(self.access.record(), Verb.CHANGE, 0, reason=reason_of(reason), counted=counted)

    def delete(self) -> Settled:
        """Acknowledges all that is still held and was not released. Costs the same for any size; safe to retry.

        Raises LeaseLost when others hold, released or deleted all of it: its work was, or will be, done by somebody
        else. So do two holders of one receipt (two tasks with one attempt id) learn of each other.
        Raises LedgerDamaged, and acknowledges nothing, where `dataframe` was used in a session that passes by missing
        or corrupt files (spark.sql.files.ignoreMissingFiles, ignoreCorruptFiles), and a file of the claim is one. Only
        in such sessions a delete reads the claim once more to know.
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
        """Appends `rows` to the Delta table `table` and acknowledges their messages, effectively once.

        A crash between the two, or at any other point, neither repeats nor loses a row: whoever receives the messages
        next finds out from the table whether the rows are in, and gets only those whose rows are not (the argument:
        `ledger.rules.output_doubts`). `rows`: a DataFrame, computed once, before anything else happens, or without
        Spark an Arrow table (pyarrow, pandas, polars). `table`: a path (with a / in it, or a pathlib.Path), a URI, or a
        table of Spark's catalog; it is made when there is none.
        `messages` says which messages the rows are about:
        - the name of a column of the rows, of message ids or receipt handles: those that have a row are acknowledged,
          the others stay held. What is written and what is acknowledged cannot differ;
        - None: the whole claim, whether each message has a row or not;
        - a list of receipt handles or message ids, or a table with the column receipt_handle. When the rows carry a
          column message_id or receipt_handle, both must name the same messages. When they carry none, nobody can check
          that: a DataFrame is computed apart from the rows, and may have come to other results.
        `failed`, in place of it, names the exceptions: all other messages are acknowledged, and in the same commit
        these are released, or hidden for `visibility_timeout` seconds from now.
        - the name of a column of the rows, which then have a column message_id or receipt_handle: where it has a value
          (a reason, say) the message failed. Every value but null is one: "", 0, False and NaN too (a pandas table has
          NaN in place of null, which is none). Such rows are not written, nor is the column. One evaluation decides;
        - a list of receipt handles or message ids, or a table with a column receipt_handle or message_id.
        The reasons in such a column are in the views `receipts`, an event for each of the 100 most frequent, and
        `dead_letters`; `Queue.work` writes a row for each failed message, with its own reason. Hidden messages are no
        part of the claim any more: no heartbeat extends them, and their handles still change them.
        Rows that carry ids have to be about just the others: neither a row about a failed message nor a message that
        has no row and is not named is passed by. When they carry none, nobody can check that, and the others are
        acknowledged; a DataFrame of failed ones is refused then, as it is computed apart.
        Rows that carry ids of messages that are not of this claim are refused.
        A value is stored only as itself (`ledger.rules.column_types` has the table): rows whose column is of another
        type than the table's are refused where a value would be changed. The error names the column, the types, the
        value, its message or row, and the cast to make. A new table has
        types that every reader has: no nanoseconds, no unsigned numbers. A column whose type no row tells (None only,
        [], {}) is left out, and added by the first rows that tell it. `schema`: an Arrow schema with the types of
        columns of a new table, or of columns that the table lacks; "widen" adds the columns that the table lacks, and
        writes it anew with wider types, in a commit of its own, where the rows' types need them. It goes by types and
        not by values: doubles make a bigint column double, 7.0 too. Cast the rows to keep the column.
        Safe to retry: of messages for which an earlier call wrote rows none are written again, and the log
        "ledger.output" says so; `failed` is how many this call gave back. So a claim that is written in parts names the
        messages of each part: `messages="message_id"`.
        Raises LeaseLost when not all of these messages are held any more (of a claim that is empty, as nothing was
        received, nothing is written, and nothing is wrong), InvalidParameterValue for what it cannot do,
        also when an earlier call wrote them to another table, OutputNotWritten when the table refuses the rows, or they
        cannot be computed; then nothing was written. Raises UnsafeStorage on S3 where Spark would have to commit
        (docs/reference/storage.md), OutputUnreadable when the table broke while it was written to: then nobody can
        tell, and the messages are left alone until it can be read. Keep a heartbeat running while Spark computes the
        rows.
        """
        if self.grant is None:
            if self._asked is not None and not is_empty(rows):
                raise LeaseLost(
                    f"Nothing is held under the receipt {self._asked} any more: its messages were acknowledged or "
                    "released, or others have received them. None of these rows was written"
                )
            return Settled(0, 0)
        decide = decided_by(self.grant, messages, failed, visibility_timeout)
        column = failed if isinstance(failed, str) else None
        written = write_output(
            self.access, self.grant, rows, table, decide, self.endings.ending, column, columns_asked(schema)
        )
        if written.earlier:
            log.warning(
                "the rows of this call are not in %s: an earlier one wrote rows for the same messages of the claim %s. "
                "To write a claim in parts, name the messages of each: messages=",
                *(table, self.receipt_id),
            )
        return Settled(written.done, 0, written.changed)

    def heartbeat(self, visibility_timeout: int | None = None, every: float | None = None) -> Heartbeat:
        """A context manager that extends the claim in the background while its body works; see Heartbeat."""
        timeout = self.visibility_timeout if visibility_timeout is None else visibility_timeout
        timeout = bounds.visibility_timeout(timeout, bounds.UNBOUNDED)
        return Heartbeat(self.receipt_id, self._beat, timeout, timeout / 3 if every is None else every)

    def _beat(self, timeout: int) -> Beat:
        """Extends what is not hidden for longer anyway; whether it is the last time, at the ceiling (V7)."""
        record = self.access.record()
        ceiling, now = self._ceiling(record), self.access.clock()
        last = ceiling is not None and now + timeout * MILLISECONDS > ceiling
        return Beat(self._extend(record, timeout, only_later=True).lost, last)

    def _ceiling(self, record: QueueRecord) -> int | None:
        most = attribute_rules.limits_of(record.attributes).maximum_visibility_timeout
        return None if most is None or self.grant is None else self.grant.received_at + most * MILLISECONDS

    def _extend(self, record: QueueRecord, timeout: int, only_later: bool = False) -> Settled:
        ceiling, now = self._ceiling(record), self.access.clock()
        settled = self._apply(record, Verb.CHANGE, timeout, only_later)
        if self.grant is not None:
            # Of the decision, which came later, this is the least.
            asked = now + timeout * MILLISECONDS
            self._visible_at = max(self._visible_at, min(asked, ceiling or asked)) if only_later else asked
            self.grant = replace(self.grant, visible_at=self._visible_at)
        return settled

    def _read(self, record: QueueRecord, grant: Grant) -> list[Message]:
        access, now = self.access, self.access.clock()
        stored = access.store.read(record, grant)
        return [public_message(record, message, now, self.receipt_id, access.settings.account) for message in stored]

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
        bounds.visibility_timeout(timeout, limits)
        if self.grant is None:
            return Settled(0, 0)
        runs = self.grant.runs.select(RUNS.names)
        action = Action(verb, self.grant.receipt_id, runs, timeout, True, only_later, reason, counted)
        # Through this object, before: what is settled beside that was settled by another holder of the receipt.
        answer, elsewhere = self._applied(record, action)
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
        lost = elsewhere + sum(by_outcome[outcome] for outcome in LOST)
        if lost and not done:
            raise self._lost(lost)
        self._is_over |= action.ends
        return Settled(done, lost)

    def _applied(self, record: QueueRecord, action: Action) -> tuple[pa.Table, int]:
        """The answer to an action on the whole claim, and how many messages others ended."""
        if not action.ends:
            answer = apply(self.access, record, [action])[0]
            # Looked at afterwards: what the body ends meanwhile is its own.
            return answer, self.endings.outside(_of(answer, Outcome.SETTLED))
        before = self.endings.copy()
        with self.endings.ending(action.runs) as ending:
            answer = apply(self.access, record, [action])[0]
            ending.answered(answer)
        return answer, before.outside(_of(answer, Outcome.SETTLED))

    def _lost(self, lost: int) -> LeaseLost:
        self._is_over = True
        log.warning("nothing of the claim %s of %s is held any more", self.receipt_id, self.access.name)
        return LeaseLost(
            f"Nothing of the claim {self.receipt_id} is held any more: of its {self.count} messages {lost} ran out or "
            "were received by others, or were ended by another holder of the receipt (do two tasks share an attempt "
            "id?). Receive again; keep a claim with a longer timeout or a heartbeat"
        )


def _of(answer: pa.Table, outcome: Outcome) -> pa.Table:
    return answer.filter(pa.compute.equal(answer["outcome"], outcome.value))


class ReceiveAttempt:
    """A receive that may have to wait: it polls once at a time, and its caller says when to poll again.

    `wait` is for how many seconds it may wait. Making one raises what `Queue.receive` does for what is asked wrong.
    """

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
        self._access, self._known = access, [record]
        self._request = _request(record, max_messages, visibility_timeout, attempt_id)
        default = int(record.attributes["ReceiveMessageWaitTimeSeconds"])
        self.wait = bounds.wait(default if wait is None else wait, limits)

    def poll(self, *, last: bool) -> Claim | None:
        """The claim, in one commit; None when there is nothing yet. The `last` poll returns an empty claim instead.

        Raises OverLimit and OutputUnreadable where it cannot wait, QueueDoesNotExist when the queue is gone meanwhile.
        """
        # Deleted meanwhile, what was recorded about its messages is forgotten: acknowledged ones would come back.
        record = self._known.pop() if self._known else self._access.record()
        (received,) = self._access.store.receive(record, [self._request], self._access.clock)
        if isinstance(received, LedgerError):
            # Q2: "with long polling, no new messages are returned until the count drops". And beside messages that
            # are left alone others may come.
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
    """See Queue.receive."""
    attempt = ReceiveAttempt(access, max_messages, visibility_timeout, wait, attempt_id)
    give_up = time.monotonic() + attempt.wait
    while True:
        seen = access.store.change_token() if attempt.wait else None
        claim = attempt.poll(last=time.monotonic() >= give_up)
        if claim is not None:
            return claim
        _wait_for_change(access, seen, give_up)


def receive_many(access: Access, requests: Sequence[Sequence[object]]) -> list[Claim]:
    """See Queue.receive_many."""
    record, asked = access.record(), listed("requests", requests)
    for one in asked:
        if isinstance(one, (str, bytes)) or not isinstance(one, Sequence) or not 1 <= len(one) <= 3:
            bound = "Must be (max_messages, visibility_timeout, attempt_id), of which the last ones may be missing"
            raise InvalidParameterValue("requests", one, bound)
    wanted = [_request(record, *one) for one in asked]
    attempts.require_different([request.attempt_id for request in wanted])
    found = access.store.receive(record, wanted, access.clock) if wanted else []
    return [
        Claim(access, None, request.timeout, error=one)
        if isinstance(one, LedgerError)
        else Claim(access, one, request.timeout)
        for request, one in zip(wanted, found)
    ]


def _wait_for_change(access: Access, seen: object, give_up: float) -> None:
    """Sleeps until the tables moved on, or some visibility timeout may have run out, but not past `give_up`."""
    look_again = min(give_up, time.monotonic() + 1.0)
    while time.monotonic() < look_again:
        time.sleep(min(access.settings.poll_interval, max(0.0, look_again - time.monotonic())))
        if access.store.change_token() != seen:
            return


def _request(
    record: QueueRecord, max_messages: int | None = 1, visibility_timeout: int | None = None, attempt_id: Any = None
) -> ReceiveRequest:
    """A receive as it is asked for, within the bounds of the queue. Raises InvalidParameterValue."""
    limits = attribute_rules.limits_of(record.attributes)
    maximum = bounds.maximum_messages(max_messages, limits)
    if visibility_timeout is None:
        visibility_timeout = int(record.attributes["VisibilityTimeout"])
    bounds.visibility_timeout(visibility_timeout, limits)
    return ReceiveRequest(maximum, visibility_timeout, attempts.attempt_id(attempt_id, "ReceiveRequestAttemptId"))
