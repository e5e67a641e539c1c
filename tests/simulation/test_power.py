"""What the simulation can find: with each of these repairs taken out, it finds the defect."""

import pytest

from tests.simulation import patching
from tests.simulation.broken import REPAIRS, without
from tests.simulation.searching import search


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("repair", REPAIRS)
def test_a_repair_taken_out_is_noticed(repair):
    *_, world = REPAIRS[repair]
    with patching.installed(), without(repair) as expected:
        assert any(expected in problem for found in search("power", 10_000, world) for problem in found.problems)
