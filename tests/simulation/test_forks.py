"""Forked processes and twin machines on the simulated log: what the simulation plays, and which repair protects it."""

from unittest import mock

import pytest

from tests.simulation import patching
from tests.simulation.broken import without
from tests.simulation.forking import Forking
from tests.simulation.plan import Rates
from tests.simulation.programs import Step, generate
from tests.simulation.searching import play, search


@pytest.fixture(autouse=True)
def installed():
    with patching.installed():
        yield


def sent_by_both(verb):
    """A process sends, is there twice by this verb, and both of it send."""
    small, there_twice = Step("small", 0, 0, 0), Step(verb, 0, 0, 0)
    programs = ((small, there_twice, small, small), (small, small, small, small))
    schedule = generate("by hand@forks")._replace(programs=programs, processes=((0, 1),), skews=(0,))
    return play(schedule._replace(rates=Rates(kill=0.0, fault=0.0)))


def segments_of(found, process):
    """The segments to which the clients of a process have sent."""
    changes = found.run.storage.tables["messages"].changes[2:]
    return {partition[2] for change in changes if change.metadata["owner"] == process for partition, _ in change.added}


def test_a_child_has_segments_of_its_own():
    found = sent_by_both("fork")
    assert found.problems == []
    parent, child = segments_of(found, "process 0.1"), segments_of(found, "process 1.1")
    assert parent and child and not parent & child


def test_a_twin_begins_another_segment_once_its_own_was_extended():
    found = sent_by_both("twin")
    assert found.problems == []
    with without("a segment has one writer") as expected:
        assert any(expected in problem for problem in sent_by_both("twin").problems)
        assert sent_by_both("fork").problems == []


def test_what_a_child_renews_protects_it_where_nobody_looks_at_the_ends_of_segments():
    with without("a segment has one writer"), mock.patch.object(Forking, "twins_are_told", True):
        assert [found.problems for found in search("suite", 60, "forks") if found.problems] == []
