"""Actions on up to ten messages: each entry has its own outcome (M2 of the rules of docs/reference/rules.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ledger.endpoint.actions.call import Call
from ledger.endpoint.shapes import require_no_lists, sent_as_sqs, to_send
from ledger.endpoint.statuses import query_code
from ledger.errors import InvalidParameterValue, LedgerError, MissingParameter
from ledger.results import HandleOutcome, SendOutcome
from ledger.rules.batches import require_entries, require_length

Result = Mapping[str, object]


def send(call: Call) -> Result:
    queue, entries = call.queue(), _entries(call)
    require_length(entries)
    require_no_lists(call.action, entries)
    prepared: list[Any] = [_prepare(entry, call.trace) for entry in entries]
    try:
        outcomes = queue.send(prepared)
    except MissingParameter as error:
        # SendMessage has another error. Recorded by LocalStack,
        # test_send_batch_missing_message_group_id_for_fifo_queue.
        raise InvalidParameterValue(error.field, None, error.message, message=error.message) from None
    done = [sent_as_sqs(outcome, entry) if outcome.successful else {} for outcome, entry in zip(outcomes, entries)]
    return _answer(entries, outcomes, done)


def _prepare(entry: Mapping[str, Any], trace: str | None) -> Mapping[str, object] | LedgerError:
    """Return an entry for `Queue.send`, or its error, which fails only that entry."""
    try:
        return to_send(entry, trace)
    except LedgerError as error:
        return error


def delete(call: Call) -> Result:
    queue, entries = call.queue(), _entries(call)
    return _answer(entries, queue.delete([entry["ReceiptHandle"] for entry in entries]), [{}] * len(entries))


def change_visibility(call: Call) -> Result:
    """Set visibility timeouts. An entry without one gets the queue's."""
    queue, entries = call.queue(), _entries(call)
    default = int(queue.access.made.attributes["VisibilityTimeout"])
    timeouts = [entry.get("VisibilityTimeout", default) for entry in entries]
    outcomes = queue.change_visibility([entry["ReceiptHandle"] for entry in entries], timeouts)
    return _answer(entries, outcomes, [{}] * len(entries))


def _entries(call: Call) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = call.parameters["Entries"]
    require_entries(entries, f"{call.action}RequestEntry")
    return entries


def _answer(
    entries: Sequence[Mapping[str, Any]], outcomes: Sequence[SendOutcome | HandleOutcome], done: Sequence[Result]
) -> Result:
    """Return the outcomes as the two lists of an answer. Recorded: SQS leaves out an empty list."""
    successful, failed = [], []
    for entry, outcome, more in zip(entries, outcomes, done):
        if outcome.error_code is None:
            successful.append({"Id": entry["Id"], **more})
        else:
            code = query_code(outcome.error_code)
            failed.append({"Id": entry["Id"], "SenderFault": True, "Code": code, "Message": outcome.error_message})
    lists = {"Successful": successful, "Failed": failed}
    return {name: members for name, members in lists.items() if members}
