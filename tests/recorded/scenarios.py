"""The recorded scenarios, replayed through the Python API; what the recordings leave open is told beside them.

A scenario answers what the recording has, by the names that it has there.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ledger import Ledger, Queue
from ledger.errors import LedgerError
from ledger.rules.attributes import OURS
from tests.clock import FrozenClock

SCENARIOS: dict[str, Callable[[Scenes], dict[str, object]]] = {}
WIRE = "is about requests, which the Python API has none of: an endpoint's"
#: What is not replayed here, and why.
LEFT_OUT = {
    "successive_purge_calls_fail": "later: a second purge within 60 s is not refused yet",
    "change_message_visibility_batch_with_too_large_batch": f"ten entries a request {WIRE}",
    "delete_message_batch_invalid_msg_id[]": f"an entry's id {WIRE}",
    "delete_message_batch_invalid_msg_id[invalid:id]": f"an entry's id {WIRE}",
    f"delete_message_batch_invalid_msg_id[{'testLongId' * 10}]": f"an entry's id {WIRE}",
    "delete_message_batch_with_too_large_batch": f"ten entries a request {WIRE}",
    "message_system_attribute_names_with_attribute_names": f"which attributes are asked for {WIRE}",
    "invalid_batch_id": f"an entry's id {WIRE}",
    "send_message_batch_with_oversized_contents": f"the size of a whole batch {WIRE}",
    "send_message_via_queue_url_with_json_protocol": f"the URL {WIRE}",
    "too_many_entries_in_batch_request": f"ten entries a request {WIRE}",
}
ATTRIBUTES_OF_FIFO = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
_numbers = itertools.count()


class Scenes:
    """What scenarios are made of: queues of their own names, a clock, and answers in SQS's form."""

    def __init__(self, ledger: Ledger, clock: FrozenClock) -> None:
        self.ledger, self.clock = ledger, clock

    def queue(self, **attributes: object) -> Queue:
        """A queue as the service makes it: with its limits, and of one lane."""
        suffix = ".fifo" if attributes.get("FifoQueue") == "true" else ""
        given = {"Limits": "SQS", "Lanes": 1, **attributes}
        return self.ledger.create_queue(f"recorded-{next(_numbers)}{suffix}", given)

    def dead_letter(self) -> tuple[Queue, Queue]:
        """A queue, and its dead-letter queue."""
        dead = self.queue()
        policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}
        return self.queue(RedrivePolicy=policy), dead

    def die(self, *queues: Queue) -> None:
        """Two messages of each queue go to its dead-letter queue: received once, and once more in vain."""
        for queue in queues:
            queue.send(["message-1", "message-2"])
            assert queue.receive(10, visibility_timeout=0).count == 2 and not queue.receive(10)


def scenario(*names: str) -> Callable[[Callable[..., dict[str, object]]], Callable[..., dict[str, object]]]:
    """Registers a replay under the names of its recordings; what stands in the brackets is given to it."""

    def register(play: Callable[..., dict[str, object]]) -> Callable[..., dict[str, object]]:
        for name in names:
            case = name.partition("[")[2].rstrip("]")
            SCENARIOS[name] = (lambda s, case=case: play(s, case)) if case or "[" in name else play
        return play

    return register


def cases(name: str, *values: str) -> list[str]:
    """Names of one scenario with several cases."""
    return [f"{name}[{value}]" for value in values]


def refused(call: Callable[[], object]) -> dict[str, object]:
    """The error of a call, as the service answers it."""
    try:
        call()
    except LedgerError as error:
        assert str(error).startswith(error.message.rstrip()), "our advice stands behind the service's sentence"
        return {"Error": {"Code": error.code, "Message": error.message}}
    raise AssertionError("it was not refused")


def received(queue: Queue, *more: str, most: int = 1, **given: Any) -> dict[str, object]:
    """A receive's answer; of a message's other members those of `more`."""
    messages = [shaped(message, *more) for message in queue.receive(most, **given)]
    return {"Messages": messages} if messages else {}


def shaped(message: Any, *more: str) -> dict[str, object]:
    """A message as the service answers it."""
    body = {
        "Body": json.loads(message.body) if message.body.startswith("{") else message.body,
        "MD5OfBody": message.md5_of_body,
        "MessageId": message.message_id,
        "ReceiptHandle": message.receipt_handle,
    }
    if "Attributes" in more:
        body["Attributes"] = message.attributes()
    if "MessageAttributes" in more and message.message_attributes:
        body["MD5OfMessageAttributes"] = message.md5_of_message_attributes
        body["MessageAttributes"] = {name: one.as_sqs() for name, one in message.message_attributes.items()}
        for one in body["MessageAttributes"].values():
            one.update({name: repr(value) for name, value in one.items() if isinstance(value, bytes)})
    return body


def attributes(queue: Queue) -> dict[str, object]:
    """GetQueueAttributes for all: without those that are the ledger's own, with the counts."""

    counts = queue.counts()
    known = {name: value for name, value in queue.attributes().items() if name not in OURS}
    found = {
        **known,
        "ApproximateNumberOfMessages": str(counts.visible),
        "ApproximateNumberOfMessagesDelayed": str(counts.delayed),
        "ApproximateNumberOfMessagesNotVisible": str(counts.in_flight),
    }
    return {"Attributes": found}


def policy(queue: Queue) -> dict[str, object]:
    """GetQueueAttributes for the Policy."""
    text = queue.attributes().get("Policy")
    return {"Attributes": {"Policy": json.loads(text)}} if text else {}


@scenario("create_fifo_queue_with_different_attributes_raises_error")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue(FifoQueue="true", ContentBasedDeduplication="true")
    given = {"FifoQueue": "true", "ContentBasedDeduplication": "false"}
    return {"queue-already-exists": refused(lambda: s.ledger.create_queue(queue.name, given))}


@scenario("create_standard_queue_with_fifo_attribute_raises_error")
def _(s: Scenes) -> dict[str, object]:
    def asked(name: str, value: str) -> dict[str, object]:
        return refused(lambda: s.ledger.create_queue(f"recorded-{next(_numbers)}", {name: value}))

    return {
        "invalid-attribute-content-based-deduplication": asked("ContentBasedDeduplication", "false"),
        "invalid-attribute-deduplication-scope": asked("DeduplicationScope", "queue"),
        "invalid-attribute-fifo-queue": asked("FifoQueue", "false"),
        "invalid-attribute-throughput-limit": asked("FifoThroughputLimit", "perQueue"),
    }


@scenario("set_unsupported_attribute_fifo")
def _(s: Scenes) -> dict[str, object]:
    standard, fifo = s.queue(), s.queue(FifoQueue="true")
    return {
        "invalid-attr-name-1": refused(lambda: standard.set_attributes({"FifoQueue": "true"})),
        "invalid-attr-name-2": refused(lambda: fifo.set_attributes({"FifoQueue": "false"})),
    }


@scenario("set_queue_attributes_default_values")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    first = attributes(queue)
    queue.set_attributes({"KmsMasterKeyId": "testKeyId", "KmsDataKeyReusePeriodSeconds": "6000"})
    second = attributes(queue)
    queue.set_attributes({"KmsMasterKeyId": "", "KmsDataKeyReusePeriodSeconds": "300"})
    return {
        "get-queue-attributes-initial-values": first,
        "get-queue-attributes-after-update": second,
        "get-queue-attributes-after-set-to-defaults": attributes(queue),
    }


@scenario("fifo_set_content_based_deduplication_strategy")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue(**ATTRIBUTES_OF_FIFO)
    before = attributes(queue)
    queue.set_attributes({"ContentBasedDeduplication": "false"})
    return {"before-update": before, "after-update": attributes(queue)}


@scenario("sqs_fifo_message_group_scope_no_throughput_setting")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue(FifoQueue="true", DeduplicationScope="messageGroup")
    for group in ("1", "2"):
        queue.send("Test", message_group_id=group, message_deduplication_id="1")
    return {f"same-dedup-different-grp-{n}": received(queue) for n in (1, 2)}


@scenario("fifo_change_to_regular_throughput_after_creation")
def _(s: Scenes) -> dict[str, object]:
    """With the scope of a group the same id is sent in two of them; with the queue's in one."""
    given = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    queue, found = s.queue(FifoQueue="true", **given), {}
    for n in (1, 2):
        queue.send(f"Test{n}", message_group_id=str(n), message_deduplication_id="1")
    for n in (1, 2):
        found[f"same-dedup-different-grp-{n}"] = received(queue)
        queue.delete(found[f"same-dedup-different-grp-{n}"]["Messages"][0]["ReceiptHandle"])
    queue.set_attributes({"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"})
    found["set-to-regular-throughput"] = attributes(queue)
    for n in (3, 4):
        queue.send(f"Test{n}", message_group_id=str(n), message_deduplication_id="2")
    found["same-dedup-different-grp-regular-throughput"] = received(queue, most=10)
    return found


@scenario("non_existent_queue")
def _(s: Scenes) -> dict[str, object]:
    """The Query protocol's sentence ends otherwise: an endpoint's."""
    error = refused(lambda: s.ledger.queue(f"recorded-{next(_numbers)}"))
    query = {"Code": error["Error"]["Code"], "Message": "The specified queue does not exist for this wsdl version."}
    return {
        "queue-does-not-exist": error,
        "queue-does-not-exist-url": error,
        "queue-does-not-exist-query": {"Error": query},
    }


@scenario("tag_untag_queue")
def _(s: Scenes) -> dict[str, object]:
    def tags() -> dict[str, object]:
        return {"Tags": queue.tags()} if queue.tags() else {}

    queue = s.queue()
    queue.tag({"tag1": "value1", "tag2": "value2", "tag3": ""})
    first = tags()
    queue.untag(["tag1", "tag3"])
    second = tags()
    queue.untag(["tag2"])
    return {"get-tag-1": first, "get-tag-2": second, "get-tag-after-untag": tags()}


@scenario("sqs_permission_lifecycle")
def _(s: Scenes) -> dict[str, object]:
    found, queue, one, two = {}, s.queue(), "crossaccountpermission", "crossaccountpermission2"

    def add(label: str, *accounts: str) -> dict[str, object]:
        queue.add_permission(label, accounts, ["ReceiveMessage"])
        return policy(queue)

    def remove(label: str) -> dict[str, object]:
        queue.remove_permission(label)
        return policy(queue)

    first = "get-queue-policy-attribute"
    found[first] = add(one, "668614515564", "111111111111")
    found[f"{first}-after-removal"] = remove(one)
    found[f"{first}-first-account-same-label"] = add(one, "111111111111")
    found[f"{first}-second-account-same-label"] = refused(lambda: add(one, "668614515564"))
    found[f"{first}-second-account-different-label"] = add(two, "111111111111")
    found[f"{first}-delete-first-permission"] = remove(one)
    found[f"{first}-delete-second-permission"] = remove(two)
    found[f"{first}-delete-non-existent-label"] = refused(lambda: remove(two))
    return {**found, "add-permission-response": {}, "remove-permission-response": {}}


@scenario("send_empty_message")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    return {"send_empty_message": refused(lambda: queue.send(""))}


@scenario("send_oversized_message")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    return {"send_oversized_message": refused(lambda: queue.send("a" * 1_048_577))}


@scenario("send_batch_missing_deduplication_id_for_fifo_queue")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue(FifoQueue="true")
    entries = [{"MessageBody": f"message-{n}", "MessageGroupId": "group"} for n in range(2)]
    return {"test_missing_deduplication_id_for_fifo_queue": refused(lambda: queue.send(entries))}


@scenario("send_message_batch_with_oversized_contents_with_updated_maximum_message_size")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    queue.set_attributes({"MaximumMessageSize": 2_048})
    first = {"MessageBody": "a" * 2_040, "MessageAttributes": {"k": "x"}}
    successful = []
    for number, one in enumerate(queue.send([first, "a"]), 1):
        assert one.successful
        sent = {"Id": str(number), "MessageId": one.message_id, "MD5OfMessageBody": one.md5_of_body}
        digest = one.md5_of_message_attributes
        successful.append({**sent, **({"MD5OfMessageAttributes": digest} if digest else {})})
    return {"send_oversized_message_batch": {"Successful": successful}}


@scenario("send_message_with_empty_string_attribute")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    wrong = {"ErrorDetails": {"DataType": "String", "StringValue": ""}}
    return {"empty-string-attr": refused(lambda: queue.send("test", message_attributes=wrong))}


@scenario("send_message_with_binary_attributes")
def _(s: Scenes) -> dict[str, object]:
    queue, trace = s.queue(), b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01"
    queue.send("test", message_attributes={"attr1": {"DataType": "Binary", "BinaryValue": trace}})
    return {"binary-attrs-msg": received(queue, "MessageAttributes")}


@scenario(
    *cases("send_message_to_standard_queue_with_invalid_message_group_id", "empty", "spaces", "too_long"),
)
def _(s: Scenes, case: str) -> dict[str, object]:
    value = {"empty": "", "spaces": "group 123", "too_long": "a" * 129}[case]
    queue = s.queue()
    return {"error-response": refused(lambda: queue.send("message", message_group_id=value))}


@scenario(*cases("message_deduplication_id_invalid", "empty", "spaces", "too_long"))
def _(s: Scenes, case: str) -> dict[str, object]:
    value = {"empty": "", "spaces": "group 123", "too_long": "a" * 129}[case]
    queue = s.queue(FifoQueue="true")
    given = {"message_group_id": "group", "message_deduplication_id": value}
    return {"error-response": refused(lambda: queue.send("message", **given))}


@scenario("posting_to_fifo_requires_deduplicationid_group_id")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue(FifoQueue="true")
    missing = refused(lambda: queue.send("message", message_deduplication_id="1"))
    invalid = refused(lambda: queue.send("message", message_group_id="1"))
    return {
        "missing-parameter": missing,
        "missing-parameter-query": missing,
        "invalid-parameter-value": invalid,
        "invalid-parameter-value-query": invalid,
    }


@scenario("receive_empty_queue")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    return {
        "empty_short_poll_resp_no_param": received(queue),
        "empty_short_poll_resp": received(queue, wait=0),
        "empty_long_poll_resp": received(queue, wait=0.01),
    }


@scenario("send_receive_max_number_of_messages")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    return {"send_max_number_of_messages": refused(lambda: queue.receive(11))}


@scenario("send_receive_wait_time_seconds")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    queue.send("message")
    by_default = received(queue)
    queue.send("message")
    return {
        "empty_short_poll_by_default_resp": by_default,
        "empty_short_poll_explicit_resp": received(queue, wait=0),
        "recieve_message_error_too_large": refused(lambda: queue.receive(wait=21)),
        "recieve_message_error_too_small": refused(lambda: queue.receive(wait=-1)),
    }


@scenario("change_message_visibility_after_visibility_timeout_expiration")
def _(s: Scenes) -> dict[str, object]:
    """As recorded with Receipts=recorded; by default it is the error that the documentation says (V9)."""
    queue = s.queue(Receipts="recorded")
    queue.send("test")
    (message,) = queue.receive(visibility_timeout=1)
    s.clock.advance(2)
    queue.change_visibility(message.receipt_handle, 2)
    return {"visibility_timeout_expired": received(queue)}


@scenario("delete_after_visibility_timeout")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    queue.send("foobar")
    (message,) = queue.receive(visibility_timeout=1)
    s.clock.advance(2)
    queue.delete(message.receipt_handle)
    return {"delete_after_timeout_queue_empty": received(queue)}


@scenario("fifo_delete_after_visibility_timeout")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue(**ATTRIBUTES_OF_FIFO)
    queue.send("foobar", message_group_id="1")
    first = received(queue, visibility_timeout=1)
    s.clock.advance(2)
    handle = first["Messages"][0]["ReceiptHandle"]
    return {"received_sqs_message": first, "delete_after_timeout_fifo": refused(lambda: queue.delete(handle))}


@scenario("fifo_delete_after_visibility_timeout_extended")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue(**ATTRIBUTES_OF_FIFO)
    queue.send("foobar", message_group_id="1")
    first = received(queue, visibility_timeout=1)
    handle = first["Messages"][0]["ReceiptHandle"]
    queue.change_visibility(handle, 600)
    s.clock.advance(2)
    queue.delete(handle)
    s.clock.advance(600)
    return {"received_sqs_message": first, "delete_after_timeout_fifo_extended": received(queue)}


@scenario(
    *cases(
        "fifo_group_visibility_extends_with_change_message_visibility",
        "0-visible", "1-visible", "1-invisible", "2-visible", "all-invisible", "no-invisible",
    ),
)  # fmt: skip
def _(s: Scenes, case: str) -> dict[str, object]:
    """Of three messages of a group some are released and the others extended; two at most are received then."""
    queue = s.queue(**ATTRIBUTES_OF_FIFO)
    queue.send(["foo", "bar", "baz"], message_group_id="group-1")
    claim = queue.receive(10)
    first = {"Messages": [shaped(message) for message in claim]}
    handles = [message.receipt_handle for message in claim]
    hidden = {"0-visible": [0, 1, 2], "1-visible": [1, 2], "1-invisible": [1], "2-visible": [2],
              "all-invisible": [0, 1, 2], "no-invisible": []}[case]  # fmt: skip
    queue.change_visibility(handles, [30 if place in hidden else 0 for place in range(3)])
    return {"receive_all_messages": first, "some-messages-invisible": received(queue, most=2)}


@scenario("fifo_message_attributes")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue(FifoQueue="true", VisibilityTimeout=0)
    ids = queue.send("message-body-1", message_group_id="group-1", message_deduplication_id="dedup-1")
    first, second = (received(queue, "Attributes") for _ in range(2))
    message = first["Messages"][0]
    sent = {
        "MD5OfMessageBody": message["MD5OfBody"],
        "MessageId": message["MessageId"],
        "SequenceNumber": message["Attributes"]["SequenceNumber"],
    }
    assert len(ids) == 1
    return {"send_message": sent, "receive_message_0": first, "receive_message_1": second}


@scenario("receive_message_message_attribute_names_filters")
def _(s: Scenes) -> dict[str, object]:
    """Which are asked for is the request's; the digest is of those that are answered."""
    queue, given = s.queue(VisibilityTimeout=0), {"Hello": "There", "General": "Kenobi", "Help.Me": "Me"}
    (identifier,) = queue.send("msg", message_attributes=given)

    def asked(*names: str) -> dict[str, object]:
        (message,) = queue.receive()
        chosen = {name: one for name, one in message.message_attributes.items() if name in names}
        return shaped(replace(message, message_attributes=chosen), "MessageAttributes")

    every = tuple(given)
    message = queue.peek(identifier)
    sent = {
        "MD5OfMessageAttributes": message.md5_of_message_attributes,
        "MD5OfMessageBody": message.md5_of_body,
        "MessageId": identifier,
    }
    return {
        "send_message_response": sent,
        "empty_filter": {"Messages": [asked()]},
        "all_name": {"Messages": [asked(*every)]},
        "all_wildcard_asterisk": asked(*every),
        "all_wildcard": asked(*every),
        "only_existing": asked("General", "Hello"),
        "existing_and_non_existing": asked("Hello"),
        "prefix_filter": asked("Hello", "Help.Me"),
        "only_non_existing_names": asked(),
        "illegal_name_1": {"Messages": [asked()]},
        "illegal_name_2": {"Messages": [asked()]},
    }


@scenario(*cases("fifo_deduplication_not_on_message_group_id", "False", "True"))
def _(s: Scenes, case: str) -> dict[str, object]:
    queue = s.queue(FifoQueue="true", ContentBasedDeduplication=case.lower())
    given = {} if case == "True" else {"message_deduplication_id": "1"}
    queue.send('{"foo": "bar"}', message_group_id="1", **given)
    first = received(queue)
    queue.delete(first["Messages"][0]["ReceiptHandle"])
    queue.send('{"foo": "bar"}', message_group_id="2", **given)
    return {"get-messages": first, "get-dedup-messages": received(queue)}


@scenario("fifo_queue_send_message_with_zero_delay_defaults_to_queue_delay")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue(**ATTRIBUTES_OF_FIFO, DelaySeconds=2)
    queue.send("message-1", message_group_id="1", delay_seconds=0)
    before = received(queue)
    s.clock.advance(3)
    (message,) = queue.receive()
    sent = {
        "MD5OfMessageBody": message.md5_of_body,
        "MessageId": message.message_id,
        "SequenceNumber": message.attributes()["SequenceNumber"],
    }
    after = {"Messages": [shaped(message)]}
    return {
        "send_message_result": sent,
        "receive_message_initial_result": before,
        "receive_message_after_delay_result": after,
    }


@scenario("dead_letter_queue_message_attributes")
def _(s: Scenes) -> dict[str, object]:
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
    queue, dead = s.dead_letter()
    first = {"MessageBody": "message-1", "AWSTraceHeader": trace, "MessageAttributes": {"MyAttribute": "foobar"}}
    queue.send([first, "message-2"])
    more = ("Attributes", "MessageAttributes")
    before = received(queue, *more, most=10, visibility_timeout=0)["Messages"]
    assert not queue.receive(10)
    after = received(dead, *more, most=10)["Messages"]
    for message in (*before, *after):
        # The recording asked for other attributes by their names.
        del message["Attributes"]["SenderId"]
    return {"sourcen-arn": queue.arn, "dlq-arn": dead.arn, "rec-pre-dlq": before, "dlq-messages": after}


def tasks(s: Scenes, queue: Queue, task: str, destination: Queue | None = None) -> dict[str, object]:
    """What a move task's start and list answer."""
    (listed,) = queue.list_message_move_tasks()
    result = {
        "ApproximateNumberOfMessagesMoved": listed.moved,
        "ApproximateNumberOfMessagesToMove": listed.to_move,
        "SourceArn": queue.arn,
        "StartedTimestamp": str(listed.started_at),
        "Status": listed.status,
    }
    if listed.destination is not None:
        result["DestinationArn"] = s.ledger.queue(listed.destination).arn
    return {
        "start-message-move-task-response": {"TaskHandle": task},
        "list-message-move-task-response": {"Results": [result]},
    }


@scenario("basic_move_task_workflow")
def _(s: Scenes) -> dict[str, object]:
    (queue, dead), destination = s.dead_letter(), s.queue()
    s.die(queue)
    found = tasks(s, dead, dead.start_message_move_task(destination.name))
    assert destination.counts().visible == 2
    return found


@scenario("move_task_workflow_with_default_destination")
def _(s: Scenes) -> dict[str, object]:
    queue, dead = s.dead_letter()
    s.die(queue)
    found = tasks(s, dead, dead.start_message_move_task())
    assert queue.counts().visible == 2
    return {**found, "source-arn": dead.arn, "original-source": queue.arn}


@scenario("move_task_workflow_with_multiple_sources_as_default_destination")
def _(s: Scenes) -> dict[str, object]:
    queue, dead = s.dead_letter()
    other = s.queue(RedrivePolicy={"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
    s.die(queue, other)
    found = tasks(s, dead, dead.start_message_move_task())
    assert queue.counts().visible == other.counts().visible == 2
    return {**found, "source-arn": dead.arn, "original-source-1": queue.arn, "original-source-2": other.arn}


@scenario("cancel_with_invalid_task_handle")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    return {"error": refused(lambda: queue.cancel_message_move_task("foobared"))}


@scenario("destination_needs_to_exist")
def _(s: Scenes) -> dict[str, object]:
    _, dead = s.dead_letter()
    return {"error": refused(lambda: dead.start_message_move_task("nowhere"))}


@scenario("source_needs_redrive_policy")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    return {"error": refused(lambda: queue.start_message_move_task())}


@scenario("start_multiple_move_tasks")
def _(s: Scenes) -> dict[str, object]:
    queue, dead = s.dead_letter()
    s.die(queue)
    task = dead.start_message_move_task(max_messages_per_second=1)
    found = refused(lambda: dead.start_message_move_task())
    dead.cancel_message_move_task(task)
    return {"error": found}
