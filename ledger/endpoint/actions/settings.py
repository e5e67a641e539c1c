"""Actions on a queue's attributes, tags and permissions."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.endpoint.actions.call import Call
from ledger.errors import InvalidAttributeName, InvalidParameterValue, MissingParameter
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
    """Return the named attributes. `All` means SQS's: a request must name the ledger's own."""
    queue, names = call.queue(), call.get("AttributeNames") or []
    for name in names:
        if name not in _KNOWN:
            raise InvalidAttributeName(f"Unknown Attribute {name}.")
    wanted_names = set(names)
    all_attributes = queue.attributes()
    if wanted_names.intersection(("All", *_COUNTED)):
        all_attributes.update(_counts(queue))
    every = "All" in wanted_names
    answer = {
        name: text for name, text in all_attributes.items() if name in wanted_names or (every and name not in OURS)
    }
    return {"Attributes": answer} if answer else {}


def _counts(queue: Queue) -> dict[str, str]:
    counts = queue.counts()
    return {name: str(getattr(counts, field)) for name, field in _COUNTED.items()}


def set_attributes(call: Call) -> Result:
    call.queue().set_attributes(call.parameters["Attributes"])
    return {}


def tags(call: Call) -> Result:
    tags_by_name = call.queue().tags()
    return {"Tags": tags_by_name} if tags_by_name else {}


def tag(call: Call) -> Result:
    """Add tags. An empty map of tags counts as a missing parameter, as in the Query protocol."""
    if not call.parameters["Tags"]:
        raise MissingParameter("Tags")
    call.queue().tag(call.parameters["Tags"])
    return {}


def untag(call: Call) -> Result:
    if not call.parameters["TagKeys"]:
        sentence = "Tag keys must be between 1 and 128 characters in length."
        raise InvalidParameterValue("TagKeys", [], sentence, message=sentence)
    call.queue().untag(call.parameters["TagKeys"])
    return {}


def add_permission(call: Call) -> Result:
    parameters, queue = call.parameters, call.queue()
    accounts = parameters["AWSAccountIds"]
    try:
        queue.add_permission(parameters["Label"], accounts, parameters["Actions"])
    except (InvalidParameterValue, MissingParameter) as error:
        if error.field != "AWSAccountIds":
            raise
        # SQS's error for invalid accounts. Source: moto's test_add_permission_errors, and a test of a connector against
        # SQS ("Value [%s] for parameter PrincipalId is invalid. Reason: Unable to verify.").
        account_list = f"[{', '.join(accounts)}]"
        raise InvalidParameterValue("PrincipalId", account_list, "Unable to verify") from None
    return {}


def remove_permission(call: Call) -> Result:
    call.queue().remove_permission(call.parameters["Label"])
    return {}
