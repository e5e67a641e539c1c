"""The `ledger` command, a package of small files: one for each group of commands, and `app.py` that has them all.

Exit codes: 0 all done; 1 the ledger or its storage says no; 2 wrong arguments or values; 3 done in part (rows that were
refused, handles that nothing was done for); 130 Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line `arguments` (default: this process's); returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        from ledger.cli.app import run
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        return _without_click(given)
    except KeyboardInterrupt:
        print("\nledger: interrupted", file=sys.stderr)
        return INTERRUPTED
    return run(given)


def _without_click(given: list[str]) -> int:
    """The doctor says what is missing, where what reads command lines is missing too."""
    from ledger.cli.diagnosis import diagnose

    if given[:1] == ["doctor"]:
        return diagnose(next((one for one in given[1:] if not one.startswith("-")), None))
    print("ledger: the package click is not installed; `ledger doctor` says what else is missing", file=sys.stderr)
    return 1
