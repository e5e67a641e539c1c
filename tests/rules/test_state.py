"""Q1 and the states of a message: derived from what is recorded, never stored."""

import pytest

from ledger.rules.state import UNTOUCHED, Record, Status, status

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


def test_a_locked_message_is_not_in_flight_because_nobody_received_it():
    assert status(Record(visible_at=NOW + 1), 0, NOW) is Status.LOCKED
