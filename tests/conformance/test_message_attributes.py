"""Message attributes, system attributes and digests, as they come back."""

import pytest

from ledger.errors import InvalidParameterValue
from ledger.rules.message_attributes import Attribute
from tests.conformance.looking import changing_nothing


def received(queue):
    (message,) = queue.receive().messages()
    return message


def test_recorded_attributes_come_back_with_the_services_digests(queue):
    """Recorded: dead_letter_queue_message_attributes."""
    queue.send("message-1", message_attributes={"MyAttribute": "foobar"})
    message = received(queue)
    assert dict(message.message_attributes) == {"MyAttribute": Attribute("String", "foobar")}
    assert message.message_attributes["MyAttribute"].as_sqs() == {"DataType": "String", "StringValue": "foobar"}
    assert message.md5_of_body == "3d6b824fd8c1520e9a047d21fee6fb1f"
    assert message.md5_of_message_attributes == "adb59cd4678ea5a855436b949cd07ab6"


def test_every_kind_of_attribute_comes_back_as_it_was_sent_in_peek_and_receive(queue):
    sent = {
        "text": "é\n\t'", "number": 7, "exact": {"DataType": "Number.decimal", "StringValue": "1e-30"},
        "bytes": bytes(range(256)), "picture": {"DataType": "Binary.gif", "BinaryValue": b"GIF"},
    }  # fmt: skip
    ids = queue.send([{"MessageBody": "x", "MessageAttributes": sent, "AWSTraceHeader": "Root=1-5759e988"}, "y"])
    expected = {
        "text": Attribute("String", "é\n\t'"), "number": Attribute("Number", "7"),
        "exact": Attribute("Number.decimal", "1e-30"), "bytes": Attribute("Binary", None, bytes(range(256))),
        "picture": Attribute("Binary.gif", None, b"GIF"),
    }  # fmt: skip
    messages = {message.body: message for message in queue.receive(None)}
    if len(messages) == 1:
        messages |= {message.body: message for message in queue.receive(None)}
    for found in (messages["x"], queue.peek(ids[0])):
        assert dict(found.message_attributes) == expected
        assert found.attributes()["AWSTraceHeader"] == "Root=1-5759e988"
    assert messages["x"].md5_of_message_attributes == queue.peek(ids[0]).md5_of_message_attributes
    assert dict(messages["y"].message_attributes) == {} and messages["y"].md5_of_message_attributes is None
    assert "AWSTraceHeader" not in messages["y"].attributes()


def test_the_calls_attributes_hold_for_messages_without_their_own(queue):
    ids = queue.send(
        ["a", {"MessageBody": "b", "MessageAttributes": {"own": "x"}}, {"MessageBody": "c", "MessageAttributes": {}}],
        message_attributes={"common": "y"},
    )
    assert [list(queue.peek(message_id).message_attributes) for message_id in ids] == [["common"], ["own"], []]


def test_the_system_attributes_are_text_as_in_sqs(queue, clock):
    ids = queue.send(["x"])
    sent = clock()
    assert queue.peek(ids[0]).attributes() == {
        "SenderId": "123456789012",
        "SentTimestamp": str(sent),
        "ApproximateReceiveCount": "0",
    }
    clock.advance(1.234)
    first = received(queue)
    clock.advance(30)
    assert received(queue).attributes() == {
        "SenderId": "123456789012",
        "SentTimestamp": str(sent),
        "ApproximateReceiveCount": "2",
        "ApproximateFirstReceiveTimestamp": str(sent + 1_234),
    }
    assert first.attributes()["ApproximateReceiveCount"] == "1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"a b": "x"},
        {"a": ""},
        {"a": None},
        {"a": {"DataType": "Text", "StringValue": "x"}},
        {str(n): "x" for n in range(11)},
    ],
)
def test_wrong_attributes_are_refused_and_nothing_is_sent(queue, wrong):
    with changing_nothing(queue):
        with pytest.raises(InvalidParameterValue, match=r"(?i)message ?.*attributes?"):
            queue.send(["good", {"MessageBody": "x", "MessageAttributes": wrong}], all_or_nothing=True)
        with pytest.raises(InvalidParameterValue, match=r"(?i)message ?.*attributes?"):
            queue.send(["good"], message_attributes=wrong)


def test_attributes_count_against_the_largest_size(make_queue):
    queue = make_queue(MaximumMessageSize=1_024)
    with changing_nothing(queue), pytest.raises(InvalidParameterValue, match=r"1025 bytes.*1 to 1024"):
        queue.send("x" * 1_014, message_attributes={"name": "v"})
    queue.send("x" * 1_013, message_attributes={"name": "v"})


def test_a_standard_queue_keeps_a_group_without_ordering_by_it(queue):
    queue.send(["a", "b"], message_group_id="g")
    claim = queue.receive(None)
    assert claim.count == 2 and {message.message_group_id for message in claim} == {"g"}
    assert {message.sequence_number for message in claim} == {None}
