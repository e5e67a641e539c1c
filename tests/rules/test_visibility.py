"""V2 to V14 and F3 of SEMANTICS.md as pure functions: a test named after each rule."""

import pytest

from ledger.rules import redrive, visibility
from ledger.rules.visibility import UNTOUCHED, Outcome, Receipts, Record, Standing, Status, find_standing, status

NOW = 1_000_000
TWELVE_HOURS = 43_200
SECOND = 1_000


def received(timeout=30, at=NOW, receipt="r1", before=UNTOUCHED, attempt=None):
    return visibility.receive(before, receipt, attempt, timeout, at)


def change(record, timeout, now, receipt="r1", ceiling=TWELVE_HOURS, **how):
    return visibility.change(record, receipt, timeout, now, ceiling=ceiling, **how)


@pytest.mark.parametrize("timeout", [0, 1, 30, TWELVE_HOURS])
def test_v2_v3_a_received_message_is_in_flight_for_exactly_the_receives_own_timeout(timeout):
    record = received(timeout)
    deadline = NOW + timeout * SECOND
    assert record.visible_at == deadline
    assert status(record, 0, deadline) is Status.VISIBLE
    if timeout:
        assert status(record, 0, deadline - 1) is Status.IN_FLIGHT


def test_v4_a_change_counts_from_the_call_and_replaces_the_deadline():
    # S0: 20 s into 30 s, a change to 60 s ends 60 s from now.
    outcome, record = change(received(30), 60, NOW + 20 * SECOND)
    assert outcome is Outcome.CHANGED
    assert record.visible_at == NOW + 80 * SECOND


def test_v4_a_change_may_shorten_the_deadline():
    _, record = change(received(30), 5, NOW + SECOND)
    assert record.visible_at == NOW + 6 * SECOND


def test_v5_a_change_is_forgotten_by_the_next_receive():
    _, changed = change(received(30), 600, NOW)
    again = received(30, at=NOW + 700 * SECOND, receipt="r2", before=changed)
    assert again.visible_at == NOW + 730 * SECOND


def test_v6_a_change_to_zero_releases_at_once():
    outcome, record = change(received(30), 0, NOW + SECOND)
    assert outcome is Outcome.CHANGED
    assert status(record, 0, NOW + SECOND) is Status.VISIBLE
    assert find_standing(record, "r1", NOW + SECOND) is Standing.RELEASED


@pytest.mark.parametrize(
    ("after", "timeout", "expected"),
    [
        (0, TWELVE_HOURS, Outcome.CHANGED),
        (1, TWELVE_HOURS, Outcome.BEYOND_CEILING),
        (1, TWELVE_HOURS - 1, Outcome.CHANGED),
        (600, TWELVE_HOURS - 600, Outcome.CHANGED),
        (600, TWELVE_HOURS - 599, Outcome.BEYOND_CEILING),
    ],
)
def test_v7_a_change_beyond_twelve_hours_from_the_receive_is_an_error_and_no_clamp(after, timeout, expected):
    before = received(1_000)
    outcome, record = change(before, timeout, NOW + after * SECOND)
    assert outcome is expected
    if expected is Outcome.BEYOND_CEILING:
        assert record == before


def test_v7_extending_does_not_move_the_ceiling():
    record, now = received(40_000), NOW
    for _ in range(3):
        now += 10_000 * SECOND
        outcome, record = change(record, 13_000, now)
        assert outcome is Outcome.CHANGED
    now += 10_000 * SECOND
    assert change(record, 3_201, now)[0] is Outcome.BEYOND_CEILING
    assert change(record, 3_200, now)[0] is Outcome.CHANGED


def test_v7_a_new_receive_has_a_ceiling_of_its_own():
    late = NOW + 40_000 * SECOND
    again = received(30, at=late, receipt="r2", before=received(30))
    assert change(again, TWELVE_HOURS, late, receipt="r2")[0] is Outcome.CHANGED


def test_v7_a_release_is_never_beyond_the_ceiling():
    record = received(100)
    assert change(record, 0, NOW + 50 * SECOND, ceiling=10)[0] is Outcome.CHANGED


def test_v7_without_a_ceiling_every_extension_holds():
    assert change(received(30), 10**9, NOW, ceiling=None)[0] is Outcome.CHANGED


def heartbeat(record, timeout, now, ceiling=TWELVE_HOURS):
    return visibility.change(record, "r1", timeout, now, ceiling=ceiling, whole_claim=True, only_later=True)


def test_v4_a_heartbeat_extends_and_never_shortens_what_was_given_longer():
    record = received(30)
    assert heartbeat(record, 60, NOW + SECOND) == (Outcome.CHANGED, record._replace(visible_at=NOW + 61 * SECOND))
    _, longer = change(record, 600, NOW)
    assert heartbeat(longer, 60, NOW + SECOND) == (Outcome.CHANGED, longer)


def test_v7_a_heartbeat_goes_as_far_as_the_ceiling_and_no_further():
    record = received(30)
    outcome, kept = heartbeat(record, 60, NOW + 20 * SECOND, ceiling=70)
    assert (outcome, kept.visible_at) == (Outcome.CHANGED, NOW + 70 * SECOND)
    assert heartbeat(kept, 60, NOW + 65 * SECOND, ceiling=70) == (Outcome.CHANGED, kept)


def test_v8_through_a_replaced_receipt_nothing_changes():
    taken = received(30, at=NOW + 31 * SECOND, receipt="r2", before=received(30))
    now = NOW + 32 * SECOND
    assert change(taken, 60, now) == (Outcome.STALE, taken)
    assert change(taken, 0, now) == (Outcome.STALE, taken)
    assert visibility.delete(taken, "r1", now) == (Outcome.STALE, taken)


def test_v8_a_replaced_receipt_stays_stale_after_the_later_one_ran_out():
    taken = received(30, at=NOW + 31 * SECOND, receipt="r2", before=received(30))
    now = NOW + 100 * SECOND
    assert change(taken, 60, now, receipts=visibility.Receipts.LATE) == (Outcome.STALE, taken)
    assert visibility.delete(taken, "r1", now) == (Outcome.STALE, taken)


def test_v8_a_queue_of_recorded_receipts_lets_a_change_through_a_replaced_one_through():
    """The deadline changes, and the newer receipt stays the receipt."""
    taken = received(30, at=NOW + 31 * SECOND, receipt="r2", before=received(30))
    recorded = {"receipts": visibility.Receipts.RECORDED}
    for now in (NOW + 32 * SECOND, NOW + 100 * SECOND):
        assert change(taken, 60, now, **recorded) == (Outcome.CHANGED, taken._replace(visible_at=now + 60 * SECOND))
        assert change(taken, 0, now, **recorded) == (Outcome.CHANGED, taken._replace(visible_at=now))
        assert visibility.delete(taken, "r1", now) == (Outcome.STALE, taken)
    given_back = taken._replace(visible_at=NOW, released_at=NOW, attempt_id="a")
    hidden = given_back._replace(visible_at=NOW + 92 * SECOND)
    assert change(given_back, 60, NOW + 32 * SECOND, **recorded) == (Outcome.CHANGED, hidden), "r2 gave it back"
    assert not visibility.is_held(hidden, "r2") and not visibility.is_same_attempt(hidden, "a", NOW + 40 * SECOND)


def test_v8_a_whole_claim_and_a_heartbeat_never_change_what_another_receiver_has():
    taken = received(30, at=NOW + 31 * SECOND, receipt="r2", before=received(30))
    for how in ({"whole_claim": True}, {"only_later": True}, {"fifo": True}):
        outcome = change(taken, 60, NOW + 32 * SECOND, receipts=visibility.Receipts.RECORDED, **how)
        assert outcome == (Outcome.STALE, taken)


@pytest.mark.parametrize("after", ["locked", "restored", "moved"])
def test_v8_where_no_receipt_is_on_record_there_is_none_to_change_through(after):
    taken, now = received(30), NOW + 40 * SECOND
    record = {
        "locked": visibility.lock(taken, 60, now),
        "restored": visibility.restore(visibility.delete(taken, "r1", NOW + SECOND)[1], "r1", now),
        "moved": redrive.mark_moved(taken, "dead-0"),
    }[after]
    assert change(record, 60, now, receipts=visibility.Receipts.RECORDED) == (Outcome.STALE, record)


def test_v9_a_change_after_the_deadline_is_not_in_flight():
    record = received(30)
    assert change(record, 60, NOW + 30 * SECOND) == (Outcome.NOT_IN_FLIGHT, record)


def test_v9_a_queue_that_accepts_late_changes_extends_what_nobody_else_received():
    outcome, record = change(received(30), 60, NOW + 31 * SECOND, receipts=visibility.Receipts.LATE)
    assert outcome is Outcome.CHANGED
    assert record.visible_at == NOW + 91 * SECOND


@pytest.mark.parametrize("timeout", [0, 60])
def test_v9_on_a_fifo_queue_no_late_change_is_accepted(timeout):
    """Another receiver may hold others of its group by then, and a group has one receiver."""
    held = received(30)
    _, released = change(held, 0, NOW + SECOND)
    for gone, now in ((held, NOW + 31 * SECOND), (released, NOW + 2 * SECOND)):
        assert change(gone, timeout, now, receipts=visibility.Receipts.LATE, fifo=True) == (Outcome.NOT_IN_FLIGHT, gone)
        assert change(gone, timeout, now, receipts=visibility.Receipts.LATE)[0] is Outcome.CHANGED
    assert change(held, 60, NOW + 29 * SECOND, receipts=visibility.Receipts.LATE, fifo=True)[0] is Outcome.CHANGED


def test_v9_a_late_change_still_has_the_ceiling_of_its_receive():
    assert (
        change(received(30), 60, NOW + 50 * SECOND, ceiling=100, receipts=visibility.Receipts.LATE)[0]
        is Outcome.BEYOND_CEILING
    )


def test_v10_a_delete_after_the_deadline_deletes_when_nobody_received_it_again():
    outcome, record = visibility.delete(received(30), "r1", NOW + 31 * SECOND)
    assert outcome is Outcome.DELETED
    assert record.deleted_at == NOW + 31 * SECOND


def test_v10_recorded_on_a_fifo_queue_a_delete_needs_a_receipt_that_has_not_expired():
    held = received(30)
    _, released = change(held, 0, NOW + SECOND)
    for gone, now in ((held, NOW + 31 * SECOND), (released, NOW + 2 * SECOND)):
        assert visibility.delete(gone, "r1", now, fifo=True) == (Outcome.EXPIRED, gone)
        assert visibility.delete(gone, "r1", now, fifo=False)[0] is Outcome.DELETED
    assert visibility.delete(held, "r1", NOW + 29 * SECOND, fifo=True)[0] is Outcome.DELETED


def test_d1_a_receive_keeps_from_where_and_when_a_message_came():
    came = Record(receive_count=3, first_received_at=1, origin_queue="jobs-0", enqueued_at=NOW - SECOND)
    record = received(30, before=came)
    assert (record.origin_queue, record.enqueued_at) == ("jobs-0", NOW - SECOND)
    assert (record.receive_count, record.first_received_at) == (4, 1)


def test_v12_a_lock_hides_a_message_and_leaves_the_receive_count():
    record = visibility.lock(UNTOUCHED, 60, NOW)
    assert status(record, 0, NOW) is status(record, 0, NOW + 60 * SECOND - 1) is Status.LOCKED
    assert status(record, 0, NOW + 60 * SECOND) is Status.VISIBLE
    assert record.receive_count == 0 and record.first_received_at is None


def test_v12_after_a_lock_the_receive_has_its_own_timeout_and_is_the_first():
    locked = visibility.lock(UNTOUCHED, 60, NOW)
    record = received(30, at=NOW + 60 * SECOND, before=locked)
    assert record.visible_at == NOW + 90 * SECOND
    assert record.receive_count == 1 and record.first_received_at == NOW + 60 * SECOND


@pytest.mark.parametrize("record", [received(30), received(30)._replace(deleted_at=NOW)])
def test_v12_a_message_that_is_in_flight_or_deleted_cannot_be_locked(record):
    assert visibility.lock(record, 60, NOW + SECOND) is None


def test_v12_a_lock_replaces_a_receipt_that_ran_out():
    locked = visibility.lock(received(30), 60, NOW + 31 * SECOND)
    assert find_standing(locked, "r1", NOW + 32 * SECOND) is Standing.SUPERSEDED
    assert locked.receive_count == 1 and locked.first_received_at == NOW


def test_v12_what_is_in_doubt_cannot_be_locked():
    """The lock dropped the receipt, by which alone its owner gets the message back when the output table is gone."""
    doubtful = received(30)._replace(writing_to="out", write_id="w")
    assert visibility.lock(doubtful, 60, NOW + 31 * SECOND) is None
    assert visibility.lock(doubtful._replace(writing_to=None, write_id=None), 60, NOW + 31 * SECOND) is not None


def test_v12_a_lock_ends_what_was_released_or_attempted_before():
    _, released = change(received(30, attempt="job-7"), 0, NOW + SECOND)
    locked = visibility.lock(released, 60, NOW + 2 * SECOND)
    assert locked == Record(receive_count=1, first_received_at=NOW, received_at=NOW, visible_at=NOW + 62 * SECOND), (
        "nobody holds it, and no attempt or release is on record"
    )


def test_v13_a_deleted_message_stays_deleted():
    _, gone = visibility.delete(received(30), "r1", NOW)
    assert change(gone, 60, NOW) == (Outcome.ALREADY_DELETED, gone)
    assert change(gone, 0, NOW, receipts=visibility.Receipts.LATE) == (Outcome.ALREADY_DELETED, gone)
    assert visibility.delete(gone, "r1", NOW + SECOND) == (Outcome.ALREADY_DELETED, gone)
    assert status(gone, 0, NOW + 10**9) is Status.DELETED


def test_v14_every_receive_counts_and_the_first_one_is_remembered():
    record = UNTOUCHED
    for n in range(1, 6):
        record = received(30, at=NOW + n * 60 * SECOND, receipt=f"r{n}", before=record)
        assert record.receive_count == n
        assert record.first_received_at == NOW + 60 * SECOND
        assert record.receipt_id == f"r{n}"


def test_v14_a_receive_forgets_that_the_message_was_released():
    _, released = change(received(30), 0, NOW + SECOND)
    again = received(30, at=NOW + 2 * SECOND, receipt="r2", before=released)
    assert find_standing(again, "r2", NOW + 3 * SECOND) is Standing.HELD


def test_f3_the_same_attempt_has_its_messages_while_they_are_in_flight():
    record = received(30, attempt="job-7")
    assert visibility.is_same_attempt(record, "job-7", NOW + 29 * SECOND)
    assert not visibility.is_same_attempt(record, "job-8", NOW + 29 * SECOND)
    assert not visibility.is_same_attempt(record, "job-7", NOW + 30 * SECOND)
    assert not visibility.is_same_attempt(record._replace(deleted_at=NOW), "job-7", NOW + SECOND)


def test_f3_an_attempt_that_holds_two_claims_gets_its_last_one_again():
    """Late changes that are accepted may bring the earlier one back."""
    first, last = received(30, at=NOW, receipt="r2"), received(30, at=NOW + SECOND, receipt="r1")
    assert visibility.last_receipt([first, last]) == visibility.last_receipt([last, first]) == "r1"
    assert visibility.last_receipt(iter([UNTOUCHED, first])) == "r2"
    assert visibility.last_receipt([]) is None


def test_f3_a_retried_attempt_restarts_the_timeout_and_the_ceiling_under_the_same_receipt():
    before = received(30, attempt="job-7")
    again = visibility.restart(before, 60, NOW + 10 * SECOND)
    assert again.visible_at == NOW + 70 * SECOND and again.received_at == NOW + 10 * SECOND
    assert (again.receipt_id, again.receive_count, again.first_received_at) == ("r1", 1, NOW)


def test_f3_a_released_message_is_not_given_again_to_its_attempt():
    _, released = change(received(30, attempt="job-7"), 0, NOW + SECOND)
    assert not visibility.is_same_attempt(released, "job-7", NOW + SECOND)


def test_a_whole_claim_leaves_alone_what_was_settled_one_by_one():
    held = received(30)
    _, released = change(held, 0, NOW + SECOND)
    _, deleted = visibility.delete(held, "r1", NOW + SECOND)
    for settled in (released, deleted):
        assert change(settled, 60, NOW + 2 * SECOND, whole_claim=True) == (Outcome.SETTLED, settled)
        assert visibility.delete(settled, "r1", NOW + 2 * SECOND, whole_claim=True) == (Outcome.SETTLED, settled)


def test_a_whole_claim_has_lost_what_another_receiver_deleted():
    taken = received(30, at=NOW + 31 * SECOND, receipt="r2", before=received(30))
    _, gone = visibility.delete(taken, "r2", NOW + 32 * SECOND)
    for outcome, record in (
        change(gone, 60, NOW + 33 * SECOND, whole_claim=True),
        visibility.delete(gone, "r1", NOW + 33 * SECOND, whole_claim=True),
    ):
        assert (outcome, record) == (Outcome.ALREADY_DELETED, gone)


def test_a_whole_claim_may_be_deleted_again_when_its_receipt_is_no_longer_recorded():
    _, gone = visibility.delete(received(30), "r1", NOW)
    forgotten = gone._replace(receipt_id=None)
    assert visibility.delete(forgotten, "r1", NOW, whole_claim=True)[0] is Outcome.SETTLED


def test_a_handle_that_was_never_handed_out_is_invalid():
    assert change(UNTOUCHED, 60, NOW) == (Outcome.INVALID, UNTOUCHED)
    assert visibility.delete(UNTOUCHED, "r1", NOW) == (Outcome.INVALID, UNTOUCHED)
    assert find_standing(Record(), "r1", NOW) is Standing.UNKNOWN


def test_settling_a_message_by_itself_is_no_part_of_its_claim():
    _, released = change(received(30), 0, NOW + SECOND)
    now = NOW + 2 * SECOND
    assert visibility.change(released, "r1", 60, now, ceiling=None)[0] is Outcome.NOT_IN_FLIGHT
    assert visibility.delete(released, "r1", now)[0] is Outcome.DELETED


def test_what_a_purge_deletes_was_not_acknowledged_and_no_receipt_restores_it():
    held = received(30, attempt="job-7")
    purged = visibility.purge(held, NOW + SECOND)
    assert purged == held._replace(receipt_id=None, attempt_id=None, deleted_at=NOW + SECOND)
    assert status(purged, 0, NOW + SECOND) is Status.DELETED
    assert visibility.restore(purged, "r1", NOW + 2 * SECOND) is None


def test_an_acknowledgement_is_undone_by_its_own_receipt_only_and_then_no_receipt_works():
    held = received(30, attempt="job-7")._replace(writing_to="out", write_id="w", released_at=NOW)
    _, gone = visibility.delete(held._replace(released_at=None), "r1", NOW + SECOND)
    assert visibility.restore(gone, "r2", NOW + 2 * SECOND) is None
    assert visibility.restore(held, "r1", NOW + 2 * SECOND) is None, "it was not deleted"
    back = visibility.restore(gone._replace(released_at=NOW), "r1", NOW + 2 * SECOND)
    assert back == Record(receive_count=1, first_received_at=NOW, received_at=NOW, visible_at=NOW + 2 * SECOND)
    assert status(back, 0, NOW + 2 * SECOND) is Status.VISIBLE
    assert find_standing(back, "r1", NOW + 2 * SECOND) is Standing.SUPERSEDED


@pytest.mark.parametrize(
    ("after", "moved_to", "restored"),
    [(30, None, True), (31, None, True), (29, None, False), (31, "dead-0", False)],
)
def test_what_is_in_doubt_and_held_by_nobody_is_given_free_by_its_receipt(after, moved_to, restored):
    """Its output table is gone, so nothing else ever ends the doubt."""
    doubtful = received(30)._replace(writing_to="out", write_id="w", moved_to=moved_to)
    back = visibility.restore(doubtful, "r1", NOW + after * SECOND)
    assert (back is not None) is restored
    assert visibility.restore(doubtful, "r2", NOW + after * SECOND) is None
    if restored:
        assert (back.write_id, back.writing_to, back.visible_at) == (None, None, NOW + after * SECOND)
    assert visibility.restore(received(30), "r1", NOW + 31 * SECOND) is None, "in no doubt"


@pytest.mark.parametrize(
    "ended", [{"deleted_at": NOW}, {"released_at": NOW}, {"moved_to": "d-0"}, {"receipt_id": "r2"}]
)
def test_a_message_belongs_to_its_claim_until_it_is_settled_moved_or_taken_over(ended):
    held = received(30)
    assert visibility.is_held(held, "r1") and visibility.is_held(held, "r1", NOW + 29 * SECOND)
    assert visibility.is_held(held, "r1"), "whatever the time, when that is not asked for"
    assert not visibility.is_held(held, "r1", NOW + 30 * SECOND)
    for now in (None, NOW):
        assert not visibility.is_held(held._replace(**ended), "r1", now)
        assert not visibility.is_held(held, "r2", now)


def postpone(record, timeout, now=NOW, **more):
    return visibility.change(record, "r1", timeout, now, ceiling=TWELVE_HOURS, postpones=True, **more)


def test_what_is_postponed_is_hidden_until_its_deadline_and_no_part_of_its_claim():
    held = received(30, attempt="job-7")
    outcome, hidden = postpone(held, 60, whole_claim=True)
    assert (outcome, hidden) == (Outcome.CHANGED, held._replace(visible_at=NOW + 60 * SECOND, released_at=NOW))
    during, after = NOW + 59 * SECOND, NOW + 60 * SECOND
    assert visibility.find_standing(hidden, "r1", during) is Standing.POSTPONED
    assert visibility.find_standing(hidden, "r1", after) is Standing.RELEASED
    assert visibility.is_postponed(hidden, during) and not visibility.is_postponed(hidden, after)
    assert not visibility.is_postponed(held, NOW) and not visibility.is_postponed(UNTOUCHED, NOW)
    assert not visibility.is_held(hidden, "r1", during) and not visibility.is_same_attempt(hidden, "job-7", during)
    assert heartbeat(hidden, 600, during) == (Outcome.SETTLED, hidden), "no heartbeat makes it wait for longer"
    assert visibility.delete(hidden, "r1", during, whole_claim=True) == (Outcome.SETTLED, hidden)


@pytest.mark.parametrize("fifo", [False, True])
def test_what_is_postponed_is_still_changed_and_deleted_by_its_handle(fifo):
    _, hidden = postpone(received(30), 60)
    during = NOW + SECOND
    back = visibility.change(hidden, "r1", 0, during, ceiling=None, fifo=fifo)
    assert back == (Outcome.CHANGED, hidden._replace(visible_at=during, released_at=during))
    assert visibility.delete(hidden, "r1", during, fifo=fifo)[0] is Outcome.DELETED
    assert postpone(received(30), TWELVE_HOURS + 1) == (Outcome.BEYOND_CEILING, received(30)), "V7"


@pytest.mark.parametrize("postpones", [False, True])
def test_a_receive_that_does_not_count_is_taken_back_once(postpones):
    twice, timeout = received(30, before=received(30)), 60 if postpones else 0
    how = {"ceiling": None, "postpones": postpones, "counted": False, "receipts": Receipts.LATE}
    _, back = visibility.change(twice, "r1", timeout, NOW + SECOND, **how)
    assert (back.receive_count, back.first_received_at) == (1, NOW)
    _, again = visibility.change(back, "r1", timeout, NOW + 2 * SECOND, **how)
    assert again.receive_count == 1, "it was given back before"
    _, first = visibility.change(received(30), "r1", timeout, NOW, **how)
    assert visibility.change(first._replace(released_at=None), "r1", 0, NOW, **how)[1].receive_count == 0


def test_an_extension_counts_whatever_is_said_of_it():
    assert visibility.change(received(30), "r1", 60, NOW, ceiling=None, counted=False)[1].receive_count == 1


def test_what_one_commit_gives_back_for_several_reasons_has_several_deadlines():
    _, released = visibility.change(received(30), "r1", 0, NOW + SECOND, ceiling=None, mark=7)
    assert (released.visible_at, released.released_at) == (NOW + SECOND - 7, NOW + SECOND)
    assert postpone(received(30), 60, mark=7)[1].visible_at == NOW + 60 * SECOND - 7
    assert visibility.change(received(30), "r1", 60, NOW, ceiling=None, mark=7)[1].visible_at == NOW + 60 * SECOND
