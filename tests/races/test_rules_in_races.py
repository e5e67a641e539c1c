"""FIFO order, deduplication, quotas and dead letters under races, in threads and in processes."""

import pytest

from ledger import Ledger
from ledger.rules import limits

LONG = pytest.param(60, id="long", marks=pytest.mark.soak)


@pytest.fixture
def race_in_threads():
    """Lets roles run against each other in threads with a ledger each."""

    def run(race, seconds, *roles, timeout=2):
        threads = {f"{role}-{n}": (role, Ledger.open(race.root, engine="delta-rs")) for n, role in enumerate(roles)}
        answers = race.run({}, seconds, timeout=timeout, threads=threads)
        assert all(answer["errors"] == [] for answer in answers.values()), answers
        return answers

    return run


def fifo(make_race, lanes=2, **more):
    return make_race(0, sends=1, lanes=lanes, name="race.fifo", FifoQueue="true", **more)


@pytest.mark.parametrize("seconds", [pytest.param(6, id="short"), LONG])
def test_groups_keep_their_order_and_repeated_sends_are_stored_once(make_race, race_in_threads, seconds):
    race = fifo(make_race)
    answers = race_in_threads(race, seconds, "ordered_sender", "ordered_sender", "ordered", "ordered", "ordered")
    assert sum(answer["claims"] for answer in answers.values()) >= 5
    assert race.judge() == []


@pytest.mark.soak
@pytest.mark.parametrize("seconds", [pytest.param(5, id="short"), LONG])
def test_groups_keep_their_order_between_processes(make_race, seconds):
    race = fifo(make_race)
    roles = ["ordered_sender", "ordered_sender", "ordered", "ordered"]
    answers = race.run({f"{role}-{n}": role for n, role in enumerate(roles)}, seconds, timeout=2)
    assert all(answer["errors"] == [] for answer in answers.values()), answers
    assert race.judge() == []


@pytest.mark.soak_variants("fifo-short")
@pytest.mark.parametrize("seconds", [pytest.param(5, id="short"), LONG])
@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_the_quota_is_never_exceeded(make_race, race_in_threads, monkeypatch, kind, seconds):
    monkeypatch.setattr(limits, "MAXIMUM_IN_FLIGHT", 4)
    monkeypatch.setattr(limits, "MAXIMUM_IN_FLIGHT_FIFO", 4)
    if kind == "standard":
        race = make_race(40, sends=8, lanes=4, quota=4, Limits="SQS")
        answers = race_in_threads(race, seconds, "small", "small", "small", "sender")
        assert sum(answer["refused"] for answer in answers.values()) > 0, "nobody met the quota"
    else:
        race = fifo(make_race, quota=4, Limits="SQS")
        race_in_threads(race, seconds, "ordered", "ordered", "ordered", "ordered_sender")
    assert race.judge() == []


@pytest.mark.parametrize("seconds", [pytest.param(6, id="short"), LONG])
def test_dead_letters_are_neither_lost_nor_doubled(make_race, race_in_threads, seconds):
    race = make_race(60, sends=6, lanes=2, dead_after=1)
    race_in_threads(race, seconds, "careless", "careless", "small", "undertaker", "undertaker", timeout=1)
    assert sum(queue.counts().moved for queue in race.ledger.list_queues()) > 0
    assert race.judge() == []


@pytest.mark.parametrize("seconds", [pytest.param(5, id="short"), LONG])
def test_dead_letters_of_fifo_queues_between_processes(make_race, seconds):
    race = fifo(make_race, dead_after=2)
    roles = ["ordered_sender", "careless", "careless", "undertaker"]
    answers = race.run({f"{role}-{n}": role for n, role in enumerate(roles)}, seconds, timeout=1)
    assert all(answer["errors"] == [] for answer in answers.values()), answers
    assert race.judge() == []
