"""The page of clients in docs/ shows what the programs of the clients do, and names what they were tried with."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from tests.sources import CHECKOUT

PAGE = (CHECKOUT / "docs" / "clients.md").read_text()
PROGRAMS = Path(__file__).parent
SHOWN = {
    "go": ["go/main.go"],
    "java": ["java/Program.java"],
    "js": ["javascript/program.mjs", "sqs_consumer/program.mjs"],
    "python": ["aiobotocore/program.py"],
    "rust": ["rust/program.rs"],
}
_MARKED = re.compile(r"^[ \t]*(?:#|//) docs/clients\.md\n(.*?)^[ \t]*(?:#|//) end\n", re.MULTILINE | re.DOTALL)


def blocks(language):
    """Every code block of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def marked_part(program):
    """The part of a program that stands between `docs/clients.md` and `end`, without its indentation."""
    (part,) = _MARKED.findall((PROGRAMS / program).read_text())
    return textwrap.dedent(part)


@pytest.mark.parametrize("language", SHOWN)
def test_each_block_of_the_page_is_a_part_of_a_program_that_the_tests_run(language):
    assert blocks(language) == [marked_part(program) for program in SHOWN[language]]


def test_no_block_of_the_page_is_in_another_language():
    assert set(re.findall(r"^```(\w+)$", PAGE, re.MULTILINE)) == {"sh", *SHOWN}


def test_no_lock_file_names_the_host_of_a_registry():
    locks = list(PROGRAMS.rglob("package-lock.json"))
    assert locks
    for lock in locks:
        packages = json.loads(lock.read_text())["packages"]
        assert not [name for name, one in packages.items() if "resolved" in one]
