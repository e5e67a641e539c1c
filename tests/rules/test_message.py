"""What a message may be when it is sent: Q6's delay, F1's ids, the size with attributes, and entries as in SQS."""

import hashlib

import pytest

from ledger.errors import InvalidParameterValue, MissingParameter
from ledger.rules import attributes as attribute_rules
from ledger.rules import message
from ledger.rules.message import Entry, entry, parse_entry

QUEUE = attribute_rules.complete_attributes({"DelaySeconds": 7, "MaximumMessageSize": 1_024})
FIFO = attribute_rules.complete_attributes({"FifoQueue": "true", "DelaySeconds": 7})
BY_CONTENT = attribute_rules.complete_attributes({"FifoQueue": "true", "ContentBasedDeduplication": "true"})
IDS = {"message_group_id": "g", "message_deduplication_id": "d"}
NOT_VALID = "The request include parameter that is not valid for this queue type"


def test_a_body_alone_is_an_entry_with_the_queues_delay():
    assert entry("x", QUEUE) == Entry("x", 7)


@pytest.mark.parametrize(("given", "delay"), [(None, 7), (0, 0), (1, 1), (900, 900)])
def test_q6_a_message_has_its_own_delay_or_the_queues(given, delay):
    assert entry("x", QUEUE, delay_seconds=given).delay_seconds == delay


@pytest.mark.parametrize("given", [-1, 901, 1.5, "1", True])
def test_q6_a_delay_is_a_whole_number_from_0_to_900(given):
    with pytest.raises(InvalidParameterValue, match=r"DelaySeconds.*>= 0 and <= 900"):
        entry("x", QUEUE, delay_seconds=given)


@pytest.mark.parametrize("given", [None, 0])
def test_q6_recorded_on_fifo_queues_only_the_queues_delay_counts_and_zero_means_it(given):
    assert entry("x", FIFO, delay_seconds=given, **IDS).delay_seconds == 7


def test_q6_a_delay_of_its_own_is_not_for_fifo_queues():
    with pytest.raises(InvalidParameterValue) as raised:
        entry("x", FIFO, delay_seconds=1, **IDS)
    assert (raised.value.field, raised.value.bound) == ("DelaySeconds", NOT_VALID)


def test_f1_recorded_a_fifo_queue_demands_a_group():
    with pytest.raises(MissingParameter) as raised:
        entry("x", FIFO, message_deduplication_id="d")
    assert str(raised.value) == "The request must contain the parameter MessageGroupId."
    assert raised.value.code == "MissingParameter"


def test_f1_recorded_a_fifo_queue_demands_a_deduplication_id_or_takes_it_from_the_content():
    with pytest.raises(InvalidParameterValue) as raised:
        entry("x", FIFO, message_group_id="g")
    assert raised.value.bound == (
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
    )
    assert raised.value.message == raised.value.bound
    by_content = entry("é", BY_CONTENT, message_group_id="g", message_attributes={"a": "b"})
    assert by_content.message_deduplication_id == hashlib.sha256("é".encode()).hexdigest()
    assert entry("x", BY_CONTENT, **IDS).message_deduplication_id == "d", "one that is given counts"


def test_f1_on_standard_queues_a_group_is_taken_and_a_deduplication_id_is_not():
    assert entry("x", QUEUE, message_group_id="g").message_group_id == "g"
    with pytest.raises(InvalidParameterValue) as raised:
        entry("x", QUEUE, message_deduplication_id="d")
    assert (raised.value.field, raised.value.bound) == ("MessageDeduplicationId", NOT_VALID)


@pytest.mark.parametrize("field", ["MessageGroupId", "MessageDeduplicationId"])
@pytest.mark.parametrize("value", ["", "group 123", "a" * 129, "é", "a\n", 7, b"a"])
def test_f1_recorded_an_id_that_is_none_is_refused(field, value):
    name = "message_group_id" if field == "MessageGroupId" else "message_deduplication_id"
    with pytest.raises(InvalidParameterValue) as raised:
        entry("x", FIFO, **{**IDS, name: value})
    said = f"{field} can only include alphanumeric and punctuation characters. 1 to 128 in length"
    assert (raised.value.field, raised.value.value, raised.value.bound) == (field, value, said)


@pytest.mark.parametrize("value", ["a", "a" * 128, "".join(map(chr, range(33, 127)))])
def test_f1_every_letter_digit_and_punctuation_character_is_taken(value):
    assert entry("x", FIFO, **{**IDS, "message_group_id": value}).message_group_id == value


def test_a_message_counts_with_its_attributes_against_the_largest_size():
    assert entry("x" * 1_014, QUEUE, message_attributes={"abc": "v" * 1}).body == "x" * 1_014
    with pytest.raises(InvalidParameterValue, match=r"With its attributes it has 1025 bytes and must have 1 to 1024"):
        entry("x" * 1_014, QUEUE, message_attributes={"abc": "v" * 2})
    with pytest.raises(InvalidParameterValue, match=r"MessageBody.*1026 bytes"):
        entry("é" * 513, QUEUE)


def test_an_entry_has_the_names_of_sqs_and_takes_the_rest_from_the_call():
    common = {
        "delay_seconds": 3,
        "message_attributes": {"a": "b"},
        "message_group_id": "g",
        "message_deduplication_id": None,
    }
    given = {
        "MessageBody": "x", "DelaySeconds": 5, "MessageAttributes": {"c": 7}, "MessageGroupId": "h",
        "AWSTraceHeader": "Root=1",
    }  # fmt: skip
    found = parse_entry(given, QUEUE, common)
    assert (found.body, found.delay_seconds, found.message_group_id, found.aws_trace_header) == ("x", 5, "h", "Root=1")
    assert dict(found.message_attributes) == {"c": ("Number", "7", None)}
    rest = parse_entry({"MessageBody": "y"}, QUEUE, common)
    assert (rest.delay_seconds, rest.message_group_id, list(rest.message_attributes), rest.aws_trace_header) == (
        3,
        "g",
        ["a"],
        None,
    )
    assert parse_entry("z", QUEUE, common) == rest._replace(body="z")


def test_an_entry_without_a_body_or_with_an_unknown_name_is_refused():
    with pytest.raises(MissingParameter, match=r"The request must contain the parameter MessageBody."):
        parse_entry({"DelaySeconds": 1}, QUEUE, {})
    with pytest.raises(InvalidParameterValue, match=r"'Body'.*MessageBody, DelaySeconds, MessageAttributes"):
        parse_entry({"MessageBody": "x", "Body": "y"}, QUEUE, {})
    with pytest.raises(InvalidParameterValue) as raised:
        parse_entry({"body": "x"}, QUEUE, {})
    assert raised.value.bound.endswith("; write MessageBody for body"), "a name that tables have is told from others"
    with pytest.raises(InvalidParameterValue) as raised:
        parse_entry({"Body": "x"}, QUEUE, {})
    assert "write" not in raised.value.bound
    with pytest.raises(InvalidParameterValue, match=r"AWSTraceHeader.*string"):
        parse_entry({"MessageBody": "x", "AWSTraceHeader": 7}, QUEUE, {})


def test_m1_a_trace_header_has_the_characters_that_a_body_may_have():
    assert entry("x", QUEUE, aws_trace_header="Root=1;\t").aws_trace_header == "Root=1;\t"
    with pytest.raises(InvalidParameterValue) as raised:
        entry("x", QUEUE, aws_trace_header="Root\x00")
    assert (raised.value.field, raised.value.value) == ("AWSTraceHeader", "Root\x00")
    assert raised.value.message.startswith("Invalid binary character '#x0' was found in the AWSTraceHeader, the set")


def test_f1_only_a_standard_queue_takes_an_attempt_id():
    message.require_no_attempt("a", QUEUE)
    message.require_no_attempt(None, QUEUE)
    message.require_no_attempt(None, FIFO)


def test_f1_the_scope_says_whether_the_group_makes_two_messages_different():
    by_group = {**FIFO, "DeduplicationScope": "messageGroup"}
    assert message.deduplication_key(FIFO, "g", "d") == message.deduplication_key(FIFO, "h", "d")
    assert message.deduplication_key(by_group, "g", "d") != message.deduplication_key(by_group, "h", "d")
    assert message.deduplication_key(by_group, "g", "d") == message.deduplication_key(by_group, "g", "d")
    assert message.deduplication_key(FIFO, "g", "d") != message.deduplication_key(FIFO, "g", "e")


def test_recorded_a_message_that_is_too_long_is_worded_otherwise_in_a_batch():
    for in_batch, opening in ((False, "are invalid"), (True, "cannot be validated")):
        with pytest.raises(InvalidParameterValue) as raised:
            parse_entry("x" * 1_025, QUEUE, {}, in_batch=in_batch)
        said = f"One or more parameters {opening}. Reason: Message must be shorter than 1024 bytes."
        assert raised.value.message == said and str(raised.value).startswith(said)
    with pytest.raises(MissingParameter):
        parse_entry("", QUEUE, {}, in_batch=True)


def test_the_columns_of_a_table_have_names_that_mean_one_thing():
    message.require_columns(["body", "delay_seconds", "message_group_id", "aws_trace_header", "Colour", "colour"])
    message.require_columns(["BODY", "text"], body="BODY")
    message.require_columns([])


@pytest.mark.parametrize(
    ("names", "column", "bound", "fix"),
    [
        (["a", "b", "a"], "a", "The table has two columns of this name", "Rename one."),
        (["Delay_Seconds"], "Delay_Seconds", "the column delay_seconds, which means something", "delay_seconds, or"),
        (["text", "BODY"], "BODY", "the column body, which means something", "Rename it: body, or a word"),
        (["MessageBody"], "MessageBody", "A table has it in the column body", "Nothing was sent."),
        (["DelaySeconds"], "DelaySeconds", "A table has it in the column delay_seconds", "Nothing was sent."),
        (["trace_header"], "trace_header", "A table has it in the column aws_trace_header", "Nothing was sent."),
    ],
)
def test_a_column_that_would_mean_nothing_where_its_name_means_something_is_refused(names, column, bound, fix):
    """Bodies, delays or groups would be left out in silence."""
    with pytest.raises(InvalidParameterValue) as raised:
        message.require_columns(names, body="text")
    assert (raised.value.field, raised.value.value) == ("column", column)
    assert bound in raised.value.bound and fix in raised.value.fix


def refused(*given, **more):
    with pytest.raises((MissingParameter, InvalidParameterValue)) as raised:
        entry(*given, **more)
    return raised.value


def test_m2_recorded_an_entry_without_its_group_or_deduplication_id_fails_the_whole_batch_and_no_other_does():
    assert message.fails_the_batch(refused("x", FIFO, message_deduplication_id="d"))
    assert message.fails_the_batch(refused("x", FIFO, message_group_id="g"))
    assert not message.fails_the_batch(refused("", FIFO, **IDS)), "its body is missing"
    assert not message.fails_the_batch(refused("x", FIFO, delay_seconds=1, **IDS))
    assert not message.fails_the_batch(refused("x", QUEUE, message_deduplication_id="d"))
    assert not message.fails_the_batch(ValueError("another one"))


NOTHING = dict.fromkeys(("delay_seconds", "message_attributes", "message_group_id", "message_deduplication_id"))


def test_what_is_said_of_all_entries_of_a_list_is_checked_once():
    message.require_common(QUEUE, **NOTHING)
    message.require_common(FIFO, **NOTHING)
    message.require_common(QUEUE, **{**NOTHING, "delay_seconds": 900, "message_group_id": "g"})
    message.require_common(FIFO, **{**NOTHING, **IDS, "message_attributes": {"a": "b"}})


@pytest.mark.parametrize(
    ("queue", "said", "field", "value"),
    [
        (QUEUE, {"delay_seconds": 901}, "DelaySeconds", 901),
        (FIFO, {"delay_seconds": 1}, "DelaySeconds", 1),
        (QUEUE, {"message_attributes": 7}, "MessageAttributes", 7),
        (QUEUE, {"message_group_id": "a b"}, "MessageGroupId", "a b"),
        (FIFO, {"message_deduplication_id": "a b"}, "MessageDeduplicationId", "a b"),
        (QUEUE, {"message_deduplication_id": "d"}, "MessageDeduplicationId", "d"),
    ],
)
def test_what_is_said_of_all_entries_and_can_hold_for_none_fails_the_call(queue, said, field, value):
    with pytest.raises(InvalidParameterValue) as raised:
        message.require_common(queue, **{**NOTHING, **said})
    assert (raised.value.field, raised.value.value) == (field, value)
    if value == "d":
        assert raised.value.bound == NOT_VALID
