"""The `ledger` command: a module for each group of commands, joined in `app.py`.

Exit codes: 0 all done; 1 the ledger or its storage says no; 2 wrong arguments or values; 3 done in part (rows that were
refused, handles that nothing was done for); 130 Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: this process's); return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        from ledger.cli.app import run
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        return _without_click(words)
    except KeyboardInterrupt:
        print("\nledger: interrupted", file=sys.stderr)
        return INTERRUPTED
    return run(words)


def _without_click(given: list[str]) -> int:
    """Run `ledger doctor` where click is missing; for each other command, say that click is missing."""
    from ledger.cli.diagnosis import diagnose

    if given[:1] == ["doctor"]:
        return diagnose(next((one for one in given[1:] if not one.startswith("-")), None))
    print("ledger: the package click is not installed; `ledger doctor` says what else is missing", file=sys.stderr)
    return 1
