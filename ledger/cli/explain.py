"""`ledger explain`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ledger.cli.opening import as_json, open_ledger, with_root
from ledger.cli.printing import print_json

if TYPE_CHECKING:
    from ledger.explanation import Explanation
    from ledger.queue import Queue

OF_HANDLES = ("extend", "release", "delete")
OF_QUEUE = ("purge", "redrive")


@click.command(short_help="Show the statement that a verb is, and change nothing.")
@click.argument("verb", type=click.Choice(["receive", "send", *OF_HANDLES, "restore", *OF_QUEUE]), metavar="VERB")
@click.argument("queue")
@click.argument("handles", nargs=-1, metavar="[HANDLE|BODY]...")
@click.option("--receipt", metavar="ID", help="A whole claim, by the receipt of `ledger receive --claim`.")
@click.option("--group", metavar="ID", help="Of a send to a FIFO queue.")
@click.option("--to", metavar="QUEUE", help="Of a redrive (default: where the messages came from).")
@click.option("-n", "--max", "most", type=int, default=1, show_default=True, metavar="N", help="Of a receive.")
@click.option("--visibility-timeout", type=int, metavar="S", help="Of a receive, and of extend.")
@as_json
@with_root
def explain(
    verb: str,
    queue: str,
    handles: tuple[str, ...],
    receipt: str | None,
    group: str | None,
    to: str | None,
    most: int,
    visibility_timeout: int | None,
    json: bool,
    root: str | None,
    settings: str | None,
) -> None:
    """Show what VERB would commit to QUEUE now, and change nothing: the MERGE statement and its source rows. Every verb
    is such a statement, whether an engine runs it or the rows are written directly (the setting merge). VERB is
    receive, send, extend, release, delete, restore, purge or redrive; for others there is `queue.explain` in Python.

    \b
    Example:
      ledger explain receive work --max 10
      ledger explain delete work HANDLE
      ledger explain extend work --receipt ID --visibility-timeout 600
      ledger explain send work "order 7"
      ledger explain restore work --receipt ID
    """
    if verb in OF_HANDLES and (receipt is None) == (not handles):
        raise click.UsageError(f"{verb} needs receipt handles, or --receipt ID for a whole claim.")
    if verb == "restore" and receipt is None:
        raise click.UsageError("restore needs --receipt ID, of the claim that was deleted.")
    if verb == "send" and not handles:
        raise click.UsageError("send needs the bodies of messages.")
    if handles and verb not in (*OF_HANDLES, "send"):
        raise click.UsageError(f"{verb} takes no handles and no bodies.")
    known = open_ledger(root, settings, read_only=True).queue(queue)
    found = _explained(known, verb, handles, receipt, group, to, most, visibility_timeout)
    if not json:
        click.echo(str(found))
        return
    rows = None if found.rows is None else found.rows.to_pylist()
    print_json(
        {
            "verb": verb,
            "table": found.table,
            "statement": found.statement,
            "rows": rows,
            "engine": found.engine,
            "why_statement": found.why_statement,
        }
    )


def _explained(
    queue: Queue,
    verb: str,
    handles: tuple[str, ...],
    receipt: str | None,
    group: str | None,
    to: str | None,
    most: int,
    timeout: int | None,
) -> Explanation:
    if verb == "receive":
        return queue.explain(verb, most, timeout)
    if verb == "send":
        return queue.explain(verb, list(handles), message_group_id=group)
    if verb == "restore":
        return queue.explain(verb, receipt)
    if verb == "redrive":
        return queue.explain(verb, destination=to)
    if verb == "purge":
        return queue.explain(verb)
    if receipt is not None:
        claim = queue.claim(receipt)
        return claim.explain(verb, timeout) if verb == "extend" else claim.explain(verb)
    timeouts = {"visibility_timeout": timeout} if verb == "extend" else {}
    found = queue.explain("settle", **{verb: list(handles)}, **timeouts)
    return replace(found, verb=verb)
