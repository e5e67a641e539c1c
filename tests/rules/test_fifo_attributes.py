"""Attributes that came with FIFO, delay, retention and dead letters; the service's words where they are recorded."""

import json

import pytest

from ledger.errors import InvalidAttributeName, InvalidAttributeValue, InvalidParameterValue
from ledger.rules import attributes
from ledger.rules.attributes import complete_attributes

DEFAULTS = complete_attributes({})
FIFO = complete_attributes({"FifoQueue": "true"})
YEARS_100 = 36_525 * 86_400


def test_recorded_the_defaults_are_the_services():
    assert {name: DEFAULTS[name] for name in ("DelaySeconds", "MessageRetentionPeriod", "MaximumMessageSize")} == {
        "DelaySeconds": "0", "MessageRetentionPeriod": "345600", "MaximumMessageSize": "1048576",
    }  # fmt: skip
    assert {name: FIFO[name] for name in set(FIFO) - set(DEFAULTS)} == {
        "FifoQueue": "true", "ContentBasedDeduplication": "false", "DeduplicationScope": "queue",
        "FifoThroughputLimit": "perQueue",
    }  # fmt: skip
    assert not {"RedrivePolicy", "RedriveAllowPolicy", "Policy"} & set(DEFAULTS)


@pytest.mark.parametrize("name", ["jobs.fifo", "a" * 75 + ".fifo", "-.fifo"])
def test_a_fifo_queues_name_ends_in_fifo(name):
    assert (
        attributes.check_queue_name(name, {"FifoQueue": True})
        == attributes.check_queue_name(name, {"FifoQueue": "true"})
        == name
    )


@pytest.mark.parametrize(
    "name", ["jobs", ".fifo", "a" * 76 + ".fifo", "a b.fifo", "a.b.fifo", "jobs.FIFO", "jobs.fifo\n", None, 7]
)
def test_another_name_of_a_fifo_queue_is_refused(name):
    with pytest.raises(InvalidParameterValue, match=r"QueueName.*must end with .fifo suffix and be 1 to 80 in length"):
        attributes.check_queue_name(name, {"FifoQueue": "true"})


def test_a_standard_queues_name_does_not_end_in_fifo_and_the_error_says_what_to_do():
    with pytest.raises(
        InvalidParameterValue, match=r"QueueName.*1 to 80 in length.*needs the attribute FifoQueue=true"
    ):
        attributes.check_queue_name("jobs.fifo", {})


@pytest.mark.parametrize(("given", "stored"), [(True, "true"), ("true", "true"), ("True", "true")])
def test_booleans_are_stored_as_sqs_writes_them(given, stored):
    assert complete_attributes({"FifoQueue": given})["FifoQueue"] == stored
    assert (
        complete_attributes({"FifoQueue": "true", "ContentBasedDeduplication": given})["ContentBasedDeduplication"]
        == stored
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FifoQueue", "yes"),
        ("ContentBasedDeduplication", "yes"),
        ("DeduplicationScope", "group"),
        ("FifoThroughputLimit", "1"),
    ],
)  # fmt: skip
def test_a_fifo_attribute_is_one_of_its_words(name, value):
    with pytest.raises(InvalidAttributeValue, match=f"{name}.*Must be one of"):
        complete_attributes({"FifoQueue": "true", name: value})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("FifoQueue", "false", "Unknown Attribute FifoQueue."),
        ("ContentBasedDeduplication", "true", "Unknown Attribute ContentBasedDeduplication."),
        ("DeduplicationScope", "queue", "You can specify the DeduplicationScope only when FifoQueue is set to true."),
        (
            "FifoThroughputLimit",
            "perQueue",
            "You can specify the FifoThroughputLimit only when FifoQueue is set to true.",
        ),
    ],
)
def test_recorded_a_standard_queue_has_no_fifo_attribute(name, value, said):
    """Recorded: create_standard_queue_with_fifo_attribute_raises_error."""
    for known in (None, DEFAULTS):
        with pytest.raises(InvalidAttributeName) as raised:
            complete_attributes({name: value}, known)
        assert str(raised.value).startswith(said)


def test_recorded_the_type_of_a_queue_cannot_change():
    """Recorded: set_unsupported_attribute_fifo."""
    with pytest.raises(InvalidAttributeName, match=r"Unknown Attribute FifoQueue\."):
        complete_attributes({"FifoQueue": "true"}, DEFAULTS)
    with pytest.raises(InvalidAttributeValue) as raised:
        complete_attributes({"FifoQueue": "false"}, FIFO)
    assert (raised.value.field, raised.value.bound) == ("FifoQueue", "Modifying queue type is not supported")
    assert raised.value.message == (
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."
    )
    assert complete_attributes({"FifoQueue": "true"}, FIFO) == FIFO


def test_high_throughput_needs_deduplication_by_group():
    with pytest.raises(
        InvalidAttributeValue, match=r"FifoThroughputLimit.*DeduplicationScope to be messageGroup"
    ) as raised:
        complete_attributes({"FifoQueue": "true", "FifoThroughputLimit": "perMessageGroupId"})
    assert (raised.value.field, raised.value.value) == ("FifoThroughputLimit", "perMessageGroupId")
    high = complete_attributes({"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}, FIFO)
    with pytest.raises(InvalidAttributeValue, match="FifoThroughputLimit"):
        complete_attributes({"DeduplicationScope": "queue"}, high)
    # Recorded: fifo_change_to_regular_throughput_after_creation.
    assert complete_attributes({"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}, high) == FIFO


@pytest.mark.parametrize(
    ("name", "least", "most", "lifted"),
    [("DelaySeconds", 0, 900, 900), ("MessageRetentionPeriod", 60, 1_209_600, YEARS_100)],
)
def test_q6_q7_the_ranges_are_the_services_and_retention_is_lifted_on_unbounded_queues(name, least, most, lifted):
    for limits, top in (("SQS", most), ("UNBOUNDED", lifted)):
        for value in (least, most, top):
            assert complete_attributes({name: value, "Limits": limits})[name] == str(value)
        for value in (least - 1, top + 1, "", "1.5", True, None):
            with pytest.raises(InvalidAttributeValue, match=f"{name}.*whole number from {least} to {top}"):
                complete_attributes({name: value, "Limits": limits})


def test_d1_documents_are_json_objects_and_absent_until_set():
    policy = {"deadLetterTargetArn": "dead", "maxReceiveCount": 3}
    with_policy = complete_attributes({"RedrivePolicy": policy})
    assert json.loads(with_policy["RedrivePolicy"]) == policy
    assert complete_attributes({"RedrivePolicy": json.dumps(policy)}) == with_policy
    assert complete_attributes({"RedrivePolicy": ""}, with_policy) == DEFAULTS, "the empty text removes it"
    assert complete_attributes({"VisibilityTimeout": 30}, with_policy) == with_policy
    assert complete_attributes({"Policy": '{"Statement": []}'})["Policy"] == '{"Statement": []}'


@pytest.mark.parametrize("name", ["RedrivePolicy", "RedriveAllowPolicy", "Policy"])
@pytest.mark.parametrize("text", ["{", "[]", "7", "null", '"x"', " "])
def test_a_document_that_is_no_json_object_is_refused(name, text):
    with pytest.raises(InvalidParameterValue, match=f"{name}.*(JSON|redrive allow policy)") as raised:
        complete_attributes({name: text})
    assert raised.value.code == ("InvalidAttributeValue" if name == "Policy" else "InvalidParameterValue")


def test_d1_a_policy_that_is_none_is_refused_with_the_attributes():
    with pytest.raises(InvalidParameterValue, match=r"RedrivePolicy.*maxReceiveCount: 0"):
        complete_attributes({"RedrivePolicy": {"deadLetterTargetArn": "dead", "maxReceiveCount": 0}})
    with pytest.raises(InvalidParameterValue, match="RedriveAllowPolicy"):
        complete_attributes({"RedriveAllowPolicy": {"redrivePermission": "some"}})


def test_tags_have_their_limits():
    fifty = {f"{n}": "" for n in range(50)}
    longest = {"k" * 128: "v" * 256}
    assert (
        attributes.check_tags(fifty) == fifty
        and attributes.check_tags(longest) == longest
        and attributes.check_tags({}) == {}
    )
    for wrong in ({**fifty, "more": "x"}, {"": "x"}, {"k" * 129: "x"}, {"k": "v" * 257}, {"k": None}, {7: "x"}):
        with pytest.raises(InvalidParameterValue, match="Tags"):
            attributes.check_tags(wrong)


def test_tags_are_removed_by_their_keys():
    assert attributes.check_tag_keys(["a", "b", "a"]) == attributes.check_tag_keys(key for key in "ab") == {"a", "b"}
    assert attributes.check_tag_keys([]) == frozenset()


def test_a_queues_id_names_it():
    assert attributes.queue_name_of("a-b.fifo-0123abcd") == "a-b.fifo"


def test_q7_retention_is_in_seconds():
    assert attributes.retention_period(DEFAULTS) == 345_600_000
