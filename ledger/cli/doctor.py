"""The command `ledger doctor`."""

from __future__ import annotations

import click

from ledger.cli.diagnosis import diagnose
from ledger.cli.opening import as_json, find_root, with_root


@click.command(short_help="Check a machine, a storage and a ledger; --json for monitors.")
@click.argument("place", metavar="[ROOT]", required=False)
@click.option("--fetch", is_flag=True, help="Fetch Spark's jars for ROOT now if they are missing.")
@click.option("--deep", is_flag=True, help="Read each data file, and compare its rows with what the log says.")
@with_root
@as_json
def doctor(place: str | None, root: str | None, fetch: bool, deep: bool, settings: str | None, json: bool) -> int:
    """Show what this machine and the storage of ROOT (default: LEDGER_ROOT) lack, and the state of the ledger at ROOT.
    The findings are about versions, clocks, disks, logs, missing, damaged and unneeded files, and upkeep, among others.
    The exit code is 1 if any finding is FAIL.

    \b
    Example:
      ledger doctor ledger-data
      ledger doctor ledger-data --json
      ledger doctor ledger-data --deep
    """
    return diagnose(find_root(root), as_json=json, fetch=fetch, settings=settings, deep=deep)
