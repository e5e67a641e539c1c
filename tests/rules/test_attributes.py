"""Queue names and attributes: which there are, their ranges, and what cannot change."""

import pytest

from ledger.errors import InvalidAttributeName, InvalidAttributeValue, InvalidParameterValue
from ledger.rules import attributes
from ledger.rules.attributes import OURS
from ledger.rules.visibility import Receipts

DEFAULTS = attributes.complete_attributes({})


@pytest.mark.parametrize("name", ["q", "a-b_c", "0" * 80, "-", "_"])
def test_a_queue_name_has_1_to_80_letters_digits_hyphens_and_underscores(name):
    assert attributes.check_queue_name(name) == name


@pytest.mark.parametrize("name", ["", "x" * 81, "a b", "a.b", "a/b", "../a", "ä", "a\n", "a~b", None, 7, b"q"])
def test_another_queue_name_is_refused_with_field_and_bound(name):
    with pytest.raises(InvalidParameterValue, match=r"QueueName.*1 to 80"):
        attributes.check_queue_name(name)


def test_v1_a_queue_starts_with_30_seconds_and_sqs_bounds():
    assert DEFAULTS["VisibilityTimeout"] == "30"
    assert DEFAULTS["MaximumVisibilityTimeout"] == "43200"
    assert DEFAULTS["LateChange"] == "reject" and DEFAULTS["Limits"] == "UNBOUNDED"


@pytest.mark.parametrize(
    ("name", "value", "answered"),
    [
        ("VisibilityTimeout", 0, "0"),
        ("VisibilityTimeout", 43_200, "43200"),
        ("VisibilityTimeout", "60", "60"),
        ("VisibilityTimeout", "0030", "30"),
        ("Lanes", "08", "8"),
        ("MaximumMessageSize", 1_024, "1024"),
        ("Lanes", 1, "1"),
        ("Lanes", 256, "256"),
        ("LateChange", "accept", "accept"),
        ("Limits", "SQS", "SQS"),
        ("MaximumVisibilityTimeout", 1_209_600, "1209600"),
    ],
)
def test_an_attribute_in_its_range_is_answered_as_text(name, value, answered):
    given = {name: value}
    if name == "MaximumVisibilityTimeout":
        given["VisibilityTimeout"] = 0
    assert attributes.complete_attributes(given)[name] == answered


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("VisibilityTimeout", -1, "from 0 to 43200"),
        ("VisibilityTimeout", 43_201, "from 0 to 43200"),
        ("VisibilityTimeout", "soon", "whole number"),
        ("VisibilityTimeout", 1.5, "whole number"),
        ("VisibilityTimeout", True, "whole number"),
        ("VisibilityTimeout", None, "whole number"),
        ("VisibilityTimeout", "", "whole number"),
        ("MaximumMessageSize", 1_023, "from 1024"),
        ("Lanes", 0, "from 1 to 256"),
        ("Lanes", 257, "from 1 to 256"),
        ("LateChange", "perhaps", "reject, accept"),
        ("Limits", "sqs", "UNBOUNDED, SQS"),
        ("MaximumVisibilityTimeout", 0, "from 1 to"),
        ("ReceiveMessageWaitTimeSeconds", 86_401, "from 0 to 86400"),
        ("VisibilityTimeout", "３０", "whole number"),
    ],
)
def test_an_attribute_out_of_its_range_is_refused_with_name_and_bound(name, value, bound):
    with pytest.raises(InvalidAttributeValue) as raised:
        attributes.complete_attributes({name: value})
    assert raised.value.field == name and bound in str(raised.value)


@pytest.mark.parametrize("name", ["visibilitytimeout", "", "FifoQueue ", 7, None])
def test_an_unknown_attribute_is_refused_with_the_known_ones(name):
    with pytest.raises(InvalidAttributeName, match="VisibilityTimeout"):
        attributes.complete_attributes({name: "x"})


def test_q4_an_sqs_queue_keeps_the_services_bounds():
    with pytest.raises(InvalidAttributeValue, match="from 0 to 20"):
        attributes.complete_attributes({"Limits": "SQS", "ReceiveMessageWaitTimeSeconds": 21})
    with pytest.raises(InvalidAttributeValue, match="from 1 to 43200"):
        attributes.complete_attributes({"Limits": "SQS", "MaximumVisibilityTimeout": 43_201})
    assert (
        attributes.complete_attributes({"ReceiveMessageWaitTimeSeconds": 21})["ReceiveMessageWaitTimeSeconds"] == "21"
    )


def test_q4_the_limits_of_a_queue_follow_from_its_attributes():
    sqs = attributes.limits_of(attributes.complete_attributes({"Limits": "SQS"}))
    assert (sqs.maximum_messages_per_receive, sqs.maximum_wait, sqs.maximum_visibility_timeout) == (10, 20, 43_200)
    assert sqs.has_intervals
    ours = attributes.limits_of(attributes.complete_attributes({"MaximumVisibilityTimeout": 100_000}))
    assert (ours.maximum_messages_per_receive, ours.maximum_wait, ours.maximum_visibility_timeout) == (
        None,
        None,
        100_000,
    )
    assert not ours.has_intervals


@pytest.mark.parametrize(("name", "value"), [("Lanes", 9), ("Limits", "SQS")])
def test_what_stored_messages_depend_on_cannot_change(name, value):
    with pytest.raises(InvalidAttributeValue, match="fixed when the queue is created") as raised:
        attributes.complete_attributes({name: value}, DEFAULTS)
    assert "fixed when" in raised.value.message, "SQS has no words about our attributes, so its clients get ours"
    assert attributes.complete_attributes({name: DEFAULTS[name]}, DEFAULTS) == DEFAULTS


def test_a_number_with_zeros_before_it_is_the_same_number_also_of_what_cannot_change():
    known = attributes.complete_attributes({"Lanes": "8"})
    assert attributes.complete_attributes({"Lanes": "08", "VisibilityTimeout": "0030"}, known) == known


def test_a_change_keeps_what_it_does_not_name():
    changed = attributes.complete_attributes({"VisibilityTimeout": 60}, DEFAULTS)
    assert changed == {**DEFAULTS, "VisibilityTimeout": "60"}
    assert attributes.complete_attributes({"LateChange": "accept"}, changed)["VisibilityTimeout"] == "60"


def test_the_default_timeout_cannot_exceed_the_queues_own_ceiling():
    with pytest.raises(InvalidAttributeValue, match="MaximumVisibilityTimeout"):
        attributes.complete_attributes({"MaximumVisibilityTimeout": 10})
    with pytest.raises(InvalidAttributeValue, match="MaximumVisibilityTimeout"):
        attributes.complete_attributes({"MaximumVisibilityTimeout": 10}, DEFAULTS)


def test_a_key_of_ones_own_turns_the_managed_ones_off_and_shows_its_period():
    first = attributes.complete_attributes({})
    assert attributes.answer_attributes(first)["SqsManagedSseEnabled"] == "true"
    assert "KmsDataKeyReusePeriodSeconds" not in attributes.answer_attributes(first)
    keyed = attributes.complete_attributes({"KmsMasterKeyId": "alias/mine"}, first)
    assert attributes.answer_attributes(keyed)["KmsDataKeyReusePeriodSeconds"] == "300"
    assert keyed["SqsManagedSseEnabled"] == "false"
    left = attributes.complete_attributes({"KmsMasterKeyId": ""}, keyed)
    assert "KmsMasterKeyId" not in left and left["SqsManagedSseEnabled"] == "false", "recorded"
    assert (
        attributes.complete_attributes({"KmsMasterKeyId": "", "SqsManagedSseEnabled": True}, keyed)[
            "SqsManagedSseEnabled"
        ]
        == "true"
    )


@pytest.mark.parametrize("known", [None, attributes.complete_attributes({"KmsMasterKeyId": "k"})])
def test_one_kind_of_encryption_at_a_time(known):
    given = {"SqsManagedSseEnabled": "true", **({} if known else {"KmsMasterKeyId": "k"})}
    with pytest.raises(InvalidAttributeName) as raised:
        attributes.complete_attributes(given, known)
    assert raised.value.message == (
        "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."
    )
    assert raised.value.advice == "Set KmsMasterKeyId to the empty text, or SqsManagedSseEnabled to false."


@pytest.mark.parametrize("given", [{"a\ud800": ""}, {"a": "\ud800"}])
def test_a_tag_is_text_that_can_be_stored(given):
    with pytest.raises(InvalidParameterValue, match="half a character") as raised:
        attributes.check_tags(given)
    assert raised.value.field == "Tags"
    assert attributes.check_tags({"é": "ö"}) == {"é": "ö"}


RECORDED = attributes.complete_attributes({"Receipts": "recorded"})


@pytest.mark.parametrize(
    ("given", "known", "receipts", "late", "taken"),
    [
        ({}, None, "fenced", "reject", Receipts.FENCED),
        ({"LateChange": "accept"}, None, "fenced", "accept", Receipts.LATE),
        ({"Receipts": "fenced", "LateChange": "accept"}, None, "fenced", "accept", Receipts.LATE),
        ({"Receipts": "recorded"}, None, "recorded", "accept", Receipts.RECORDED),
        ({"Receipts": "recorded", "LateChange": "accept"}, None, "recorded", "accept", Receipts.RECORDED),
        ({"DelaySeconds": 1}, RECORDED, "recorded", "accept", Receipts.RECORDED),
        ({"Receipts": "fenced"}, RECORDED, "fenced", "reject", Receipts.FENCED),
    ],
)
def test_v8_v9_what_receipts_a_queue_takes_says_whether_it_takes_late_changes(given, known, receipts, late, taken):
    found = attributes.complete_attributes(given, known)
    assert (found["Receipts"], found["LateChange"]) == (receipts, late)
    assert attributes.receipts_of(found) is taken


@pytest.mark.parametrize(
    ("given", "known"), [({"Receipts": "recorded", "LateChange": "reject"}, None), ({"LateChange": "reject"}, RECORDED)]
)
def test_v9_with_recorded_receipts_late_changes_are_accepted(given, known):
    with pytest.raises(InvalidAttributeValue, match="With Receipts=recorded late changes are accepted") as raised:
        attributes.complete_attributes(given, known)
    assert (raised.value.field, raised.value.value, raised.value.fix) == (
        "LateChange",
        "reject",
        "Set Receipts=fenced.",
    )


def test_a_key_has_at_most_2048_characters_that_can_be_stored():
    assert attributes.complete_attributes({"KmsMasterKeyId": "k" * 2_048})["KmsMasterKeyId"] == "k" * 2_048
    for key, why in (("k" * 2_049, "Must have at most 2048 characters"), ("\ud800", "half a character")):
        with pytest.raises(InvalidParameterValue, match=why) as raised:
            attributes.complete_attributes({"KmsMasterKeyId": key})
        assert (raised.value.field, raised.value.value) == ("KmsMasterKeyId", key)


def test_a_queue_that_is_older_than_an_attribute_has_its_default():
    old = {name: value for name, value in DEFAULTS.items() if name not in ("SqsManagedSseEnabled", "Receipts")}
    assert attributes.answer_attributes(old)["SqsManagedSseEnabled"] == "true"
    assert attributes.complete_attributes({"DelaySeconds": 1}, old) == {**DEFAULTS, "DelaySeconds": "1"}


def test_a_fifo_queue_answers_its_own_attributes_and_a_standard_queue_has_none():
    fifo = attributes.complete_attributes({"FifoQueue": "true"})
    assert attributes.answer_attributes({**DEFAULTS, "FifoQueue": "true"}) == attributes.answer_attributes(fifo)
    assert not set(attributes.answer_attributes(DEFAULTS)) & {"FifoQueue", "DeduplicationScope", "FifoThroughputLimit"}


def test_ours_and_sqss_attributes_are_told_apart():
    bounds = {"MaximumVisibilityTimeout", "MaximumMessages", "MaximumStoredBytes"}
    assert {"Limits", "Lanes", "LateChange", "Receipts", *bounds} == OURS
    assert not OURS & {"VisibilityTimeout", "KmsMasterKeyId", "RedrivePolicy", "FifoQueue"}


@pytest.mark.parametrize("key", ["aws:cloudformation:stack-name", "AWS:x", "aws:"])
def test_a_tag_of_the_services_own_prefix_is_refused_unless_the_queue_has_it_already(key):
    with pytest.raises(InvalidParameterValue, match=r"begins with aws:.* reserved"):
        attributes.check_tags({"mine": "a", key: "b"})
    assert attributes.check_tags({key: "b"}, {key: "a"}) == {key: "b"}
    assert attributes.check_tags({"awsome": "", "my-aws:x": ""})
