"""Actions on queues: create, find, list, delete. For Q4 see the rules of docs/reference/rules.md."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

from ledger.endpoint.actions.call import Call
from ledger.endpoint.refusals import Refusal
from ledger.errors import InvalidParameterValue, QueueDoesNotExist, QueueNameExists
from ledger.queue import Queue
from ledger.rules.limits import MAXIMUM_RESULTS, whole_number

Result = Mapping[str, object]


def create(call: Call) -> Result:
    """Make a queue, by default with SQS's limits (Q4), one lane and the option `--receipts`."""
    call.require_owner()
    name, given, tags = call.parameters["QueueName"], call.get("Attributes") or {}, call.get("tags")
    try:
        call.ledger.queue(name)
        attributes = given
    except QueueDoesNotExist:
        attributes = {**call.new_queues, **given}
    try:
        queue = call.ledger.create_queue(name, attributes, tags)
    except InvalidParameterValue as error:
        if error.field != "QueueName":
            raise
        # SQS's sentence has the rule for names, but not the wrong name. Source: moto, and a quote in kombu.
        raise InvalidParameterValue(error.field, name, error.bound, message=error.bound) from None
    except QueueNameExists as error:
        # Another caller made the queue meanwhile. Only the attributes that the request gives must be equal.
        if error.attribute in given:
            raise
        queue = call.ledger.create_queue(name, given, tags)
    return {"QueueUrl": call.url(queue.name)}


def delete(call: Call) -> Result:
    call.ledger.delete_queue(call.queue().name)
    return {}


def url(call: Call) -> Result:
    """Return a queue's URL. Raise QueueDoesNotExist also for another QueueOwnerAWSAccountId."""
    name, owner = call.parameters["QueueName"], call.get("QueueOwnerAWSAccountId")
    if owner is not None and owner != call.account.account_id:
        raise QueueDoesNotExist(name)
    return {"QueueUrl": call.url(call.named(name).name)}


def listed(call: Call) -> Result:
    call.require_owner()
    most, after = _page(call)
    queues: list[Queue] = call.ledger.list_queues(call.get("QueueNamePrefix") or "", after, most + 1)
    names = [queue.name for queue in queues]
    return _names(call, "QueueUrls", names, most) if names else {}


def dead_letter_sources(call: Call) -> Result:
    most, after = _page(call)
    return _names(call, "queueUrls", call.queue().dead_letter_source_queues(after, most + 1), most)


def _page(call: Call) -> tuple[int, str]:
    """Return the size of the page, and the name after which the page begins."""
    max_results, token = call.get("MaxResults"), call.get("NextToken")
    if token and max_results is None:
        sentence = "MaxResults is a mandatory parameter when you provide a value for NextToken."
        raise Refusal("UnsupportedOperation", sentence)
    most = MAXIMUM_RESULTS if max_results is None else whole_number("MaxResults", max_results, 1, MAXIMUM_RESULTS)
    return most, _name_in(token) if token else ""


def _name_in(token: str) -> str:
    try:
        name = base64.b64decode(token, b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        name = ""
    if not name or _token(name) != token:
        raise InvalidParameterValue("NextToken", token, "This service did not issue the token")
    return name


def _token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _names(call: Call, member: str, names: Sequence[str], most: int) -> Result:
    """Return a page of queue URLs. As in SQS, only a request with MaxResults gets a token."""
    result: dict[str, object] = {member: [call.url(name) for name in names[:most]]}
    if len(names) > most and call.get("MaxResults") is not None:
        result["NextToken"] = _token(names[most - 1])
    return result
