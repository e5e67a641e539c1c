"""What a queue is set to: attributes, tags, permissions."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.endpoint.actions.call import Call
from ledger.errors import InvalidAttributeName
from ledger.queue import Queue
from ledger.rules.attribute_kinds import ATTRIBUTES, FIFO_ATTRIBUTES, OURS

Result = Mapping[str, object]
_COUNTED = {
    "ApproximateNumberOfMessages": "visible",
    "ApproximateNumberOfMessagesDelayed": "delayed",
    "ApproximateNumberOfMessagesNotVisible": "in_flight",
}
_KNOWN = {*ATTRIBUTES, *FIFO_ATTRIBUTES, *_COUNTED, "All", "QueueArn", "CreatedTimestamp", "LastModifiedTimestamp"}


def attributes(call: Call) -> Result:
    """GetQueueAttributes: those that are asked for, of which `All` are SQS's; ours by their names only."""
    queue, names = call.queue(), call.get("AttributeNames") or []
    for name in names:
        if name not in _KNOWN:
            raise InvalidAttributeName(f"Unknown Attribute {name}.")
    wanted = set(names)
    found = queue.attributes()
    if wanted.intersection(("All", *_COUNTED)):
        found.update(_counts(queue))
    every = "All" in wanted
    told = {name: text for name, text in found.items() if name in wanted or (every and name not in OURS)}
    return {"Attributes": told} if told else {}


def _counts(queue: Queue) -> dict[str, str]:
    counts = queue.counts()
    return {name: str(getattr(counts, field)) for name, field in _COUNTED.items()}


def set_attributes(call: Call) -> Result:
    """SetQueueAttributes."""
    call.queue().set_attributes(call.parameters["Attributes"])
    return {}


def tags(call: Call) -> Result:
    """ListQueueTags."""
    known = call.queue().tags()
    return {"Tags": known} if known else {}


def tag(call: Call) -> Result:
    """TagQueue."""
    call.queue().tag(call.parameters["Tags"])
    return {}


def untag(call: Call) -> Result:
    """UntagQueue."""
    call.queue().untag(call.parameters["TagKeys"])
    return {}


def add_permission(call: Call) -> Result:
    """AddPermission."""
    given = call.parameters
    call.queue().add_permission(given["Label"], given["AWSAccountIds"], given["Actions"])
    return {}


def remove_permission(call: Call) -> Result:
    """RemovePermission."""
    call.queue().remove_permission(call.parameters["Label"])
    return {}
