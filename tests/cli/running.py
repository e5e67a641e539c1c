"""The command line in this process, as click's own runner isolates it."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from ledger.cli import main


class Ran(NamedTuple):
    """What a command line did: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def documents(self) -> list:
        return [json.loads(line) for line in self.out.splitlines()]


def run(*arguments: str, given: str | bytes = "", root: object = None) -> Ran:
    """Runs `ledger` with these arguments, with `given` on stdin and `root` in the environment."""
    environment = {"LEDGER_ROOT": None if root is None else str(root), "LEDGER_SETTINGS": None, "LEDGER_LOG": None}
    with CliRunner().isolation(given, environment) as (out, err, _):
        code = main([str(one) for one in arguments])
        return Ran(code, out.getvalue().decode(), err.getvalue().decode())


def shell(line: str) -> Ran:
    """Runs a line as a shell does: commands with pipes between them, of which those of `ledger` run in this process.
    Raises AssertionError when one fails."""
    ran = Ran(0, "", "")
    for part in " ".join(shlex.split(line, comments=True, posix=False)).split(" | "):
        program, *arguments = shlex.split(part)
        if program == "ledger":
            ran = run(*arguments, given=ran.out, root=os.environ.get("LEDGER_ROOT"))
        elif program == "cat":
            ran = Ran(0, Path(*arguments).read_text(), "")
        else:
            assert program == "echo", part
            ran = Ran(0, " ".join(arguments) + "\n", "")
        assert ran.code == 0, (part, ran)
    return ran
