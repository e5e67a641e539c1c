"""All 23 actions by unmodified boto3 clients, in both protocols, on a ledger on delta-rs."""

from __future__ import annotations

import base64
import itertools
import json
import threading
import urllib.request

import pytest
from botocore.exceptions import ClientError

from ledger.endpoint.service_model import actions
from tests.endpoint.conftest import OTHER_ACCOUNT, OTHER_KEY

_numbers = itertools.count()
TEXT = 'a <body> & "more"\r\n\té 𝄞 ' + json.dumps({"a": "\\"})


def new_queue(client, **attributes):
    name = f"queue-{next(_numbers)}" + (".fifo" if attributes.get("FifoQueue") else "")
    return client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def refused(call, **given):
    with pytest.raises(ClientError) as found:
        call(**given)
    return found.value.response["Error"]["Code"]


def arn_of(client, url):
    return client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


def test_every_action_of_the_service_is_done_for_a_client_of_either_protocol(endpoint, client):
    """In an order in which each has something to show."""
    called = []
    client.meta.events.register("before-call.sqs.*", lambda model, **_: called.append(model.name))
    made = client.create_queue(
        QueueName=f"all-{next(_numbers)}", Attributes={"VisibilityTimeout": "40"}, tags={"a": "b"}
    )
    url = made["QueueUrl"]
    name = url.rpartition("/")[2]
    dead = new_queue(client)
    assert url == f"{endpoint.url}/123456789012/{name}" == client.get_queue_url(QueueName=name)["QueueUrl"]
    policy = json.dumps({"deadLetterTargetArn": arn_of(client, dead), "maxReceiveCount": 1})
    client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    assert client.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    assert url in client.list_queues(QueueNamePrefix="all-")["QueueUrls"]
    client.tag_queue(QueueUrl=url, Tags={"c": ""})
    assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"a": "b", "c": ""}
    client.untag_queue(QueueUrl=url, TagKeys=["a", "c"])
    assert "Tags" not in client.list_queue_tags(QueueUrl=url)
    client.add_permission(QueueUrl=url, Label="other", AWSAccountIds=[OTHER_ACCOUNT], Actions=["SendMessage"])
    client.remove_permission(QueueUrl=url, Label="other")

    attributes = {
        "n": {"DataType": "Number", "StringValue": "7"},
        "b": {"DataType": "Binary", "BinaryValue": b"\0\xff"},
    }
    header = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    sent = client.send_message(
        QueueUrl=url, MessageBody=TEXT, MessageAttributes=attributes, MessageSystemAttributes=header, DelaySeconds=0
    )
    wrong = {"Other": {"DataType": "String", "StringValue": "x"}}
    entries = [
        {"Id": "one", "MessageBody": "1"},
        {"Id": "two", "MessageBody": ""},
        {"Id": "three", "MessageBody": "3", "MessageSystemAttributes": wrong},
    ]
    batch = client.send_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in batch["Successful"]] == ["one"]
    failed = {one["Id"]: one["Code"] for one in batch["Failed"] if one["SenderFault"]}
    assert failed == {"two": "MissingParameter", "three": "InvalidParameterValue"}
    counts = client.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    assert counts["Attributes"] == {"ApproximateNumberOfMessages": "2"}
    got = client.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]
    )["Messages"]
    (mine,) = [one for one in got if one["MessageId"] == sent["MessageId"]]
    assert (mine["Body"], mine["MessageAttributes"]) == (TEXT, attributes)
    assert mine["Attributes"]["AWSTraceHeader"] == "Root=1" and mine["Attributes"]["ApproximateReceiveCount"] == "1"
    handles = [one["ReceiptHandle"] for one in got]
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=handles[0], VisibilityTimeout=100)
    changes = [{"Id": "a", "ReceiptHandle": handles[0], "VisibilityTimeout": 0}, {"Id": "b", "ReceiptHandle": "none"}]
    both = client.change_message_visibility_batch(QueueUrl=url, Entries=changes)
    assert both["Successful"] == [{"Id": "a"}] and both["Failed"][0]["Code"] == "ReceiptHandleIsInvalid"
    assert "Messages" not in client.receive_message(QueueUrl=url), "it was received once: it is dead"
    client.delete_message(QueueUrl=url, ReceiptHandle=handles[1])
    gone = client.delete_message_batch(QueueUrl=url, Entries=[{"Id": "a", "ReceiptHandle": handles[1]}])
    assert gone["Successful"] == [{"Id": "a"}] and not gone.get("Failed")

    source = arn_of(client, dead)
    task = client.start_message_move_task(SourceArn=source, MaxNumberOfMessagesPerSecond=1)["TaskHandle"]
    (listed,) = client.list_message_move_tasks(SourceArn=source)["Results"]
    assert (listed["SourceArn"], listed["ApproximateNumberOfMessagesMoved"]) == (source, 1)
    if listed["Status"] == "RUNNING":
        assert listed["TaskHandle"] == task
        assert client.cancel_message_move_task(TaskHandle=task)["ApproximateNumberOfMessagesMoved"] == 1
    assert refused(client.cancel_message_move_task, TaskHandle=task) == "ResourceNotFoundException"
    client.purge_queue(QueueUrl=url)
    client.delete_queue(QueueUrl=url)
    assert refused(client.get_queue_url, QueueName=name) == "AWS.SimpleQueueService.NonExistentQueue"
    assert refused(client.create_queue, QueueName=name) == "AWS.SimpleQueueService.QueueDeletedRecently"
    assert set(called) == set(actions())


def test_a_queue_made_over_the_wire_has_the_services_limits_and_one_lane_unless_asked_otherwise(endpoint, client):
    url = new_queue(client)
    ours = {"Limits": "SQS", "Lanes": "1", "Receipts": "fenced"}
    assert endpoint.ledger.queue(url.rpartition("/")[2]).attributes().items() >= {"Limits": "SQS", "Lanes": "1"}.items()
    asked = client.get_queue_attributes(QueueUrl=url, AttributeNames=list(ours))["Attributes"]
    assert asked == ours, "by their names they are told"
    every = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert not set(every) & set(ours), "and not among those of the service"
    assert endpoint.ledger.queue(new_queue(client, Lanes="4").rpartition("/")[2]).attributes()["Lanes"] == "4"
    assert "Attributes" not in client.get_queue_attributes(QueueUrl=url)


def test_a_queue_made_elsewhere_keeps_what_it_is_when_a_client_makes_it_again(endpoint, client):
    name = f"made-in-python-{next(_numbers)}"
    endpoint.ledger.create_queue(name, {"Lanes": 8})
    client.create_queue(QueueName=name)
    assert endpoint.ledger.queue(name).attributes()["Limits"] == "UNBOUNDED"
    assert refused(client.create_queue, QueueName=name, Attributes={"Lanes": "1"}) == "QueueAlreadyExists"


def test_a_queue_made_again_is_compared_by_what_it_is_set_to_and_by_its_tags(endpoint, client):
    arn = client.get_queue_attributes(
        QueueUrl=client.create_queue(QueueName=f"dead-{next(_numbers)}")["QueueUrl"], AttributeNames=["QueueArn"]
    )["Attributes"]["QueueArn"]
    name, spaced = f"again-{next(_numbers)}", json.dumps({"maxReceiveCount": "5", "deadLetterTargetArn": arn}, indent=2)
    compact = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":5}}'
    url = client.create_queue(QueueName=name, Attributes={"RedrivePolicy": spaced}, tags={"a": "b"})["QueueUrl"]
    known = client.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])["Attributes"]
    assert known == {"RedrivePolicy": compact}
    again = client.create_queue(QueueName=name, Attributes={"RedrivePolicy": compact}, tags={"a": "b"})
    assert again["QueueUrl"] == client.create_queue(QueueName=name)["QueueUrl"] == url
    with pytest.raises(client.exceptions.QueueNameExists, match="a different value for attribute tags"):
        client.create_queue(QueueName=name, tags={"a": "c"})


def test_two_protocols_share_one_queue_and_its_receipt_handles(endpoint):
    json_client, query = endpoint.client("json"), endpoint.client("query")
    url = new_queue(json_client)
    json_client.send_message(QueueUrl=url, MessageBody=TEXT)
    (message,) = query.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == TEXT
    json_client.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    (again,) = json_client.receive_message(QueueUrl=url)["Messages"]
    assert refused(
        query.change_message_visibility, QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=1
    ) == "ReceiptHandleIsInvalid"  # fmt: skip
    query.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    assert endpoint.ledger.queue(url.rpartition("/")[2]).counts().stored == 0


def test_a_receipt_handle_of_one_queue_works_on_no_other(endpoint, client):
    one, other = new_queue(client), new_queue(client)
    client.send_message(QueueUrl=one, MessageBody="body")
    (message,) = client.receive_message(QueueUrl=one)["Messages"]
    handle = message["ReceiptHandle"]
    assert refused(client.delete_message, QueueUrl=other, ReceiptHandle=handle) == "ReceiptHandleIsInvalid"
    change = {"ReceiptHandle": handle, "VisibilityTimeout": 0}
    assert refused(client.change_message_visibility, QueueUrl=other, **change) == "ReceiptHandleIsInvalid"
    for call in (client.delete_message_batch, client.change_message_visibility_batch):
        entry = {"Id": "a", "ReceiptHandle": handle}
        assert call(QueueUrl=other, Entries=[entry])["Failed"][0]["Code"] == "ReceiptHandleIsInvalid"
    assert "Messages" not in client.receive_message(QueueUrl=one), "it is in flight, as it was"


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([{"Id": "a", "MessageBody": "1"}, {"Id": "a", "MessageBody": "2"}], "BatchEntryIdsNotDistinct"),
        ([], "EmptyBatchRequest"),
        ([{"Id": str(n), "MessageBody": "1"} for n in range(11)], "TooManyEntriesInBatchRequest"),
        ([{"Id": "a b", "MessageBody": "1"}], "InvalidBatchEntryId"),
    ],
)
def test_a_batch_that_is_wrong_as_a_whole_sends_nothing(endpoint, client, entries, code):
    url = new_queue(client)
    found = refused(client.send_message_batch, QueueUrl=url, Entries=entries)
    # A form has no empty list: there the parameter is missing.
    assert found in (f"AWS.SimpleQueueService.{code}", "MissingParameter" if not entries else "")
    assert endpoint.ledger.queue(url.rpartition("/")[2]).counts().stored == 0


@pytest.mark.parametrize("lists", [{"StringListValues": ["a"]}, {"BinaryListValues": [b"a"]}])
def test_attributes_with_lists_are_refused_as_the_service_does_and_nothing_is_sent(endpoint, client, lists):
    url = new_queue(client)
    attribute = {"DataType": "String", "StringValue": "v", **lists}
    sent = {"MessageBody": "x", "MessageAttributes": {"a": attribute}}
    entries = [{"Id": "a", "MessageBody": "x"}, {"Id": "b", **sent}]
    for call, given in ((client.send_message, sent), (client.send_message_batch, {"Entries": entries})):
        with pytest.raises(ClientError) as raised:
            call(QueueUrl=url, **given)
        said, action = raised.value.response["Error"], raised.value.operation_name
        assert said["Code"] == "AWS.SimpleQueueService.UnsupportedOperation"
        assert said["Message"] == f"Message attribute list values in {action} operation are not supported."
    assert endpoint.ledger.queue(url.rpartition("/")[2]).counts().stored == 0


def test_pages_of_queues_are_asked_for_one_after_the_other(client):
    prefix = f"page-{next(_numbers)}-"
    urls = [client.create_queue(QueueName=f"{prefix}{n}")["QueueUrl"] for n in range(5)]
    assert client.list_queues(QueueNamePrefix=prefix)["QueueUrls"] == urls
    pages = list(client.get_paginator("list_queues").paginate(QueueNamePrefix=prefix, PaginationConfig={"PageSize": 2}))
    assert [page["QueueUrls"] for page in pages] == [urls[:2], urls[2:4], urls[4:]]
    assert refused(client.list_queues, MaxResults=1_001) == "InvalidParameterValue"
    assert refused(client.list_queues, NextToken="é", MaxResults=1) == "InvalidParameterValue"
    alone = refused(client.list_queues, NextToken=pages[0]["NextToken"])
    assert alone == "AWS.SimpleQueueService.UnsupportedOperation", "how many of them is not said"


@pytest.mark.parametrize("token", ["!!!!", "cGFnZQ", "cGFn!ZQ==", "cGFnZQ== ", "//8="])
def test_a_token_that_was_not_handed_out_is_refused(client, token):
    for call, given in (
        (client.list_queues, {}),
        (client.list_dead_letter_source_queues, {"QueueUrl": new_queue(client)}),
    ):
        assert refused(call, MaxResults=1, NextToken=token, **given) == "InvalidParameterValue"


def test_a_caller_of_another_account_may_do_what_the_queues_policy_allows(endpoint):
    owner, other = endpoint.client("json"), endpoint.client("query", OTHER_KEY)
    url = new_queue(owner)
    assert refused(other.send_message, QueueUrl=url, MessageBody="body") == "AccessDenied"
    owner.add_permission(QueueUrl=url, Label="send", AWSAccountIds=[OTHER_ACCOUNT], Actions=["SendMessage"])
    other.send_message(QueueUrl=url, MessageBody="body")
    other.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "body"}])
    assert refused(other.receive_message, QueueUrl=url) == "AccessDenied"
    assert refused(other.create_queue, QueueName="theirs") == "AccessDenied"
    assert refused(other.list_queues) == "AccessDenied"
    user = f"arn:aws:iam::{OTHER_ACCOUNT}:user/other"
    deny = {"Effect": "Deny", "Principal": {"AWS": user}, "Action": "sqs:*", "Resource": "*"}
    known = owner.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    statements = [*json.loads(known)["Statement"], deny]
    owner.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps({"Statement": statements})})
    assert refused(other.send_message, QueueUrl=url, MessageBody="body") == "AccessDenied"


def test_who_may_not_send_to_a_queue_moves_no_messages_there_either(endpoint):
    owner = endpoint.client("json")
    dead, destination = new_queue(owner), new_queue(owner)
    policy = json.dumps({"deadLetterTargetArn": arn_of(owner, dead), "maxReceiveCount": 1})
    owner.set_queue_attributes(QueueUrl=new_queue(owner), Attributes={"RedrivePolicy": policy})
    named = {"SourceArn": arn_of(owner, dead), "DestinationArn": arn_of(owner, destination)}
    nobody = {"Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}
    owner.set_queue_attributes(QueueUrl=destination, Attributes={"Policy": json.dumps({"Statement": [nobody]})})
    assert refused(owner.start_message_move_task, **named) == "AccessDenied"
    owner.set_queue_attributes(QueueUrl=destination, Attributes={"Policy": ""})
    assert owner.start_message_move_task(**named)["TaskHandle"]


def test_a_fifo_queue_keeps_its_order_and_knows_what_was_sent_twice(client):
    url = new_queue(client, FifoQueue="true", ContentBasedDeduplication="true")
    first = client.send_message(QueueUrl=url, MessageBody="1", MessageGroupId="g")
    again = client.send_message(QueueUrl=url, MessageBody="1", MessageGroupId="g")
    assert (first["MessageId"], first["SequenceNumber"]) == (again["MessageId"], again["SequenceNumber"])
    client.send_message(QueueUrl=url, MessageBody="2", MessageGroupId="g")
    got = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, ReceiveRequestAttemptId="a")["Messages"]
    assert [one["Body"] for one in got] == ["1", "2"]
    retried = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, ReceiveRequestAttemptId="a")["Messages"]
    assert [one["ReceiptHandle"] for one in retried] == [one["ReceiptHandle"] for one in got]


def test_what_many_clients_do_at_once_each_message_is_received_once(endpoint):
    client, received = endpoint.client("json"), []
    url = new_queue(client)

    def work(number):
        for round_ in range(3):
            entries = [{"Id": str(n), "MessageBody": f"{number}/{round_}/{n}"} for n in range(10)]
            assert len(client.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 10
            got = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
            received.extend(one["Body"] for one in got)
            handles = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(got)]
            if handles:
                assert len(client.delete_message_batch(QueueUrl=url, Entries=handles)["Successful"]) == len(handles)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = urllib.request.urlopen(f"{endpoint.url}/metrics").read().decode()
    assert 'ledger_group_size_count{of="visibility"} ' in told and 'ledger_commits_total{verb="receive"} ' in told
    path = 'ledger_commit_paths_total{verb="receive",table="visibility",path="direct",reason=""} '
    assert path in told and 'verb="send",table="messages",path="direct"' in told
    left = endpoint.ledger.queue(url.rpartition("/")[2]).receive(None)
    bodies = received + [message.body for message in left]
    assert sorted(bodies) == sorted(f"{w}/{r}/{n}" for w in range(8) for r in range(3) for n in range(10))


def test_the_library_and_clients_see_each_other(endpoint, client):
    url = new_queue(client)
    queue = endpoint.ledger.queue(url.rpartition("/")[2])
    client.send_message_batch(QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": str(n)} for n in range(10)])
    claim = queue.receive(10)
    assert claim.count == 10
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    told = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    assert told == {names[0]: "0", names[1]: "10"}
    handles = [message.receipt_handle for message in claim]
    client.delete_message(QueueUrl=url, ReceiptHandle=handles[0])
    assert claim.release().messages == 9
    (message,) = client.receive_message(QueueUrl=url)["Messages"]
    assert queue.delete([message["ReceiptHandle"]])[0].outcome == "deleted"


def test_a_queue_is_named_by_its_url_its_path_or_its_name(endpoint, client):
    """Recorded: test_posting_to_queue_via_queue_name."""
    url = new_queue(client)
    name = url.rpartition("/")[2]
    for called in (url, name, f"/123456789012/{name}", f"123456789012/{name}", f"http://elsewhere/123456789012/{name}"):
        client.send_message(QueueUrl=called, MessageBody="x")
    assert endpoint.ledger.queue(name).counts().visible == 5
    fifo = new_queue(client, FifoQueue="true").rpartition("/")[2]
    client.send_message(QueueUrl=fifo, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="d")
    for wrong in (f"http://x/{name}", "a name", "q" * 81, "../q", f"{name}?a=1", ""):
        assert refused(client.send_message, QueueUrl=wrong, MessageBody="x") == "InvalidAddress"
    assert refused(client.send_message, QueueUrl="http://a-host-alone", MessageBody="x").endswith("NonExistentQueue")
    other = f"/{OTHER_ACCOUNT}/{name}"
    assert refused(client.send_message, QueueUrl=other, MessageBody="x").endswith("NonExistentQueue")


def test_a_bare_name_is_a_queue_of_the_caller(endpoint):
    """What somebody of another account calls by its name alone is a queue of that account."""
    ours, theirs = endpoint.client(), endpoint.client("json", OTHER_KEY)
    url = new_queue(ours)
    name = url.rpartition("/")[2]
    ours.add_permission(QueueUrl=name, Label="theirs", AWSAccountIds=[OTHER_ACCOUNT], Actions=["*"])
    assert refused(theirs.send_message, QueueUrl=name, MessageBody="x").endswith("NonExistentQueue")
    theirs.send_message(QueueUrl=url, MessageBody="x")


def test_a_batch_with_an_entry_without_its_group_sends_nothing(endpoint, client):
    """Recorded: test_send_batch_missing_message_group_id_for_fifo_queue, beside what one message is refused for."""
    url = new_queue(client, FifoQueue="true", ContentBasedDeduplication="true")
    entries = [{"Id": "a", "MessageBody": "1", "MessageGroupId": "g"}, {"Id": "b", "MessageBody": "2"}]
    with pytest.raises(ClientError) as found:
        client.send_message_batch(QueueUrl=url, Entries=entries)
    error = found.value.response["Error"]
    said = "The request must contain the parameter MessageGroupId."
    assert (error["Code"], error["Message"]) == ("InvalidParameterValue", said)
    assert found.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert endpoint.ledger.queue(url.rpartition("/")[2]).counts().stored == 0
    assert refused(client.send_message, QueueUrl=url, MessageBody="x") == "MissingParameter"


def traced(request, **_):
    request.headers["X-Amzn-Trace-Id"] = "Root=of-the-request"


def test_the_trace_of_a_request_is_the_one_of_messages_that_name_none(endpoint):
    """Recorded: test_aws_trace_header_propagation."""
    for protocol in ("json", "query"):
        client = endpoint.new_client(protocol)
        client.meta.events.register("before-send.sqs.*", traced)
        url = new_queue(client)
        own = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=own"}}
        sent = client.send_message(QueueUrl=url, MessageBody="1")
        assert "MD5OfMessageSystemAttributes" not in sent, "the client gave none"
        assert client.send_message(QueueUrl=url, MessageBody="2", MessageSystemAttributes=own)[
            "MD5OfMessageSystemAttributes"
        ]
        entries = [
            {"Id": "3", "MessageBody": "3"},
            {"Id": "4", "MessageBody": "4", "MessageSystemAttributes": own},
        ]
        three, four = client.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]
        assert "MD5OfMessageSystemAttributes" not in three and four["MD5OfMessageSystemAttributes"]
        got = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["AWSTraceHeader"])
        traces = {one["Body"]: one["Attributes"]["AWSTraceHeader"] for one in got["Messages"]}
        assert traces == {"1": "Root=of-the-request", "2": "Root=own", "3": "Root=of-the-request", "4": "Root=own"}


@pytest.mark.parametrize(
    ("source", "task", "said"),
    [
        ("arn:aws:sqs:us-east-1:123456789012:nowhere", "10f57157-fc38-4da9-a113-4de7e12d05dd", "SourceArn"),
        ("arn:aws:sqs:us-east-1:878966065785:SOURCE", "10f57157-fc38-4da9-a113-4de7e12d05dd", "SourceArn"),
        ("arn:aws:sqs:us-east-1:123456789012:SOURCE", "10f57157-fc38-4da9-a113-4de7e12d05aa", "Task does not exist."),
    ],
)
def test_a_task_that_there_is_not_is_a_404_with_its_message_as_a_member_too(endpoint, source, task, said):
    """Recorded: test_cancel_with_invalid_source_arn_in_task_handle, ..._task_id_in_task_handle."""
    client = endpoint.client()
    name = new_queue(client).rpartition("/")[2]
    told = json.dumps({"taskId": task, "sourceArn": source.replace("SOURCE", name)}, separators=(",", ":"))
    with pytest.raises(ClientError) as found:
        client.cancel_message_move_task(TaskHandle=base64.b64encode(told.encode()).decode())
    answer = found.value.response
    assert (answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]) == ("ResourceNotFoundException", 404)
    assert said in answer["Error"]["Message"] and answer["message"] == answer["Error"]["Message"]


def test_an_error_of_a_move_task_has_its_message_as_a_member_too(endpoint):
    """Recorded: test_destination_needs_to_exist."""
    arn = "arn:aws:sqs:us-east-1:123456789012:nowhere"
    with pytest.raises(ClientError) as found:
        endpoint.client().start_message_move_task(SourceArn=arn)
    answer = found.value.response
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 404
    assert answer["message"] == answer["Error"]["Message"] != ""


def test_what_is_refused_of_names_accounts_and_tags_is_said_in_the_services_words(endpoint, client):
    """Sources at the rules: what moto and others took from the service."""
    url = new_queue(client)

    def said(call, **given):
        with pytest.raises(ClientError) as found:
            call(**given)
        return found.value.response["Error"]["Code"], found.value.response["Error"]["Message"]

    bound = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
    for name in ("no/name", "q" * 81):
        assert said(client.create_queue, QueueName=name) == ("InvalidParameterValue", bound)
    code, text = said(client.create_queue, QueueName="plain", Attributes={"FifoQueue": "true"})
    assert code == "InvalidParameterValue" and text.startswith("The name of a FIFO queue can only include")
    known = {"QueueUrl": url, "Label": "one", "Actions": ["SendMessage"]}
    assert said(client.add_permission, AWSAccountIds=["12"], **known) == (
        "InvalidParameterValue",
        "Value [12] for parameter PrincipalId is invalid. Reason: Unable to verify.",
    )
    assert said(client.tag_queue, QueueUrl=url, Tags={}) == (
        "MissingParameter",
        "The request must contain the parameter Tags.",
    )


def test_an_untagging_of_nothing_and_a_permission_for_nobody_are_refused_in_json(endpoint):
    """In the Query protocol an empty list is no parameter."""
    client = endpoint.client()
    url = new_queue(client)
    assert refused(client.untag_queue, QueueUrl=url, TagKeys=[]) == "InvalidParameterValue"
    with pytest.raises(ClientError, match=r"Value \[\] for parameter PrincipalId is invalid"):
        client.add_permission(QueueUrl=url, Label="one", AWSAccountIds=[], Actions=["SendMessage"])
