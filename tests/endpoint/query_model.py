"""The service's model as it was while clients spoke Query: what botocore 1.31.80 said of it beside the model of now.

Data of botocore (Copyright Amazon.com, Inc., Apache License 2.0): only names, not the endpoint's own table of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from botocore.loaders import Loader

_NAME, _KEY, _VALUE = {"locationName": "Name"}, {"locationName": "Key"}, {"locationName": "Value"}
#: What members of structures are called.
MEMBERS = {
    ("CreateQueueRequest", "Attributes"): "Attribute",
    ("CreateQueueRequest", "tags"): "Tag",
    ("GetQueueAttributesResult", "Attributes"): "Attribute",
    ("ListQueueTagsResult", "Tags"): "Tag",
    ("Message", "Attributes"): "Attribute",
    ("Message", "MessageAttributes"): "MessageAttribute",
    ("MessageAttributeValue", "BinaryListValues"): "BinaryListValue",
    ("MessageAttributeValue", "StringListValues"): "StringListValue",
    ("MessageSystemAttributeValue", "BinaryListValues"): "BinaryListValue",
    ("MessageSystemAttributeValue", "StringListValues"): "StringListValue",
    ("SendMessageBatchRequestEntry", "MessageAttributes"): "MessageAttribute",
    ("SendMessageBatchRequestEntry", "MessageSystemAttributes"): "MessageSystemAttribute",
    ("SendMessageRequest", "MessageAttributes"): "MessageAttribute",
    ("SendMessageRequest", "MessageSystemAttributes"): "MessageSystemAttribute",
    ("SetQueueAttributesRequest", "Attributes"): "Attribute",
}
#: What members of lists are called.
LISTS = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "BinaryList": "BinaryListValue",
    "StringList": "StringListValue",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "ChangeMessageVisibilityBatchRequestEntryList": "ChangeMessageVisibilityBatchRequestEntry",
    "ChangeMessageVisibilityBatchResultEntryList": "ChangeMessageVisibilityBatchResultEntry",
    "DeleteMessageBatchRequestEntryList": "DeleteMessageBatchRequestEntry",
    "DeleteMessageBatchResultEntryList": "DeleteMessageBatchResultEntry",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
    "MessageAttributeNameList": "MessageAttributeName",
    "MessageList": "Message",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "QueueUrlList": "QueueUrl",
    "SendMessageBatchRequestEntryList": "SendMessageBatchRequestEntry",
    "SendMessageBatchResultEntryList": "SendMessageBatchResultEntry",
    "TagKeyList": "TagKey",
}
#: The codes and statuses of errors.
ERRORS = {
    "BatchEntryIdsNotDistinct": ("AWS.SimpleQueueService.BatchEntryIdsNotDistinct", 400),
    "BatchRequestTooLong": ("AWS.SimpleQueueService.BatchRequestTooLong", 400),
    "EmptyBatchRequest": ("AWS.SimpleQueueService.EmptyBatchRequest", 400),
    "InvalidBatchEntryId": ("AWS.SimpleQueueService.InvalidBatchEntryId", 400),
    "MessageNotInflight": ("AWS.SimpleQueueService.MessageNotInflight", 400),
    "OverLimit": ("OverLimit", 403),
    "PurgeQueueInProgress": ("AWS.SimpleQueueService.PurgeQueueInProgress", 403),
    "QueueDeletedRecently": ("AWS.SimpleQueueService.QueueDeletedRecently", 400),
    "QueueDoesNotExist": ("AWS.SimpleQueueService.NonExistentQueue", 400),
    "QueueNameExists": ("QueueAlreadyExists", 400),
    "ResourceNotFoundException": ("ResourceNotFoundException", 404),
    "TooManyEntriesInBatchRequest": ("AWS.SimpleQueueService.TooManyEntriesInBatchRequest", 400),
    "UnsupportedOperation": ("AWS.SimpleQueueService.UnsupportedOperation", 400),
}


def query_model() -> dict[str, Any]:
    """botocore's model with what it said for Query."""
    model: dict[str, Any] = json.loads(json.dumps(Loader().load_service_model("sqs", "service-2")))
    about = model["metadata"]
    for name in ("awsQueryCompatible", "jsonVersion", "targetPrefix"):
        about.pop(name)
    about.update(protocol="query", protocols=["query"], xmlNamespace="http://queue.amazonaws.com/doc/2012-11-05/")
    for name, operation in model["operations"].items():
        if "output" in operation:
            operation["output"]["resultWrapper"] = f"{name}Result"
    shapes = model["shapes"]
    for (shape, member), called in MEMBERS.items():
        shapes[shape]["members"][member]["locationName"] = called
    for shape, called in LISTS.items():
        shapes[shape]["member"]["locationName"] = called
    for name, shape in shapes.items():
        if shape["type"] == "map":
            shape["key"].update(_KEY if name == "TagMap" else _NAME)
            shape["value"].update(_VALUE)
    for shape, (code, status) in ERRORS.items():
        shapes[shape]["error"] = {"code": code, "httpStatusCode": status, "senderFault": True}
    return model


def written_to(folder: Path) -> Path:
    """A folder for botocore's data_path, with that model."""
    place = folder / "sqs" / "2012-11-05"
    place.mkdir(parents=True)
    (place / "service-2.json").write_text(json.dumps(query_model()))
    return folder
