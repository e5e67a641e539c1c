"""The command that puts right what a crash without sync, or a wrong clock, has done to a ledger."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ledger.cli.opening import as_json, named_root, open_ledger, with_root
from ledger.cli.printing import many, print_json
from ledger.cli.queues import confirm

if TYPE_CHECKING:
    from ledger.store.delta.verbs.repair import Repair


@click.command(short_help="Put a ledger right after a power cut or a wrong clock.")
@click.argument("place", metavar="[ROOT]", required=False)
@click.option("--clock", is_flag=True, help="Set the time of queues that is ahead to this machine's, and do no more.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be changed or lost.")
@with_root
@as_json
def repair(
    place: str | None, root: str | None, clock: bool, yes: bool, dry_run: bool, settings: str | None, json: bool
) -> None:
    """Cut the ledger at ROOT (default: LEDGER_ROOT), on a local path, back to its last whole version, as after a power
    cut. Shows what is lost, and asks on a terminal; elsewhere it needs --yes. What is taken out is moved to the folder
    _ledger_lost beside the tables. Stop all that uses the ledger before.

    With --clock: after a clock that was ahead has committed there, so that verbs say ClocksDisagree. Set this machine's
    clock right before. Others may go on meanwhile.

    \b
    Example:
      ledger repair ledger-data --dry-run
      ledger repair ledger-data --yes
      ledger repair --clock ledger-data --yes
    """
    if clock:
        _repair_clock(root, settings, yes, dry_run, json)
    else:
        _cut_back(named_root(root), yes, dry_run, json)


def _repair_clock(root: str | None, settings: str | None, yes: bool, dry_run: bool, json: bool) -> None:
    ledger = open_ledger(root, settings)
    found = ledger.repair_clock(dry_run=True)
    wrong = [one for one in found if one]
    if wrong and not dry_run:
        worst = max(one.ahead for one in wrong)
        queues = many(len(wrong), "queue")
        confirm(f"The time of {queues} is up to {worst:,.1f} s ahead. Set it to {_now(ledger.clock())}?", yes)
        found = ledger.repair_clock()
    if json:
        print_json(*(dataclasses.asdict(one) for one in found))
        return
    for one in found:
        if one.lanes:
            lanes, messages = many(one.lanes, "lane"), many(one.messages, "message")
            done = "would be put right" if dry_run else "put right"
            click.echo(f"{one.queue}: {lanes} {done}, {one.ahead:,.1f} s ahead, with the leases of {messages}")
        if one.refused_sends:
            done = "would go on" if dry_run else "go on"
            click.echo(f"{one.queue}: sends {done}; the last was {one.ahead:,.1f} s ahead")
        if one.changed_ahead:
            done = "would be set" if dry_run else "are set"
            changed = f"it was made or changed by a clock that was {one.ahead:,.1f} s ahead"
            click.echo(f"{one.queue}: {changed}; its timestamps, and what has expired, {done} by this one")
        if one.tasks:
            tasks = f"{many(one.tasks, 'message move task')} started by a clock that was ahead"
            click.echo(f"{one.queue}: {tasks}; {'would be' if dry_run else 'is'} carried on")
        if one.sent_ahead:
            sent = f"{many(one.sent_ahead, 'message')} sent by a clock that was ahead"
            click.echo(f"{one.queue}: {sent}; they become visible when their time has come")
    if not wrong:
        click.echo("no queue's time is ahead of this machine's clock")


def _now(milliseconds: int) -> str:
    from ledger.clock import instant

    return instant(milliseconds).isoformat(timespec="seconds")


def _cut_back(root: str, yes: bool, dry_run: bool, json: bool) -> None:
    from ledger.ledger import Ledger

    found = Ledger.repair(root, dry_run=True)
    if found and not dry_run:
        if not json:
            click.echo("\n".join(_shown(found)))
        confirm(f"Take this out of the ledger at {root}?", yes)
        found = Ledger.repair(root)
    if json:
        print_json({"repaired": bool(found) and not dry_run, **dataclasses.asdict(found)})
    elif dry_run or not found:
        click.echo("\n".join(_shown(found)))
        if found:
            click.echo(f"`ledger repair {root} --yes` does that. Stop all that uses the ledger before.")
    else:
        click.echo(f"Repaired. What was taken out is in {found.lost}")


def _shown(found: Repair) -> Iterator[str]:
    if not found:
        yield "Nothing is damaged."
    for table in found.tables:
        if table.commits:
            are = "is" if len(table.commits) == 1 else "are"
            lost = f"{many(len(table.commits), 'commit')} {are} lost"
            yield f"{table.table}: version {table.version} is the last whole one; {lost}"
        for commit in table.commits:
            about = commit.verb or "not known"
            about += "" if commit.messages is None else f", {many(commit.messages, 'message')}"
            yield f"  version {commit.version}: {about}{f' ({commit.flaw})' if commit.flaw else ''}"
        for version, what in table.past.items():
            yield f"{table.table}: the entry of version {version} {what}; a later checkpoint has its rows"
        if table.past:
            cut = f"versions before {table.readable_from} cannot be read any more"
            yield f"{table.table}: no message is lost with it, but {cut}"
        if table.files:
            held = "an unknown number of" if table.messages is None else f"{table.messages:,}"
            yield f"{table.table}: {len(table.files):,} data files are lost, with {held} messages"
        for path, what in table.files.items():
            yield f"  {path} {what}"
    if any(table.commits for table in found.tables):
        yield "What was sent in lost commits is gone. Messages whose acknowledgement is lost are received again."
    for path in found.checkpoints:
        yield f"{path} cannot be read; the entries tell the same, and nothing is lost with it"
