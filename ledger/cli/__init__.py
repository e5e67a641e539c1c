"""The `ledger` command: a module for each group of commands, joined in `app.py`.

Exit codes:

    0      everything is done
    1      an error without another exit code, or a failed check (doctor, queues list)
    2      the arguments, values or inputs are wrong
    3      done in part: rows were refused or left out, or nothing was done for some messages
    130    Ctrl-C

`top`, `serve` and `upkeep --every` end with 0 after Ctrl-C. The exit code of `submit` is that of its script.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: this process's), and return the exit code."""
    command_line = list(sys.argv[1:] if arguments is None else arguments)
    try:
        from ledger.cli.app import run
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        return _run_without_click(command_line)
    except KeyboardInterrupt:
        print("\nledger: interrupted", file=sys.stderr)
        return INTERRUPTED
    return run(command_line)


def _run_without_click(arguments: list[str]) -> int:
    """Run `ledger doctor` without options, the only command that needs no click."""
    from ledger.cli.diagnosis import diagnose

    if arguments[:1] == ["doctor"]:
        return diagnose(next((argument for argument in arguments[1:] if not argument.startswith("-")), None))
    print("ledger: the package click is not installed; `ledger doctor` says what else is missing", file=sys.stderr)
    return 1
