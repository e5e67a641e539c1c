"""A ledger and its queues as the recorded scenarios use them, each verb a request by an unmodified client."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from ledger.errors import LedgerError
from ledger.rules.message_attributes import Attribute


class WiredError(LedgerError):
    """What the wire said: the code as clients know it, and the sentence."""

    def __init__(self, error: ClientError) -> None:
        said = error.response["Error"]
        super().__init__(said["Message"])
        self.code = said["Code"]
        assert said["Type"] == "Sender" and error.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403, 404)


class WiredLedger:
    """What Scenes need of a Ledger."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def create_queue(self, name: str, attributes: Any = None) -> WiredQueue:
        url = self._call("create_queue", QueueName=name, Attributes=_texts(attributes or {}))["QueueUrl"]
        return WiredQueue(self, name, url)

    def queue(self, name: str) -> WiredQueue:
        return WiredQueue(self, name, self._call("get_queue_url", QueueName=name)["QueueUrl"])

    def _call(self, name: str, **given: Any) -> Any:
        try:
            return getattr(self.client, name)(**given)
        except ClientError as error:
            raise WiredError(error) from None


class WiredQueue:
    """What they need of a Queue."""

    def __init__(self, ledger: WiredLedger, name: str, url: str) -> None:
        self.ledger, self.name, self.url = ledger, name, url

    def call(self, action: str, **given: Any) -> Any:
        return self.ledger._call(action, QueueUrl=self.url, **{k: v for k, v in given.items() if v is not None})

    @property
    def arn(self) -> str:
        return str(self.call("get_queue_attributes", AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])

    def send(self, given: Any, **common: Any) -> list[Any]:
        if not isinstance(given, list):
            said = self.call("send_message", **_entry(given, common))
            return [_sent(said)]
        entries = [{"Id": str(number), **_entry(one, common)} for number, one in enumerate(given)]
        said = self.call("send_message_batch", Entries=entries)
        assert not said.get("Failed")
        return [_sent(one) for one in said["Successful"]]

    def receive(self, most: int = 1, visibility_timeout: Any = None, wait: Any = None) -> Any:
        said = self.call(
            "receive_message", MaxNumberOfMessages=most, VisibilityTimeout=visibility_timeout,
            WaitTimeSeconds=None if wait is None else math.ceil(wait), AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )  # fmt: skip
        return Received([_message(one) for one in said.get("Messages", ())])

    def delete(self, handle: str) -> None:
        said = self.call("delete_message", ReceiptHandle=handle)
        assert set(said) == {"ResponseMetadata"}

    def change_visibility(self, handles: Any, timeouts: Any) -> None:
        if isinstance(handles, str):
            assert set(self.call("change_message_visibility", ReceiptHandle=handles, VisibilityTimeout=timeouts)) == {
                "ResponseMetadata"
            }
            return
        entries = [
            {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": timeout}
            for number, (handle, timeout) in enumerate(zip(handles, timeouts))
        ]
        assert len(self.call("change_message_visibility_batch", Entries=entries)["Successful"]) == len(entries)

    def purge(self) -> None:
        self.call("purge_queue")

    def attributes(self) -> dict[str, str]:
        return dict(self.call("get_queue_attributes", AttributeNames=["All"]).get("Attributes", {}))

    def counts(self) -> Any:
        said = self.attributes()
        names = {"visible": "", "delayed": "Delayed", "in_flight": "NotVisible"}
        return SimpleNamespace(**{ours: int(said[f"ApproximateNumberOfMessages{end}"]) for ours, end in names.items()})

    def set_attributes(self, attributes: Any) -> None:
        self.call("set_queue_attributes", Attributes=_texts(attributes))

    def tags(self) -> dict[str, str]:
        said = self.call("list_queue_tags")
        assert said.get("Tags", "none") != {}
        return dict(said.get("Tags", {}))

    def tag(self, tags: Any) -> None:
        self.call("tag_queue", Tags=tags)

    def untag(self, keys: Any) -> None:
        self.call("untag_queue", TagKeys=keys)

    def add_permission(self, label: str, accounts: Any, actions: Any) -> None:
        self.call("add_permission", Label=label, AWSAccountIds=list(accounts), Actions=actions)

    def remove_permission(self, label: str) -> None:
        self.call("remove_permission", Label=label)

    def start_message_move_task(self, destination: Any = None, max_messages_per_second: Any = None) -> str:
        given = {"DestinationArn": destination and self.arn.replace(self.name, destination)}
        given["MaxNumberOfMessagesPerSecond"] = max_messages_per_second
        present = {name: value for name, value in given.items() if value is not None}
        return str(self.ledger._call("start_message_move_task", SourceArn=self.arn, **present)["TaskHandle"])

    def list_message_move_tasks(self) -> list[Any]:
        found = self.ledger._call("list_message_move_tasks", SourceArn=self.arn)["Results"]
        return [
            SimpleNamespace(
                moved=one["ApproximateNumberOfMessagesMoved"],
                to_move=one["ApproximateNumberOfMessagesToMove"],
                started_at=one["StartedTimestamp"],
                status=one["Status"],
                destination=one.get("DestinationArn", "").rpartition(":")[2] or None,
            )
            for one in found
        ]

    def cancel_message_move_task(self, handle: str) -> None:
        self.ledger._call("cancel_message_move_task", TaskHandle=handle)


class Received(list):  # type: ignore[type-arg]
    """A claim, as the scenarios look at it."""

    @property
    def count(self) -> int:
        return len(self)


def _texts(attributes: Any) -> dict[str, str]:
    return {name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in attributes.items()}


def _entry(given: Any, common: Any) -> dict[str, Any]:
    entry = {"MessageBody": given} if isinstance(given, str) else dict(given)
    names = {
        "delay_seconds": "DelaySeconds",
        "message_attributes": "MessageAttributes",
        "message_group_id": "MessageGroupId",
        "message_deduplication_id": "MessageDeduplicationId",
    }
    entry.update({names[name]: value for name, value in common.items()})
    if "AWSTraceHeader" in entry:
        header = {"DataType": "String", "StringValue": entry.pop("AWSTraceHeader")}
        entry["MessageSystemAttributes"] = {"AWSTraceHeader": header}
    if "MessageAttributes" in entry:
        known = entry["MessageAttributes"]
        entry["MessageAttributes"] = {
            name: {"DataType": "String", "StringValue": one} if isinstance(one, str) else one
            for name, one in known.items()
        }
    return entry


class Sent(str):
    """An outcome of a send: its id, and what the wire said."""

    successful = True


def _sent(said: Any) -> Sent:
    one = Sent(said["MessageId"])
    one.message_id = said["MessageId"]
    one.md5_of_body = said["MD5OfMessageBody"]
    one.md5_of_message_attributes = said.get("MD5OfMessageAttributes")
    return one


def _message(said: Any) -> Any:
    attributes = {
        name: Attribute(one["DataType"], one.get("StringValue"), one.get("BinaryValue"))
        for name, one in said.get("MessageAttributes", {}).items()
    }
    assert set(said) - {"MD5OfMessageAttributes", "MessageAttributes"} == {
        "Attributes", "Body", "MD5OfBody", "MessageId", "ReceiptHandle"
    }  # fmt: skip
    return SimpleNamespace(
        body=said["Body"], md5_of_body=said["MD5OfBody"], message_id=said["MessageId"],
        receipt_handle=said["ReceiptHandle"], message_attributes=attributes,
        md5_of_message_attributes=said.get("MD5OfMessageAttributes"), attributes=lambda: dict(said["Attributes"]),
    )  # fmt: skip
