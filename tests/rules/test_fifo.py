"""F1, F2, F4: who may be received next, lanes of groups, sequence numbers, and for how long a repeat is known."""

import itertools

import pytest

from ledger.rules import fifo, visibility
from ledger.rules.fifo import Member
from ledger.rules.visibility import GONE, Record, Status

V, F, D, L = Status.VISIBLE, Status.IN_FLIGHT, Status.DELAYED, Status.LOCKED
MINUTES_5 = 300_000


def receivable(*members):
    """What may be received of members written as "name of the group and number", status."""
    return fifo.select_receivable([Member(name, name[0], status, 0) for name, status in members], 0)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([], []),
        ([("a1", V), ("a2", V)], ["a1", "a2"]),
        ([("a1", V), ("b1", V), ("a2", V)], ["a1", "a2", "b1"]),
        ([("a1", F), ("a2", V), ("b1", V)], ["b1"]),
        ([("a1", D), ("a2", V), ("b1", V)], ["b1"]),
        ([("a1", L), ("a2", V), ("b1", V)], ["b1"]),
        ([("a1", V), ("a2", D), ("a3", V)], ["a1"]),
        ([("a1", Status.DELETED), ("a2", V)], ["a2"]),
        ([("a1", Status.EXPIRED), ("a2", V)], ["a2"]),
        ([("a1", Status.MOVED), ("a2", V)], ["a2"]),
        ([("a1", F), ("a2", Status.DELETED), ("a3", V)], []),
    ],
)
def test_f2_f4_a_group_is_received_up_to_its_first_member_that_is_not_visible(members, expected):
    assert receivable(*members) == expected


@pytest.mark.parametrize(
    ("foo", "bar", "baz", "received"),
    [(F, F, F, []), (V, F, F, ["foo"]), (V, V, F, ["foo", "bar"]), (V, F, V, ["foo"]), (F, V, V, [])],
)
def test_f2_recorded_what_became_visible_again_is_received_while_later_members_are_in_flight(foo, bar, baz, received):
    """Recorded: fifo_group_visibility_extends_with_change_message_visibility."""
    members = [Member("foo", "group", foo, 0), Member("bar", "group", bar, 0), Member("baz", "group", baz, 0)]
    assert fifo.select_receivable(members, 0) == received


def test_f2_every_combination_of_states_is_as_the_rule_says_in_words():
    for statuses in itertools.product(Status, repeat=4):
        for groups in itertools.product("ab", repeat=4):
            members = list(zip(range(4), groups, statuses))
            expected = {
                message: group
                for message, group, status in members
                if status is V and all(s is V or s in GONE or g != group for m, g, s in members if m < message)
            }
            drained = [m for group in dict.fromkeys(expected.values()) for m in expected if expected[m] == group]
            assert fifo.select_receivable([Member(*member, 0) for member in members], 0) == drained, members


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([("b1", V, 1), ("a1", V, 2)], "b1 a1"),
        # Delayed until then: who came first is not who could be received first.
        ([("b1", V, 7), ("a1", V, 2)], "a1 b1"),
        # What counts is a group's first message that may be received, not a later one, nor one that is gone.
        ([("a1", V, 3), ("b1", V, 2), ("b2", V, 9)], "b1 b2 a1"),
        ([("a1", Status.EXPIRED, 1), ("b1", V, 2), ("a2", V, 3)], "b1 a2"),
        # A group that was held is receivable since the last hold of any of its messages ended.
        ([("a1", V, 1, 4), ("b1", V, 3), ("c1", V, 5)], "b1 a1 c1"),
        ([("a1", V, 1, 4), ("a2", V, 1, 6), ("b1", V, 3), ("c1", V, 5)], "b1 c1 a1 a2"),
        ([("a1", Status.DELETED, 1, 4), ("a2", V, 1), ("b1", V, 3)], "b1 a2"),
        ([("a1", Status.EXPIRED, 1, 4), ("a2", V, 1), ("b1", V, 3)], "b1 a2"),
        ([("a1", Status.MOVED, 1, 4), ("a2", V, 1), ("b1", V, 3)], "b1 a2"),
        # The last one to end, whichever message of the group it was of.
        ([("a1", Status.DELETED, 1, 6), ("a2", V, 1, 4), ("b1", V, 5)], "b1 a2"),
        # A hold that has not ended says nothing yet.
        ([("a1", V, 1), ("a2", F, 1, 11), ("b1", V, 3)], "a1 b1"),
        ([("a1", V, 1), ("a2", V, 1, 10), ("b1", V, 3)], "b1 a1 a2"),
        # A message that came since the hold ended is what made the group receivable.
        ([("a1", Status.DELETED, 1, 4), ("b1", V, 5), ("a2", V, 6)], "b1 a2"),
        # Within one millisecond: a hold's end is the later one, then the place of the first messages decides.
        ([("a1", Status.DELETED, 1, 4), ("a2", V, 1), ("b1", V, 4)], "b1 a2"),
        ([("a1", Status.DELETED, 1, 4), ("a2", V, 4), ("b1", V, 4)], "b1 a2"),
        ([("b1", V, 1, 4), ("a1", V, 1, 4)], "b1 a1"),
        ([("b1", V, 4), ("a1", V, 4)], "b1 a1"),
    ],
)
def test_f2_groups_come_in_the_order_in_which_they_became_receivable_each_drained(members, expected):
    """(name of the group and number, status, since, end of its hold), at the instant 10."""
    found = fifo.select_receivable([Member(name, name[0], *rest) for name, *rest in members], 10)
    assert found == expected.split()


@pytest.mark.parametrize(
    ("record", "ended"),
    [
        (Record(), None),
        (Record(enqueued_at=5), None),
        (Record(deleted_at=7), None),
        (Record(receipt_id="r", visible_at=30), 30),
        (Record(receipt_id="r", visible_at=9, released_at=9), 9),
        (Record(receipt_id="r", visible_at=30, deleted_at=7), 7),
        # Deleted by its output table, which whoever came later asked: the hold was over by then.
        (Record(receipt_id="r", visible_at=30, deleted_at=50), 30),
        (Record(visible_at=30), 30),
        (Record(receipt_id="r", visible_at=30, moved_to="dead"), 30),
        (Record(receipt_id="r", visible_at=120), 100),
    ],
)
def test_f2_f4_a_hold_ends_by_its_deadline_a_delete_or_as_the_message_expires(record, ended):
    assert fifo.hold_ended(record, 100) == ended


def test_f2_what_verbs_record_says_when_the_hold_ended():
    held = visibility.receive(Record(), "r", None, 30, 1_000)
    change = lambda timeout, now: visibility.change(held, "r", timeout, now, ceiling=None)[1]  # noqa: E731
    ended = lambda record: fifo.hold_ended(record, 10**15)  # noqa: E731
    assert ended(held) == 31_000 and ended(change(60, 2_000)) == 62_000 and ended(change(0, 2_000)) == 2_000
    deleted = visibility.delete(held, "r", 3_000, fifo=True)[1]
    assert ended(deleted) == 3_000 and ended(visibility.restore(deleted, "r", 9_000)) == 9_000
    assert ended(visibility.purge(held, 4_000)) == 4_000 and ended(visibility.purge(Record(), 4_000)) is None
    assert ended(visibility.lock(Record(), 5, 1_000)) == 6_000


def test_f2_a_claim_that_is_found_again_is_read_by_the_groups_of_its_first_messages():
    assert fifo.order_by_group(["a1", "b1", "a2", "c1", "b2"], lambda name: name[0]) == ["a1", "a2", "b1", "b2", "c1"]


def test_a_group_has_one_lane_and_groups_spread_over_all_of_them():
    lanes = [fifo.lane(f"group {n}", 8) for n in range(400)]
    assert set(lanes) == set(range(8))
    assert lanes == [fifo.lane(f"group {n}", 8) for n in range(400)]
    assert {fifo.lane(f"group {n}", 1) for n in range(40)} == {0}
    # Lanes are stored: another version of the ledger must come to the same ones.
    assert [fifo.lane(group, 256) for group in ("a", "é", "group-1")] == [67, 62, 104]


def test_f2_sequence_numbers_grow_with_the_sends_and_within_one():
    numbers = [fifo.sequence_number(send, ordinal) for send in (1, 2, 3, 2**30) for ordinal in (0, 1, 9, 2**32 - 1)]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] < 2**63


def test_f1_a_send_is_a_duplicate_for_five_minutes():
    assert fifo.is_duplicate(0, 0) and fifo.is_duplicate(0, MINUTES_5 - 1)
    assert not fifo.is_duplicate(0, MINUTES_5) and not fifo.is_duplicate(7, MINUTES_5 + 7)
    sent = 1_700_000_000_000
    assert fifo.is_duplicate(sent, sent + MINUTES_5 - 1) and not fifo.is_duplicate(sent, sent + MINUTES_5)


def test_m3_what_a_purge_forgets_are_the_numbers_of_the_sends_before_it():
    assert fifo.sequence_number(7, 2**32 - 1) < fifo.first_remembered(7) == fifo.sequence_number(8, 0)
