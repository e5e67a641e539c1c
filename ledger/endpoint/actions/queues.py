"""Queues: made, found, listed, deleted."""

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
    """CreateQueue. Q4: with SQS's limits and one lane, unless asked otherwise; a queue that is there keeps its own."""
    call.require_owner()
    name, given, tags = call.parameters["QueueName"], call.get("Attributes") or {}, call.get("tags")
    try:
        call.ledger.queue(name)
        asked = given
    except QueueDoesNotExist:
        asked = {**call.new_queues, **given}
    try:
        made = call.ledger.create_queue(name, asked, tags)
    except InvalidParameterValue as error:
        if error.field != "QueueName":
            raise
        # The service says what a name may be, and not which one was asked for. Source: moto, and what kombu quotes.
        raise InvalidParameterValue(error.field, name, error.bound, message=error.bound) from None
    except QueueNameExists as error:
        # Somebody else made it, of other limits say, between the two.
        if error.attribute in given:
            raise
        made = call.ledger.create_queue(name, given, tags)
    return {"QueueUrl": call.url(made.name)}


def delete(call: Call) -> Result:
    """DeleteQueue."""
    call.ledger.delete_queue(call.queue().name)
    return {}


def url(call: Call) -> Result:
    """GetQueueUrl. Raises QueueDoesNotExist, also for a queue of another account."""
    name, owner = call.parameters["QueueName"], call.get("QueueOwnerAWSAccountId")
    if owner is not None and owner != call.account.account_id:
        raise QueueDoesNotExist(name)
    return {"QueueUrl": call.url(call.named(name).name)}


def listed(call: Call) -> Result:
    """ListQueues: a page of MaxResults with a NextToken where more follow; without MaxResults up to 1,000."""
    call.require_owner()
    most, after = _page(call)
    found: list[Queue] = call.ledger.list_queues(call.get("QueueNamePrefix") or "", after, most + 1)
    names = [queue.name for queue in found]
    return _names(call, "QueueUrls", names, most) if names else {}


def dead_letter_sources(call: Call) -> Result:
    """ListDeadLetterSourceQueues."""
    most, after = _page(call)
    return _names(call, "queueUrls", call.queue().dead_letter_source_queues(after, most + 1), most)


def _page(call: Call) -> tuple[int, str]:
    """How many, and behind which name. Raises InvalidParameterValue, and UnsupportedOperation as the service does for a
    page that has no size."""
    asked, token = call.get("MaxResults"), call.get("NextToken")
    if token and asked is None:
        said = "MaxResults is a mandatory parameter when you provide a value for NextToken."
        raise Refusal("UnsupportedOperation", said)
    most = MAXIMUM_RESULTS if asked is None else whole_number("MaxResults", asked, 1, MAXIMUM_RESULTS)
    return most, _name_in(token) if token else ""


def _name_in(token: str) -> str:
    """The name in a NextToken. Raises InvalidParameterValue for one that was not handed out: read leniently it would
    be another page, or the first one again."""
    try:
        name = base64.b64decode(token, b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        name = ""
    if not name or _token(name) != token:
        raise InvalidParameterValue("NextToken", token, "It is none that was handed out")
    return name


def _token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _names(call: Call, member: str, names: Sequence[str], most: int) -> Result:
    """The page. A token only where pages were asked for, as the service does."""
    result: dict[str, object] = {member: [call.url(name) for name in names[:most]]}
    if len(names) > most and call.get("MaxResults") is not None:
        result["NextToken"] = _token(names[most - 1])
    return result
