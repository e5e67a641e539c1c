"""Every command says what it does, with an example that runs as it stands."""

import os
import re
import shutil
import signal
import subprocess
import sys
from importlib import metadata

import click
import pytest

from ledger import Ledger
from ledger.cli import INTERRUPTED
from ledger.cli.app import FAILED, USAGE, application
from ledger.cli.opening import IN_PART
from tests.cli.running import run, shell


def commands(group=application, path=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands())
EXAMPLES = [
    line.strip()
    for command in COMMANDS.values()
    for line in (command.help or "").partition("Example:")[2].splitlines()
    if line.strip()
]
#: They start a JVM, or a server.
SLOW = ("submit", "serve")


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """A folder with a ledger and the files that examples name, to be copied."""
    folder = tmp_path_factory.mktemp("examples")
    ledger = Ledger.open(str(folder / "ledger-data"))
    dead, work = ledger.create_queue("dead"), ledger.create_queue("work", {"VisibilityTimeout": 600})
    work.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 5}})
    work.set_tags({"team": "data"})
    work.send([f"body {number}" for number in range(20)])
    ledger.backup(folder / "monday")
    work.export_to(folder / "monday.parquet")
    (folder / "orders.csv").write_text("body\none\n")
    (folder / "bodies.txt").write_text("one\ntwo\n")
    return folder


@pytest.fixture
def place(made_once, tmp_path, monkeypatch):
    """The queue of a copy of `made_once`, in which the commands run."""
    shutil.copytree(made_once, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEDGER_ROOT", "ledger-data")
    return Ledger.open("ledger-data").queue("work")


@pytest.mark.parametrize("name", COMMANDS, ids=" ".join)
def test_every_command_has_an_example_of_itself(name):
    example = (COMMANDS[name].help or "").partition("Example:")[2]
    assert f"ledger {' '.join(name)}" in example
    ran = run(*name, "--help")
    assert ran.code == 0 and example.strip().splitlines()[0] in ran.out


@pytest.mark.parametrize("name", COMMANDS, ids=" ".join)
def test_every_command_prints_its_facts_as_json(name):
    """What `submit` prints is its job's, which has the option: see tests/jobs."""
    assert name == ("submit",) or "json" in {one.name for one in COMMANDS[name].params}


@pytest.mark.parametrize("example", [one for one in EXAMPLES if one.split()[1] not in SLOW])
def test_every_example_runs(example, place):
    claim = place.receive(2)
    message = claim.messages()[0]
    if " restore " in example:
        claim.delete()
    known = {
        "MESSAGE_ID": message.message_id,
        "HANDLE": message.receipt_handle,
        "RECEIPT": claim.receipt_id,
        "ID": claim.receipt_id,
        "GROUP": str(os.getgid()),
    }
    example = re.sub(r"\b(MESSAGE_ID|HANDLE|RECEIPT|ID|GROUP)\b(?! BY)", lambda found: known[found[0]], example)
    assert shell(example).out, "it said something"


@pytest.mark.parametrize("name", [(), *COMMANDS], ids=" ".join)
def test_a_help_has_no_marks_of_its_layout(name):
    assert "\b" not in run(*name, "--help").out


def test_the_help_names_the_exit_codes_also_those_of_signals():
    (told,) = re.findall(r"Exit codes: (.*?)\n\n", run("--help").out, re.DOTALL)
    numbers = [0, FAILED, USAGE, IN_PART, INTERRUPTED, 128 + signal.SIGTERM]
    assert [int(number) for number in re.findall(r"\b\d+\b", told)] == numbers


@pytest.mark.parametrize("name", [("--version",), ("--help",), ("-h",)])
def test_the_version_and_the_help_need_no_ledger(name):
    assert run(*name).code == 0


def test_the_version_names_the_engines():
    shown = run("--version").out
    assert shown.startswith("ledger, version 0.1.0 (Python 3.") and "\n" not in shown.strip()
    for name in ("deltalake", "pyarrow", "pyspark"):
        assert f"{name} {metadata.version(name)}" in shown


@pytest.mark.parametrize(
    ("words", "expected"), [("ledger qu", "queues"), ("ledger queues cr", "create"), ("ledger send --de", "--delay")]
)
def test_a_shell_completes_commands_and_options(words, expected):
    """As the page command-line.md has bash ask."""
    at = str(words.count(" "))
    asked = {**os.environ, "_LEDGER_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": at}
    told = subprocess.run([sys.executable, "-m", "ledger"], env=asked, capture_output=True, text=True, check=False)
    assert f"plain,{expected}" in told.stdout.split()
