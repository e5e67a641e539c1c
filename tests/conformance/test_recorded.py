"""The real service's recorded answers, replayed through the Python API on every store: see tests/recorded."""

import pytest

from tests.recorded.comparing import difference, recorded
from tests.recorded.scenarios import LEFT_OUT, SCENARIOS, Scenes

RECORDED = recorded()


def test_every_recorded_scenario_is_replayed_or_left_out_for_a_reason():
    assert set(SCENARIOS) | set(LEFT_OUT) == set(RECORDED)
    assert not set(SCENARIOS) & set(LEFT_OUT)


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_answer_is_the_recorded_one(world, name):
    found = SCENARIOS[name](Scenes(world.ledger, world.clock))
    for answers in RECORDED[name]:
        assert difference(answers, found) is None


def test_what_differs_is_told():
    """The comparison can fail: at a word, at a member that is missing or more, at a placeholder with two meanings."""
    expected = {"Id": "<uuid:1>", "Again": "<uuid:1>", "At": "timestamp", "Text": "arn:<region>:x"}
    found = {"Id": "a", "Again": "a", "At": "1700000000", "Text": "arn:eu:x"}
    assert difference(expected, found) is None
    for wrong in ({"Again": "b"}, {"At": "now"}, {"Text": "arn:eu:y"}, {"Text": None}, {"More": "x"}):
        assert difference(expected, {**found, **wrong})
    assert difference([1], []) and difference({"a": 1}, {}) and difference("a.c", "abc")
