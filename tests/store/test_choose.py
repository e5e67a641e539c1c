"""Which lanes and which runs a receive takes."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.store.delta.model.message_runs import Ordered
from ledger.store.delta.state.choosing import Deal, choose_lanes, choose_lanes_in_order, take_first


@pytest.fixture(autouse=True)
def _same_dice_every_time():
    random.seed(7)


def test_one_lane_that_can_fill_the_claim_is_enough():
    chosen = [choose_lanes({0: 3, 1: 10, 2: 9, 3: 0}, 9, 0) for _ in range(50)]
    assert [1] in chosen and [2] in chosen and all(one in ([1], [2]) for one in chosen)


def test_small_claims_spread_over_the_lanes():
    assert {tuple(choose_lanes(dict.fromkeys(range(8), 5), 1, 0)) for _ in range(200)} == {(n,) for n in range(8)}


def test_else_the_fullest_lanes_are_taken_until_they_fill_it():
    assert choose_lanes({0: 3, 1: 5, 2: 4, 3: 1}, 9, 0) == [1, 2]
    assert choose_lanes({0: 3, 1: 5, 2: 4, 3: 1}, 100, 0) == [0, 1, 2, 3]


def test_everything_is_every_lane_that_has_something():
    assert choose_lanes({0: 3, 1: 0, 2: 4}, None, 0) == [0, 2]


def test_nothing_visible_is_no_lane():
    assert choose_lanes({}, None, 0) == choose_lanes({0: 0, 1: 0}, 5, 0) == []


def test_every_second_loss_halves_the_lanes_until_one_is_left():
    full = dict.fromkeys(range(8), 5)
    assert [len(choose_lanes(full, None, losses)) for losses in range(8)] == [8, 8, 4, 4, 2, 2, 1, 1]
    assert len(choose_lanes(full, None, 60)) == 1


def test_f2_what_is_in_order_is_taken_from_all_lanes_until_races_are_lost():
    assert choose_lanes_in_order([0, 3, 5], 0) == choose_lanes_in_order([0, 3, 5], 1) == [0, 3, 5]
    assert [len(choose_lanes_in_order(range(8), losses)) for losses in range(9)] == [8, 8, 4, 4, 2, 2, 1, 1, 1]
    assert {choose_lanes_in_order(range(8), 20)[0] for _ in range(200)} == set(range(8)), "losers spread"
    assert choose_lanes_in_order([], 0) == choose_lanes_in_order([], 9) == []


def runs(*rows, order):
    """Runs from (first, last, code), with their places in the order."""
    columns = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(3))
    return Ordered(*columns, np.array(order, dtype=np.int64))


def columns(found):
    """Runs as lists: first, last, code."""
    return [column.tolist() for column in found.columns()[:3]]


def three(*order):
    return runs((0, 4, 7), (100, 104, 8), (200, 204, 9), order=order)


def taken(given, maximum):
    """What is taken of `given`, as (first, last, code)."""
    return list(zip(*columns(take_first(given, maximum))))


def test_the_first_in_order_are_taken_and_the_last_run_is_cut_at_its_end():
    assert taken(three(30, 10, 20), 7) == [(100, 104, 8), (200, 201, 9)]
    assert taken(three(30, 20, 10), 7) == [(100, 101, 8), (200, 204, 9)]
    assert taken(three(10, 20, 30), 5) == [(0, 4, 7)]


def test_everything_is_every_run_sorted_by_place_whatever_the_order():
    assert taken(three(30, 10, 20), None) == [(0, 4, 7), (100, 104, 8), (200, 204, 9)]


@pytest.mark.parametrize("maximum", [0, 1, 4, 5, 6, 10, 14, 15, 16, 100])
def test_never_more_than_asked_and_never_fewer_than_there_are(maximum):
    found = taken(three(2, 3, 1), maximum)
    assert sum(last - first + 1 for first, last, _ in found) == min(maximum, 15)
    assert all(first <= last for first, last, _ in found) and found == sorted(found)


def test_the_given_runs_stay_as_they_were():
    given = runs((0, 4, 0), (10, 14, 0), order=[1, 2])
    take_first(given, 2)
    take_first(given, 7)
    assert given.first.tolist() == [0, 10] and given.last.tolist() == [4, 14]


def test_of_no_runs_nothing_is_taken():
    assert [taken(runs(order=[]), maximum) for maximum in (5, 0, None)] == [[], [], []]


def test_of_what_has_one_place_in_the_order_the_first_by_place_is_taken():
    """Parts of one run share its place: so many that a sort could mix them up."""
    place = np.arange(0, 6_000, 2)
    given = Ordered(place, place, place, np.arange(3_000) % 3)
    assert take_first(given, 700).first.tolist() == place[given.order == 0][:700].tolist()


def test_f2_to_several_claims_what_comes_next_is_dealt_and_nothing_twice():
    deal = Deal(three(30, 10, 20))
    found = [tuple(columns(deal.take(most))) for most in (2, 4, 0, 5, None, 3)]
    assert found == [
        ([100], [101], [8]),
        ([102, 200], [104, 200], [8, 9]),
        ([], [], []),
        ([0, 201], [0, 204], [7, 9]),
        ([1], [4], [7]),
        ([], [], []),
    ]


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    groups=st.lists(st.integers(1, 6), max_size=12),
    asked=st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=9),
    dice=st.randoms(use_true_random=False),
)
def test_f2_what_a_claim_leaves_of_a_group_is_nobodys(groups, asked, dice):
    """As plainly as it can be said: a list of (group, member) in order."""
    numbers = [(group << 8) | member for group, size in enumerate(groups) for member in range(size)]
    places = dice.sample(range(100), len(numbers))
    number_of, left = dict(zip(places, numbers)), list(numbers)
    place = np.array(sorted(places), dtype=np.int64)
    order = np.array([number_of[p] for p in place.tolist()], dtype=np.int64)
    deal = Deal(Ordered(place, place, place, order), shift=8)
    for maximum in asked:
        expected = left[:maximum] if maximum is not None else left
        left = [n for n in left[len(expected) :] if not expected or n >> 8 != expected[-1] >> 8]
        found = deal.take(maximum)
        assert sorted(found.order.tolist()) == expected
        assert found.first.tolist() == sorted(found.first.tolist()) == found.code.tolist()
        assert [number_of[p] for p in found.first.tolist()] == found.order.tolist()
