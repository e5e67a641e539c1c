"""Actions on messages, alone and in batches (rule M2 of docs/reference/rules.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ledger.claim import Claim, ReceiveAttempt
from ledger.endpoint.actions.call import Call
from ledger.endpoint.shapes import make_entry, message_as_sqs, require_no_lists, sent_as_sqs
from ledger.endpoint.statuses import query_code
from ledger.errors import InvalidParameterValue, LedgerError, MissingParameter
from ledger.results import HandleOutcome, SendOutcome
from ledger.rules import limits
from ledger.rules.outcomes import require_entries, require_length

Result = Mapping[str, object]


class Waiting:
    """A receive that may wait `seconds` for messages."""

    def __init__(self, call: Call, queue_id: str, attempt: ReceiveAttempt) -> None:
        self._call, self._attempt = call, attempt
        self.queue_id, self.seconds = queue_id, min(attempt.wait, limits.MAXIMUM_WAIT)
        self.queue_named = call.queue_named

    def poll(self, *, last: bool) -> Result | None:
        """Return the answer, or None if the receive found nothing. The `last` poll always answers."""
        claim = self._attempt.poll(last=last)
        return None if claim is None else _answer_receive(self._call, claim)


def send(call: Call) -> Result:
    queue = call.queue()
    require_no_lists(call.action, [call.parameters])
    (outcome,) = queue.send(make_entry(call.parameters, call.trace), all_or_nothing=True)
    return sent_as_sqs(outcome, call.parameters)


def receive(call: Call) -> Result | Waiting:
    """Poll once. If the poll finds nothing and the receive may wait, return a Waiting."""
    queue = call.queue()
    most, wait = call.get("MaxNumberOfMessages"), call.get("WaitTimeSeconds")
    # Q4: SQS's limits hold for every queue here, because one response has the whole answer.
    attempt = ReceiveAttempt(
        queue.access,
        limits.maximum_messages(1 if most is None else most, limits.SQS),
        call.get("VisibilityTimeout"),
        None if wait is None else limits.check_wait(wait, limits.SQS),
        call.get("ReceiveRequestAttemptId"),
    )
    waiting = Waiting(call, queue.id, attempt)
    result = waiting.poll(last=not attempt.wait)
    return waiting if result is None else result


def delete(call: Call) -> Result:
    call.queue().delete(str(call.parameters["ReceiptHandle"]))
    return {}


def change_visibility(call: Call) -> Result:
    call.queue().change_visibility(str(call.parameters["ReceiptHandle"]), call.parameters["VisibilityTimeout"])
    return {}


def purge(call: Call) -> Result:
    call.queue().purge()
    return {}


def _answer_receive(call: Call, claim: Claim) -> dict[str, Any]:
    system = (call.get("AttributeNames") or []) + (call.get("MessageSystemAttributeNames") or [])
    own = call.get("MessageAttributeNames") or []
    messages = [message_as_sqs(message, system, own) for message in claim.messages()]
    return {"Messages": messages} if messages else {}


def send_batch(call: Call) -> Result:
    queue, entries = call.queue(), _require_entries(call)
    require_length(entries)
    require_no_lists(call.action, entries)
    prepared: list[Any] = [_prepare(entry, call.trace) for entry in entries]
    try:
        outcomes = queue.send(prepared)
    except MissingParameter as error:
        # SendMessage answers with another error. Recorded by LocalStack,
        # test_send_batch_missing_message_group_id_for_fifo_queue.
        raise InvalidParameterValue(error.field, None, error.message, message=error.message) from None
    done = [sent_as_sqs(outcome, entry) if outcome.successful else {} for outcome, entry in zip(outcomes, entries)]
    return _answer(entries, outcomes, done)


def _prepare(entry: Mapping[str, Any], trace: str | None) -> Mapping[str, object] | LedgerError:
    """Return an entry for `Queue.send`, or its error, which fails only that entry."""
    try:
        return make_entry(entry, trace)
    except LedgerError as error:
        return error


def delete_batch(call: Call) -> Result:
    queue, entries = call.queue(), _require_entries(call)
    return _answer(entries, queue.delete([entry["ReceiptHandle"] for entry in entries]), [{}] * len(entries))


def change_visibility_batch(call: Call) -> Result:
    """Set visibility timeouts. An entry without a timeout gets the queue's."""
    queue, entries = call.queue(), _require_entries(call)
    default = int(queue.access.made.attributes["VisibilityTimeout"])
    timeouts = [entry.get("VisibilityTimeout", default) for entry in entries]
    outcomes = queue.change_visibility([entry["ReceiptHandle"] for entry in entries], timeouts)
    return _answer(entries, outcomes, [{}] * len(entries))


def _require_entries(call: Call) -> list[dict[str, Any]]:
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
