"""What is taken for now beside commits made by other clocks."""

import pytest

from ledger.errors import ClocksDisagree
from ledger.rules import instants

NOW = 1_700_000_000_000


def test_time_in_a_ledger_only_moves_on():
    assert instants.advance_to_last_commit(NOW, 0, 30) == NOW
    assert instants.advance_to_last_commit(NOW, NOW - 10**9, 30) == NOW
    assert instants.advance_to_last_commit(NOW, NOW, 30) == NOW
    assert instants.advance_to_last_commit(NOW, NOW + 30_000, 30) == NOW + 30_000


def test_a_commit_that_is_too_far_ahead_is_an_error_that_names_both_times_and_the_setting():
    with pytest.raises(ClocksDisagree) as raised:
        instants.advance_to_last_commit(NOW, NOW + 30_001, 30)
    said = str(raised.value)
    assert "2023-11-14T22:13:20.000+00:00" in said and "2023-11-14T22:13:50.001+00:00" in said
    assert "30.0 s apart" in said and "maximum_clock_skew" in said and "NTP" in said
    assert "and the last commit is ahead: 2023-11-14T22:13:50" in said, "whose time the other one is"
    assert raised.value.code == "ClocksDisagree"


@pytest.mark.parametrize("apart", [-30_000, -1, 0, 1, 30_000])
def test_two_clocks_may_be_a_little_apart(apart):
    instants.require_alike(NOW, NOW + apart, 30, "the storage's clock")


@pytest.mark.parametrize("apart", [-30_001, 30_001])
def test_two_clocks_further_apart_disagree_in_either_direction(apart):
    with pytest.raises(ClocksDisagree, match=r"the storage's clock.*at most 30 s"):
        instants.require_alike(NOW, NOW + apart, 30, "the storage's clock")
