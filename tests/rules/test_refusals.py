"""What we refuse, we refuse by name: an error carries the field, the value as it was given, its bound, and the fix."""

from types import SimpleNamespace

import pytest

from ledger.errors import InvalidAttributeName, InvalidParameterValue
from ledger.rules import arns, attributes, limits, message, message_attributes, message_id, policy, redrive
from ledger.rules.limits import SQS, UNBOUNDED

STANDARD = attributes.complete_attributes({"MaximumMessageSize": 1_024})
FIFO = attributes.complete_attributes({"FifoQueue": "true"})
IDS = {"message_group_id": "g", "message_deduplication_id": "d"}
ARN = arns.DEFAULT.arn("jobs")
DEAD = '{"deadLetterTargetArn": "dead", "maxReceiveCount": 3}'
RUNNING = redrive.new_task("dead", None, None, 0, 0, [])


def queue(name, **given):
    return SimpleNamespace(id=name, name=name, attributes=attributes.complete_attributes(given))


def set_policy(target, own=STANDARD):
    """Name `dead` as the dead-letter queue of `jobs`, where `target` is the only queue beside it."""
    redrive.require_target([target], "jobs", {**own, "RedrivePolicy": DEAD}, {"RedrivePolicy": DEAD})


@pytest.mark.parametrize(
    ("field", "value", "bound", "fix", "refused"),
    [
        ("VisibilityTimeout", -1, "between 0 and 43200", "heartbeat", lambda: limits.check_visibility_timeout(-1, SQS)),
        ("MaxNumberOfMessages", 11, "between 1 and 10", "Limits=UNBOUNDED", lambda: limits.maximum_messages(11, SQS)),
        ("MaxNumberOfMessages", 0, "number >= 1", "", lambda: limits.maximum_messages(0, UNBOUNDED)),
        ("WaitTimeSeconds", 21, ">= 0 and <= 20, if provided", "", lambda: limits.check_wait(21, SQS)),
        ("WaitTimeSeconds", -1, ">= 0, if provided", "", lambda: limits.check_wait(-1, UNBOUNDED)),
        ("MessageBody", 7, "string", "JSON", lambda: message.body(7, 1_024)),
        (
            "MessageBody",
            "x" * 10,
            "Message must be shorter than 9 bytes",
            "a pointer",
            lambda: message.body("x" * 10, 9),
        ),
        (
            "MessageBody",
            "x" * 1_024,
            "Message must be shorter than 1024 bytes",
            "With its attributes it has 1032 bytes",
            lambda: message.entry("x" * 1_024, STANDARD, message_attributes={"a": "b"}),
        ),
        (
            "messages",
            "Body",
            "MessageBody, DelaySeconds",
            "JSON",
            lambda: message.parse_entry({"Body": "x"}, STANDARD, {}),
        ),
        # Which of several is named does not depend on whether they can be compared.
        ("messages", 7, "MessageBody", "json.dumps", lambda: message.parse_entry({"Body": "x", 7: "y"}, STANDARD, {})),
        ("DelaySeconds", 901, ">= 0 and <= 900", "", lambda: message.choose_delay(901, STANDARD)),
        ("DelaySeconds", 1, "queue type", "queue's DelaySeconds", lambda: message.choose_delay(1, FIFO)),
        ("MessageGroupId", "a b", "1 to 128", "", lambda: message.entry("x", FIFO, message_group_id="a b")),
        (
            "MessageDeduplicationId",
            "d",
            "queue type",
            "",
            lambda: message.entry("x", STANDARD, message_deduplication_id="d"),
        ),
        (
            "MessageDeduplicationId",
            None,
            "ContentBasedDeduplication",
            "",
            lambda: message.entry("x", FIFO, message_group_id="g"),
        ),
        ("AWSTraceHeader", 7, "string", "", lambda: message.entry("x", FIFO, aws_trace_header=7, **IDS)),
        ("attempt_id", "a", "deduplication id", "Leave it out", lambda: message.require_no_attempt("a", FIFO)),
        ("MessageAttributes", 7, "by name", "", lambda: message_attributes.parse_message_attributes(7)),
        (
            "MessageAttributes",
            11,
            "[10]",
            "",
            lambda: message_attributes.parse_message_attributes({f"a{n}": "x" for n in range(11)}),
        ),
        (
            "MessageAttributes",
            "a b",
            "1 to 256",
            "1 to 256",
            lambda: message_attributes.parse_message_attributes({"a b": "x"}),
        ),
        (
            "MessageAttributes.a.DataType",
            "Text",
            "String, Number or Binary",
            "String, Number or Binary",
            lambda: message_attributes.parse_message_attributes({"a": {"DataType": "Text", "StringValue": "x"}}),
        ),
        (
            "MessageAttributes.a",
            "",
            "'a' must contain a non-empty value of type 'String'",
            "",
            lambda: message_attributes.parse_message_attributes({"a": ""}),
        ),
        (
            "MessageAttributes.a",
            {"DataType": "Number", "StringValue": "x"},
            "attribute 'a' to a number",
            "",
            lambda: message_attributes.parse_message_attributes({"a": {"DataType": "Number", "StringValue": "x"}}),
        ),
        ("MessageId", "x", "message id", "", lambda: message_id.place("x")),
        ("AWSAccountIds", "1", "list of strings", "", lambda: policy.with_permission(None, ARN, "l", "1", ["x"])),
        ("Actions", [7], "list of strings", "", lambda: policy.with_permission(None, ARN, "l", ["1"], [7])),
        ("Label", "l", "can't find label", "", lambda: policy.without_permission(None, "l")),
        ("TaskHandle", "x", "move task", "move task", lambda: redrive.find_task_to_cancel([], "x")),
        ("TaskHandle", 7, "move task", "move task", lambda: redrive.find_task_to_cancel([], 7)),
        (
            "SourceArn",
            "dead",
            "already a task running",
            "",
            lambda: redrive.new_task("dead", None, None, 0, 0, [RUNNING]),
        ),
        ("QueueName", "a b", "1 to 80", "", lambda: attributes.check_queue_name("a b")),
        ("QueueName", "a.fifo", "1 to 80", "FifoQueue=true", lambda: attributes.check_queue_name("a.fifo")),
        ("QueueName", "a", ".fifo suffix", "", lambda: attributes.check_queue_name("a", {"FifoQueue": True})),
        ("Attributes", [1], "names to values", "DelaySeconds", lambda: attributes.complete_attributes([1])),
        ("Lanes", "7", "fixed", "new queue", lambda: attributes.complete_attributes({"Lanes": 7}, STANDARD)),
        (
            "VisibilityTimeout",
            "30.0",
            "from 0 to 43200",
            "",
            lambda: attributes.complete_attributes({"VisibilityTimeout": 30.0}),
        ),
        (
            "VisibilityTimeout",
            "30",
            "MaximumVisibilityTimeout",
            "",
            lambda: attributes.complete_attributes({"MaximumVisibilityTimeout": 9}),
        ),
        ("LateChange", "no", "reject, accept", "", lambda: attributes.complete_attributes({"LateChange": "no"})),
        ("Policy", "[]", "JSON object", "empty text", lambda: attributes.complete_attributes({"Policy": "[]"})),
        (
            "FifoThroughputLimit",
            "perMessageGroupId",
            "DeduplicationScope",
            "",
            lambda: attributes.complete_attributes({"FifoThroughputLimit": "perMessageGroupId"}, FIFO),
        ),
        ("Tags", ["a"], "strings to strings", '"value"', lambda: attributes.check_tags(["a"])),
        ("Tags", {"a": 1}, "values must be strings", "", lambda: attributes.check_tags({"a": 1})),
        ("Tags", {7: "x"}, "values must be strings", "", lambda: attributes.check_tags({7: "x"})),
        ("Tags", {"": "x"}, "1 to 128 characters, a value at most 256", "", lambda: attributes.check_tags({"": "x"})),
        ("Tags", 51, "at most 50", "", lambda: attributes.check_tags({f"{n}": "" for n in range(51)})),
        ("TagKeys", "a", "list of strings", '["key"]', lambda: attributes.check_tag_keys("a")),
        ("TagKeys", {"a": "b"}, "list of strings", '["key"]', lambda: attributes.check_tag_keys({"a": "b"})),
        ("TagKeys", ["a", 7], "list of strings", '["key"]', lambda: attributes.check_tag_keys(["a", 7])),
        ("TagKeys", 7, "list of strings", '["key"]', lambda: attributes.check_tag_keys(7)),
        ("RedrivePolicy", "{}", "mandatory attribute", "", lambda: redrive.policy_of({"RedrivePolicy": "{}"})),
        (
            "RedrivePolicy",
            '{"deadLetterTargetArn": "a"}',
            "mandatory attribute: maxReceiveCount",
            "",
            lambda: redrive.policy_of({"RedrivePolicy": '{"deadLetterTargetArn": "a"}'}),
        ),
        (
            "RedriveAllowPolicy",
            "{}",
            "can't create the redrive allow policy",
            "1 to 10 sourceQueueArns",
            lambda: redrive.allow_policy_of({"RedriveAllowPolicy": "{}"}),
        ),
        ("RedrivePolicy", DEAD, "does not exist", "Create that queue", lambda: set_policy(queue("other"))),
        ("RedrivePolicy", DEAD, "same type", "", lambda: set_policy(queue("dead", FifoQueue=True))),
        ("RedrivePolicy", DEAD, "equal Lanes", "", lambda: set_policy(queue("dead", FifoQueue=True, Lanes=2), FIFO)),
        (
            "RedrivePolicy",
            DEAD,
            "of dead does not allow jobs",
            "",
            lambda: set_policy(queue("dead", RedriveAllowPolicy={"redrivePermission": "denyAll"})),
        ),
        (
            "destination",
            "a",
            "another queue",
            "",
            lambda: redrive.require_destination(queue("a"), queue("a")),
        ),
        (
            "destination",
            "b.fifo",
            "same type of queue",
            "",
            lambda: redrive.require_destination(queue("a"), queue("b.fifo", FifoQueue=True)),
        ),
        (
            "destination",
            "b.fifo",
            "equal Lanes; the source has 2",
            "",
            lambda: redrive.require_destination(
                queue("a.fifo", FifoQueue=True, Lanes=2), queue("b.fifo", FifoQueue=True, Lanes=3)
            ),
        ),
    ],
)
def test_a_refusal_names_the_field_the_value_the_bound_and_the_fix(field, value, bound, fix, refused):
    with pytest.raises(InvalidParameterValue) as raised:
        refused()
    assert (raised.value.field, raised.value.value) == (field, value)
    assert bound in raised.value.bound and fix in raised.value.fix and bool(fix) == bool(raised.value.fix)


@pytest.mark.parametrize("names", [["Colour", 7], [7, "Colour"]])
def test_unknown_names_are_refused_whatever_they_are(names):
    with pytest.raises(InvalidAttributeName, match="Unknown Attribute 7"):
        attributes.complete_attributes(dict.fromkeys(names, "x"))
