"""What is kept of the reasons for which workers give messages back."""

import pytest

from ledger.errors import InvalidParameterValue
from ledger.rules import reasons


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
    ],
)
def test_a_reason_is_one_line_of_at_most_500_characters_or_none(given, kept):
    assert reasons.reason_of(given) == kept


@pytest.mark.parametrize("given", [7, b"bytes", ValueError("it is in str(error)")])
def test_a_reason_that_is_no_text_is_refused(given):
    with pytest.raises(InvalidParameterValue, match="Must be a text") as raised:
        reasons.reason_of(given)
    assert (raised.value.field, raised.value.value) == ("reason", type(given).__name__)
    assert raised.value.fix == "Give str(error), say."


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], None),
        ([None, None], None),
        (["gone", None, "gone"], "gone"),
        (["two\nlines", "two lines"], "two lines"),
        (["a", "b", "b"], "b (2); a (1)"),
        (["c", "b", "a"], "a (1); b (1); c (1)"),
        ([7, "a", "a"], "a (2); 7 (1)"),
        (["b"] * 1_000 + ["a"], "b (1,000); a (1)"),
        (["x" * 600, "y"], f"{'x' * 497}..."),
    ],
)
def test_the_reasons_of_many_are_counted_and_the_most_frequent_comes_first(given, said):
    assert reasons.summary(iter(given)) == said
