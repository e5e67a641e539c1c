"""The 23 actions of SQS, each a function of a Call."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledger.endpoint.actions import batches, messages, move_tasks, queues, settings
from ledger.endpoint.actions.call import Call
from ledger.endpoint.actions.messages import Waiting

Result = Mapping[str, object]
ACTIONS: dict[str, Callable[[Call], Result | Waiting]] = {
    "AddPermission": settings.add_permission,
    "CancelMessageMoveTask": move_tasks.cancel,
    "ChangeMessageVisibility": messages.change_visibility,
    "ChangeMessageVisibilityBatch": batches.change_visibility,
    "CreateQueue": queues.create,
    "DeleteMessage": messages.delete,
    "DeleteMessageBatch": batches.delete,
    "DeleteQueue": queues.delete,
    "GetQueueAttributes": settings.attributes,
    "GetQueueUrl": queues.url,
    "ListDeadLetterSourceQueues": queues.dead_letter_sources,
    "ListMessageMoveTasks": move_tasks.listed,
    "ListQueueTags": settings.tags,
    "ListQueues": queues.listed,
    "PurgeQueue": messages.purge,
    "ReceiveMessage": messages.receive,
    "RemovePermission": settings.remove_permission,
    "SendMessage": messages.send,
    "SendMessageBatch": batches.send,
    "SetQueueAttributes": settings.set_attributes,
    "StartMessageMoveTask": move_tasks.start,
    "TagQueue": settings.tag,
    "UntagQueue": settings.untag,
}
