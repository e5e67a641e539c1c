"""`ledger upkeep`."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import TYPE_CHECKING

import click

from ledger.cli.opening import as_json, named_root, open_ledger, with_root
from ledger.cli.printing import Steps, print_json, print_table

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from ledger.store.delta.verbs.upkeep import UpkeepReport


@click.command(short_help="Free what is finished: once, or whenever it is due.")
@click.option("--every", metavar="PERIOD", help="Look each PERIOD (90s, 5m, 1h) whether a round is due, until SIGTERM.")
@click.option("--if-due", is_flag=True, help="Run a round only if it is due by load: for cron.")
@click.option("--no-vacuum", is_flag=True, help="Leave unused files in place.")
@as_json
@with_root
def upkeep(
    every: str | None, if_due: bool, no_vacuum: bool, json: bool, root: str | None, settings: str | None
) -> None:
    """Drop what is finished, compact, vacuum, fill the receipts. Safe beside running claims.

    Without --every: one round, now. With --every: look each period whether a round is due by what was committed, and
    run it; of several such processes on one ledger one works at a time. A round that fails is logged and tried again.
    SIGTERM and Ctrl-C end it between two steps, with exit code 0. Exit code 1: the ledger could not be opened.

    \b
    Example:
      ledger upkeep
      ledger upkeep --if-due
    """
    if every is not None and if_due:
        raise click.UsageError("--every runs a round only if it is due: leave --if-due out.")
    if every is not None:
        # Not at the top: `ledger --help` needs no Arrow.
        from ledger.upkeeper import period_of

        period = period_of("every", every)
        _run(open_ledger(root, settings), named_root(root), every, period, not no_vacuum, json)
    elif if_due:
        from ledger.upkeeper import Upkeeper

        done = Upkeeper(open_ledger(root, settings), 1.0, vacuum=not no_vacuum).run_if_due()
        if done is not None:
            _print(done, json)
        elif not json:
            click.echo("No round is due, or another process is at one.")
    else:
        steps = Steps(every=0)
        try:
            done = open_ledger(root, settings).upkeep(not no_vacuum, steps)
        finally:
            steps.done()
        _print(done, json)


def _print(done: UpkeepReport, json: bool) -> None:
    did = dataclasses.asdict(done)
    if json:
        print_json(did)
    else:
        print_table([{"did": name.replace("_", " "), "how many": count} for name, count in did.items()], "")


def _run(ledger: Ledger, root: str, every: str, period: float, vacuum: bool, json: bool) -> None:
    """Look each period until a signal ends it; print a line for each round that did something."""
    from ledger.termination import draining
    from ledger.upkeeper import Upkeeper, in_words

    def say(line: str) -> None:
        click.echo(f"{datetime.now():%H:%M:%S} {line}", err=True)

    def report(done: UpkeepReport) -> None:
        if json:
            print_json(dataclasses.asdict(done))
        else:
            say(in_words(done))

    with draining() as drain:
        say(f"looks each {every} whether upkeep of {root} is due, until SIGTERM or Ctrl-C")
        Upkeeper(ledger, period, vacuum=vacuum, report=report).run(drain.wait, lambda: drain.asked is not None)
        say("ended, as it was told to")
