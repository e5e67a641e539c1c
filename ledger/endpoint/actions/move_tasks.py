"""Message move tasks (D2 of the rules of docs/reference/rules.md): start, list, cancel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.endpoint.actions.call import Call
from ledger.queue import Queue
from ledger.rules.limits import MAXIMUM_TASKS_LISTED, whole_number
from ledger.rules.move_task import MoveTask, source_of

Result = Mapping[str, object]


def start(call: Call) -> Result:
    """Start a task, if the caller may also send to a destination that the request names."""
    source = call.of_arn("SourceArn")
    destination = call.of_arn("DestinationArn", "SendMessage").name if call.get("DestinationArn") else None
    handle = source.start_message_move_task(destination, call.get("MaxNumberOfMessagesPerSecond"))
    return {"TaskHandle": handle}


def listed(call: Call) -> Result:
    max_results = call.get("MaxResults")
    most = 1 if max_results is None else whole_number("MaxResults", max_results, 1, MAXIMUM_TASKS_LISTED)
    source = call.of_arn("SourceArn")
    results = [_as_sqs(call, source, task) for task in source.list_message_move_tasks(most)]
    return {"Results": results} if results else {}


def cancel(call: Call) -> Result:
    """Cancel a task.

    Source: LocalStack's test_cancel_with_invalid_source_arn_in_task_handle and ..._task_id_in_task_handle, recorded.
    """
    handle = call.parameters["TaskHandle"]
    queue = call.queue_of(source_of(handle), "SourceArn")
    return {"ApproximateNumberOfMessagesMoved": queue.cancel_message_move_task(handle)}


def _as_sqs(call: Call, source: Queue, task: MoveTask) -> dict[str, Any]:
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
