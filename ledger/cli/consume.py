"""`ledger consume`."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ledger.cli.opening import as_json, named_root, with_root
from ledger.cli.printing import many, report
from ledger.errors import InvalidParameterValue, LedgerError

CHOICES = ("empty", "once", "forever")


@click.command(short_help="Call a Python function for each message, and write its rows.")
@click.argument("queue")
@click.option("--function", required=True, metavar="MODULE:NAME", help="A function of a message, or an async def.")
@click.option("--output", metavar="TABLE", help="The Delta table of the rows: a path with a /, or a URI.")
@click.option("--concurrency", type=int, default=32, show_default=True, metavar="N", help="Calls at once, a process.")
@click.option("--batch", type=int, metavar="N", help="Call the function with lists of at most N messages.")
@click.option("--processes", type=int, default=1, show_default=True, metavar="N", help="So many processes.")
@click.option("--max", "most", type=int, metavar="N", help="Messages of one claim (default: it adapts).")
@click.option("--visibility-timeout", type=int, metavar="S", help="Seconds a claim is held (default: the queue's).")
@click.option("--attempt-id", metavar="ID", help="A retry with it has back what the failed run holds, first.")
@click.option("--until", type=click.Choice(CHOICES), default="empty", show_default=True, help="When to end.")
@click.option(
    "--flush-rows", type=int, default=10_000, show_default=True, metavar="N", help="A commit every N messages"
)
@click.option("--flush-seconds", type=float, default=5.0, show_default=True, metavar="S", help="or S seconds.")
@click.option("--max-receives", type=int, metavar="N", help="Failures of a message before it is parked.")
@click.option("--retry-after", type=int, default=0, show_default=True, metavar="S", help="Hide what failed so long.")
@click.option("--park", type=int, default=3_600, show_default=True, metavar="S", help="Hide what is parked so long.")
@click.option("--schema", type=click.Choice(["widen"]), help="Add columns, and widen types, where rows need it.")
@click.option("--cost", metavar="COLUMN", help="A column of the rows whose sum is shown.")
@click.option("--flush-cost", type=float, metavar="X", help="A commit also when unwritten rows have cost so much.")
@click.option("--max-bytes", type=int, default=128 << 20, show_default=True, metavar="N", help="Bodies in memory.")
@click.option("--bar/--no-bar", default=None, help="A progress bar (default: on a terminal, with the extra progress).")
@as_json
@with_root
def consume(
    queue: str,
    function: str,
    output: str | None,
    concurrency: int,
    batch: int | None,
    processes: int,
    most: int | None,
    visibility_timeout: int | None,
    attempt_id: str | None,
    until: str,
    flush_rows: int,
    flush_seconds: float,
    max_receives: int | None,
    retry_after: int,
    park: int,
    schema: str | None,
    cost: str | None,
    flush_cost: float | None,
    max_bytes: int,
    bar: bool | None,
    json: bool,
    root: str | None,
    settings: str | None,
) -> None:
    """Call a Python function for each message of QUEUE, write the rows that it returns, and acknowledge. No Spark.

    The function gets a message (message.body, message.message_id, ...), and returns a dict, a dataclass, a list of
    them, or None. A message for which it raises fails alone. Modules are looked for in the current folder, too. SIGTERM
    and the first Ctrl-C drain: what is done is written, the rest given back. `Queue.consume` says all of it.
    With rows: --function my_module:my_function --output ./answers.

    \b
    Example:
      ledger consume work --function builtins:print --concurrency 8 --until once
    """
    handler = load(function)
    place = named_root(root)
    # Not as other commands open it: the function may need pandas.
    from ledger.ledger import Ledger
    from ledger.settings import Settings

    known = Ledger.open(place, create=False, settings=Settings.read(settings) if settings else None)

    def say(step: str) -> None:
        click.echo(f"{datetime.now():%H:%M:%S} {step}", err=True)

    try:
        done = known.queue(queue).consume(
            handler,
            output,
            concurrency=concurrency,
            batch=batch,
            processes=processes,
            max_messages=most,
            visibility_timeout=visibility_timeout,
            attempt_id=attempt_id,
            until=until,
            flush_rows=flush_rows,
            flush_seconds=flush_seconds,
            maximum_receives=max_receives,
            retry_after=retry_after,
            park=park,
            schema=schema,
            cost=cost,
            flush_cost=flush_cost,
            max_bytes=max_bytes,
            bar=bar,
            report=say,
        )
    except (LedgerError, OSError, MemoryError):
        raise
    except Exception as error:
        traceback.print_exception(error)
        raise click.ClickException(
            f"{function} raises for everything alike: {type(error).__name__}: {error}. Its messages were given back"
        ) from None
    counts = {
        "messages": done.messages,
        "rows": done.rows,
        "failed": done.failed,
        "retried later": done.retried,
        "rejected": done.rejected,
        "lost": done.lost,
    }
    beside = "".join(f", {count:,} {name}" for name, count in counts.items() if count and name != "messages")
    spent = f", {cost} {done.cost:,.10g}" if cost else ""
    found = {"queue": queue, "claims": done.claims, **counts, **({"cost": done.cost} if cost else {})}
    report(json, found, f"consumed {many(done.messages, 'message')} of {queue}{beside}{spent}")


def load(name: str) -> Callable[[Any], Any]:
    """Return the function MODULE:NAME; modules are found in the current folder, and where Python looks anyway.

    Raises:
        InvalidParameterValue: where there is none.
    """
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Callable[[Any], Any] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidParameterValue("--function", name, f"It cannot be loaded as MODULE:NAME ({error})") from error
    return found
