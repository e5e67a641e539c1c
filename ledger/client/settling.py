"""The settling of messages by their receipt handles: delete, release and extend, in one commit."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from ledger.client.access import Access
from ledger.client.handles import (
    HandleList,
    HandleRequest,
    make_outcome_table,
    requests_of_list,
    requests_of_table,
    require_handles,
)
from ledger.client.tables import is_spark, is_text, read_arrow_table, require_column
from ledger.errors import InvalidParameterValue
from ledger.results import HandleOutcome
from ledger.rules import attributes as attribute_rules
from ledger.rules import limits as bounds
from ledger.rules.outcomes import error as error_of
from ledger.rules.receipt_handle import decode
from ledger.rules.visibility import Outcome, Receipts, Verb, clean_reason
from ledger.runtime.threads import uses_arrow
from ledger.store.protocol import Action, QueueRecord, count_by_outcome

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ledger.client.handles import Handles, HandleSequence, Outcomes, PlainHandles, Reasons, Timeouts

HANDLE_FIELD = "ReceiptHandle"
REASON_COLUMN = "reason"


@uses_arrow
def apply(access: Access, record: QueueRecord, actions: Sequence[Action]) -> list[pa.Table]:
    """Apply all actions in one commit, or in none if they change nothing. Return a table for each action.

    The tables have the schema OUTCOME_RUNS of `store.protocol`. A claim of the same Queue object does not count the
    ended messages as lost (see `client.access`).
    """
    limits = attribute_rules.limits_of(record.attributes)
    receipts = attribute_rules.receipts_of(record.attributes)
    with contextlib.ExitStack() as stack:
        # A claim itself records the messages that an action on the whole claim ends.
        ending = [
            (number, stack.enter_context(own.ending(action.runs)))
            for number, action in enumerate(actions)
            if not action.whole_claim and action.ends
            for own in access.endings.of(action.receipt_id)
        ]
        answers = access.store.apply(record, actions, limits, receipts, access.clock)
        for number, claim_ending in ending:
            claim_ending.answered(answers[number])
        return answers


def delete_one(access: Access, handle: str) -> None:
    """See Queue.delete."""
    _apply_one(access, access.record(), HandleRequest(handle, Verb.DELETE))


def change_one(access: Access, handle: str, timeout: object) -> None:
    """See Queue.change_visibility."""
    record = access.record()
    seconds = bounds.check_visibility_timeout(timeout, attribute_rules.limits_of(record.attributes))
    _apply_one(access, record, HandleRequest(handle, Verb.CHANGE, seconds))


def delete_many(access: Access, handles: Handles) -> Outcomes:
    """See Queue.delete."""
    # `settle` takes None for no handles. Here None is a mistake: `require_handles` raises.
    return settle(access, delete=require_handles(HANDLE_FIELD, None) if handles is None else handles)


def change_many(access: Access, handles: Handles, timeout: Timeouts) -> Outcomes:
    """See Queue.change_visibility."""
    if timeout is None:
        raise InvalidParameterValue("VisibilityTimeout", None, "Must be a number of seconds", "Give 0 to release.")
    return settle(access, extend=_read_handles(handles), timeout=timeout)


def settle(
    access: Access,
    delete: Handles | None = None,
    release: Handles | None = None,
    extend: Handles | None = None,
    timeout: Timeouts | None = None,
    reason: Reasons | None = None,
) -> Outcomes:
    """See Settling.settle."""
    record = access.record()
    limits = attribute_rules.limits_of(record.attributes)
    if timeout is not None and extend is None:
        raise InvalidParameterValue(
            "VisibilityTimeout", timeout, "Is only for messages to extend, and the call names none", "Give extend=."
        )
    if timeout is None:
        timeout = int(record.attributes["VisibilityTimeout"])
    handles_by_verb = [(Verb.DELETE, delete, 0), (Verb.CHANGE, release, 0), (Verb.CHANGE, extend, timeout)]
    parts = [
        (verb, _read_handles(handles), seconds) for verb, handles, seconds in handles_by_verb if handles is not None
    ]
    _require_timeout(timeout, None if extend is None else parts[-1][1], limits)
    if any(is_spark(handles) for _, handles, _ in parts):
        why = clean_reason(reason)
        with access.named_jobs("settle"):
            request = access.spark().evaluate_wishes(record, parts, limits)
            return request.outcomes(apply(access, record, _give_reason(request.actions, why)))
    requests = list[HandleRequest]()
    reasons = _spread_reasons(reason, [handles for verb, handles, _ in parts if verb is Verb.CHANGE])
    for verb, handles, seconds in parts:
        requests_of_part = _make_requests(verb, handles, seconds, limits)
        requests += requests_of_part if verb is Verb.DELETE else map(_replace_reason, requests_of_part, reasons)
    outcomes = _apply_list(access, record, requests, limits)
    return outcomes if all(isinstance(p[1], list) for p in parts) else make_outcome_table(requests, outcomes)


#: The `receipt_id` that stands for all receipts in `release_postponed`. (None is an empty claim's receipt.)
ALL_RECEIPTS = "*"


def release_postponed(access: Access, receipt_id: str | None, reason: str | None) -> int:
    """See Queue.release_postponed."""
    record, why = access.record(), clean_reason(reason)
    hidden = access.store.given_back(record, access.clock)
    chosen = {receipt: runs for receipt, runs in hidden.items() if receipt_id in (ALL_RECEIPTS, receipt)}
    actions = [Action(Verb.CHANGE, receipt, runs, reason=why) for receipt, runs in sorted(chosen.items())]
    # FENCED, even if the queue accepts older receipts: a consumer that received a message after `given_back` keeps it.
    limits = attribute_rules.limits_of(record.attributes)
    answers = access.store.apply(record, actions, limits, Receipts.FENCED, access.clock)
    return sum(count_by_outcome(answer)[Outcome.CHANGED] for answer in answers)


def _apply_list(
    access: Access, record: QueueRecord, requests: Sequence[HandleRequest], limits: bounds.Limits
) -> list[HandleOutcome]:
    request = HandleList(record, requests, limits)
    return request.outcomes(apply(access, record, request.actions)) if request.actions else request.outcomes([])


def _give_reason(actions: Sequence[Action], reason: str | None) -> list[Action]:
    return [replace(action, reason=reason) if action.verb is Verb.CHANGE else action for action in actions]


def _replace_reason(request: HandleRequest, reason: str | None) -> HandleRequest:
    return replace(request, reason=reason)


def _spread_reasons(given: Any, parts: Sequence[Any]) -> Iterator[str | None]:
    """Return an iterator with a reason for each handle that is released, and then for each that is extended."""
    counts = [len(handles) if isinstance(handles, list) else handles.num_rows for handles in parts]
    if isinstance(given, (list, tuple)):
        if len(given) != sum(counts):
            bound = f"Must be one text, or a list with one for each of the {sum(counts)} handles to release or extend"
            raise InvalidParameterValue("reason", f"a list of length {len(given)}", bound)
        return iter([clean_reason(reason) for reason in given])
    if given is not None:
        return itertools.repeat(clean_reason(given))
    each: list[str | None] = []
    for handles, count in zip(parts, counts):
        has_reasons = not isinstance(handles, list) and REASON_COLUMN in handles.column_names
        column = (
            require_column(handles, REASON_COLUMN, is_text, "string").to_pylist() if has_reasons else [None] * count
        )
        each += map(clean_reason, column)
    return iter(each)


def _apply_one(access: Access, record: QueueRecord, request: HandleRequest) -> None:
    decode(request.handle, record.id)
    limits = attribute_rules.limits_of(record.attributes)
    outcome = Outcome(_apply_list(access, record, [request], limits)[0].outcome)
    error = error_of(request.verb, outcome, request.handle, request.timeout, limits.maximum_visibility_timeout)
    if error is not None:
        raise error


def _read_handles(handles: Any) -> Any:
    if is_spark(handles):
        return handles
    table = read_arrow_table(HANDLE_FIELD, handles)
    return require_handles(HANDLE_FIELD, handles) if table is None else table


def _make_requests(verb: Verb, handles: Any, timeout: Any, limits: bounds.Limits) -> list[HandleRequest]:
    if isinstance(handles, list):
        return requests_of_list(handles, verb, timeout, limits)
    return requests_of_table(handles, verb, timeout, limits)


def _require_timeout(timeout: Any, extended: Any, limits: bounds.Limits) -> None:
    """Refuse a timeout that is not a number of seconds within the bounds.

    A list of handles may have a list of timeouts, and a table the name of a column. Their values are checked later.
    """
    if isinstance(timeout, Sequence) and not isinstance(timeout, (str, bytes)) and isinstance(extended, list):
        if len(timeout) != len(extended):
            bound = f"Must be one timeout, or a list with one for each of the {len(extended)} handles"
            raise InvalidParameterValue("VisibilityTimeout", f"a list of length {len(timeout)}", bound)
    elif not isinstance(timeout, str) or extended is None or isinstance(extended, list):
        bounds.check_visibility_timeout(timeout, limits)


class Settling:
    """An object that settles messages of a queue: the Queue, and each Claim of it."""

    def __init__(self, access: Access) -> None:
        self.access = access

    @overload
    def settle(
        self,
        *,
        delete: HandleSequence | None = None,
        release: HandleSequence | None = None,
        extend: HandleSequence | None = None,
        visibility_timeout: Timeouts | None = None,
        reason: Reasons | None = None,
    ) -> list[HandleOutcome]: ...
    @overload
    def settle(
        self,
        *,
        delete: DataFrame,
        release: Handles | None = None,
        extend: Handles | None = None,
        visibility_timeout: Timeouts | None = None,
        reason: Reasons | None = None,
    ) -> DataFrame: ...
    @overload
    def settle(
        self,
        *,
        delete: Handles | None = None,
        release: DataFrame,
        extend: Handles | None = None,
        visibility_timeout: Timeouts | None = None,
        reason: Reasons | None = None,
    ) -> DataFrame: ...
    @overload
    def settle(
        self,
        *,
        delete: Handles | None = None,
        release: Handles | None = None,
        extend: DataFrame,
        visibility_timeout: Timeouts | None = None,
        reason: Reasons | None = None,
    ) -> DataFrame: ...
    @overload
    def settle(
        self,
        *,
        delete: PlainHandles | None = None,
        release: PlainHandles | None = None,
        extend: PlainHandles | None = None,
        visibility_timeout: Timeouts | None = None,
        reason: Reasons | None = None,
    ) -> pa.Table: ...
    def settle(
        self,
        *,
        delete: Handles | None = None,
        release: Handles | None = None,
        extend: Handles | None = None,
        visibility_timeout: Timeouts | None = None,
        reason: Reasons | None = None,
    ) -> Outcomes:
        """Acknowledge some messages, release some and extend some, all in one commit.

        If two actions of one call would change a message differently, neither changes it. Examples are delete and
        release, two deadlines, and two releases for different reasons. Both outcomes are then "contradicted", with the
        error code InvalidParameterValue. Other messages are settled as usual. If a list or an Arrow table names a
        message twice with the same action, its two outcomes are the same.

        Args:
            delete, release, extend: A list of receipt handles, or a table with a column `receipt_handle`, as
                `Queue.delete` takes them.
            visibility_timeout: For `extend`, in seconds. With a list of handles it may be a list, one timeout for each
                handle. With a table it may be the name of a column. Default: the queue's VisibilityTimeout.
            reason: Why messages are released or extended, as one text for all. The views `receipts` and `dead_letters`
                show its first 500 characters. If no argument is a DataFrame, the reason may be a list: one for each
                handle of `release`, then one for each of `extend`. Without this argument, an Arrow table of handles may
                have a column `reason`. One call records the 100 most frequent reasons, and one common text for the
                others. An extension with a reason counts as a planned retry: the view `processing_times` counts its
                messages as postponed, and not as timed out at that deadline.

        Returns:
            Outcomes as `Queue.delete` returns them. If `delete`, `release` or `extend` is a DataFrame, the outcomes are
                one DataFrame without an order. Otherwise their order is delete, release, extend, in one pyarrow.Table
                if one of these arguments is a table, else in a list.
        """
        return settle(self.access, delete, release, extend, visibility_timeout, reason)
