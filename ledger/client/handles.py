"""Receipt handles in lists and tables, as actions for the store, and the outcomes of the handles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from ledger.client.tables import ArrowTable, is_integer, is_text, require_column, require_list
from ledger.errors import InvalidParameterValue, ReceiptHandleIsInvalid
from ledger.results import HandleOutcome, OutcomeList
from ledger.rules import message_id as ids
from ledger.rules.limits import Limits, check_visibility_timeout
from ledger.rules.outcomes import error
from ledger.rules.receipt_handle import ReceiptHandle, decode
from ledger.rules.visibility import FURTHER, Outcome, Verb, list_frequent_reasons
from ledger.store.protocol import RUNS, Action, QueueRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A list or a tuple of receipt handles. (A single text would match `Sequence[str]`.)
HandleSequence: TypeAlias = "list[str] | list[str | None] | tuple[str | None, ...]"
#: Handles that need no Spark: a list, or a table with a column `receipt_handle`.
PlainHandles: TypeAlias = "HandleSequence | ArrowTable"
#: Receipt handles: a list, or a table or Spark DataFrame with a column `receipt_handle`.
Handles: TypeAlias = "PlainHandles | DataFrame"
#: An outcome for each handle: a list for a list, an Arrow table for a table, a DataFrame for a DataFrame.
Outcomes: TypeAlias = "DataFrame | pa.Table | list[HandleOutcome]"
#: Timeouts in seconds: one for all handles, one for each handle of a list, or the name of a table's column.
Timeouts: TypeAlias = "int | str | Sequence[int]"

#: Reasons of messages: one text for all, or one for each handle.
Reasons: TypeAlias = "str | Sequence[str | None]"

OUTCOMES = pa.schema(
    [(name, pa.string()) for name in ("receipt_handle", "action", "outcome", "error_code", "error_message")]
)


@dataclass(frozen=True)
class HandleRequest:
    """A request for one receipt handle. A request with `refused`, the error about its timeout, does nothing."""

    handle: str | None
    verb: Verb
    timeout: int = 0
    refused: InvalidParameterValue | None = None
    reason: str | None = None

    @classmethod
    def checked(cls, handle: str | None, verb: Verb, timeout: object, limits: Limits) -> HandleRequest:
        """Return a request. A wrong timeout fails only this request."""
        try:
            return cls(handle, verb, check_visibility_timeout(timeout, limits))
        except InvalidParameterValue as error:
            return cls(handle, verb, 0, error)


class HandleList:
    """The requests of a call, as actions: one for each verb, receipt, timeout and reason."""

    def __init__(self, queue: QueueRecord, requests: Sequence[HandleRequest], limits: Limits) -> None:
        self._requests, self._ceiling = requests, limits.maximum_visibility_timeout
        self._read = [_decode_handle(request.handle, queue) for request in requests]
        groups: dict[tuple[Verb, str, int, str | None], set[ReceiptHandle]] = {}
        named = list_frequent_reasons(request.reason for request in requests)
        mark = {reason: number for number, reason in enumerate(named)}
        for request, handle in zip(requests, self._read):
            if handle is not None and request.refused is None:
                reason = request.reason if request.reason is None or request.reason in mark else FURTHER
                groups.setdefault((request.verb, handle.receipt_id, request.timeout, reason), set()).add(handle)
        self.actions = [
            Action(verb, receipt_id, _join_runs(handles), timeout, reason=reason, mark=_find_mark(mark, reason))
            for (verb, receipt_id, timeout, reason), handles in groups.items()
        ]

    def outcomes(self, answers: Sequence[pa.Table]) -> list[HandleOutcome]:
        """Return one outcome per request, in order."""
        outcome_by_message: dict[tuple[Verb, str, int, str, int], str] = {}
        for action, answer in zip(self.actions, answers):
            for run in answer.to_pylist():
                for seq in range(run["first_seq"], run["last_seq"] + 1):
                    outcome_by_message[action.verb, action.receipt_id, action.timeout, run["segment"], seq] = run[
                        "outcome"
                    ]
        handle_outcomes = []
        for request, handle in zip(self._requests, self._read):
            outcome = Outcome.INVALID
            if handle is not None and request.refused is None:
                outcome = Outcome(
                    outcome_by_message[request.verb, handle.receipt_id, request.timeout, handle.segment, handle.seq]
                )
            failure = error(request.verb, outcome, request.handle, request.timeout, self._ceiling)
            if handle is not None and request.refused is not None:
                outcome, failure = Outcome.BEYOND_CEILING, request.refused
            failure_texts = (None, None) if failure is None else (failure.code, failure.message)
            handle_outcomes.append(HandleOutcome(request.handle, outcome.value, *failure_texts))
        return OutcomeList(handle_outcomes)


def _find_mark(marks: Mapping[str, int], reason: str | None) -> int:
    """Return the mark of a reason, by which the views distinguish messages with different reasons.

    Reasons outside `marks` share the next number. A missing reason has the number after that, or 0 without marks.
    """
    if reason is None:
        return len(marks) + 1 if marks else 0
    return marks.get(reason, len(marks))


def require_handles(field: str, handles: object) -> list[str | None]:
    """Return receipt handles as a list. Refuse messages, and elements that are neither texts nor None."""
    if hasattr(handles, "receipt_handle"):
        bound = "Must be a receipt handle (a string), or a list of them"
        raise InvalidParameterValue(field, type(handles).__name__, bound, "Give message.receipt_handle.")
    elements: list[str | None] = require_list(field, handles)
    for handle in elements:
        if handle is not None and not isinstance(handle, str):
            fix = "Give message.receipt_handle, or a DataFrame or Arrow table with the column."
            raise InvalidParameterValue(field, type(handle).__name__, "Must be receipt handles (strings)", fix)
    return elements


def requests_of_table(table: pa.Table, verb: Verb, timeout: int | str, limits: Limits) -> list[HandleRequest]:
    """Return a request for each row of a table. `timeout` may name a column."""
    handles = require_column(table, "receipt_handle", is_text, "string").to_pylist()
    if not isinstance(timeout, str):
        return [HandleRequest(handle, verb, timeout) for handle in handles]
    seconds = require_column(table, timeout, is_integer, "int8, int16, int32 or int64").to_pylist()
    return [HandleRequest.checked(handle, verb, value, limits) for handle, value in zip(handles, seconds)]


def requests_of_list(
    handles: list[str | None], verb: Verb, timeout: int | Sequence[int], limits: Limits
) -> list[HandleRequest]:
    if not isinstance(timeout, Sequence):
        return [HandleRequest(handle, verb, timeout) for handle in handles]
    return [HandleRequest.checked(handle, verb, seconds, limits) for handle, seconds in zip(handles, timeout)]


def make_outcome_table(requests: Sequence[HandleRequest], outcomes: Sequence[HandleOutcome]) -> pa.Table:
    """Return the outcomes as a table with the schema OUTCOMES."""
    columns = [
        [request.handle for request in requests],
        [_name_action(request) for request in requests],
        [outcome.outcome for outcome in outcomes],
        [outcome.error_code for outcome in outcomes],
        [outcome.error_message for outcome in outcomes],
    ]
    return pa.table([pa.array(column, pa.string()) for column in columns], schema=OUTCOMES)


def runs_of_ids(message_ids: Sequence[object]) -> pa.Table:
    """Return message ids as RUNS, with -1 for the unknown lanes. Raises InvalidParameterValue for a wrong id."""
    places = {ids.place(identifier) for identifier in message_ids}
    return (
        _join_runs({ReceiptHandle("", -1, segment, seq, "") for segment, seq in places})
        if places
        else RUNS.empty_table()
    )


def _name_action(request: HandleRequest) -> str:
    if request.verb is Verb.DELETE:
        return "delete"
    return "extend" if request.timeout or request.refused is not None else "release"


def _decode_handle(handle: object, queue: QueueRecord) -> ReceiptHandle | None:
    try:
        return decode(handle, queue.id)
    except ReceiptHandleIsInvalid:
        return None


def _join_runs(handles: set[ReceiptHandle]) -> pa.Table:
    runs: list[list[Any]] = []
    for handle in sorted(handles, key=lambda h: (h.lane, h.segment, h.seq)):
        if runs and runs[-1][:2] == [handle.lane, handle.segment] and runs[-1][3] + 1 == handle.seq:
            runs[-1][3] = handle.seq
        else:
            runs.append([handle.lane, handle.segment, handle.seq, handle.seq])
    return pa.table([list(column) for column in zip(*runs)], schema=RUNS)
