"""The 23 actions of SQS, each a function of a Call."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledger.endpoint.actions import messages, queues
from ledger.endpoint.actions.call import Call
from ledger.endpoint.actions.messages import Waiting

Result = Mapping[str, object]
ACTIONS: dict[str, Callable[[Call], Result | Waiting]] = {
    "AddPermission": queues.add_permission,
    "CancelMessageMoveTask": queues.cancel_move_task,
    "ChangeMessageVisibility": messages.change_visibility,
    "ChangeMessageVisibilityBatch": messages.change_visibility_batch,
    "CreateQueue": queues.create,
    "DeleteMessage": messages.delete,
    "DeleteMessageBatch": messages.delete_batch,
    "DeleteQueue": queues.delete,
    "GetQueueAttributes": queues.get_attributes,
    "GetQueueUrl": queues.url,
    "ListDeadLetterSourceQueues": queues.dead_letter_sources,
    "ListMessageMoveTasks": queues.list_move_tasks,
    "ListQueueTags": queues.list_tags,
    "ListQueues": queues.list_queues,
    "PurgeQueue": messages.purge,
    "ReceiveMessage": messages.receive,
    "RemovePermission": queues.remove_permission,
    "SendMessage": messages.send,
    "SendMessageBatch": messages.send_batch,
    "SetQueueAttributes": queues.set_attributes,
    "StartMessageMoveTask": queues.start_move_task,
    "TagQueue": queues.tag,
    "UntagQueue": queues.untag,
}
