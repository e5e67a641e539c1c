"""When a sensor has found work, and when a watcher announces it: one event for new work, and no flood."""

import pytest

from ledger import Counts, InvalidParameterValue
from ledger.airflow.conditions import Announcements, Condition


def counts(visible=0, in_flight=0, deleted=0, age=None):
    return Counts(visible, 0, 0, in_flight, deleted, age)


@pytest.mark.parametrize(
    ("condition", "there", "holds"),
    [
        (Condition(), counts(), False),
        (Condition(), counts(1), True),
        (Condition(at_least=10), counts(9, age=1e9), False),
        (Condition(at_least=10), counts(10), True),
        (Condition(oldest_older_than=60), counts(1_000, age=60.0), False),
        (Condition(oldest_older_than=60), counts(1, age=60.1), True),
        (Condition(oldest_older_than=60), counts(0, in_flight=5, age=100.0), False),
        (Condition(10, 60), counts(10, age=0.0), True),
        (Condition(10, 60), counts(1, age=61.0), True),
        (Condition(10, 60), counts(9, age=59.0), False),
    ],
)
def test_there_is_work_when_there_is_enough_or_it_has_waited_long_enough(condition, there, holds):
    assert condition.holds(there) is holds


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (lambda: Condition(0), "at_least"),
        (lambda: Condition(1.5), "at_least"),
        (lambda: Condition(True), "at_least"),
        (lambda: Condition(None, -1), "oldest_older_than"),
        (lambda: Condition(None, "60"), "oldest_older_than"),
        (lambda: Condition(None, float("nan")), "oldest_older_than"),
        (lambda: Announcements(Condition(), 0), "again_after"),
    ],
)
def test_bounds_are_refused_by_name(wrong, field):
    with pytest.raises(InvalidParameterValue) as refused:
        wrong()
    assert refused.value.field == field


def announced(*looks, again_after=1_000.0):
    """At which of these looks, one a second, an event is announced."""
    announcements, events = Announcements(Condition(), again_after), []
    for now, there in enumerate(looks):
        if announcements.due(there, now):
            events.append(now)
            announcements.note_announced(there, now)
    return events


def test_work_that_waits_is_announced_once_however_much_more_comes():
    assert announced(counts(), counts(1), counts(1), counts(500), counts(9_000)) == [1]


def test_work_that_comes_when_there_was_none_is_announced():
    assert announced(counts(1), counts(0, in_flight=1), counts(1, in_flight=1)) == [0, 2]


def test_what_a_receiver_left_is_announced_when_nobody_is_at_work_any_more():
    assert announced(counts(9), counts(6, 3), counts(6, 3), counts(6, 0, 3), counts(6, 0, 3)) == [0, 3]


def test_work_that_was_taken_and_done_between_two_looks_is_no_reason_to_miss_what_came_after():
    assert announced(counts(1), counts(1, 0, deleted=1)) == [0, 1]


def test_work_that_nobody_begins_is_announced_again_after_a_while_and_not_while_somebody_is_at_it():
    assert announced(*[counts(1)] * 7, again_after=3.0) == [0, 3, 6]
    assert announced(counts(1, 5), *[counts(1, 5)] * 6, again_after=3.0) == [0]


def test_an_announcement_that_was_not_stored_is_due_at_the_next_look():
    announcements = Announcements(Condition(), 1_000.0)
    assert [announcements.due(counts(1), now) for now in range(3)] == [True, True, True]
