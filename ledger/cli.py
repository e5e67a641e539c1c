"""The `ledger` command. A sub-command is one function that adds itself to the parser."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ledger.errors import LedgerError

if TYPE_CHECKING:
    from ledger.runtime.checks import Finding

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: this process's); return the exit code."""
    parser = argparse.ArgumentParser(prog="ledger", description="SQS visibility timeouts on Delta tables")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in (_add_doctor, _add_submit):
        add(commands)
    chosen = parser.parse_args(arguments)
    try:
        run: Callable[[argparse.Namespace], int] = chosen.run
        return run(chosen)
    except LedgerError as error:
        print(f"ledger: {error}", file=sys.stderr)
        return 1


def _add_doctor(commands: Commands) -> None:
    command = commands.add_parser("doctor", help="check this machine, and the storage of a ledger")
    command.add_argument("root", nargs="?", metavar="ROOT", help="the ledger's path or URL")
    command.add_argument("--fetch", action="store_true", help="fetch Spark's jars for ROOT now if they are missing")
    command.set_defaults(run=_doctor)


def _doctor(chosen: argparse.Namespace) -> int:
    from ledger.runtime.checks import examine

    if chosen.fetch:
        _fetch(chosen.root)
    failed = False
    for finding in (*examine(chosen.root), *_looked_at(chosen.root)):
        print(finding, flush=True)
        failed = failed or finding.outcome == "FAIL"
    return int(failed)


def _looked_at(root: str | None) -> Iterator[Finding]:
    """What an object store does, tried out with the keys of the environment."""
    from ledger.runtime.checks import Finding
    from ledger.runtime.storage import object_store

    place = None if root is None else object_store(root)
    if place is None:
        return
    try:
        from ledger.store.delta.commit.storage_report import report
    except ImportError as error:
        yield Finding("FAIL", "storage", f"cannot be looked at: {error}", "install the package with what it needs")
        return
    yield from (Finding(*found) for found in report(place))


def _fetch(root: str | None) -> None:
    from ledger.runtime.cache import RuntimeSetupError
    from ledger.runtime.jars import delta_packages, jars_of, s3_packages
    from ledger.runtime.storage import is_s3

    try:
        jars_of(delta_packages())
        if root is not None and is_s3(root):
            jars_of(s3_packages())
    except RuntimeSetupError as error:
        print(f"ledger: {error}", file=sys.stderr)


def _add_submit(commands: Commands) -> None:
    command = commands.add_parser("submit", help="run a script under spark-submit on this machine, set up for a ledger")
    command.add_argument("script", metavar="SCRIPT")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the script's own arguments")
    command.set_defaults(run=_submit)


def _submit(chosen: argparse.Namespace) -> int:
    import subprocess

    from ledger.runtime.session import submit_command, submit_environment

    return subprocess.run(submit_command(chosen.script, *chosen.arguments), env=submit_environment()).returncode


if __name__ == "__main__":
    sys.exit(main())
