"""Everything at once: threads and processes, queues that feed one another, moves, outputs, stalls, kills and upkeep."""

import itertools
import os
import shutil
from types import SimpleNamespace

import pytest

from ledger import Ledger
from ledger.rules import limits
from tests.races import world as races
from tests.races.worker import Worker
from tests.races.world import QUOTA, World

#: What a race of each kind does at least, however slow the machine.
ANYTHING = {"sent": 1, "received": 3, "settled": 1, "killed": 1, "stopped": 1}
FLOORS = {
    "everything": {**ANYTHING, "moved": 1, "written": 1},
    "feeding": {**ANYTHING, "moved": 3},
    "ordered": ANYTHING,
    "writing": {**ANYTHING, "written": 3},
}
#: How long the long one takes, in seconds; the environment may say otherwise.
SECONDS = int(os.environ.get("LEDGER_SOAK_SECONDS", "600"))
#: Its history is judged after it.
SOAK = (pytest.mark.soak, pytest.mark.timeout(2 * SECONDS + 300))


@pytest.fixture
def world(race_template, tmp_path, monkeypatch):
    # Who drains the queues in the end keeps to the quota of those who raced: some are in flight when it begins.
    monkeypatch.setattr(limits, "MAXIMUM_IN_FLIGHT", QUOTA)
    monkeypatch.setattr(limits, "MAXIMUM_IN_FLIGHT_FIFO", QUOTA)
    for name in ("logs", "outputs"):
        (tmp_path / name).mkdir()
    return World(shutil.copytree(race_template, tmp_path / "ledger"), tmp_path / "logs", tmp_path / "outputs", seed=1)


@pytest.mark.soak_variants("feeding-3", "writing-3")
@pytest.mark.parametrize(
    ("habits", "seconds"),
    [
        ("everything", 6),
        ("feeding", 3),
        ("writing", 3),
        pytest.param("everything", SECONDS, marks=SOAK),
        *(pytest.param(habits, SECONDS // 10, marks=SOAK) for habits in ("feeding", "ordered", "writing")),
    ],
)
def test_all_promises_hold_with_stalls_and_kills_and_upkeep(world, habits, seconds):
    world.run(seconds, habits, floors=FLOORS[habits])
    missing = world.missing(FLOORS[habits])
    assert not missing, "; ".join(missing)
    assert world.judge() == []


def test_a_drain_that_a_queue_gives_none_of_what_it_has_is_found_out(world, monkeypatch):
    """Somebody holds a message whose lease outlasts the drain's patience: it is neither received nor gone."""
    ledger = Ledger.open(str(world.root), engine="delta-rs")
    assert ledger.queue("third").receive(1, 3_600).count == 1
    # Ten seconds pass between any two looks at the clock.
    monkeypatch.setattr(races, "time", SimpleNamespace(monotonic=itertools.count(0, 10).__next__))
    found = [problem for problem in world.judge() if "and gives none" in problem]
    assert len(found) == 1 and found[0].startswith("third still has Counts(visible=0,") and "in_flight=1" in found[0]
    assert all(queue.counts().stored == 0 for queue in ledger.list_queues()), "all else was received"


def test_a_drain_makes_no_more_messages_in_flight_than_those_who_raced(world):
    """While somebody still holds some of them."""
    ledger = Ledger.open(str(world.root), engine="delta-rs")
    for name in ("narrow", "narrow.fifo"):
        assert Worker(f"late-{name}", ledger.queue(name), world.folder, 0, 1).receive(3)[0].count == 3
    assert world.judge() == []
