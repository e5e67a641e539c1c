"""Actions on queues, their settings, permissions and move tasks (rules Q4 and D2 of docs/reference/rules.md)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from ledger.endpoint.actions.call import Call
from ledger.endpoint.wire import Refusal
from ledger.errors import (
    InvalidAttributeName,
    InvalidParameterValue,
    MissingParameter,
    QueueDoesNotExist,
    QueueNameExists,
)
from ledger.queue import Queue
from ledger.rules.attributes import ATTRIBUTES, FIFO_ATTRIBUTES, OURS
from ledger.rules.limits import MAXIMUM_RESULTS, MAXIMUM_TASKS_LISTED, check_whole_number
from ledger.rules.redrive import MoveTask, parse_source_arn

Result = Mapping[str, object]


def create(call: Call) -> Result:
    """Make a queue. `Call.new_queues` has the defaults of its attributes (Q4)."""
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
    """Return a queue's URL. Raise QueueDoesNotExist also if QueueOwnerAWSAccountId is another account."""
    name, owner = call.parameters["QueueName"], call.get("QueueOwnerAWSAccountId")
    if owner is not None and owner != call.account.account_id:
        raise QueueDoesNotExist(name)
    return {"QueueUrl": call.url(call.named(name).name)}


def list_queues(call: Call) -> Result:
    call.require_owner()
    most, after = _read_page(call)
    queues: list[Queue] = call.ledger.list_queues(call.get("QueueNamePrefix") or "", after, most + 1)
    names = [queue.name for queue in queues]
    return _answer_page(call, "QueueUrls", names, most) if names else {}


def dead_letter_sources(call: Call) -> Result:
    most, after = _read_page(call)
    return _answer_page(call, "queueUrls", call.queue().dead_letter_source_queues(after, most + 1), most)


def _read_page(call: Call) -> tuple[int, str]:
    """Return the size of the page, and the name after which the page begins."""
    max_results, token = call.get("MaxResults"), call.get("NextToken")
    if token and max_results is None:
        sentence = "MaxResults is a mandatory parameter when you provide a value for NextToken."
        raise Refusal("UnsupportedOperation", sentence)
    most = MAXIMUM_RESULTS if max_results is None else check_whole_number("MaxResults", max_results, 1, MAXIMUM_RESULTS)
    return most, _decode_token(token) if token else ""


def _decode_token(token: str) -> str:
    try:
        name = base64.b64decode(token, b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        name = ""
    if not name or _encode_token(name) != token:
        raise InvalidParameterValue("NextToken", token, "This service did not issue the token")
    return name


def _encode_token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _answer_page(call: Call, member: str, names: Sequence[str], most: int) -> Result:
    """Return a page of queue URLs. As in SQS, only a request with MaxResults gets a token."""
    result: dict[str, object] = {member: [call.url(name) for name in names[:most]]}
    if len(names) > most and call.get("MaxResults") is not None:
        result["NextToken"] = _encode_token(names[most - 1])
    return result


_COUNTED_ATTRIBUTES = {
    "ApproximateNumberOfMessages": "visible",
    "ApproximateNumberOfMessagesDelayed": "delayed",
    "ApproximateNumberOfMessagesNotVisible": "in_flight",
}
_KNOWN_ATTRIBUTES = {
    *ATTRIBUTES,
    *FIFO_ATTRIBUTES,
    *_COUNTED_ATTRIBUTES,
    "All",
    "QueueArn",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
}


def get_attributes(call: Call) -> Result:
    """Return the named attributes. `All` means SQS's attributes, so a request must name the ledger's own."""
    queue, names = call.queue(), call.get("AttributeNames") or []
    for name in names:
        if name not in _KNOWN_ATTRIBUTES:
            raise InvalidAttributeName(f"Unknown Attribute {name}.")
    wanted_names = set(names)
    all_attributes = queue.attributes()
    if wanted_names.intersection(("All", *_COUNTED_ATTRIBUTES)):
        all_attributes.update(_count_messages(queue))
    every = "All" in wanted_names
    answer = {
        name: text for name, text in all_attributes.items() if name in wanted_names or (every and name not in OURS)
    }
    return {"Attributes": answer} if answer else {}


def _count_messages(queue: Queue) -> dict[str, str]:
    counts = queue.counts()
    return {name: str(getattr(counts, field)) for name, field in _COUNTED_ATTRIBUTES.items()}


def set_attributes(call: Call) -> Result:
    call.queue().set_attributes(call.parameters["Attributes"])
    return {}


def list_tags(call: Call) -> Result:
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


def start_move_task(call: Call) -> Result:
    """Start a task, if the caller may also send to a destination that the request names."""
    source = call.find_queue_of_parameter("SourceArn")
    destination = (
        call.find_queue_of_parameter("DestinationArn", "SendMessage").name if call.get("DestinationArn") else None
    )
    handle = source.start_message_move_task(destination, call.get("MaxNumberOfMessagesPerSecond"))
    return {"TaskHandle": handle}


def list_move_tasks(call: Call) -> Result:
    max_results = call.get("MaxResults")
    most = 1 if max_results is None else check_whole_number("MaxResults", max_results, 1, MAXIMUM_TASKS_LISTED)
    source = call.find_queue_of_parameter("SourceArn")
    results = [_describe_task(call, source, task) for task in source.list_message_move_tasks(most)]
    return {"Results": results} if results else {}


def cancel_move_task(call: Call) -> Result:
    """Cancel a task.

    Source of its errors, recorded: LocalStack's test_cancel_with_invalid_source_arn_in_task_handle and
    ..._task_id_in_task_handle.
    """
    handle = call.parameters["TaskHandle"]
    queue = call.queue_of(parse_source_arn(handle), "SourceArn")
    return {"ApproximateNumberOfMessagesMoved": queue.cancel_message_move_task(handle)}


def _describe_task(call: Call, source: Queue, task: MoveTask) -> dict[str, Any]:
    """Return a task as SQS's answers have it. Recorded: only a running task has its handle."""
    fields = {
        "TaskHandle": task.task if task.is_running else None,
        "Status": str(getattr(task.status, "value", task.status)),
        "SourceArn": source.arn,
        "DestinationArn": task.destination and call.account.arn(task.destination),
        "MaxNumberOfMessagesPerSecond": task.rate,
        "ApproximateNumberOfMessagesMoved": task.moved,
        "ApproximateNumberOfMessagesToMove": task.to_move,
        "FailureReason": task.failure,
        "StartedTimestamp": task.started_at,
    }
    return {name: value for name, value in fields.items() if value is not None}
