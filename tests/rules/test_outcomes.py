"""The table of outcomes: complete. Only HELD, LATE, RELEASED and POSTPONED ever change anything."""

import itertools

import pytest

from ledger.errors import InvalidParameterValue, MessageNotInflight, ReceiptHandleIsInvalid
from ledger.rules import visibility
from ledger.rules.outcomes import ERRORS, error
from ledger.rules.visibility import UNTOUCHED, Outcome, Receipts, Standing, Verb, choose_table, find_standing

NOW = 1_000_000
HELD = visibility.receive(UNTOUCHED, "mine", None, 30, NOW - 10_000)
RECORDS = {
    Standing.UNKNOWN: UNTOUCHED,
    Standing.DELETED: HELD._replace(deleted_at=NOW - 1),
    Standing.REPLACED: HELD._replace(receipt_id="other"),
    Standing.SUPERSEDED: HELD._replace(receipt_id=None),
    Standing.RELEASED: HELD._replace(released_at=NOW - 1, visible_at=NOW - 1),
    Standing.POSTPONED: HELD._replace(released_at=NOW - 1),
    Standing.LATE: HELD._replace(visible_at=NOW - 1),
    Standing.HELD: HELD,
}
CHANGING = {Standing.HELD, Standing.LATE, Standing.RELEASED, Standing.POSTPONED}
TABLES = [choose_table(fifo=fifo, receipts=receipts) for fifo in (False, True) for receipts in Receipts]
WHOLE = [choose_table(fifo=False, receipts=receipts, whole_claim=True) for receipts in Receipts]


@pytest.mark.parametrize("outcomes", TABLES)
def test_every_standing_has_an_outcome_for_every_verb(outcomes):
    assert set(outcomes) == set(itertools.product(Standing, Verb))


@pytest.mark.parametrize("outcomes", [*TABLES, *WHOLE])
def test_only_held_late_released_and_postponed_ever_change_anything(outcomes):
    """But for what V8 says of one verb, of one kind of queue."""
    changing = {key for key, outcome in outcomes.items() if outcome in (Outcome.CHANGED, Outcome.DELETED)}
    if outcomes is choose_table(fifo=False, receipts=Receipts.RECORDED):
        changing.remove((Standing.REPLACED, Verb.CHANGE))
    assert {stands for stands, _ in changing} <= CHANGING


@pytest.mark.parametrize("receipts", Receipts)
def test_v9_v10_on_fifo_queues_only_what_is_in_flight_ever_changes(receipts):
    outcomes = choose_table(fifo=True, receipts=receipts)
    changing = {stands for (stands, _), outcome in outcomes.items() if outcome in (Outcome.CHANGED, Outcome.DELETED)}
    assert changing == {Standing.HELD, Standing.POSTPONED}


@pytest.mark.parametrize("stands", Standing)
def test_every_standing_is_recognized(stands):
    assert find_standing(RECORDS[stands], "mine", NOW) is stands


@pytest.mark.parametrize("whole_claim", [False, True])
@pytest.mark.parametrize("receipts", Receipts)
@pytest.mark.parametrize("timeout", [0, 60, 10**6])
@pytest.mark.parametrize("stands", Standing)
def test_the_verbs_obey_the_law_of_the_table(stands, timeout, receipts, whole_claim):
    before = RECORDS[stands]
    changed = visibility.change(
        before, "mine", timeout, NOW, ceiling=43_200, receipts=receipts, whole_claim=whole_claim
    )
    deleted = visibility.delete(before, "mine", NOW, whole_claim=whole_claim)
    for outcome, after in (changed, deleted):
        assert (after != before) == (outcome in (Outcome.CHANGED, Outcome.DELETED))
        if after != before:
            assert stands in CHANGING or (stands, receipts) == (Standing.REPLACED, Receipts.RECORDED)
            assert after.receipt_id == before.receipt_id and after.receive_count == before.receive_count


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome.CHANGED, None),
        (Outcome.SETTLED, None),
        (Outcome.STALE, ReceiptHandleIsInvalid),
        (Outcome.ALREADY_DELETED, InvalidParameterValue),
        (Outcome.NOT_IN_FLIGHT, MessageNotInflight),
        (Outcome.BEYOND_CEILING, InvalidParameterValue),
        (Outcome.INVALID, ReceiptHandleIsInvalid),
    ],
)
def test_v8_v9_v13_a_change_that_cannot_be_made_is_an_error(outcome, kind):
    found = error(Verb.CHANGE, outcome, "handle", 60, 43_200)
    assert type(found) is (kind or type(None))


@pytest.mark.parametrize("outcome", [Outcome.DELETED, Outcome.STALE, Outcome.ALREADY_DELETED, Outcome.SETTLED])
def test_v8_v13_a_delete_that_has_nothing_to_do_succeeds(outcome):
    assert error(Verb.DELETE, outcome, "handle", 0, None) is None


def test_a_delete_through_a_handle_never_handed_out_is_an_error():
    assert isinstance(error(Verb.DELETE, Outcome.INVALID, "handle", 0, None), ReceiptHandleIsInvalid)


@pytest.mark.parametrize(("verb", "outcome"), ERRORS)
def test_every_error_says_what_to_do(verb, outcome):
    text = str(error(verb, outcome, "the-handle", 60, 43_200))
    assert "eceive" in text
    assert "the-handle" in text or "VisibilityTimeout" in text


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (Outcome.STALE, "a later receive"),
        (Outcome.ALREADY_DELETED, "was deleted"),
        (Outcome.NOT_IN_FLIGHT, "visibility timeout has run out"),
        (Outcome.INVALID, "never handed out"),
    ],
)
def test_v8_v9_v13_the_error_says_what_became_of_the_receipt(outcome, why):
    assert why in str(error(Verb.CHANGE, outcome, "handle", 60, 43_200))


def test_v10_recorded_the_error_of_a_fifo_queues_expired_receipt_names_the_handle():
    found = error(Verb.DELETE, Outcome.EXPIRED, "the-handle", 0, None)
    assert (found.field, found.value) == ("ReceiptHandle", "the-handle")
    assert found.bound == "The receipt handle has expired" and found.fix


def test_v7_the_error_beyond_the_ceiling_names_field_bound_and_fix():
    found = error(Verb.CHANGE, Outcome.BEYOND_CEILING, "handle", 60, 43_200)
    assert (found.field, found.value) == ("VisibilityTimeout", 60)
    assert "43200 seconds" in found.bound and found.fix


def test_v13_recorded_the_error_of_a_change_of_what_was_deleted_names_the_handle():
    found = error(Verb.CHANGE, Outcome.ALREADY_DELETED, "the-handle", 60, 43_200)
    assert (found.field, found.value) == ("ReceiptHandle", "the-handle")
    assert found.bound == "Message does not exist or is not available for visibility timeout change"
    assert "The message was deleted" in found.fix


@pytest.mark.parametrize("verb", Verb)
def test_the_error_of_a_message_that_is_named_by_two_actions_names_the_handle(verb):
    found = error(verb, Outcome.CONTRADICTED, "the-handle", 60, 43_200)
    assert (found.field, found.value) == ("ReceiptHandle", "the-handle")
    assert found.bound == "It is named by two different actions of one call" and "Nothing was changed" in found.fix


def test_s4_the_sentence_of_a_message_that_is_not_in_flight_is_the_services():
    found = error(Verb.CHANGE, Outcome.NOT_IN_FLIGHT, "the-handle", 60, 43_200)
    assert found.message == "The specified message isn't in flight." and "the-handle" in found.advice
