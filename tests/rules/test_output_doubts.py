"""Effectively-once output as pure functions: who may write, what is in doubt, and how doubt ends."""

import itertools

import pytest

from ledger.rules import output_doubts, visibility
from ledger.rules.output_doubts import Part
from ledger.rules.visibility import UNTOUCHED, Record, is_in_doubt

NOW = 1_000_000
LATER = NOW + 60_000
HELD = visibility.receive(UNTOUCHED, "mine", "job-7", 30, NOW)
BEGUN = HELD._replace(writing_to="s3://out", write_id="w@t")


def test_every_write_has_an_id_of_its_own_that_names_its_table():
    ids = {output_doubts.new_write_id("table-1") for _ in range(1_000)}
    assert len(ids) == 1_000 and {output_doubts.table_of(each) for each in ids} == {"table-1"}
    assert output_doubts.table_of("begun-by-an-older-version") is None
    assert all(output_doubts.table_of(output_doubts.new_write_id(name)) == name for name in ("a@b", "@"))


def test_a_transaction_id_of_delta_is_of_one_write():
    # The output table keeps it for good: another version must ask for the same one.
    assert output_doubts.application("w@t") == "ledger/w@t"
    assert output_doubts.WRITTEN != output_doubts.FENCED


def test_what_is_begun_is_in_doubt_until_it_is_written_undone_deleted_or_moved():
    assert output_doubts.begin(HELD, "s3://out", "w@t") == BEGUN
    assert is_in_doubt(BEGUN) and not is_in_doubt(HELD)
    assert output_doubts.find_begun_write(BEGUN) == ("s3://out", "w@t") and output_doubts.find_begun_write(HELD) is None
    assert output_doubts.find_begun_write(output_doubts.undo(BEGUN, "w@t")) is None
    assert output_doubts.find_begun_write(BEGUN._replace(writing_to=None)) is None
    assert not is_in_doubt(output_doubts.finish(BEGUN, "w@t", NOW))
    assert not is_in_doubt(output_doubts.undo(BEGUN, "w@t"))
    assert not is_in_doubt(BEGUN._replace(deleted_at=NOW))
    assert not is_in_doubt(BEGUN._replace(moved_to="dead-0"))


def test_a_write_that_is_in_deletes_its_messages_even_after_their_deadline():
    assert output_doubts.finish(BEGUN, "w@t", LATER) == BEGUN._replace(deleted_at=LATER)


def test_a_write_that_will_never_be_in_leaves_everything_as_before_it_began():
    assert output_doubts.undo(BEGUN, "w@t") == HELD


@pytest.mark.parametrize(
    "record", [HELD, BEGUN._replace(write_id="other@t"), BEGUN._replace(deleted_at=NOW), BEGUN._replace(moved_to="d-0")]
)
def test_only_the_write_that_is_in_doubt_can_be_finished_or_undone(record):
    assert output_doubts.finish(record, "w@t", LATER) is None and output_doubts.undo(record, "w@t") is None
    assert output_doubts.finish(HELD, None, LATER) is None


def test_the_table_decides_a_doubt_deleted_with_its_rows_or_received_again_without():
    assert output_doubts.decide_doubt(BEGUN, written=True, now=LATER) == BEGUN._replace(deleted_at=LATER)
    assert output_doubts.decide_doubt(BEGUN, written=False, now=LATER) == HELD


@pytest.mark.parametrize(
    ("record", "to_ask"),
    [
        (BEGUN, True),
        (BEGUN._replace(deleted_at=NOW), True),
        (BEGUN._replace(visible_at=NOW), True),
        (HELD, False),
        (BEGUN._replace(moved_to="dead-0"), False),
        (BEGUN._replace(receipt_id="other"), False),
        (Record(), False),
    ],
)
def test_a_receipt_asks_about_the_writes_that_were_begun_under_it_and_no_others(record, to_ask):
    assert output_doubts.must_ask(record, "mine") is to_ask


@pytest.mark.parametrize(
    ("record", "now", "part"),
    [
        (HELD, NOW, Part.HELD),
        (BEGUN, NOW, Part.HELD),
        (HELD, LATER, Part.LOST),
        (HELD._replace(deleted_at=NOW), NOW, Part.ACKNOWLEDGED),
        (HELD._replace(deleted_at=NOW, receipt_id="other"), NOW, Part.LOST),
        (HELD._replace(deleted_at=NOW, receipt_id=None), NOW, Part.LOST),
        (HELD._replace(receipt_id="other"), NOW, Part.LOST),
        (HELD._replace(moved_to="dead-0"), NOW, Part.LOST),
        (HELD._replace(released_at=NOW), NOW, Part.LOST),
    ],
)
def test_a_message_is_written_by_who_holds_it_and_by_nobody_once_it_is_acknowledged(record, now, part):
    assert output_doubts.classify_part(record, "mine", now, written=False) is part
    assert output_doubts.classify_part(record, "mine", now, written=True) is Part.WRITTEN


def test_of_two_receipts_exactly_one_writes_whatever_the_table_says_and_when():
    """The first receiver dies in doubt; the second asks the table, and then the first one comes back."""
    for written, back in itertools.product((False, True), (NOW + 1, LATER)):
        taken = output_doubts.decide_doubt(BEGUN, written=written, now=LATER)
        if written:
            assert output_doubts.finish(taken, "w@t", LATER) is None
            assert visibility.find_standing(taken, "mine", LATER) is visibility.Standing.DELETED
        else:
            second = visibility.receive(taken, "theirs", None, 30, LATER)
            assert second.write_id is None and output_doubts.finish(second, "w@t", back) is None
            assert output_doubts.classify_part(second, "mine", back, written=False) is Part.LOST
            assert output_doubts.classify_part(second, "theirs", LATER, written=False) is Part.HELD


@pytest.mark.parametrize(
    ("record", "receipt", "now", "asked"),
    [
        (BEGUN, "mine", LATER, True),
        (BEGUN._replace(deleted_at=NOW), "mine", NOW, True),
        (BEGUN, "mine", NOW, False),
        (BEGUN, "other", LATER, False),
        (BEGUN._replace(moved_to="dead-0"), "mine", LATER, False),
        (HELD._replace(deleted_at=NOW), "mine", LATER, False),
    ],
)
def test_the_table_is_asked_about_each_write_whose_message_a_restore_gives_back(record, receipt, now, asked):
    """Of what was acknowledged beside its write, too: the writer may still stand before its commit."""
    assert output_doubts.must_fence(record, receipt, now) is asked
