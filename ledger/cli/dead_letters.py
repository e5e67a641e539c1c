"""`ledger redrive` and `ledger restore`: messages that come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ledger.cli.opening import IN_PART, WrongInput, as_json, open_ledger, with_root
from ledger.cli.printing import many, report
from ledger.errors import InvalidParameterValue

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from ledger.queue import Queue

#: So many ids are moved by a predicate: they pass through this process.
MOST = 1_000_000


@click.command(short_help="Move dead letters back.")
@click.argument("queue")
@click.argument("message_ids", nargs=-1, metavar="[MESSAGE_ID]...")
@click.option("--where", metavar="SQL", help="Those that a predicate on the view messages names, by `ledger sql`.")
@click.option("--to", "destination", metavar="QUEUE", help="Where to (default: where each message came from).")
@click.option("--max", "most", type=int, metavar="N", help="At most so many messages.")
@as_json
@with_root
def redrive(
    queue: str,
    message_ids: tuple[str, ...],
    where: str | None,
    destination: str | None,
    most: int | None,
    json: bool,
    root: str | None,
    settings: str | None,
) -> int:
    """Move visible messages of the dead-letter queue QUEUE back: all, or those that are named.

    With --where they are looked up first, and then moved by their ids: at most a million.

    \b
    Example:
      ledger redrive dead
      ledger redrive dead --where "receive_count >= 3 AND body LIKE '%timeout%'"
      ledger redrive dead --to work --max 100
    """
    if where is not None and message_ids:
        raise click.UsageError("Give --where or MESSAGE_ID, not both.")
    ledger = open_ledger(root, settings)
    known = ledger.queue(queue)
    chosen = list(message_ids) or None if where is None else _named(ledger, known, where)
    moved = known.redrive(chosen, destination, most)
    report(json, {"queue": queue, "moved": moved}, f"moved {many(moved, 'message')} out of {queue}")
    left = len(set(message_ids)) - moved
    if left <= 0 or most is not None:
        return 0
    click.echo(f"{many(left, 'message')} of those named stayed: in flight, or not in {queue}", err=True)
    return IN_PART


def _named(ledger: Ledger, queue: Queue, where: str) -> list[str]:
    """The ids of the visible messages of a queue that a predicate names."""
    # A comment at its end would take the parenthesis along.
    query = f"SELECT message_id FROM messages WHERE queue = '{queue.name}' AND status = 'visible' AND ({where}\n)"
    try:
        found: list[str] = ledger.sql(f"{query} LIMIT {MOST + 1}")["message_id"].to_pylist()
    except InvalidParameterValue as error:
        raise InvalidParameterValue("where", where, error.bound, error.fix) from None
    if len(found) > MOST:
        raise WrongInput(
            f"--where names more than {MOST:,} messages. Nothing was moved; the Python API moves any number."
        )
    return found


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
    if not restored:
        raise click.ClickException(
            f"nothing of {queue} is deleted under the receipt {receipt} (any more): it is mistyped, was restored, or "
            f"upkeep has forgotten it. `ledger history {queue}` has the receipts"
        )
    found = {"queue": queue, "receipt": receipt, "restored": restored}
    report(json, found, f"restored {many(restored, 'message')} of {queue}")
