"""`ledger share`."""

from __future__ import annotations

import dataclasses

import click

from ledger.cli.opening import as_json, named_root, with_root
from ledger.cli.printing import many, report


@click.command(short_help="Give a ledger on a local path to a group.")
@click.argument("place", metavar="[ROOT]", required=False)
@click.option("--group", required=True, metavar="GROUP", help="The group whose users read and write the ledger.")
@click.option("--everyone", is_flag=True, help="All others may read it.")
@as_json
@with_root
def share(place: str | None, group: str, everyone: bool, json: bool, root: str | None, settings: str | None) -> None:
    """Let all users of GROUP use the ledger ROOT (default: LEDGER_ROOT): its folders and locks become writable for the
    group, its files readable, and so does all that anybody makes there later, whatever umask he has.

    Run it as the owner of the ledger, or as root; again at any time.

    \b
    Example:
      ledger share ledger-data --group GROUP
    """
    from ledger.ledger import Ledger

    done = Ledger.share(named_root(root), group=group, everyone=everyone)
    sentence = f"shared {many(done.folders, 'folder')} and {many(done.files, 'file')} of {done.root} with {group}"
    if not done.is_inherited:
        sentence += ". The file system has no ACLs: every user sets `umask 002` before he uses the ledger"
    report(json, dataclasses.asdict(done), sentence)
