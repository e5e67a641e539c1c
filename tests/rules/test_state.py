"""Q1 and the states of a message: derived from what is recorded, never stored."""

import itertools

import pytest

from ledger.rules.visibility import (
    GONE,
    UNTOUCHED,
    Record,
    Retention,
    Status,
    deadline,
    expires_at,
    hold,
    latest_hold,
    status,
)

NOW = 1_000_000
HELD = Record(receipt_id="r", receive_count=1, received_at=0, visible_at=NOW + 1)


@pytest.mark.parametrize(
    ("record", "available_at", "expected"),
    [
        (UNTOUCHED, 0, Status.VISIBLE),
        (UNTOUCHED, NOW, Status.VISIBLE),
        (UNTOUCHED, NOW + 1, Status.DELAYED),
        (HELD, 0, Status.IN_FLIGHT),
        (HELD._replace(visible_at=NOW), 0, Status.VISIBLE),
        (HELD._replace(visible_at=NOW - 1), 0, Status.VISIBLE),
        (Record(visible_at=NOW + 1), 0, Status.LOCKED),
        (Record(visible_at=NOW), 0, Status.VISIBLE),
        (HELD._replace(deleted_at=NOW), 0, Status.DELETED),
        (Record(deleted_at=NOW), NOW + 1, Status.DELETED),
    ],
)
def test_the_state_follows_from_the_record_and_the_instant(record, available_at, expected):
    assert status(record, available_at, NOW) is expected


def test_a_deadline_that_equals_now_has_passed():
    record = Record(receipt_id="r", visible_at=NOW)
    assert status(record, 0, NOW - 1) is Status.IN_FLIGHT
    assert status(record, 0, NOW) is Status.VISIBLE


def test_what_was_never_held_has_a_deadline_before_any_time():
    assert deadline(UNTOUCHED) < 0 and deadline(HELD) == NOW + 1 and deadline(Record(visible_at=0)) == 0


def test_the_last_hold_of_a_message_is_that_of_its_receipt():
    assert hold(HELD) == ("r", 0, NOW + 1)
    assert hold(HELD._replace(released_at=NOW, visible_at=NOW)) == ("r", 0, NOW), "whether it goes on or not"
    for missing in ("receipt_id", "received_at", "visible_at"):
        assert hold(HELD._replace(**{missing: None})) is None
    assert hold(UNTOUCHED) is None and hold(Record(visible_at=NOW)) is None, "a lock is no hold by a receipt"


def test_of_the_holds_of_some_messages_the_one_that_ends_last_counts():
    first, last = HELD._replace(receipt_id="s"), HELD._replace(received_at=-1, visible_at=NOW + 2)
    for records in ([first, last, UNTOUCHED], [UNTOUCHED, last, first]):
        assert latest_hold(iter(records)) == hold(last)
    assert latest_hold([UNTOUCHED, Record(visible_at=NOW)]) is None is latest_hold([])


def test_a_locked_message_is_not_in_flight_because_nobody_received_it():
    assert status(Record(visible_at=NOW + 1), 0, NOW) is Status.LOCKED


@pytest.mark.parametrize(("record", "available_at"), [
    (UNTOUCHED, 0), (UNTOUCHED, NOW + 1), (HELD, 0), (Record(visible_at=NOW + 1), 0),
    (HELD._replace(visible_at=NOW), 0),
])  # fmt: skip
def test_q7_what_has_expired_is_gone_whoever_holds_it(record, available_at):
    assert status(record, available_at, NOW, NOW) is Status.EXPIRED
    assert status(record, available_at, NOW, NOW + 1) is status(record, available_at, NOW)


def test_d1_what_was_moved_or_deleted_before_does_not_expire_any_more():
    moved = HELD._replace(moved_to="dead-00000000")
    assert status(moved, 0, NOW) is status(moved, 0, NOW, NOW) is Status.MOVED
    deleted = HELD._replace(deleted_at=NOW)
    assert status(deleted, 0, NOW, NOW) is Status.DELETED
    assert status(moved._replace(deleted_at=NOW), 0, NOW) is Status.DELETED
    assert set(GONE) == {Status.DELETED, Status.EXPIRED, Status.MOVED}


def test_q7_retention_counts_from_the_send_or_from_a_move_that_restarted_it():
    assert expires_at(UNTOUCHED, 1_000, Retention(60_000)) == 61_000
    assert expires_at(Record(enqueued_at=5_000), 1_000, Retention(60_000)) == 65_000
    assert expires_at(Record(enqueued_at=0), 1_000, Retention(60_000)) == 61_000, "as a repair of the clock records it"


def test_q7_what_has_expired_stays_expired_however_often_the_period_is_changed():
    """At every instant and for every message: after a change it has expired if it had before, and by the new period."""
    times = range(0, 100, 7)
    for first, second, third in itertools.product((10, 25, 60), repeat=3):
        for one, two in itertools.product((30, 45), (45, 80)):
            kept = Retention(first)
            changed = kept.changed(second, one)
            again = changed.changed(third, two)
            for came in times:
                assert (changed.ends(came) <= one) == (kept.ends(came) <= one or changed.period + came <= one)
                for now in range(two, 160, 5):
                    ended = kept.ends(came) <= one or changed.ends(came) <= two or came + third <= now
                    assert (again.ends(came) <= now) == ended == (came <= again.expired(now))
    assert Retention(10).changed(10, 50) == Retention(10), "no change, nothing to note"
