"""Versions of packages, to be compared."""

import pytest

from ledger.rules.text import parse_version


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("4.0.10", (4, 0, 10)),
        ("17", (17,)),
        ("1.2.0rc1", (1, 2, 0)),
        ("3.5.3-amzn-0", (3, 5, 3)),
        ("1.3.0+local.2", (1, 3, 0)),
        ("unknown", ()),
    ],
)
def test_a_version_is_the_numbers_that_it_begins_with(version, numbers):
    assert parse_version(version) == numbers


def test_versions_are_compared_by_number():
    assert parse_version("4.10.0") > parse_version("4.9.1")
