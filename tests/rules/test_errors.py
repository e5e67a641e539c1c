"""What an error says: the service's own sentence, then our advice; also in another process."""

import pickle

import pytest

from ledger import errors
from ledger.errors import InvalidAttributeValue, InvalidParameterValue, LedgerError


def test_an_error_begins_with_the_services_sentence_and_ends_with_our_advice():
    error = InvalidParameterValue("Label", "mine", "Already exists", "Take another one.")
    assert error.message == "Value mine for parameter Label is invalid. Reason: Already exists."
    assert str(error) == f"{error.message} Take another one."
    assert (error.field, error.value, error.bound, error.fix) == (
        "Label",
        "mine",
        "Already exists",
        "Take another one.",
    )
    assert str(LedgerError("No period", "Advice.")) == "No period. Advice." and str(LedgerError("Alone")) == "Alone"


def test_a_sentence_of_the_services_own_stands_instead_of_ours():
    error = InvalidParameterValue("SourceArn", "arn", "It is none", message="Another sentence.")
    assert (error.message, error.bound, str(error)) == ("Another sentence.", "It is none", "Another sentence.")


def test_a_bound_of_an_attribute_is_advice_but_for_those_that_the_service_names():
    error = InvalidAttributeValue("DelaySeconds", "901", "Must be a whole number from 0 to 900")
    assert error.message == "Invalid value for the parameter DelaySeconds."
    assert str(error) == f"{error.message} It is 901. Must be a whole number from 0 to 900."
    named = InvalidAttributeValue("FifoQueue", "true", "Modifying queue type is not supported", "Fix.", in_message=True)
    assert named.message == (
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."
    )
    assert named.advice == "Fix."


def test_advice_is_added_behind_what_there_is():
    error = InvalidParameterValue("f", 1, "bound", "Fix.").advised("It is row 3.")
    assert error.advice == "Fix. It is row 3." and error.message == "Value 1 for parameter f is invalid. Reason: bound."


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("text", "text"),
        ("x" * 4_096, "x" * 4_096),
        ("x" * 5_000, "x" * 4_093 + "..."),
        ("\ud800", "\\ud800"),
        (b"x" * 200, repr(b"x" * 200)[:117] + "..."),
        (None, "None"),
    ],
)
def test_a_value_is_shown_as_it_is_and_an_endless_one_is_cut(value, shown):
    assert errors.show_value(value) == shown


@pytest.mark.parametrize(
    "error",
    [
        InvalidParameterValue("f", 1, "bound", "Fix.").advised("More."),
        errors.QueueDoesNotExist("a", ["b"]),
        errors.ContentionOutlastedRetries("send", 3, 1.5),
        errors.ReceiptHandleIsInvalid("handle", "It is none."),
        errors.InvalidMessageContents("#x1"),
    ],
)
def test_an_error_crosses_processes_whole(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)
