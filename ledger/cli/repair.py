"""`ledger repair`."""

from __future__ import annotations

import dataclasses

import click

from ledger.cli.opening import as_json, given_root, open_ledger, with_root
from ledger.cli.printing import many, print_json
from ledger.cli.queues import confirm


@click.command(short_help="Put a ledger right that a wrong clock has committed to.")
@click.argument("place", metavar="[ROOT]", required=False)
@click.option("--clock", is_flag=True, help="Set the time of queues that is ahead to this machine's.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json
@with_root
def repair(place: str | None, clock: bool, yes: bool, json: bool, root: str | None, settings: str | None) -> None:
    """Put the ledger at ROOT (default: LEDGER_ROOT) right. With --clock: after a clock that was ahead has committed
    there, so that verbs say ClocksDisagree. Set this machine's clock right before. Asks on a terminal; else it needs
    --yes.

    \b
    Example:
      ledger repair --clock ledger-data --yes
    """
    if not clock:
        raise click.UsageError("What is to be repaired? Give --clock.")
    ledger = open_ledger(place or given_root(root), settings)
    found = ledger.repair_clock(dry_run=True)
    wrong = [one for one in found if one.lanes]
    if wrong:
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
            click.echo(f"{one.queue}: {lanes} put right, {one.ahead:,.1f} s ahead, with the leases of {messages}")
        if one.sent_ahead:
            sent = f"{many(one.sent_ahead, 'message')} sent by a clock that was ahead"
            click.echo(f"{one.queue}: {sent}; they become visible when their time has come")
    if not wrong:
        click.echo("no queue's time is ahead of this machine's clock")


def _now(milliseconds: int) -> str:
    from ledger.clock import instant

    return instant(milliseconds).isoformat(timespec="seconds")
