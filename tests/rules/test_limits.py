"""V1, Q4, Q5: single values against their bounds. Every refusal names the field and the bound."""

import re

import pytest

from ledger.errors import InvalidMessageContents, InvalidParameterValue, MissingParameter
from ledger.rules import limits, message, text
from ledger.rules.limits import SQS, UNBOUNDED, Limits


@pytest.mark.parametrize("value", [0, 1, 30, 43_200])
def test_v1_a_visibility_timeout_is_0_to_43200_seconds(value):
    assert limits.check_visibility_timeout(value, SQS) == limits.check_visibility_timeout(value, UNBOUNDED) == value


@pytest.mark.parametrize("value", [-1, 43_201, 1.5, 30.0, "30", None, True, float("nan"), [30]])
def test_v1_another_visibility_timeout_is_refused_with_field_bound_and_fix(value):
    with pytest.raises(InvalidParameterValue) as raised:
        limits.check_visibility_timeout(value, SQS)
    assert raised.value.field == "VisibilityTimeout" and raised.value.value is value
    assert "VisibilityTimeout" in str(raised.value) and raised.value.fix
    assert raised.value.bound == "Must be between 0 and 43200, if provided"


def test_what_is_no_whole_number_is_refused_with_the_fix_of_its_field_or_one_for_all():
    with pytest.raises(InvalidParameterValue) as raised:
        limits.check_visibility_timeout("30", SQS)
    assert "this is a str. Give seconds;" in raised.value.fix, "30 is within the bound"
    with pytest.raises(InvalidParameterValue) as raised:
        limits.maximum_messages("1", SQS)
    assert raised.value.fix == "A whole number is asked for, and this is a str."


def test_v1_a_queue_may_raise_the_bound():
    raised = Limits(maximum_visibility_timeout=86_400)
    assert limits.check_visibility_timeout(86_400, raised) == 86_400
    with pytest.raises(InvalidParameterValue, match="86400"):
        limits.check_visibility_timeout(86_401, raised)


def test_v1_the_default_is_30_seconds():
    assert limits.DEFAULT_VISIBILITY_TIMEOUT == 30


@pytest.mark.parametrize("value", [0, -1, 11, 2.0, "1", True])
def test_q4_an_sqs_queue_gives_1_to_10_messages_a_call(value):
    assert limits.maximum_messages(1, SQS) == 1 and limits.maximum_messages(10, SQS) == 10
    with pytest.raises(InvalidParameterValue, match=r"MaxNumberOfMessages.*Must be between 1 and 10, if provided\."):
        limits.maximum_messages(value, SQS)


def test_q4_all_messages_means_ten_on_an_sqs_queue_and_all_on_an_unbounded_one():
    assert limits.maximum_messages(None, SQS) == 10
    assert limits.maximum_messages(None, UNBOUNDED) is None
    assert limits.maximum_messages(10**9, UNBOUNDED) == 10**9
    with pytest.raises(InvalidParameterValue) as raised:
        limits.maximum_messages(0, UNBOUNDED)
    assert raised.value.bound == "Must be a whole number >= 1", "there is no upper bound to name"


@pytest.mark.parametrize("value", [0, 1, 0.5, 20])
def test_q5_a_wait_is_0_to_20_seconds_on_an_sqs_queue(value):
    assert limits.check_wait(value, SQS) == value


@pytest.mark.parametrize("value", [-1, -0.1, 21, "1", None, True])
def test_q5_another_wait_is_refused_in_the_services_words(value):
    with pytest.raises(InvalidParameterValue) as raised:
        limits.check_wait(value, SQS)
    assert "for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided" in str(raised.value)


def test_q5_a_wait_may_have_any_length_on_an_unbounded_queue():
    assert limits.check_wait(10_000, UNBOUNDED) == 10_000


def test_q5_a_wait_that_is_no_number_is_refused():
    with pytest.raises(InvalidParameterValue, match="WaitTimeSeconds"):
        limits.check_wait(float("nan"), UNBOUNDED)


@pytest.mark.parametrize("text", ["x", "x" * 1_024, "é" * 512, "😀" * 256, " ", "\n"])
def test_a_body_has_1_byte_to_the_queues_maximum_in_utf_8(text):
    assert message.body(text, 1_024) == text


@pytest.mark.parametrize("text", ["x" * 1_025, "é" * 513, "😀" * 257])
def test_another_body_is_refused_with_field_bound_and_fix(text):
    with pytest.raises(InvalidParameterValue) as raised:
        message.body(text, 1_024)
    assert raised.value.field == "MessageBody" and "1 to 1024 (MaximumMessageSize)" in raised.value.fix
    # Recorded, but for the number of bytes.
    said = "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    assert raised.value.message == said and str(raised.value) == f"{said} {raised.value.fix}"
    assert len(str(raised.value)) < 400


def test_m1_an_empty_body_is_a_missing_one():
    with pytest.raises(MissingParameter) as raised:
        message.body("", 1_024)
    assert raised.value.message == "The request must contain the parameter MessageBody."


@pytest.mark.parametrize("value", [7, b"bytes", ["x"], {"a": 1}])
def test_a_body_that_is_no_string_is_refused(value):
    with pytest.raises(InvalidParameterValue, match=r"MessageBody.*Must be a string"):
        message.body(value, 1_024)


def test_m1_the_edges_of_the_services_characters_are_taken():
    taken = "\t\n\r \x7f\ud7ff\ue000\ufffd\U00010000\U0010ffff"
    assert message.body(taken, 1_024) == taken


@pytest.mark.parametrize("code", [*range(9), 0xB, 0xC, *range(0xE, 0x20), 0xD800, 0xDFFF, 0xFFFE, 0xFFFF])
def test_m1_another_character_is_refused_by_its_name(code):
    # 0xD800 to 0xDFFF are half a character, which Python's strings may hold and UTF-8 may not.
    with pytest.raises(InvalidMessageContents) as raised:
        message.body(f"good {chr(code)} bad", 1_024)
    assert raised.value.code == "InvalidMessageContents" and raised.value.character == f"#x{code:X}"
    assert raised.value.message == (
        f"Invalid binary character '#x{code:X}' was found in the message body, the set of allowed characters is #x9 | "
        "#xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF]."
    )


def test_m1_what_is_looked_for_in_parts_is_what_is_looked_for_at_once():
    whole, controls = re.compile(text.FORBIDDEN), re.compile(text.CONTROLS)
    for one in map(chr, range(0x11000)):
        in_parts = controls.search(one) or one in text.NONE_AT_ALL or "\ud800" <= one <= "\udfff"
        assert bool(in_parts) == bool(whole.search(one)), hex(ord(one))


def test_m1_a_text_that_is_plain_has_no_character_that_is_refused():
    # Java ends a text with \z, Python with \Z.
    plain = re.compile(text.PLAIN.replace(r"\z", r"\Z"))
    for code in range(0x11000):
        one = f"a{chr(code)}"
        assert not (plain.search(one) and text.find_forbidden_character(one)), hex(code)
        assert not plain.search(one) or code < 0xD800
    assert plain.search("one line, Größe, 漢字") and not plain.search("two\nlines")
