"""What the README names exists: files, rules with their tests, and the first example runs as it stands."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ledger import Ledger
from ledger.rules.state import Status
from ledger.store.delta.views.statements import words
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


def test_the_table_of_contents_leads_to_every_section_and_nowhere_else():
    top = README.split("\n## ")[0]
    titles = re.findall(r"^##+ (.*)$", re.sub(r"```.*?```", "", README, flags=re.DOTALL), re.MULTILINE)
    anchors = [re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles]
    assert re.findall(r"\]\(#([^)]+)\)", top) == anchors


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
    assert len(lines) == len(said) == 22


def blocks(section, language):
    return re.findall(rf"```{language}\n(.*?)```", README.split(f"\n## {section}\n")[1].split("\n## ")[0], re.DOTALL)


def test_the_sections_for_analysts_and_on_notebooks_run_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The examples look at what was in January.
    early = Ledger.open("ledger-data", clock=lambda: 1_769_000_000_000).create_queue("early")
    early.send("x")
    early.receive()
    queue = Ledger.open("ledger-data", owner="worker").create_queue("orders", {"Lanes": 1})
    queue.send(["a", "b"])
    queue.receive().release(reason="no number")
    queue.receive()
    names: dict = {}
    first, of_spark = blocks("SQL for analysts", "python")
    lines = [line for line in first.splitlines() if line.startswith("ledger.sql")]
    exec(first, names)
    found = [eval(line, names) for line in lines]
    assert [table.num_rows for table in found[:3]] == [2, 1, 1] and len(found) == len(lines) == 8
    assert "deploy_views" in of_spark, "which a soak test of tests/delta/test_catalogs.py runs"
    (shown,) = blocks("Notebooks", "python")
    names = {}
    exec(shown, names)
    assert names["queue"].plot(last=3_600).axes


def test_the_glossary_has_every_state_and_every_event():
    states, events = README.split("| state of a message | |")[1].split("| event in `receipts` | |")
    assert re.findall(r"^\| ([a-z ]+) \|", states, re.MULTILINE) == [status.value for status in Status]
    known = re.findall(r"^\| ([a-z, ]+) \|", events.split("\n## ")[0], re.MULTILINE)
    said = words("receipts").columns["event"]
    assert sorted(", ".join(known).split(", ")) == sorted(said.split(", "))


def test_the_section_on_work_without_spark_runs_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEDGER_ROOT", "prompts-ledger")
    for block in blocks("Work without Spark", "python"):
        (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block)
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}

    def run(*arguments):
        return subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True, text=True)

    said = run("run.py").stdout
    assert "messages=2000" in said and "rejected=1" in said and "failed=3" in said and "cost=6000" in said
    rows = DeltaTable("answers").to_pyarrow_table()
    assert rows.num_rows == 2_000 == len(set(rows["message_id"].to_pylist()))
    sql, redrive = (line for line in blocks("Work without Spark", "sh")[0].splitlines() if line.startswith("ledger"))
    assert {"an empty prompt", "ValueError: no such language (prompts.py:14)"} <= {
        row["reason"] for row in json.loads("[" + ",".join(shell(f"{sql} --json").out.splitlines()) + "]")
    }
    assert "moved 2 messages" in shell(redrive).out
    (tmp_path / "prompts.py").write_text((tmp_path / "prompts.py").read_text().replace('== "poison"', '== "venom"'))
    assert "messages=1," in run("run.py").stdout, "what was sent is not sent again, and the mended function does it"
    parked, release = blocks("Work without Spark", "sh")[1].splitlines()
    assert "(queue, state, reason, messages)" in shell(parked).out and "released 0 messages" in shell(release).out
    (consume,) = blocks("Work without Spark", "sh")[2].splitlines()
    arguments = shlex.split(consume)[1:]
    assert "consumed 0 messages" in run("-m", "ledger.cli", *arguments).stdout
