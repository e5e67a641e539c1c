"""`ledger history`: what the log says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.opening import as_json, open_ledger, with_root
from ledger.cli.printing import print_json, print_table
from ledger.errors import InvalidParameterValue

if TYPE_CHECKING:
    from ledger.ledger import Ledger


@click.command(short_help="Who was granted what, and what became of it.")
@click.argument("queue", required=False)
@click.option("--receipt", metavar="ID", help="Only what was done under this receipt.")
@click.option(
    "--message", metavar="ID", help="Only what was done under the receipts of a message in QUEUE, wherever it was."
)
@click.option(
    "-n", "--last", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="The last N events."
)
@as_json
@with_root
def history(
    queue: str | None,
    receipt: str | None,
    message: str | None,
    last: int,
    json: bool,
    root: str | None,
    settings: str | None,
) -> None:
    """Who was granted what, and what became of it: the last events of QUEUE, or of the ledger, oldest first. It is
    read from the receipts and, for what upkeep has not copied there yet, from the log.

    The receipts that a message had before its last one, and before it was moved to QUEUE, are looked up in past
    versions, as far back as these are kept.

    \b
    Example:
      ledger history work
      ledger history work --message MESSAGE_ID
    """
    from ledger.clock import instant
    from ledger.store.delta.verbs.receipts import history as events

    if message is not None and (queue is None or receipt is not None):
        raise click.UsageError("--message needs its QUEUE, and no --receipt.")
    ledger = open_ledger(root, settings, read_only=True)
    names = {record.id: record.name for record in ledger.store.queues()}
    store: Any = ledger.store
    record = None if queue is None else store.queue(queue)
    found = events(store.engine, None if message else record and record.id, receipt)
    if message is not None:
        store.peek(record, message)
        mine = _receipts_of(ledger, message, found, names)
        if not mine:
            raise click.ClickException(f"the message {message} has no receipt: it was never received")
        found = [event for event in found if event["receipt_id"] in mine]
    shown = found[-last:]
    if receipt is not None and not found:
        raise click.ClickException(f"nothing is known of a receipt {receipt}{'' if queue is None else f' of {queue}'}")
    rows = [
        {
            "at": instant(event["at"]),
            "queue": names.get(event["queue"], event["queue"]),
            "event": event["event"],
            "messages": event["messages"],
            "receipt_id": event["receipt_id"],
            "attempt_id": event["attempt_id"],
            "visible_at": None if event["visible_at"] is None else instant(event["visible_at"]),
            "reason": event.get("reason"),
            "owner": event["owner"],
            "version": event["version"],
        }
        for event in shown
    ]
    if len(shown) < len(found):
        click.echo(f"ledger: the last {last} of {len(found)} events; --last shows more", err=True)
    if json:
        print_json(*rows)
    else:
        shorter = [{name: row[name] for name in row if name not in ("attempt_id", "version")} for row in rows]
        print_table(shorter, "nothing was received yet")


def _receipts_of(
    ledger: Ledger, message: str, events: Sequence[Mapping[str, Any]], names: Mapping[str, str]
) -> set[str]:
    """The receipts that a message has had, from its last one back, in the queues before this one too: what is recorded
    right before the grant of a receipt, or before it came to a queue, names the one before."""
    # The first one of a receipt, which a retried attempt is granted again.
    granted = {event["receipt_id"]: event["version"] for event in reversed(events) if event["event"] == "granted"}
    came = [(one["version"], names.get(one["queue"])) for one in events if one["event"] in ("arrived", "restored")]
    found: set[str] = set()
    try:
        now = _as_of(ledger, message, None)
        while now is not None:
            queue, receipt = now
            if receipt is not None:
                found.add(receipt)
                now = _as_of(ledger, message, granted[receipt] - 1) if receipt in granted else None
                came = [one for one in came if one[0] < granted.get(receipt, 0)]
                continue
            # Nobody has received it since one of these brought it here, or restored it.
            before: tuple[str, str | None] | None = now
            while came and before == now:
                version, there = came.pop()
                before = _as_of(ledger, message, version - 1) if there == queue else now
            now = None if before == now else before
    except InvalidParameterValue:
        click.echo("ledger: of what was before, the versions are not kept any more", err=True)
    return found


def _as_of(ledger: Ledger, message: str, version: int | None) -> tuple[str, str | None] | None:
    """The queue that a message was in as of a version, and its receipt there; None: there was no such message."""
    from ledger.rules.message_id import place

    segment, seq = place(message)
    query = f"SELECT queue, receipt_id FROM messages WHERE segment = '{segment}' AND seq = {seq}"
    rows = ledger.sql(query, version).to_pylist()
    return (rows[0]["queue"], rows[0]["receipt_id"]) if rows else None
