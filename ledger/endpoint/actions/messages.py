"""Actions on single messages. For Q4 see the rules of docs/reference/rules.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.claim import Claim, ReceiveAttempt
from ledger.endpoint.actions.call import Call
from ledger.endpoint.shapes import message_as_sqs, require_no_lists, sent_as_sqs, to_send
from ledger.rules import limits

Result = Mapping[str, object]


class Waiting:
    """A receive that may wait `seconds` for messages."""

    def __init__(self, call: Call, queue_id: str, attempt: ReceiveAttempt) -> None:
        self._call, self._attempt = call, attempt
        self.queue_id, self.seconds = queue_id, min(attempt.wait, limits.MAXIMUM_WAIT)
        self.queue_named = call.queue_named

    def poll(self, *, last: bool) -> Result | None:
        """Return the answer, or None to wait longer (not from the `last` poll)."""
        claim = self._attempt.poll(last=last)
        return None if claim is None else _received(self._call, claim)


def send(call: Call) -> Result:
    queue = call.queue()
    require_no_lists(call.action, [call.parameters])
    (outcome,) = queue.send(to_send(call.parameters, call.trace), all_or_nothing=True)
    return sent_as_sqs(outcome, call.parameters)


def receive(call: Call) -> Result | Waiting:
    """Poll once. If the poll finds nothing and the receive may wait, return a Waiting."""
    queue = call.queue()
    most, wait = call.get("MaxNumberOfMessages"), call.get("WaitTimeSeconds")
    # Q4: SQS's limits hold even for a queue without limits, because one response has the whole answer.
    attempt = ReceiveAttempt(
        queue.access,
        limits.maximum_messages(1 if most is None else most, limits.SQS),
        call.get("VisibilityTimeout"),
        None if wait is None else limits.wait(wait, limits.SQS),
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


def _received(call: Call, claim: Claim) -> dict[str, Any]:
    system = (call.get("AttributeNames") or []) + (call.get("MessageSystemAttributeNames") or [])
    own = call.get("MessageAttributeNames") or []
    messages = [message_as_sqs(message, system, own) for message in claim.messages()]
    return {"Messages": messages} if messages else {}
