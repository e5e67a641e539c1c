"""Everything at once: threads and processes, queues that feed one another, moves, outputs, stalls, kills and upkeep."""

import os
import shutil

import pytest

from tests.races.world import World

#: How long the long one takes, in seconds; the environment may say otherwise.
SECONDS = int(os.environ.get("LEDGER_SOAK_SECONDS", "600"))
#: Its history is judged after it.
SOAK = (pytest.mark.soak, pytest.mark.timeout(2 * SECONDS + 300))


@pytest.fixture
def world(race_template, tmp_path):
    for name in ("logs", "outputs"):
        (tmp_path / name).mkdir()
    return World(shutil.copytree(race_template, tmp_path / "ledger"), tmp_path / "logs", tmp_path / "outputs", seed=1)


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
    world.run(seconds, habits)
    assert world.judge() == []
