"""What is said to a storage."""

from ledger.rules import storage


def test_options_that_are_no_text_are_taken_as_what_delta_rs_calls_them():
    given = {"aws_allow_http": True, "aws_skip_signature": False, "max_retries": 3, "aws_region": "eu-central-1"}
    assert list(storage.as_text(given).values()) == ["true", "false", "3", "eu-central-1"]
