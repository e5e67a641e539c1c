"""When upkeep is due and overdue, as a pure function of versions and instants."""

import math

import pytest

from ledger.rules.upkeep import (
    AGE_DUE,
    AGE_OVERDUE,
    COMMITS_DUE,
    COMMITS_OVERDUE,
    FUTURE,
    IDLE_DUE,
    Load,
    Round,
    load_since,
    why_due,
    why_overdue,
)

NOW = 1_700_000_000_000
DAYS_30 = 30 * 86_400
LAST = Round(messages=100, visibility=1_000, at=NOW)


def test_the_load_is_what_both_tables_gained_since_the_last_round():
    assert load_since(LAST, 110, 1_005, NOW + 7_500) == Load(15, 7.5)
    assert load_since(LAST, 100, 1_000, NOW) == Load(0, 0.0)


def test_without_a_round_on_record_all_commits_count_and_no_age_is_known():
    assert load_since(None, 3, 4, NOW) == Load(7, None)


def test_a_table_that_was_cut_back_counts_as_a_whole():
    assert load_since(LAST, 40, 1_002, NOW) == Load(42, 0.0)
    assert load_since(LAST, 101, 30, NOW) == Load(31, 0.0)


def test_clocks_that_differ_a_little_make_no_age_and_a_record_of_the_future_an_infinite_one():
    assert load_since(LAST, 100, 1_000, NOW - 1_000 * FUTURE).age == 0.0
    assert load_since(LAST, 100, 1_000, NOW - 1_000 * FUTURE - 1).age == math.inf


@pytest.mark.parametrize(
    ("load", "is_due"),
    [
        (Load(0, None), False),
        (Load(1, None), True),
        (Load(COMMITS_DUE - 1, 0.0), False),
        (Load(COMMITS_DUE, 0.0), True),
        (Load(COMMITS_DUE, None), True),
        (Load(1, AGE_DUE - 1), False),
        (Load(1, AGE_DUE), True),
        (Load(0, AGE_DUE), False),
        (Load(0, IDLE_DUE - 1), False),
        (Load(0, IDLE_DUE), True),
        (Load(0, math.inf), True),
        (Load(1, math.inf), True),
    ],
)
def test_when_a_round_is_due(load, is_due):
    assert (why_due(load, DAYS_30) is not None) == is_due


def test_a_short_log_retention_makes_rounds_due_sooner():
    assert why_due(Load(1, 899), 3_600) is None
    assert why_due(Load(1, 900), 3_600) is not None


def test_why_it_is_due_says_the_number_that_decided():
    assert why_due(Load(2_000, 5.0), DAYS_30) == "2,000 commits since the last round"
    assert why_due(Load(3, None), DAYS_30) == "3 commits, and no round on record"
    assert why_due(Load(3, 4_000.4), DAYS_30) == "3 commits, and 4,000 s since the last round"
    assert why_due(Load(0, 90_000.0), DAYS_30) == "90,000 s since the last round"
    assert "a clock was wrong" in why_due(Load(0, math.inf), DAYS_30)


@pytest.mark.parametrize(
    ("load", "log_retention", "is_overdue"),
    [
        (Load(COMMITS_OVERDUE - 1, 0.0), DAYS_30, False),
        (Load(COMMITS_OVERDUE, 0.0), DAYS_30, True),
        (Load(COMMITS_OVERDUE, None), DAYS_30, True),
        (Load(COMMITS_OVERDUE - 1, None), DAYS_30, False),
        (Load(1, AGE_OVERDUE), DAYS_30, False),
        (Load(1, AGE_OVERDUE + 1), DAYS_30, True),
        (Load(0, AGE_OVERDUE + 1), DAYS_30, False),
        (Load(1, 1_800), 3_600, False),
        (Load(1, 1_801), 3_600, True),
        (Load(1, math.inf), DAYS_30, False),
    ],
)
def test_when_upkeep_is_overdue(load, log_retention, is_overdue):
    assert (why_overdue(load, log_retention) is not None) == is_overdue


def test_why_it_is_overdue_says_the_number_that_decided():
    assert why_overdue(Load(20_001, 5.0), DAYS_30).startswith("20,001 commits since the last round of upkeep")
    assert why_overdue(Load(2, 8 * 86_400.0), DAYS_30) == "2 commits, and the last round of upkeep was 8.0 days ago"


def test_what_is_overdue_was_due_before():
    for load in (Load(COMMITS_OVERDUE, 0.0), Load(COMMITS_OVERDUE, None), Load(1, AGE_OVERDUE + 1.0)):
        assert why_overdue(load, DAYS_30) and why_due(load, DAYS_30)


def test_the_versions_that_a_restored_backup_skips_are_no_commits():
    assert load_since(Round(40, 60, 0), 1_000_003, 1_000_000, 0).commits == 3
    assert load_since(None, 2_000_001, 2_000_004, 0).commits == 5
    assert load_since(Round(1_000_001, 1_000_001, 0), 1_000_003, 1_000_001, 0).commits == 2
