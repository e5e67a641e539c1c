"""Attempt ids: what is the same send, and how long an id may be."""

import pytest

from jobs import common
from ledger.errors import InvalidParameterValue
from ledger.rules import attempts
from ledger.rules.message import Entry
from ledger.rules.message_attributes import Attribute


def content(*entries, queue="jobs-1"):
    return attempts.hash_content(queue, [Entry(**one) if isinstance(one, dict) else Entry(one) for one in entries])


def test_a_content_is_even_positive_and_fits_a_version_of_delta():
    for number in (
        content("a"),
        attempts.hash_row_content("jobs-1", 3, -7),
        attempts._number(b"\xff" * 32),
        attempts._number(b"\0" * 32),
    ):
        assert number % 2 == 0 and 2 <= number < 2**63


def test_what_is_another_send_has_another_content():
    kind = {"kind": Attribute("String", "x")}
    contents = [
        content("a", "b"),
        content("b", "a"),
        content("ab"),
        content("a", "b", queue="jobs-2"),
        content("a", "b", "b"),
        content({"body": "a", "message_attributes": kind}, "b"),
        content({"body": "a", "message_attributes": {"kind": Attribute("Number", "1")}}, "b"),
        content({"body": "a", "message_attributes": {"kind": Attribute("Binary", None, b"x")}}, "b"),
        content({"body": "a", "message_group_id": "g"}, "b"),
        content({"body": "a", "aws_trace_header": "g"}, "b"),
        attempts.hash_row_content("jobs-1", 2, 0),
        attempts.hash_row_content("jobs-1", 20, 0),
        attempts.hash_row_content("jobs-2", 2, 0),
    ]
    assert len(set(contents)) == len(contents)
    assert content("a", {"body": "b", "delay_seconds": 5}) == contents[0]
    both = {"one": Attribute("String", "1"), "two": Attribute("String", "2")}
    assert content({"body": "a", "message_attributes": both}) == content(
        {"body": "a", "message_attributes": dict(reversed(both.items()))}
    )


def test_a_content_is_the_same_number_in_every_version():
    """The log keeps it: a retry by another version of the ledger must come to the same one."""
    kind = {"kind": Attribute("Binary", None, b"x")}
    assert content({"body": "a", "message_attributes": kind, "message_group_id": "g"}) == 3305912690423790702
    assert attempts.hash_row_content("jobs-1", 2, -5) == 1348729437297533610


def test_f3_another_send_under_the_id_of_one_that_was_committed_is_refused():
    one = attempts.Attempt("daily", "jobs-1", 8)
    one.require_same(8)
    with pytest.raises(InvalidParameterValue, match="Another send was committed under it") as raised:
        one.require_same(10)
    assert (raised.value.field, raised.value.value) == ("attempt_id", "daily")
    assert "Nothing was sent" in raised.value.fix and attempts.RECIPE in raised.value.fix


@pytest.mark.parametrize("longest", [128, 120])
def test_a_text_of_any_length_is_shortened_to_an_id_of_its_own(longest):
    short, long, other = "x" * longest, "x" * 200, "x" * 199 + "y"
    assert attempts.shorten_id(short, longest) == short
    assert len(attempts.shorten_id(long, longest)) == longest and attempts.shorten_id(long, longest).startswith("xxx")
    assert attempts.shorten_id(long, longest) != attempts.shorten_id(other, longest)


@pytest.mark.parametrize(("held", "maximum", "fits"), [(3, 3, True), (3, None, True), (2, 3, True), (3, 2, False)])
def test_a_claim_larger_than_what_is_asked_for_is_no_retry(held, maximum, fits):
    if fits:
        attempts.require_not_smaller("job", held, maximum)
    else:
        with pytest.raises(
            InvalidParameterValue, match=r"claim of 3 messages, and 2 are asked for.*ti\.map_index"
        ) as raised:
            attempts.require_not_smaller("job", held, maximum)
        assert (raised.value.field, raised.value.value) == ("ReceiveRequestAttemptId", "job")


def test_the_jobs_help_has_the_recipe_that_the_errors_have():
    assert attempts.RECIPE in common.ATTEMPT_ID


def test_f3_two_receives_of_one_call_have_different_attempt_ids():
    attempts.require_different([None, "a", None, "b"])
    with pytest.raises(InvalidParameterValue, match="Two receives of one call have it") as raised:
        attempts.require_different(["a", None, "b", "a"])
    assert (raised.value.field, raised.value.value) == ("ReceiveRequestAttemptId", "a")
    assert raised.value.fix == "Give every receive an id of its own."


@pytest.mark.parametrize(
    ("attempt_id", "number"),
    [("daily/0", 0), ("daily/12", 12), ("daily/eu", None), ("daily/eu/1", None), ("daily", None), ("daily/", None),
     ("other/1", None), ("dail/1", None), (None, None), ("1", None)],
)  # fmt: skip
def test_the_claims_of_an_attempt_have_its_id_and_a_number(attempt_id, number):
    found = attempts.parse_claim_id("daily", attempt_id)
    assert found == (None if number is None else (None, number))


def test_an_attempt_may_have_a_slash_and_numbers_of_its_own():
    assert attempts.parse_claim_id("daily/1", "daily/1/2") == (None, 2)
    assert attempts.parse_claim_id("daily", "daily/1/2") is None


@pytest.mark.parametrize(
    ("attempt_id", "found"),
    [("daily/0.3", (0, 3)), ("daily/12.0", (12, 0)), ("daily/.0", None), ("daily/x.0", None), ("daily/1.", None),
     ("daily/1.2.3", None), ("other/1.0", None), ("daily/1.x", None), ("daily/1.2/0", None), ("daily/1.2/0.3", None)],
)  # fmt: skip
def test_the_processes_of_an_attempt_have_numbers_too(attempt_id, found):
    assert attempts.parse_claim_id("daily", attempt_id) == found
    if found is not None:
        assert attempt_id == attempts.claim_id("daily", *found)


@pytest.mark.parametrize("given", [None, "a", "x" * 128, "größe"])
def test_an_attempt_id_has_1_to_128_characters(given):
    assert attempts.attempt_id(given, "attempt_id") == given


@pytest.mark.parametrize("given", ["", "x" * 129, 7, b"a", ["a"], True])
def test_another_attempt_id_is_refused_with_a_recipe_for_one(given):
    with pytest.raises(InvalidParameterValue, match="Must be a string of 1 to 128 characters") as raised:
        attempts.attempt_id(given, "ReceiveRequestAttemptId")
    assert (raised.value.field, raised.value.value) == ("ReceiveRequestAttemptId", given)
    assert attempts.RECIPE in raised.value.fix and "hashlib.sha256" in raised.value.fix


def test_an_attempt_id_is_text_that_can_be_stored():
    with pytest.raises(InvalidParameterValue, match="half a character") as raised:
        attempts.attempt_id("a\ud800", "attempt_id")
    assert (raised.value.field, raised.value.value) == ("attempt_id", "a\ud800")
