"""`ledger extend`, `release` and `delete`: through receipt handles, or a whole claim through its receipt's id."""

from __future__ import annotations

import json as jsons
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.opening import IN_PART, WrongInput, as_json, open_ledger, with_root
from ledger.cli.printing import many, print_json, report

if TYPE_CHECKING:
    from ledger.claim import Claim
    from ledger.queue import Queue
    from ledger.results import HandleOutcome, Settled


def _arguments(function: Any) -> Any:
    for each in (
        with_root,
        as_json,
        click.option(
            "--receipt",
            metavar="ID",
            help="A whole claim, by the receipt of `ledger receive --claim`; - reads it from stdin.",
        ),
        click.argument("handles", nargs=-1, metavar="[HANDLE]..."),
        click.argument("queue"),
    ):
        function = each(function)
    return function


_timeout = click.option(
    "--visibility-timeout", type=int, metavar="S", help="Seconds from now (default: the queue's timeout)."
)


@click.command(short_help="Hold messages for longer.")
@_timeout
@_arguments
def extend(
    queue: str,
    handles: tuple[str, ...],
    receipt: str | None,
    visibility_timeout: int | None,
    json: bool,
    root: str | None,
    settings: str | None,
) -> int:
    """Hold messages of QUEUE for longer. `-` for HANDLE reads stdin: a handle, or a line of `receive --json`, a line.

    \b
    Example:
      ledger extend work HANDLE --visibility-timeout 600
      ledger extend work --receipt ID --visibility-timeout 600
    """
    known = open_ledger(root, settings).queue(queue)
    return _settled(
        known, handles, receipt, json, "extended", lambda claim: claim.extend(visibility_timeout),
        lambda given: known.settle(extend=given, visibility_timeout=visibility_timeout),
    )  # fmt: skip


@click.command(short_help="Give messages back: they are visible at once.")
@click.option("--reason", metavar="TEXT", help="Why: `ledger history` has it, and the view dead_letters.")
@click.option("--postponed", is_flag=True, help="What was parked or postponed, and is hidden until later.")
@_arguments
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
    """Give messages of QUEUE back: they are visible at once. `-` for HANDLE reads stdin, as for `ledger extend`.

    With --postponed: what workers parked because it failed too often, or postponed for a retry, and nobody holds; all
    of it, or with --receipt what was given back under one receipt. The view in_flight lists it.

    \b
    Example:
      ledger release work HANDLE
      ledger release work --receipt ID --reason "the disk was full"
      ledger release work --postponed
    """
    if postponed and handles:
        raise click.UsageError("--postponed takes no handles: --receipt ID, or nothing for all.")
    known = open_ledger(root, settings).queue(queue)
    if postponed:
        messages = known.release_postponed(_receipt() if receipt == "-" else receipt, reason)
        report(
            json,
            {"receipt": receipt, "outcome": "released", "messages": messages},
            f"released {many(messages, 'message')}",
        )
        return 0
    return _settled(
        known, handles, receipt, json, "released", lambda claim: claim.release(reason),
        lambda given: known.settle(release=given, reason=reason),
    )  # fmt: skip


@click.command(short_help="Acknowledge messages: they are done.")
@_arguments
def delete(
    queue: str, handles: tuple[str, ...], receipt: str | None, json: bool, root: str | None, settings: str | None
) -> int:
    """Acknowledge messages of QUEUE: they are done, for good. `-` for HANDLE reads stdin, as for `ledger extend`.

    \b
    Example:
      ledger delete work HANDLE
      ledger receive work --max 10 --json | ledger delete work -
      ledger delete work --receipt ID
      ledger receive work --all --claim --json | ledger delete work --receipt -
    """
    known = open_ledger(root, settings).queue(queue)
    return _settled(
        known, handles, receipt, json, "deleted", lambda claim: claim.delete(), lambda given: known.settle(delete=given)
    )


def _settled(
    queue: Queue,
    handles: tuple[str, ...],
    receipt: str | None,
    json: bool,
    did: str,
    whole: Callable[[Claim], Settled],
    single: Callable[[list[str | None]], list[HandleOutcome]],
) -> int:
    """Does it to a claim or to handles, and says so; returns the exit code."""
    if (receipt is None) == (not handles):
        raise click.UsageError("Give receipt handles (- reads them from stdin), or --receipt ID for a whole claim.")
    if receipt is not None:
        if receipt == "-" and (receipt := _receipt()) is None:
            report(json, {"receipt": None, "outcome": did, "messages": 0, "lost": 0}, f"{did} 0 messages")
            return 0
        claim = queue.claim(receipt)
        if not claim:
            raise click.ClickException(f"nothing of {queue.name} is held under the receipt {receipt} (any more)")
        settled = whole(claim)
        found = {"receipt": receipt, "outcome": did, "messages": settled.messages, "lost": settled.lost}
        lost = f"; {settled.lost:,} others have by now" if settled.lost else ""
        report(json, found, f"{did} {many(settled.messages, 'message')}{lost}")
        return IN_PART if settled.lost else 0
    # A message counts once, however often it is named.
    outcomes = single(list(dict.fromkeys(_handles(handles))))
    if json:
        print_json(*(_document(one) for one in outcomes))
    else:
        click.echo(f"{did} {many(sum(map(bool, outcomes)), 'message')}")
    for one in outcomes:
        if not one:
            click.echo(f"{one.outcome}: {one.receipt_handle}: {one.error_message}", err=True)
    return 0 if all(outcomes) else IN_PART


def _document(one: HandleOutcome) -> dict[str, Any]:
    failure = {} if one else {"error_code": one.error_code, "error_message": one.error_message}
    return {"receipt_handle": one.receipt_handle, "outcome": one.outcome, **failure}


def _handles(given: Iterable[str]) -> Iterator[str | None]:
    for one in given:
        if one != "-":
            yield one
            continue
        for number, line in enumerate(sys.stdin, 1):
            if line.strip():
                yield _named(line.strip(), number, "receipt_handle")


def _receipt() -> str | None:
    """The receipt that stdin has; None: that of a receive that found nothing."""
    lines = [line.strip() for line in sys.stdin if line.strip()]
    if len(lines) != 1:
        raise WrongInput(f"stdin has {many(len(lines), 'line')}, and --receipt - takes one. Nothing was done.")
    return _named(lines[0], 1, "receipt")


def _named(line: str, number: int, name: str) -> str | None:
    """A handle or a receipt, or that in a line of `ledger receive --json`."""
    if not line.startswith("{"):
        return line
    try:
        found: str | None = jsons.loads(line)[name]
        return found
    except (ValueError, KeyError, RecursionError):
        raise WrongInput(
            f"Line {number} of stdin is neither a {name} nor a line of `receive --json`. Nothing was done."
        ) from None
