"""Commands for messages: `receive`, `peek`, `extend`, `release`, `delete`, `redrive` and `restore`."""

from __future__ import annotations

import contextlib
import json as jsons
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ledger.cli.opening import IN_PART, WrongInput, as_json, open_ledger, with_root
from ledger.cli.printing import pluralize, print_blocks, print_json, report
from ledger.errors import InvalidParameterValue, LedgerError

if TYPE_CHECKING:
    from ledger.claim import Claim
    from ledger.ledger import Ledger
    from ledger.message import Message
    from ledger.queue import Queue
    from ledger.results import HandleOutcome, Settled


@click.command(short_help="Receive messages, and hold them for a while.")
@click.argument("queue")
@click.option(
    "-n", "--max", "most", type=int, default=1, show_default=True, metavar="N", help="Receive at most N messages."
)
@click.option("--all", "everything", is_flag=True, help="All messages that are visible.")
@click.option("--visibility-timeout", type=int, metavar="S", help="Hold them for S seconds (default: the queue's).")
@click.option("--wait", type=float, metavar="S", help="Wait up to S seconds for a message (default: the queue's).")
@click.option("--attempt-id", metavar="ID", help="A call with the same ID returns the same claim while it is held.")
@click.option("--claim", "whole", is_flag=True, help="Print the receipt and the count; read no messages.")
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
    """Receive messages of QUEUE, and hold them until their visibility timeout ends. Print each message with its receipt
    handle, which `ledger delete`, `extend` and `release` take. With --claim, print no messages, but one receipt for
    all of them, with their count, their deadline, and the version of the commit.

    \b
    Example:
      ledger receive work --max 10
      ledger receive work --max 10 --json | ledger delete work -
      ledger receive work --all --claim
    """
    if wait is not None and math.isinf(wait):
        raise click.UsageError("--wait cannot be infinite: give seconds, such as 86400.")
    if everything and click.get_current_context().get_parameter_source("most") == ParameterSource.COMMANDLINE:
        raise click.UsageError("Give --max or --all.")
    source = open_ledger(root, settings).queue(queue)
    claim = source.receive(None if everything else most, visibility_timeout, wait, attempt_id)
    with _released_unless_shown(claim):
        if whole:
            documents = [
                {
                    "receipt": claim.receipt_id,
                    "count": claim.count,
                    "deadline": claim.deadline,
                    "version": claim.version,
                }
            ]
            if json:
                print_json({"queue": queue, **documents[0]})
            else:
                print_blocks(documents if claim else [], "" if claim else _describe_nothing_visible(source))
            return
        messages = claim.messages()
        if json:
            print_json(*map(make_document, messages))
        else:
            print_blocks(map(_make_block, messages), "" if messages else _describe_nothing_visible(source))


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
        print_json(make_document(message))
    else:
        print_blocks([_make_block(message)], "")


def _describe_nothing_visible(queue: Queue) -> str:
    """Return a sentence: no message is visible, how many are hidden, and until when."""
    from ledger.clock import instant

    store, record, clock = queue.access.store, queue.access.record(), queue.access.clock
    leases = [*store.leases(record, clock), *store.postponed(record, clock)]
    sentence = f"no message of {queue.name} is visible"
    if not leases:
        return sentence
    hidden, first = sum(lease.messages for lease in leases), min(lease.visible_at for lease in leases)
    return (
        f"{sentence}: {hidden:,} in flight, the first until {instant(first):%Y-%m-%d %H:%M:%S}Z; who has them: "
        '`ledger sql "SELECT owner, messages, seconds_left FROM in_flight"`'
    )


def make_document(message: Message) -> dict[str, Any]:
    """Return the fields of a message that have a value, for JSON."""
    attributes = {name: _describe_attribute(attribute) for name, attribute in message.message_attributes.items()}
    fields = {
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
    return {name: value for name, value in fields.items() if value is not None}


def _describe_attribute(attribute: Any) -> dict[str, Any]:
    return {name: value for name, value in attribute._asdict().items() if value is not None}


@contextlib.contextmanager
def _released_unless_shown(claim: Claim) -> Iterator[None]:
    """Release a claim if its messages cannot be read, or if the output cannot be written: nobody has its receipts then.

    A reader that closes the pipe has what it wanted, so the claim stays.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (LedgerError, OSError) as error:
        if not claim:
            raise
        try:
            claim.release(reason="its messages could not be shown", counted=False)
            outcome = "Its messages were given back, and the receive does not count."
        except LedgerError as failure:
            outcome = f"They could not be given back ({failure.message}): release --receipt {claim.receipt_id} does it."
        if isinstance(error, LedgerError):
            raise error.advised(outcome) from None
        raise OSError(error.errno, f"{error.strerror}. {outcome}") from error


def _make_block(message: Message) -> dict[str, Any]:
    return {name.replace("_", " "): value for name, value in make_document(message).items()}


def _with_handles(function: Any) -> Any:
    for decorator in (
        with_root,
        as_json,
        click.option(
            "--receipt",
            metavar="ID",
            help="The receipt of a whole claim, from `ledger receive --claim`; - reads it from stdin.",
        ),
        click.argument("handles", nargs=-1, metavar="[HANDLE]..."),
        click.argument("queue"),
    ):
        function = decorator(function)
    return function


_timeout = click.option(
    "--visibility-timeout", type=int, metavar="S", help="Seconds from now (default: the queue's timeout)."
)


@click.command(short_help="Hold messages for longer.")
@_timeout
@_with_handles
def extend(
    queue: str,
    handles: tuple[str, ...],
    receipt: str | None,
    visibility_timeout: int | None,
    json: bool,
    root: str | None,
    settings: str | None,
) -> int:
    """Hold messages of QUEUE until a new deadline, counted from now. If HANDLE is `-`, the command reads stdin: each
    line is a handle, or a line of `receive --json`.

    \b
    Example:
      ledger extend work HANDLE --visibility-timeout 600
      ledger extend work --receipt ID --visibility-timeout 600
    """
    held_queue = open_ledger(root, settings).queue(queue)
    return _settle(
        held_queue, handles, receipt, json, "extended", lambda claim: claim.extend(visibility_timeout),
        lambda given: held_queue.settle(extend=given, visibility_timeout=visibility_timeout),
    )  # fmt: skip


@click.command(short_help="Give messages back, so that they are visible at once.")
@click.option("--reason", metavar="TEXT", help="The reason, for `ledger history` and the view dead_letters.")
@click.option("--postponed", is_flag=True, help="Release parked and postponed messages, which are hidden until later.")
@_with_handles
def release(
    queue: str,
    handles: tuple[str, ...],
    receipt: str | None,
    reason: str | None,
    postponed: bool,
    json: bool,
    root: str | None,
    settings: str | None,
) -> int:
    """Give messages of QUEUE back: they are visible at once. HANDLE may be `-`, as for `ledger extend`.

    With --postponed, the command releases messages that workers parked after too many failures, or postponed for a
    retry. If --receipt is also given, the command releases only those that were given back under this receipt. The view
    in_flight lists parked and postponed messages.

    \b
    Example:
      ledger release work HANDLE
      ledger release work --receipt ID --reason "the disk was full"
      ledger release work --postponed
    """
    if postponed and handles:
        raise click.UsageError("--postponed takes no handles: --receipt ID, or nothing for all.")
    held_queue = open_ledger(root, settings).queue(queue)
    if postponed:
        if receipt == "-" and (receipt := _read_receipt_on_stdin()) is None:
            # A receive that found nothing has no receipt.
            messages = 0
        else:
            under = {} if receipt is None else {"receipt_id": receipt}
            messages = held_queue.release_postponed(reason=reason, **under)
        report(
            json,
            {"receipt": receipt, "outcome": "released", "messages": messages},
            f"released {pluralize(messages, 'message')}",
        )
        return 0
    return _settle(
        held_queue, handles, receipt, json, "released", lambda claim: claim.release(reason),
        lambda given: held_queue.settle(release=given, reason=reason),
    )  # fmt: skip


@click.command(short_help="Acknowledge messages: they are done.")
@_with_handles
def delete(
    queue: str, handles: tuple[str, ...], receipt: str | None, json: bool, root: str | None, settings: str | None
) -> int:
    """Acknowledge messages of QUEUE: they are done, and nobody receives them again, unless `ledger restore` undoes it.
    HANDLE may be `-`, as for `ledger extend`.

    \b
    Example:
      ledger delete work HANDLE
      ledger receive work --max 10 --json | ledger delete work -
      ledger delete work --receipt ID
      ledger receive work --all --claim --json | ledger delete work --receipt -
    """
    held_queue = open_ledger(root, settings).queue(queue)
    return _settle(
        held_queue,
        handles,
        receipt,
        json,
        "deleted",
        lambda claim: claim.delete(),
        lambda given: held_queue.settle(delete=given),
    )


def _settle(
    queue: Queue,
    handles: tuple[str, ...],
    receipt: str | None,
    json: bool,
    participle: str,
    settle_claim: Callable[[Claim], Settled],
    settle_handles: Callable[[list[str | None]], list[HandleOutcome]],
) -> int:
    from ledger.rules.visibility import Outcome

    if (receipt is None) == (not handles):
        raise click.UsageError("Give receipt handles (- reads them from stdin), or --receipt ID for a whole claim.")
    if receipt is not None:
        if receipt == "-" and (receipt := _read_receipt_on_stdin()) is None:
            report(json, {"receipt": None, "outcome": participle, "messages": 0, "lost": 0}, f"{participle} 0 messages")
            return 0
        claim = queue.claim(receipt)
        if not claim:
            raise click.ClickException(f"nothing of {queue.name} is held under the receipt {receipt} (any more)")
        settled = settle_claim(claim)
        claim_document = {"receipt": receipt, "outcome": participle, "messages": settled.messages, "lost": settled.lost}
        lost = f"; {settled.lost:,} were lost to others" if settled.lost else ""
        report(json, claim_document, f"{participle} {pluralize(settled.messages, 'message')}{lost}")
        return IN_PART if settled.lost else 0
    outcomes = settle_handles(list(dict.fromkeys(_read_handles(handles))))
    # SQS answers a delete by a stale handle as a success.
    undone = [outcome for outcome in outcomes if not outcome or outcome.outcome == Outcome.STALE.value]
    if json:
        print_json(*(_make_outcome_document(outcome) for outcome in outcomes))
    else:
        click.echo(f"{participle} {pluralize(len(outcomes) - len(undone), 'message')}")
    for outcome in undone:
        why = outcome.error_message or "another receive got the message since; nothing was done"
        click.echo(f"{outcome.outcome}: {outcome.receipt_handle}: {why}", err=True)
    return IN_PART if undone else 0


def _make_outcome_document(outcome: HandleOutcome) -> dict[str, Any]:
    failure = {} if outcome else {"error_code": outcome.error_code, "error_message": outcome.error_message}
    return {"receipt_handle": outcome.receipt_handle, "outcome": outcome.outcome, **failure}


def _read_handles(handles: Iterable[str]) -> Iterator[str | None]:
    for handle in handles:
        if handle != "-":
            yield handle
            continue
        for number, line in enumerate(sys.stdin, 1):
            if line.strip():
                yield _parse_receipt_field(line.strip(), number, "receipt_handle")


def _read_receipt_on_stdin() -> str | None:
    """Return the receipt on stdin; None if the line is of a receive that found nothing."""
    lines = [line.strip() for line in sys.stdin if line.strip()]
    if len(lines) != 1:
        raise WrongInput(f"stdin has {pluralize(len(lines), 'line')}, and --receipt - takes one. Nothing was done.")
    return _parse_receipt_field(lines[0], 1, "receipt")


def _parse_receipt_field(line: str, number: int, name: str) -> str | None:
    if not line.startswith("{"):
        return line
    try:
        field = jsons.loads(line)[name]
    except (ValueError, KeyError, RecursionError):
        field = False
    if field is not None and not isinstance(field, str):
        raise WrongInput(
            f"Line {number} of stdin is neither a {name} nor a line of `receive --json`. Nothing was done."
        )
    return field


#: The most messages of --where: their ids must fit in memory.
MOST_MATCHES = 1_000_000


@click.command(short_help="Move dead letters back.")
@click.argument("queue")
@click.argument("message_ids", nargs=-1, metavar="[MESSAGE_ID]...")
@click.option("--where", metavar="SQL", help="Only messages that match a predicate on the view messages.")
@click.option("--to", "destination", metavar="QUEUE", help="Where to (default: where each message came from).")
@click.option("--max", "most", type=int, metavar="N", help="Move at most N messages.")
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
    """Move visible messages of the dead-letter queue QUEUE back to the queues that they came from, or to the queue that
    --to names: all of them, or the named ones.

    With --where, the command looks up the ids of the visible messages that match, and then moves those that are still
    visible. If more than a million match, nothing is moved.

    \b
    Example:
      ledger redrive dead
      ledger redrive dead --where "receive_count >= 3 AND body LIKE '%timeout%'"
      ledger redrive dead --to work --max 100
    """
    if where is not None and message_ids:
        raise click.UsageError("Give --where or MESSAGE_ID, not both.")
    ledger = open_ledger(root, settings)
    dead_letters = ledger.queue(queue)
    chosen = list(message_ids) or None if where is None else _find_ids(ledger, dead_letters, where)
    moved = dead_letters.redrive(chosen, destination, most)
    report(json, {"queue": queue, "moved": moved}, f"moved {pluralize(moved, 'message')} out of {queue}")
    stayed = len(set(message_ids)) - moved
    if stayed <= 0 or most is not None:
        return 0
    click.echo(f"{pluralize(stayed, 'message')} of those named stayed: not visible, or not in {queue}", err=True)
    return IN_PART


def _find_ids(ledger: Ledger, queue: Queue, where: str) -> list[str]:
    # The line break ends a comment in the predicate.
    query = f"SELECT message_id FROM messages WHERE queue = '{queue.name}' AND status = 'visible' AND ({where}\n)"
    try:
        ids: list[str] = ledger.sql(f"{query} LIMIT {MOST_MATCHES + 1}")["message_id"].to_pylist()
    except InvalidParameterValue as error:
        raise InvalidParameterValue("where", where, error.bound, error.fix) from None
    if len(ids) > MOST_MATCHES:
        raise WrongInput(
            f"--where names more than {MOST_MATCHES:,} messages. Nothing was moved; the Python API moves any number."
        )
    return ids


@click.command(short_help="Undo an acknowledgement.")
@click.argument("queue")
@click.argument("receipt")
@as_json
@with_root
def restore(queue: str, receipt: str, json: bool, root: str | None, settings: str | None) -> None:
    """Undo an acknowledgement: messages that were deleted under RECEIPT are visible again, if their retention has not
    ended. So are messages that a write left in doubt under RECEIPT, after their deadline. This works until upkeep
    forgets the receipt (the setting keep_deleted_receipts). `ledger history` lists the receipts.

    \b
    Example:
      ledger restore work RECEIPT
    """
    restored_queue = open_ledger(root, settings).queue(queue)
    restored = restored_queue.restore(receipt)
    if not restored:
        raise click.ClickException(
            f"nothing of {queue} is deleted under the receipt {receipt} (any more): it is mistyped, was restored, or "
            f"upkeep has forgotten it. `ledger history {queue}` has the receipts"
        )
    outcome = {"queue": queue, "receipt": receipt, "restored": restored}
    report(json, outcome, f"restored {pluralize(restored, 'message')} of {queue}")
