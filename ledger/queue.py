"""A queue: send, receive, act on receipt handles, look. What users call; the store does the work."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ledger.batch import Claim
from ledger.clock import Clock
from ledger.dead_letters import DeadLetters
from ledger.errors import InvalidParameterValue, LedgerError, OverLimit
from ledger.handles import HandleList, Wish, listed
from ledger.message import HandleOutcome, Message, public_message
from ledger.rules import attributes as attribute_rules
from ledger.rules import limits as bounds
from ledger.rules import message as message_rules
from ledger.rules import visibility
from ledger.rules.receipt_handle import decode
from ledger.rules.visibility import Outcome, Verb
from ledger.store import RUNS, QueueRecord, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ledger.store.delta.frames import Frames, Sent


class Queue(DeadLetters):
    """A queue of a ledger. Threads may share it. Get one from `Ledger.create_queue` or `Ledger.queue`."""

    def __init__(
        self, store: Store, record: QueueRecord, clock: Clock, frames: Frames | None, poll_interval: float
    ) -> None:
        super().__init__(store, record, clock, frames)
        self._poll_interval = poll_interval

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    def send(
        self,
        messages: DataFrame | Sequence[str | Mapping[str, object]] | str,
        *,
        body: str | None = None,
        attempt_id: str | None = None,
        delay_seconds: int | None = None,
        message_attributes: Mapping[str, object] | None = None,
        message_group_id: str | None = None,
        message_deduplication_id: str | None = None,
    ) -> Sent | list[str]:
        """Sends messages in one commit.

        A DataFrame: every row is a message, its body the column `body` (name another one with `body=`), or the whole
        row as JSON when there is no such column; any number of rows. Beside the body the columns delay_seconds,
        message_attributes, message_group_id and message_deduplication_id count. Answers a `Sent`: count, and `ids()`.
        A list of strings (or one string), or of SQS's entries ({"MessageBody": ..., "DelaySeconds",
        "MessageAttributes", "MessageGroupId", "MessageDeduplicationId", "AWSTraceHeader"}): answers their ids in order.
        The keyword arguments hold for all messages of a list that do not say otherwise.
        `attempt_id` makes a retry safe: a send that was committed under it is not sent again, its ids are answered.
        FIFO queues (F1) need a group, and know a repeated message by its deduplication id, for 5 minutes.
        Raises InvalidParameterValue for a body that is empty, no string, or over the queue's MaximumMessageSize, and
        for a missing column, MissingParameter for a missing group; then nothing was sent.
        """
        _attempt_id(attempt_id, "attempt_id")
        record = self._record()
        message_rules.require_no_attempt(attempt_id, record.attributes)
        common = {
            "delay_seconds": delay_seconds,
            "attributes": message_attributes,
            "message_group_id": message_group_id,
            "message_deduplication_id": message_deduplication_id,
        }
        if _is_dataframe(messages):
            given = [name for name, value in common.items() if value is not None]
            if given:
                raise InvalidParameterValue(
                    given[0], common[given[0]], "A DataFrame has it as a column", "Add the column."
                )
            return self._spark().send(record, messages, body, self._clock, attempt_id)
        given = [messages] if isinstance(messages, (str, Mapping)) else listed("messages", messages)
        entries = [message_rules.entry_of(one, record.attributes, common) for one in given]
        return self._store.send(record, entries, self._clock, attempt_id)

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
        `attempt_id` while that earlier claim is held answers the same claim again, its timeout restarted.
        On FIFO queues (F2) a claim has the first messages of every group of which none is in flight, in order.
        D1: what was received as often as the queue's RedrivePolicy allows goes to the dead-letter queue instead.
        Q2, Q3: raises OverLimit at the quota of an SQS-limited standard queue, unless it waits; FIFO answers none.
        Answers a Claim; an empty one is false. Never more messages than asked for; fewer when other receivers compete.
        """
        record = self._record()
        limits = attribute_rules.limits_of(record.attributes)
        maximum = bounds.maximum_messages(max_messages, limits)
        if visibility_timeout is None:
            visibility_timeout = int(record.attributes["VisibilityTimeout"])
        bounds.visibility_timeout(visibility_timeout, limits)
        wait = bounds.wait(int(record.attributes["ReceiveMessageWaitTimeSeconds"]) if wait is None else wait, limits)
        attempt = _attempt_id(attempt_id)
        give_up = time.monotonic() + wait
        while True:
            seen = self._store.change_token() if wait else None
            try:
                grant = self._store.receive(record, maximum, visibility_timeout, attempt, self._clock)
            except OverLimit:
                # Q2: "with long polling, no new messages are returned until the count drops".
                if not wait:
                    raise
                grant = None
            if grant is not None or time.monotonic() >= give_up:
                return Claim(self, grant, visibility_timeout)
            self._wait_for_change(seen, give_up)

    def claim(self, receipt_id: str) -> Claim:
        """The claim of a receipt, as far as nobody deleted or took its messages: how another process carries on."""
        record = self._record()
        # An empty claim has no receipt, and messages that nobody received have none either: those it does not mean.
        grant = self._store.held(record, receipt_id) if receipt_id else None
        return Claim(self, grant, int(record.attributes["VisibilityTimeout"]))

    def delete(self, receipt_handles: str | Sequence[str] | DataFrame) -> Any:
        """Acknowledges messages, in one commit.

        One handle: raises ReceiptHandleIsInvalid if it is none of this queue; else succeeds (V8, V10, V13).
        A list: a HandleOutcome per handle, in order. A DataFrame with a column `receipt_handle`: a DataFrame of
        receipt_handle, action, outcome, error_code (string; null for a success), a row per distinct handle.
        Through a receipt that a later receive replaced nothing changes; its outcome is "stale".
        """
        if isinstance(receipt_handles, str):
            self._act_on_one(Wish(receipt_handles, Verb.DELETE))
            return None
        return self.settle(
            delete=receipt_handles if _is_dataframe(receipt_handles) else listed("ReceiptHandle", receipt_handles)
        )

    def change_visibility(
        self, receipt_handles: str | Sequence[str] | DataFrame, visibility_timeout: int | str | Sequence[int]
    ) -> Any:
        """Sets how many seconds from now messages stay hidden; 0 releases them. One commit.

        One handle: raises MessageNotInflight, ReceiptHandleIsInvalid, InvalidParameterValue. A list (with one timeout,
        or one per handle) and a DataFrame (with one timeout, or the name of a column of them): outcomes, as `delete`.
        """
        record = self._record()
        limits = attribute_rules.limits_of(record.attributes)
        if isinstance(receipt_handles, str):
            bounds.visibility_timeout(visibility_timeout, limits)
            self._act_on_one(Wish(receipt_handles, Verb.CHANGE, visibility_timeout))
            return None
        if _is_dataframe(receipt_handles):
            return self.settle(extend=receipt_handles, visibility_timeout=visibility_timeout)
        receipt_handles = listed("ReceiptHandle", receipt_handles)
        each = isinstance(visibility_timeout, Sequence) and not isinstance(visibility_timeout, str)
        timeouts = list(visibility_timeout) if each else [visibility_timeout] * len(receipt_handles)
        if not each:
            bounds.visibility_timeout(visibility_timeout, limits)
        if len(timeouts) != len(receipt_handles):
            raise InvalidParameterValue(
                "VisibilityTimeout",
                len(timeouts),
                f"Must be one, or one for each of the {len(receipt_handles)} handles",
            )
        for timeout in timeouts:
            bounds.visibility_timeout(timeout, limits)
        return self._act_on_list([Wish(h, Verb.CHANGE, t) for h, t in zip(receipt_handles, timeouts)])

    def settle(
        self,
        *,
        delete: Any = None,
        release: Any = None,
        extend: Any = None,
        visibility_timeout: int | str | None = None,
    ) -> Any:
        """Acknowledges some messages, releases some and extends some, all in one commit.

        Each of the three is a list of receipt handles, or a DataFrame with a column `receipt_handle`; all of one kind.
        `visibility_timeout` (seconds, or for a DataFrame the name of a column) is for `extend`; without it the queue's.
        Answers outcomes, as `delete`: for lists in the order delete, release, extend.
        """
        record = self._record()
        limits = attribute_rules.limits_of(record.attributes)
        if visibility_timeout is None:
            visibility_timeout = int(record.attributes["VisibilityTimeout"])
        parts = [(Verb.DELETE, delete, 0), (Verb.CHANGE, release, 0), (Verb.CHANGE, extend, visibility_timeout)]
        frames = any(_is_dataframe(handles) for _, handles, _ in parts)
        if not (frames and isinstance(visibility_timeout, str)):
            bounds.visibility_timeout(visibility_timeout, limits)
        if frames:
            frames = self._spark()
            asked = frames.wishes(record, [part for part in parts if part[1] is not None], limits)
            actions = asked.actions()
            return asked.outcomes(self._act(actions), actions)
        given = [
            (verb, listed("ReceiptHandle", handles), timeout) for verb, handles, timeout in parts if handles is not None
        ]
        return self._act_on_list(
            [Wish(handle, verb, timeout) for verb, handles, timeout in given for handle in handles]
        )

    def peek(self, message_id: str) -> Message:
        """V11: a message whatever its state, without changing anything. Raises MessageDoesNotExist."""
        record = self._record()
        return public_message(record, self._store.peek(record, message_id), self._clock(), None)

    def lock(self, message_id: str, visibility_timeout: int) -> None:
        """V12: hides a message that nobody holds for so many seconds. Raises LedgerError when it is in flight or
        deleted, MessageDoesNotExist when there is none."""
        record = self._record()
        bounds.visibility_timeout(visibility_timeout, attribute_rules.limits_of(record.attributes))
        if not self._store.lock(record, message_id, visibility_timeout, self._clock):
            raise LedgerError(
                f"Message {message_id} is in flight or deleted; only a message that nobody holds can be locked"
            )

    def purge(self) -> int:
        """Deletes every message there is now, in flight or not; answers how many. What is sent meanwhile stays."""
        return self._store.purge(self._record(), self._clock)

    def restore(self, receipt_id: str) -> int:
        """Undoes the acknowledgement of a claim: what was deleted under its receipt is visible again; answers how many
        messages. Old receipts stay stale. The receipts ledger keeps both, the deletion and the restoring.

        Restores what is within its retention and not yet forgotten: receipts of deleted messages are kept for the
        setting keep_deleted_receipts. 0: nothing was deleted under it, or it is forgotten, or there is none (None).
        """
        return self._store.restore(self._record(), receipt_id, self._clock) if receipt_id else 0

    # What claims use.

    def _act(self, actions: Sequence[Any]) -> list[Any]:
        record = self._record()
        limits = attribute_rules.limits_of(record.attributes)
        accept_late = record.attributes["LateChange"] == "accept"
        return self._store.act(record, actions, limits, accept_late, self._clock)

    def _outputs(self) -> Any:
        outputs = getattr(self._store, "outputs", None)
        if outputs is None:
            raise LedgerError("claim.write needs a ledger on Delta tables; this one is in memory")
        return outputs

    def _runs_of(self, receipt_handles: Any, receipt_id: str) -> Any:
        """The messages of handles, all of one receipt, as RUNS."""
        record = self._record()
        if _is_dataframe(receipt_handles):
            limits = attribute_rules.limits_of(record.attributes)
            actions = self._spark().wishes(record, [(Verb.DELETE, receipt_handles, 0)], limits).actions()
        else:
            given = listed("messages", receipt_handles)
            for handle in given:
                decode(handle, record.id)
            actions = HandleList(record, [Wish(handle, Verb.DELETE) for handle in given]).actions
        if {action.receipt_id for action in actions} - {receipt_id}:
            raise InvalidParameterValue("messages", "receipt handles", f"Must be handles of the claim {receipt_id}")
        return actions[0].runs if actions else RUNS.empty_table()

    def _act_on_list(self, wishes: Sequence[Wish]) -> list[HandleOutcome]:
        asked = HandleList(self._made, wishes)
        return asked.outcomes(self._act(asked.actions)) if asked.actions else asked.outcomes([])

    def _act_on_one(self, wish: Wish) -> None:
        decode(wish.handle, self._record().id)
        outcome = Outcome(self._act_on_list([wish])[0].outcome)
        ceiling = attribute_rules.limits_of(self._record().attributes).maximum_visibility_timeout
        error = visibility.error(wish.verb, outcome, wish.handle, wish.timeout, ceiling)
        if error is not None:
            raise error

    def _wait_for_change(self, seen: object, give_up: float) -> None:
        """Sleeps until the tables moved on, or some visibility timeout may have run out, but not past `give_up`."""
        look_again = min(give_up, time.monotonic() + 1.0)
        while time.monotonic() < look_again:
            time.sleep(min(self._poll_interval, max(0.0, look_again - time.monotonic())))
            if self._store.change_token() != seen:
                return


def _is_dataframe(value: object) -> bool:
    return hasattr(value, "sparkSession") and hasattr(value, "select")


def _attempt_id(value: object, field: str = "ReceiveRequestAttemptId") -> str | None:
    if value is not None and (not isinstance(value, str) or not 1 <= len(value) <= 128):
        raise InvalidParameterValue(
            field, value, "Must be a string of 1 to 128 characters", "Use the run id of the job."
        )
    return value
