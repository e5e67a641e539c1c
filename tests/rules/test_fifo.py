"""F1, F2, F4: who may be received next, lanes of groups, sequence numbers, and for how long a repeat is known."""

import itertools

import pytest

from ledger.rules import fifo
from ledger.rules.state import GONE, Status

V, F, D, L = Status.VISIBLE, Status.IN_FLIGHT, Status.DELAYED, Status.LOCKED
MINUTES_5 = 300_000


def receivable(*members):
    """What may be received of members written as "name of the group and number", status."""
    return list(fifo.receivable((name, name[0], status) for name, status in members))


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([], []),
        ([("a1", V), ("a2", V)], ["a1", "a2"]),
        ([("a1", V), ("b1", V), ("a2", V)], ["a1", "b1", "a2"]),
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
    members = [("foo", "group", foo), ("bar", "group", bar), ("baz", "group", baz)]
    assert list(fifo.receivable(members)) == received


def test_f2_every_combination_of_states_is_as_the_rule_says_in_words():
    for statuses in itertools.product(Status, repeat=4):
        for groups in itertools.product("ab", repeat=4):
            members = list(zip(range(4), groups, statuses))
            expected = [
                message
                for message, group, status in members
                if status is V and all(s is V or s in GONE or g != group for m, g, s in members if m < message)
            ]
            assert list(fifo.receivable(members)) == expected, members


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
