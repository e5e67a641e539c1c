"""What the README names exists: files, rules with their tests, and the first example runs as it stands."""

import re
from pathlib import Path

import pytest

from tests.cli.running import shell

CHECKOUT = Path(__file__).resolve().parents[1]
README = (CHECKOUT / "README.md").read_text()
RULES = [f"V{n}" for n in range(1, 15)] + [f"Q{n}" for n in range(1, 8)] + ["F1", "F2", "F3", "F4", "D1", "D2"]
ROWS = re.findall(r"^\| ([VQFD]\d+)(?: to ([VQFD]\d+))? \|[^|]*\|([^|]*)\|([^|]*)\|$", README, re.MULTILINE)


def named(cell):
    return re.findall(r"`([^`]+)`", cell)


def covers(row, rule):
    first, last = row[0], row[1] or row[0]
    return first[0] == rule[0] and int(first[1:]) <= int(rule[1:]) <= int(last[1:])


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_row_with_a_module_and_a_test_named_after_it(rule):
    (row,) = [row for row in ROWS if covers(row, rule)]
    for module in named(row[2]):
        assert (CHECKOUT / "ledger" / module).is_file(), module
    texts = [(CHECKOUT / test).read_text() for test in named(row[3])]
    assert any(f"def test_{rule.lower()}_" in text for text in texts), f"no test_{rule.lower()}_... in {row[3]}"


def test_every_link_and_every_file_of_the_map_exists():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    missing = [link for link in links if not (CHECKOUT / link).exists()]
    listed = README.split("## The map")[1].split("```")[1]
    here = {path.name for folder in ("ledger", "jobs", "notebooks", "tests") for path in (CHECKOUT / folder).rglob("*")}
    missing += [name for name in re.findall(r"\b[a-z_]+\.py\b", listed) if name not in here]
    assert links and not missing


def test_the_commands_are_there():
    for command in re.findall(r"^python3 (\S+)", README, re.MULTILINE):
        assert (CHECKOUT / command).is_file()
    assert "tests/run.py" in (CHECKOUT / ".ci" / "run").read_text()


def test_the_section_on_the_command_line_runs_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.csv").write_text("id,total\n1,2.50\n2,3.50\n3,4.50\n")
    section = README.split("\n## Command line\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    first, *lines = block.splitlines()
    assert first.split()[:2] == ["export", "LEDGER_ROOT=./my-ledger"]
    monkeypatch.setenv("LEDGER_ROOT", "./my-ledger")
    said = {line.split("#")[0].strip(): shell(line).out for line in lines}
    assert said["ledger send work orders.csv"] == "sent 3 messages to work\n"
    assert said["ledger receive work --json | ledger delete work -"] == "deleted 1 message\n"
    assert said["ledger receive work --all --claim"].split()[3] == "1"
    assert len(lines) == len(said) == 12
