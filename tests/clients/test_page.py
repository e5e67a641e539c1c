"""The page of clients in docs/ shows what the programs of the clients do, and names what they were tried with."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.endpoint.test_command import Process
from tests.sources import CHECKOUT

PAGE = (CHECKOUT / "docs" / "how-to" / "sqs-clients.md").read_text()
PROGRAMS = Path(__file__).parent
SHOWN = {
    "go": ["go/main.go"],
    "java": ["java/Program.java", "jms/Program.java"],
    "js": ["javascript/program.mjs", "sqs_consumer/program.mjs"],
    "python": ["aiobotocore/program.py"],
    "rust": ["rust/program.rs"],
}
_MARKED = re.compile(r"^[ \t]*(?:#|//) sqs-clients\.md\n(.*?)^[ \t]*(?:#|//) end\n", re.MULTILINE | re.DOTALL)


def blocks(language):
    """Every code block of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def marked_part(program):
    """The part of a program that stands between `sqs-clients.md` and `end`, without its indentation."""
    (part,) = _MARKED.findall((PROGRAMS / program).read_text())
    return textwrap.dedent(part)


@pytest.mark.parametrize("language", SHOWN)
def test_each_block_of_the_page_is_a_part_of_a_program_that_the_tests_run(language):
    shown = [block for block in blocks(language) if not block.startswith("import boto3")]
    assert shown == [marked_part(program) for program in SHOWN[language]]


def test_no_block_of_the_page_is_in_another_language():
    assert set(re.findall(r"^```(\w+)$", PAGE, re.MULTILINE)) == {"sh", *SHOWN}


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's last commands need curl")
def test_the_commands_of_the_page_run_one_after_the_other(tmp_path):
    first, variables, _, curl = blocks("sh")
    exports = dict(re.findall(r"(LEDGER_\w+)=(\S+)", first))
    program, *arguments = shlex.split(first.splitlines()[1], comments=True)
    assert program == "ledger" and len(exports) == 2
    arguments[1] = str(tmp_path / arguments[1])
    served = Process("-m", "ledger.cli", *arguments, environment=exports)
    try:
        commands = "\n".join([variables, curl]).replace("http://127.0.0.1:9324", served.url)
        assert served.url in commands
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-e", "-c", commands], env={**os.environ, "PATH": path, "HOME": str(tmp_path)},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        assert served.end() == 0
    created, sent, received = re.split(r"(?<=\})\n(?=<)|(?<=>)(?=\{)", done.stdout.strip())
    assert json.loads(created)["QueueUrl"] == f"{served.url}/123456789012/orders"
    assert "<SendMessageResult>" in sent
    assert [message["Body"] for message in json.loads(received)["Messages"]] == ["one & two"]


def test_no_lock_file_names_the_host_of_a_registry():
    locks = list(PROGRAMS.rglob("package-lock.json"))
    assert locks
    for lock in locks:
        packages = json.loads(lock.read_text())["packages"]
        assert not [name for name, one in packages.items() if "resolved" in one]
