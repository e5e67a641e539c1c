"""`ledger redrive` and `ledger restore`: messages that come back."""

from __future__ import annotations

import click

from ledger.cli.opening import as_json, open_ledger, with_root
from ledger.cli.printing import many, report


@click.command(short_help="Move dead letters back.")
@click.argument("queue")
@click.argument("message_ids", nargs=-1, metavar="[MESSAGE_ID]...")
@click.option("--to", "destination", metavar="QUEUE", help="Where to (default: where each message came from).")
@click.option("--max", "most", type=int, metavar="N", help="At most so many messages.")
@as_json
@with_root
def redrive(
    queue: str,
    message_ids: tuple[str, ...],
    destination: str | None,
    most: int | None,
    json: bool,
    root: str | None,
    settings: str | None,
) -> None:
    """Move visible messages of the dead-letter queue QUEUE back: all, or those that are named.

    \b
    Example:
      ledger redrive dead
      ledger redrive dead --to work --max 100
    """
    known = open_ledger(root, settings).queue(queue)
    moved = known.redrive(list(message_ids) or None, destination, most)
    report(json, {"queue": queue, "moved": moved}, f"moved {many(moved, 'message')} out of {queue}")


@click.command(short_help="Undo an acknowledgement.")
@click.argument("queue")
@click.argument("receipt")
@as_json
@with_root
def restore(queue: str, receipt: str, json: bool, root: str | None, settings: str | None) -> None:
    """Undo an acknowledgement: what was deleted under RECEIPT is visible again. `ledger history` has the receipts.

    \b
    Example:
      ledger restore work RECEIPT
    """
    known = open_ledger(root, settings).queue(queue)
    restored = known.restore(receipt)
    found = {"queue": queue, "receipt": receipt, "restored": restored}
    report(json, found, f"restored {many(restored, 'message')} of {queue}")
