"""The page upkeep.md and the unit of systemd: what they run exists, and what they say is so."""

import configparser
import re
import shlex

from ledger.cli.operate import upkeep
from ledger.rules.upkeep import AGE_DUE, AGE_OVERDUE, COMMITS_DUE, COMMITS_OVERDUE, IDLE_DUE
from ledger.upkeep_daemon import LEASE_SECONDS, LONGEST_PAUSE_SECONDS
from tests.cli.running import run
from tests.sources import CHECKOUT

PAGE = (CHECKOUT / "docs" / "how-to" / "operate" / "upkeep.md").read_text()


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def options_of(command):
    """What `ledger upkeep` understands of a line; raises for an option that it has not."""
    program, verb, *arguments = shlex.split(command)
    assert program.endswith("ledger") and verb == "upkeep"
    return upkeep.make_context("upkeep", arguments).params


def test_the_commands_of_the_page_are_understood():
    (command,) = blocks("sh")
    assert options_of(command)["every"] == "5m"
    (line,) = blocks("cron")
    minute, *_, setting = line.split()[:6]
    assert minute == "*/10" and setting.startswith("LEDGER_ROOT=/")
    assert options_of(" ".join(line.split()[6:]))["if_due"] is True


def test_the_unit_of_systemd_runs_the_command_of_the_page():
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read(CHECKOUT / "conf" / "ledger-upkeep.service")
    started = options_of(unit["Service"]["ExecStart"])
    assert started == options_of(blocks("sh")[0])
    assert unit["Service"]["Restart"] == "on-failure"


def test_the_page_says_the_numbers_of_the_rule():
    hour = 3_600
    assert (2_000, hour, 24 * hour, 900) == (COMMITS_DUE, AGE_DUE, IDLE_DUE, LEASE_SECONDS)
    assert (20_000, 7 * 24 * hour, hour) == (COMMITS_OVERDUE, AGE_OVERDUE, LONGEST_PAUSE_SECONDS)
    for said in (
        "2,000 commits",
        "an hour since",
        "a day since",
        "15 minutes",
        "20,000 commits",
        "a week",
        "to an hour",
    ):
        assert said in PAGE, said


def test_a_ledger_that_cannot_be_opened_ends_with_1_and_a_wrong_period_with_2(tmp_path):
    assert run("upkeep", "--every", "5m", root=tmp_path / "none").code == 1
    assert run("upkeep", "--every", "never", root=tmp_path / "none").code == 2
