"""Real processes on one local ledger, through delta-rs: nothing lost, nobody starved, no stale receipt works."""

import pytest


def assert_everybody_got_on(answers, least_claims, longest_step):
    for answer in answers.values():
        assert answer["errors"] == [], answer
        assert answer["claims"] >= least_claims[answer["worker"][:3]], answers
        assert answer["slowest"] < longest_step, answers


@pytest.mark.parametrize("seconds", [pytest.param(8, id="short"), pytest.param(120, id="long", marks=pytest.mark.soak)])
def test_four_small_claimers_and_one_that_claims_everything_all_get_on(make_race, seconds):
    race = make_race(1_000 if seconds < 60 else 10_000)
    workers = {f"small-{n}": "small" for n in range(4)}
    answers = race.run({**workers, "all": "everything", "sender": "sender"}, seconds)
    answers.pop("sender")
    assert_everybody_got_on(answers, {"sma": 3, "all": 1}, longest_step=60)
    assert race.judge() == []


@pytest.mark.parametrize("seconds", [pytest.param(7, id="short"), pytest.param(60, id="long", marks=pytest.mark.soak)])
def test_leases_that_run_out_under_their_holders_are_fenced(make_race, seconds):
    race = make_race(12, sends=3, lanes=2)
    answers = race.run({f"sleepy-{n}": "sleepy" for n in range(3)}, seconds, timeout=1)
    assert all(answer["errors"] == [] for answer in answers.values()), answers
    assert sum(answer["claims"] for answer in answers.values()) >= 3
    assert race.judge() == []


@pytest.mark.soak
def test_many_on_one_lane_get_on(make_race):
    race = make_race(300, sends=3, lanes=1)
    answers = race.run({f"small-{n}": "small" for n in range(3)}, 5)
    assert_everybody_got_on(answers, {"sma": 2}, longest_step=60)
    assert race.judge() == []
