"""`ledger backup` and `ledger restore-backup`."""

from __future__ import annotations

import dataclasses

import click

from ledger.cli.opening import as_json, open_ledger, with_root
from ledger.cli.printing import print_json


@click.command(short_help="Copy the ledger, as of one moment, into a folder.")
@click.argument("dest")
@as_json
@with_root
def backup(dest: str, json: bool, root: str | None, settings: str | None) -> None:
    """Copy one consistent version of all tables into the folder DEST, while the ledger is in use.

    DEST must be empty or not there. Past versions are not copied.

    \b
    Example:
      ledger backup tuesday
    """
    done = open_ledger(root, settings).backup(dest, lambda step: click.echo(step, err=True))
    if json:
        print_json(dataclasses.asdict(done))
    else:
        click.echo(f"{done.files} files, {done.bytes} bytes, as of {done.taken_at}")


@click.command("restore-backup", short_help="Make a ledger of a backup.")
@click.argument("source")
@click.argument("place", metavar="ROOT")
@click.option("--replace", is_flag=True, help="Move the ledger that is at ROOT aside.")
@as_json
def restore_backup(source: str, place: str, replace: bool, json: bool) -> None:
    """Make the ledger ROOT of the backup SOURCE.

    Nothing may be at ROOT, unless --replace moves it aside. Processes that have it open go on with the restored one.

    \b
    Example:
      ledger restore-backup monday restored
    """
    from ledger.ledger import Ledger

    aside = Ledger.restore_backup(source, place, replace=replace, report=lambda step: click.echo(step, err=True))
    if json:
        print_json({"root": place, "moved_aside": None if aside is None else str(aside)})
    else:
        click.echo(f"{place} is the ledger of {source}" + ("" if aside is None else f"; what was there is in {aside}"))
