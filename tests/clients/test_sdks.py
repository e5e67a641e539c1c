"""AWS's SDKs of other languages, unmodified, each against a `ledger serve` with signatures. They are soak tests: each
builds a program from the registry of its language, which plays one scenario and prints what it saw as JSON."""

from __future__ import annotations

import json

import pytest

from tests.clients import toolchains
from tests.clients.served_process import served_process

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2_000)]
SERVICE = "AWS.SimpleQueueService."
#: Digests as the SDKs that verify them compute them. The attributes are of three types, one of them not ASCII.
BODY, MD5_OF_BODY = "a body, ü and 漢", "8f0808bf88d9bdcbce9819f11d2d48a3"
MD5_OF_ATTRIBUTES, MD5_OF_SYSTEM_ATTRIBUTES = "8cc031b07b906dd0c568ed151d58a02a", "62a56dd927315f2b2e12832b84617ea5"
TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793"
#: What was refused: the type of the SDK's exception, where the service's model has one, and the code.
REFUSALS = {
    "deleted_queue": ("QueueDoesNotExist", SERVICE + "NonExistentQueue"),
    "empty_batch": ("EmptyBatchRequest", SERVICE + "EmptyBatchRequest"),
    "no_content": ("InvalidMessageContents", "InvalidMessageContents"),
    "no_group": (None, "MissingParameter"),
    "no_handle": ("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"),
    "no_queue": ("QueueDoesNotExist", SERVICE + "NonExistentQueue"),
    "no_such_attribute": ("InvalidAttributeName", "InvalidAttributeName"),
    "not_in_flight": ("MessageNotInflight", SERVICE + "MessageNotInflight"),
    "purged": ("PurgeQueueInProgress", SERVICE + "PurgeQueueInProgress"),
    "queue_exists": ("QueueNameExists", "QueueAlreadyExists"),
    "same_ids": ("BatchEntryIdsNotDistinct", SERVICE + "BatchEntryIdsNotDistinct"),
    "too_many": ("TooManyEntriesInBatchRequest", SERVICE + "TooManyEntriesInBatchRequest"),
    "wrong_secret": (None, "SignatureDoesNotMatch"),
}


def play(name, build, folder):
    """Run a client's program against an endpoint of its own; return what it saw, and where the endpoint was."""
    with served_process(folder) as environment:
        done = toolchains.run_program(name, build, folder, environment)
        return json.loads(done.stdout), environment["LEDGER_URL"]


def judge(saw, url, prefix, type_of):
    """Judge what a program saw of the scenario.

    Args:
        saw: What it printed.
        url: Where its endpoint was.
        prefix: What the names of its queues begin with.
        type_of: How its SDK calls the exception of a shape of the service's model, or of None.
    """
    standard = f"{url}/123456789012/{prefix}standard"
    assert saw["queue_url"] == saw["of_environment"] == standard
    sent, received = saw["sent"], saw["received"]
    assert sent == {
        "message_id": received["message_id"], "md5_of_body": MD5_OF_BODY, "md5_of_attributes": MD5_OF_ATTRIBUTES,
        "md5_of_system_attributes": MD5_OF_SYSTEM_ATTRIBUTES,
    }  # fmt: skip
    assert (received["body"], received["md5_of_body"]) == (BODY, MD5_OF_BODY)
    assert received["md5_of_attributes"] == MD5_OF_ATTRIBUTES
    assert (received["text"], received["count"]) == ("väl", ["Number.int", "42"])
    assert received["bytes"] == [0, 1, 254, 255]
    system = received["system"]
    assert (system["ApproximateReceiveCount"], system["AWSTraceHeader"]) == ("1", TRACE)
    assert int(system["ApproximateFirstReceiveTimestamp"]) >= int(system["SentTimestamp"]) > 1_600_000_000_000
    assert saw["long_poll"] == {"message_id": sent["message_id"], "receive_count": "2", "has_new_handle": True}
    assert saw["after_delete"] == ["0", "0"]
    judge_batches(saw)
    judge_order(saw["fifo"])
    dead = saw["dead_letters"]
    assert dead["source_arn"] == dead["expected_arn"] == f"arn:aws:sqs:us-east-1:123456789012:{prefix}source"
    assert dead == {
        **dead, "received_once_more": 0, "body": "poison", "sources": [f"{prefix}source"], "has_task_handle": True,
        "tasks": 1, "moved_back": "poison",
    }  # fmt: skip
    names = ["dead", "of-order.fifo", "source", "standard"]
    assert [name for page in saw["pages"] for name in page] == [prefix + name for name in names]
    assert len(saw["pages"][0]) == 2
    assert saw["tags"] == {"cost": "ä"}
    expected = {label: {"type": type_of(shape), "code": code} for label, (shape, code) in REFUSALS.items()}
    assert saw["errors"] == expected


def judge_batches(saw):
    """Judge batches of which one entry fails."""
    assert saw["batch_bodies"] == ["1", "3"]
    assert saw["send_batch"] == {
        "successful": ["one", "three"],
        "failed": [{"id": "late", "code": "InvalidParameterValue", "sender_fault": True}],
    }
    of_handles = {
        "successful": ["0", "1"],
        "failed": [{"id": "2", "code": "ReceiptHandleIsInvalid", "sender_fault": True}],
    }
    assert saw["change_batch"] == saw["delete_batch"] == of_handles


def judge_order(saw):
    """Judge a FIFO queue: the order of its groups, and the fourth message, which repeats the first."""
    numbers, ids = saw["sequence_numbers"], saw["message_ids"]
    assert numbers[3] == numbers[0] and ids[3] == ids[0] and len(set(ids)) == 3
    assert numbers[:3] == sorted(set(numbers)) and all(len(number) == 20 for number in numbers)
    of_group = {group: [one[1:] for one in saw["received"] if one[0] == group] for group in ("a", "b")}
    assert of_group == {"a": [["a1", numbers[0]], ["a2", numbers[1]]], "b": [["b1", numbers[2]]]}
    assert saw["while_in_flight"] == 0


def test_the_sdk_for_javascript(tmp_path):
    saw, url = play("javascript", toolchains.build_javascript, tmp_path)
    judge(saw, url, "javascript-", lambda shape: shape or "SQSServiceException")


def test_the_sdk_for_go(tmp_path):
    saw, url = play("go", toolchains.build_go, tmp_path)
    judge(saw, url, "go-", lambda shape: f"*types.{shape}" if shape else "*smithy.GenericAPIError")


def test_the_sdk_for_java_and_its_batch_manager(tmp_path):
    saw, url = play("java", toolchains.build_java, tmp_path)
    judge(saw, url, "java-", lambda shape: f"{shape}Exception" if shape else "SqsException")
    assert saw["managed"] == {"ids": 25, "bodies": [f"m{number}" for number in range(25)], "left": "0"}


def test_the_sdk_for_rust(tmp_path):
    saw, url = play("rust", toolchains.build_rust, tmp_path)
    judge(saw, url, "rust-", lambda shape: shape or "Unhandled")


def test_aiobotocore(tmp_path):
    saw, url = play("aiobotocore", toolchains.build_python, tmp_path)
    judge(saw, url, "aiobotocore-", lambda shape: shape or "ClientError")
