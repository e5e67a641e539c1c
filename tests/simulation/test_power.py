"""What the simulation can find: with each of these repairs taken out, it finds the defect."""

import pytest

from tests.simulation import patching
from tests.simulation.broken import REPAIRS, without
from tests.simulation.searching import search

#: Those that are noticed within so many schedules of a seed, which takes seconds.
SOON = {
    "rows are on the disk before messages are done": ("power", 100),
    "a step of the clock is refused": ("quick", 10),
    "what is old is marked before it is dropped": ("quick", 10),
    "an unconfirmed clock moves no lane's time": ("quick", 100),
    "what is answered is on the disk": ("quick", 10),
    "a segment has one writer": ("quick", 10),
    "a child begins segments of its own": ("quick", 10),
    "a child waits for no thread of its parent's": ("quick", 10),
    "a log that was replaced is noticed": ("quick", 10),
    "a listing is of one ledger": ("quick", 30),
    "a send is answered by the ledger that has its queue": ("quick", 30),
    "the clock is read at each decision": ("quick", 100),
    "only its holder makes a dead letter of a message": ("quick", 10),
}


def is_noticed(repair, seed, schedules):
    *_, world = REPAIRS[repair]
    with patching.installed(), without(repair) as expected:
        return any(expected in problem for found in search(seed, schedules, world) for problem in found.problems)


@pytest.mark.parametrize("repair", SOON)
def test_a_repair_taken_out_is_noticed_soon(repair):
    assert is_noticed(repair, *SOON[repair])


@pytest.mark.parametrize("repair", REPAIRS)
def test_what_takes_a_repair_out_finds_the_code_of_today(repair):
    """A patch of a name that is gone raises AttributeError: the soak tests below would fail, and seldom run."""
    with patching.installed(), without(repair):
        pass


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("repair", REPAIRS)
def test_a_repair_taken_out_is_noticed(repair):
    assert is_noticed(repair, "power", 10_000)
