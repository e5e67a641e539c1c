"""`ledger receive` and `ledger peek`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ledger.cli.opening import as_json, open_ledger, with_root
from ledger.cli.printing import print_blocks, print_json
from ledger.errors import LedgerError

if TYPE_CHECKING:
    from ledger.claim import Claim
    from ledger.message import Message
    from ledger.queue import Queue


@click.command(short_help="Receive messages, and hold them for a while.")
@click.argument("queue")
@click.option(
    "-n", "--max", "most", type=int, default=1, show_default=True, metavar="N", help="At most so many messages."
)
@click.option("--all", "everything", is_flag=True, help="All messages that are visible.")
@click.option("--visibility-timeout", type=int, metavar="S", help="Seconds they are held (default: the queue's).")
@click.option("--wait", type=float, metavar="S", help="Wait so many seconds for a message (default: the queue's).")
@click.option(
    "--attempt-id", metavar="ID", help="Called again with it, the same claim is returned as long as it is held."
)
@click.option("--claim", "whole", is_flag=True, help="Print the receipt and the count, and read no message.")
@as_json
@with_root
def receive(
    queue: str,
    most: int,
    everything: bool,
    visibility_timeout: int | None,
    wait: float | None,
    attempt_id: str | None,
    whole: bool,
    json: bool,
    root: str | None,
    settings: str | None,
) -> None:
    """Receive messages of QUEUE: hold them until their visibility timeout ends. Prints each with its handle, for
    `ledger delete`, `extend` and `release`; with --claim one receipt for all, however many they are.

    \b
    Example:
      ledger receive work --max 10
      ledger receive work --max 10 --json | ledger delete work -
      ledger receive work --all --claim
    """
    if wait is not None and math.isinf(wait):
        raise click.UsageError("--wait has an end: give seconds, such as 86400.")
    if everything and click.get_current_context().get_parameter_source("most") == ParameterSource.COMMANDLINE:
        raise click.UsageError("Give --max or --all.")
    known = open_ledger(root, settings).queue(queue)
    claim = known.receive(None if everything else most, visibility_timeout, wait, attempt_id)
    if not whole:
        messages = _read(claim)
        if json:
            print_json(*map(document, messages))
        else:
            print_blocks(map(_block, messages), "" if messages else _nothing(known))
        return
    found = {"receipt": claim.receipt_id, "count": claim.count, "deadline": claim.deadline, "version": claim.version}
    if json:
        print_json({"queue": queue, **found})
    else:
        print_blocks([found] if claim else [], "" if claim else _nothing(known))


@click.command(short_help="Show a message, and change nothing.")
@click.argument("queue")
@click.argument("message_id")
@as_json
@with_root
def peek(queue: str, message_id: str, json: bool, root: str | None, settings: str | None) -> None:
    """Show a message of QUEUE, whatever its state, and change nothing.

    \b
    Example:
      ledger peek work MESSAGE_ID
    """
    message = open_ledger(root, settings, read_only=True).queue(queue).peek(message_id)
    if json:
        print_json(document(message))
    else:
        print_blocks([_block(message)], "")


def _nothing(queue: Queue) -> str:
    """That nothing is visible, and what it waits for, as far as that is known."""
    from ledger.clock import instant

    store, record, clock = queue.access.store, queue.access.record(), queue.access.clock
    leases = [*store.leases(record, clock), *store.postponed(record, clock)]
    said = f"no message of {queue.name} is visible"
    if not leases:
        return said
    held, first = sum(lease.messages for lease in leases), min(lease.visible_at for lease in leases)
    return (
        f"{said}: {held:,} in flight, the first until {instant(first):%Y-%m-%d %H:%M:%S}Z; who has them: "
        '`ledger sql "SELECT owner, messages, seconds_left FROM in_flight"`'
    )


def document(message: Message) -> dict[str, Any]:
    """All that is known of a message; what it has not is left out."""
    attributes = {name: _attribute(one) for name, one in message.message_attributes.items()}
    known = {
        "message_id": message.message_id,
        "body": message.body,
        "receipt_handle": message.receipt_handle,
        "status": message.status.value,
        "receive_count": message.receive_count,
        "sent_at": message.sent_at,
        "first_received_at": message.first_received_at,
        "visible_at": message.visible_at,
        "message_attributes": attributes or None,
        "message_group_id": message.message_group_id,
        "message_deduplication_id": message.message_deduplication_id,
        "sequence_number": message.sequence_number,
        "aws_trace_header": message.aws_trace_header,
        "dead_letter_source": message.dead_letter_source,
        "sender_id": message.sender_id,
    }
    return {name: value for name, value in known.items() if value is not None}


def _attribute(one: Any) -> dict[str, Any]:
    return {name: value for name, value in one._asdict().items() if value is not None}


def _read(claim: Claim) -> list[Message]:
    """Return the messages of a claim. Where they cannot be read, give the claim back: nobody else has its receipt."""
    try:
        return claim.messages()
    except LedgerError as error:
        try:
            claim.release(reason="its messages could not be read", counted=False)
            became = "Its messages were given back, and the receive does not count."
        except LedgerError as failed:
            became = f"They could not be given back ({failed.message}): release --receipt {claim.receipt_id} does it."
        raise error.advised(became) from None


def _block(message: Message) -> dict[str, Any]:
    return {name.replace("_", " "): value for name, value in document(message).items()}
