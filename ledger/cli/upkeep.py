"""`ledger upkeep`."""

from __future__ import annotations

import dataclasses

import click

from ledger.cli.opening import as_json, open_ledger, with_root
from ledger.cli.printing import Steps, print_json, print_table


@click.command(short_help="One round of upkeep: free what is finished.")
@click.option("--no-vacuum", is_flag=True, help="Leave unused files in place.")
@as_json
@with_root
def upkeep(no_vacuum: bool, json: bool, root: str | None, settings: str | None) -> None:
    """One round of upkeep: drop what is finished, compact, vacuum, fill the receipts. Safe beside running claims; once
    an hour is plenty, once in 30 days is a must for a complete history.

    \b
    Example:
      ledger upkeep
    """
    steps = Steps(every=0)
    try:
        did = dataclasses.asdict(open_ledger(root, settings).upkeep(not no_vacuum, steps))
    finally:
        steps.done()
    if json:
        print_json(did)
    else:
        print_table([{"did": name.replace("_", " "), "how many": count} for name, count in did.items()], "")
