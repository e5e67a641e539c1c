"""`ledger destroy`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from ledger.cli.opening import as_json, named_root, open_ledger, with_root
from ledger.cli.printing import many, print_json
from ledger.cli.queues import confirm

if TYPE_CHECKING:
    from ledger.store.delta.destruction import Destroyed


@click.command(short_help="Remove a ledger for good, with all of its messages.")
@click.argument("place", metavar="[ROOT]", required=False)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@with_root
@as_json
def destroy(place: str | None, root: str | None, yes: bool, dry_run: bool, settings: str | None, json: bool) -> None:
    """Remove the ledger ROOT (default: LEDGER_ROOT) for good: its tables, its locks, and what repairs have put aside.
    Shows how much is in it, and asks on a terminal; elsewhere it needs --yes. What else lies in the folder stays.
    Stop all that uses the ledger before. Only a backup brings it back (`ledger backup`).

    \b
    Example:
      ledger destroy ledger-data --dry-run
      ledger destroy ledger-data --yes
    """
    from ledger.ledger import Ledger

    where = named_root(root)
    found = Ledger.destroy(where, dry_run=True)
    depth = _depth(where, settings)
    held = _in_words(depth, found)
    if not dry_run:
        confirm(f"Remove the ledger at {found.root} for good, with {held}?", yes)
        found = Ledger.destroy(where)
    if json:
        print_json({"destroyed": not dry_run, **dataclasses.asdict(found), **(depth or {})})
        return
    click.echo(f"{'Would remove' if dry_run else 'Removed'} the ledger at {found.root}, with {held}")
    if found.stays:
        click.echo(f"{', '.join(found.stays)}: not the ledger's; {'stays' if len(found.stays) == 1 else 'they stay'}")


def _depth(root: str, settings: str | None) -> dict[str, int] | None:
    """How much is in a ledger; None where that cannot be told, as of a damaged one."""
    from ledger.errors import LedgerError

    try:
        ledger = open_ledger(root, settings, read_only=True)
        rows = ledger.sql("SELECT * FROM queue_depth").to_pylist()
    except LedgerError:
        return None
    in_flight = sum(row["in_flight"] for row in rows)
    stored = sum(row[state] for row in rows for state in ("visible", "delayed", "locked"))
    return {"queues": len(rows), "messages": stored + in_flight, "in_flight": in_flight}


def _in_words(depth: dict[str, int] | None, found: Destroyed) -> str:
    size = f"{many(found.files, 'file')} of {found.bytes / 1e6:,.1f} MB"
    if depth is None:
        return f"an unknown number of messages (its tables cannot be read), in {size}"
    queues, messages = many(depth["queues"], "queue"), many(depth["messages"], "message")
    return f"{queues} and {messages}, {depth['in_flight']:,} of them in flight, in {size}"
