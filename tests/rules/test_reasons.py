"""What is kept of the reasons for which workers give messages back."""

import pytest

from ledger.errors import InvalidParameterValue
from ledger.rules import visibility


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None),
        ("", None),
        (" \n", None),
        ("no such host", "no such host"),
        ("  two\n\tlines ", "two lines"),
        ("x" * 500, "x" * 500),
        ("x" * 501, "x" * 497 + "..."),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_a_reason_is_one_line_of_at_most_500_characters_or_none(given, kept):
    assert visibility.clean_reason(given) == kept


@pytest.mark.parametrize("given", [7, b"bytes", ValueError("it is in str(error)")])
def test_a_reason_that_is_no_text_is_refused(given):
    with pytest.raises(InvalidParameterValue, match="Must be a text") as raised:
        visibility.clean_reason(given)
    assert (raised.value.field, raised.value.value) == ("reason", type(given).__name__)
    assert raised.value.fix == "Give str(error), say."


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([], []),
        ([None, None, " "], []),
        (["gone", None, "gone"], ["gone"]),
        (["two\nlines", "two lines"], ["two lines"]),
        (["a", "b", "b"], ["b", "a"]),
        (["c", "b", "a"], ["a", "b", "c"]),
        ([7, "a", "a"], ["a", "7"]),
        (["x" * 600, "y"], [f"{'x' * 497}...", "y"]),
    ],
)
def test_the_reasons_of_many_are_texts_of_their_own_and_the_most_frequent_comes_first(given, named):
    assert visibility.list_frequent_reasons(iter(given)) == named


def test_no_more_reasons_are_named_than_a_commit_may_have():
    assert len(visibility.list_frequent_reasons(str(n) for n in range(1_000))) == visibility.MOST == 100
    assert str(visibility.MOST) in visibility.FURTHER
