"""Plays the scenario of tests/clients with aiobotocore, and prints what it saw as JSON."""

import asyncio
import json
import os
from contextlib import AsyncExitStack, asynccontextmanager

from aiobotocore.session import get_session
from botocore.exceptions import ClientError

PREFIX = "aiobotocore-"
URL, KEY = os.environ["LEDGER_URL"], os.environ["LEDGER_ACCESS_KEY_ID"]


@asynccontextmanager
async def new_client(secret):
    """Yield a client with a secret."""
    # sqs-clients.md
    client = get_session().create_client(
        "sqs", endpoint_url=URL, region_name="us-east-1", aws_access_key_id=KEY, aws_secret_access_key=secret
    )
    async with client as sqs:
        # end
        yield sqs


class Player:
    """Plays each part and notes what it saw."""

    def __init__(self, sqs, stranger, of_environment):
        self.sqs, self.stranger, self.of_environment = sqs, stranger, of_environment
        self.errors = {}
        self.saw = {"errors": self.errors}

    async def play(self):
        url = await self.made("standard", VisibilityTimeout="30")
        self.saw["queue_url"] = url
        await self.one_message(url)
        await self.batches(url)
        await self.refusals(url)
        await self.fifo()
        await self.dead_letters()
        await self.queues(url)
        return self.saw

    async def refused(self, label, call):
        try:
            await call
        except ClientError as error:
            self.errors[label] = {"type": type(error).__name__, "code": error.response["Error"]["Code"]}

    async def made(self, name, **attributes):
        return (await self.sqs.create_queue(QueueName=PREFIX + name, Attributes=attributes))["QueueUrl"]

    async def attribute(self, url, name):
        return (await self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name]))["Attributes"][name]

    async def receive(self, url, most=1, wait=0):
        answer = await self.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=most, WaitTimeSeconds=wait, MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )  # fmt: skip
        return answer.get("Messages", [])

    def change(self, url, message, seconds):
        handle = message["ReceiptHandle"]
        return self.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=seconds)

    async def one_message(self, url):
        trace = {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}
        sent = await self.sqs.send_message(
            QueueUrl=url, MessageBody="a body, ü and 漢", MessageSystemAttributes={"AWSTraceHeader": trace},
            MessageAttributes={
                "text": {"DataType": "String", "StringValue": "väl"},
                "count": {"DataType": "Number.int", "StringValue": "42"},
                "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\x01\xfe\xff"},
            },
        )  # fmt: skip
        self.saw["sent"] = {
            "message_id": sent["MessageId"],
            "md5_of_body": sent["MD5OfMessageBody"],
            "md5_of_attributes": sent["MD5OfMessageAttributes"],
            "md5_of_system_attributes": sent["MD5OfMessageSystemAttributes"],
        }
        (first,) = await self.receive(url)
        own = first["MessageAttributes"]
        self.saw["received"] = {
            "message_id": first["MessageId"],
            "body": first["Body"],
            "md5_of_body": first["MD5OfBody"],
            "md5_of_attributes": first["MD5OfMessageAttributes"],
            "system": first["Attributes"],
            "text": own["text"]["StringValue"],
            "count": [own["count"]["DataType"], own["count"]["StringValue"]],
            "bytes": list(own["bytes"]["BinaryValue"]),
        }
        await self.change(url, first, 2)
        (again,) = await self.receive(url, wait=20)
        self.saw["long_poll"] = {
            "message_id": again["MessageId"],
            "receive_count": again["Attributes"]["ApproximateReceiveCount"],
            "has_new_handle": again["ReceiptHandle"] != first["ReceiptHandle"],
        }
        await self.change(url, again, 0)
        await self.refused("not_in_flight", self.change(url, again, 5))
        (last,) = await self.receive(url)
        await self.sqs.delete_message(QueueUrl=url, ReceiptHandle=last["ReceiptHandle"])
        names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        self.saw["after_delete"] = [await self.attribute(url, name) for name in names]

    async def batches(self, url):
        entries = [
            {"Id": "one", "MessageBody": "1"},
            {"Id": "late", "MessageBody": "2", "DelaySeconds": 901},
            {"Id": "three", "MessageBody": "3"},
        ]
        self.saw["send_batch"] = outcome(await self.sqs.send_message_batch(QueueUrl=url, Entries=entries))
        messages = await self.receive(url, most=10)
        self.saw["batch_bodies"] = sorted(message["Body"] for message in messages)
        handles = [*(message["ReceiptHandle"] for message in messages), "none"]
        deletes = [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(handles)]
        changes = [{**entry, "VisibilityTimeout": 60} for entry in deletes]
        changed = await self.sqs.change_message_visibility_batch(QueueUrl=url, Entries=changes)
        self.saw["change_batch"] = outcome(changed)
        self.saw["delete_batch"] = outcome(await self.sqs.delete_message_batch(QueueUrl=url, Entries=deletes))

    async def refusals(self, url):
        one, sqs = {"Id": "one", "MessageBody": "1"}, self.sqs
        eleven = [{**one, "Id": str(number)} for number in range(11)]
        await self.refused("no_queue", sqs.get_queue_url(QueueName="nowhere"))
        await self.refused("queue_exists", self.made("standard", DelaySeconds="7"))
        await self.refused("no_handle", sqs.delete_message(QueueUrl=url, ReceiptHandle="none"))
        await self.refused("empty_batch", sqs.send_message_batch(QueueUrl=url, Entries=[]))
        await self.refused("same_ids", sqs.send_message_batch(QueueUrl=url, Entries=[one, one]))
        await self.refused("too_many", sqs.send_message_batch(QueueUrl=url, Entries=eleven))
        await self.refused("no_content", sqs.send_message(QueueUrl=url, MessageBody="\u0001"))
        await self.refused("no_such_attribute", sqs.set_queue_attributes(QueueUrl=url, Attributes={"Nothing": "1"}))
        await sqs.purge_queue(QueueUrl=url)
        await self.refused("purged", sqs.purge_queue(QueueUrl=url))
        await self.refused("wrong_secret", self.stranger.list_queues())

    async def fifo(self):
        url = await self.made("of-order.fifo", FifoQueue="true", ContentBasedDeduplication="true")
        sent = [
            await self.sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=body[0])
            for body in ("a1", "a2", "b1", "a1")
        ]
        await self.refused("no_group", self.sqs.send_message(QueueUrl=url, MessageBody="of none"))
        messages = await self.receive(url, most=10)
        self.saw["fifo"] = {
            "sequence_numbers": [one["SequenceNumber"] for one in sent],
            "message_ids": [one["MessageId"] for one in sent],
            "received": [
                [one["Attributes"]["MessageGroupId"], one["Body"], one["Attributes"]["SequenceNumber"]]
                for one in messages
            ],
            "while_in_flight": len(await self.receive(url, most=10)),
        }

    async def dead_letters(self):
        dead, sqs = await self.made("dead"), self.sqs
        arn = await self.attribute(dead, "QueueArn")
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "1"})
        source = await self.made("source", RedrivePolicy=policy)
        await sqs.send_message(QueueUrl=source, MessageBody="poison")
        (message,) = await self.receive(source)
        await self.change(source, message, 0)
        third = await self.receive(source)
        (message,) = await self.receive(dead, wait=20)
        await self.change(dead, message, 0)
        sources = (await sqs.list_dead_letter_source_queues(QueueUrl=dead))["queueUrls"]
        handle = (await sqs.start_message_move_task(SourceArn=arn))["TaskHandle"]
        tasks = (await sqs.list_message_move_tasks(SourceArn=arn))["Results"]
        (back,) = await self.receive(source, wait=20)
        self.saw["dead_letters"] = {
            "received_once_more": len(third),
            "body": message["Body"],
            "source_arn": message["Attributes"]["DeadLetterQueueSourceArn"],
            "expected_arn": await self.attribute(source, "QueueArn"),
            "sources": names_of(sources),
            "has_task_handle": handle != "",
            "tasks": len(tasks),
            "moved_back": back["Body"],
        }

    async def queues(self, url):
        pages = self.sqs.get_paginator("list_queues").paginate(QueueNamePrefix=PREFIX, PaginationConfig={"PageSize": 2})
        self.saw["pages"] = [names_of(page.get("QueueUrls", [])) async for page in pages]
        await self.sqs.tag_queue(QueueUrl=url, Tags={"team": "data", "cost": "ä"})
        await self.sqs.untag_queue(QueueUrl=url, TagKeys=["team"])
        self.saw["tags"] = (await self.sqs.list_queue_tags(QueueUrl=url))["Tags"]
        answer = await self.of_environment.get_queue_url(QueueName=f"{PREFIX}standard")
        self.saw["of_environment"] = answer["QueueUrl"]
        await self.sqs.delete_queue(QueueUrl=url)
        await self.refused("deleted_queue", self.sqs.send_message(QueueUrl=url, MessageBody="late"))


def outcome(answer):
    """Return the ids that succeeded, and what is told of the others."""
    failed = [
        {"id": one["Id"], "code": one["Code"], "sender_fault": one["SenderFault"]} for one in answer.get("Failed", [])
    ]
    return {"successful": [one["Id"] for one in answer.get("Successful", [])], "failed": failed}


def names_of(urls):
    """Return the names of queues by their URLs."""
    return [url.rpartition("/")[2] for url in urls]


async def main():
    async with AsyncExitStack() as stack:
        secrets = (os.environ["LEDGER_SECRET_ACCESS_KEY"], "another secret")
        given = [new_client(secret) for secret in secrets]
        given.append(get_session().create_client("sqs"))
        clients = [await stack.enter_async_context(one) for one in given]
        print(json.dumps(await Player(*clients).play()))


asyncio.run(main())
