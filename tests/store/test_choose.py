"""Which lanes and which runs a receive takes."""

import random

import numpy as np
import pytest

from ledger.store.delta.choose import choose_lanes, oldest_up_to


@pytest.fixture(autouse=True)
def _same_dice_every_time():
    random.seed(7)


def test_one_lane_that_can_fill_the_claim_is_enough():
    for _ in range(50):
        assert choose_lanes({0: 3, 1: 10, 2: 9, 3: 0}, 9, 0) in ([1], [2])


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


def test_the_oldest_are_taken_first_and_the_last_run_is_cut():
    which, first, last = oldest_up_to(np.array([30, 10, 20]), np.array([0, 100, 200]), np.array([4, 104, 204]), 7)
    assert which.tolist() == [1, 2] and first.tolist() == [100, 200] and last.tolist() == [104, 201]


def test_everything_is_every_run_oldest_first():
    which, first, _ = oldest_up_to(np.array([30, 10]), np.array([0, 100]), np.array([4, 104]), None)
    assert which.tolist() == [1, 0] and first.tolist() == [100, 0]


@pytest.mark.parametrize("maximum", [1, 4, 5, 6, 10, 14, 15, 16, 100])
def test_never_more_than_asked_and_never_fewer_than_there_are(maximum):
    _, first, last = oldest_up_to(np.array([1, 1, 1]), np.array([0, 10, 20]), np.array([4, 14, 24]), maximum)
    assert int((last - first + 1).sum()) == min(maximum, 15)
    assert (first <= last).all()


def test_the_given_runs_stay_as_they_were():
    last = np.array([4, 14])
    oldest_up_to(np.array([1, 2]), np.array([0, 10]), last, 2)
    assert last.tolist() == [4, 14]


def test_of_no_runs_nothing_is_taken():
    nothing = np.empty(0, dtype=np.int64)
    assert [column.tolist() for column in oldest_up_to(nothing, nothing, nothing, 5)] == [[], [], []]
