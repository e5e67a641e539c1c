"""The command `ledger consume`: a Python function for each message."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.opening import as_json, require_root, with_root
from ledger.cli.printing import pluralize, report
from ledger.errors import InvalidParameterValue, LedgerError

if TYPE_CHECKING:
    from ledger.work.group_limits import GroupLimit

UNTIL_CHOICES = ("empty", "once", "forever")
LIMIT_PATTERN = re.compile(r"(?:(?P<rate>\d+(?:\.\d+)?|\.\d+)(?:/(?P<period>[smh]))?)?(?:,(?P<calls>\d+))?")
PERIOD_SECONDS = {"s": 1, "m": 60, "h": 3_600}
LIMIT_FORM = "Must be GROUP=RATE[/s|m|h][,CALLS]: messages a second, minute or hour, and calls at once"
LIMIT_EXAMPLE = "For example: tenant-7=5,2 or *=300/m or tenant-7=,2."


@click.command(short_help="Call a Python function for each message, and write its rows.")
@click.argument("queue")
@click.option("--function", required=True, metavar="MODULE:NAME", help="The function to call; it may be async.")
@click.option("--output", metavar="TABLE", help="The Delta table of the rows: a path with a /, or a URI.")
@click.option("--concurrency", type=int, default=32, show_default=True, metavar="N", help="Calls at once per process.")
@click.option("--batch", type=int, metavar="N", help="Call the function with lists of at most N messages.")
@click.option("--processes", type=int, default=1, show_default=True, metavar="N", help="Number of processes.")
@click.option("--max", "most", type=int, metavar="N", help="Most messages of one claim (default: adaptive).")
@click.option("--visibility-timeout", type=int, metavar="S", help="Seconds a claim is held (default: the queue's).")
@click.option("--attempt-id", metavar="ID", help="A retry with the same ID first gets back what the failed run holds.")
@click.option("--until", type=click.Choice(UNTIL_CHOICES), default="empty", show_default=True, help="When to end.")
@click.option(
    "--flush-rows", type=int, default=10_000, show_default=True, metavar="N", help="Commit after N handled messages."
)
@click.option(
    "--flush-seconds",
    type=float,
    default=5.0,
    show_default=True,
    metavar="S",
    help="Commit at the latest S seconds after the first handled message.",
)
@click.option(
    "--max-receives", type=int, metavar="N", help="Park a message that fails at its Nth receive, or a later one."
)
@click.option(
    "--retry-after", type=int, default=0, show_default=True, metavar="S", help="Hide a failed message for S s."
)
@click.option("--park", type=int, default=3_600, show_default=True, metavar="S", help="Hide a parked message for S s.")
@click.option("--schema", type=click.Choice(["widen"]), help="Add columns, and widen types, where rows need it.")
@click.option("--cost", metavar="COLUMN", help="Show the sum of this column of the rows.")
@click.option("--flush-cost", type=float, metavar="X", help="Commit also when the unwritten rows have cost X.")
@click.option(
    "--max-bytes", type=int, default=128 << 20, show_default=True, metavar="N", help="Bytes of bodies in memory."
)
@click.option(
    "--group-limit",
    "limits",
    multiple=True,
    metavar="GROUP=RATE[/s|m|h][,CALLS]",
    help="Limit a message group; * limits every group without a limit of its own.",
)
@click.option("--limits-folder", metavar="FOLDER", help="Share limits with the commands that name this folder.")
@click.option(
    "--bar/--no-bar",
    default=None,
    help="A progress bar (default: on a terminal, if the extra `progress` is installed).",
)
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
    limits: tuple[str, ...],
    limits_folder: str | None,
    bar: bool | None,
    json: bool,
    root: str | None,
    settings: str | None,
) -> None:
    """Call a Python function for each message of QUEUE, write the rows that it returns, and acknowledge the message.
    This needs no Spark.

    The function gets a message (message.body, message.message_id, ...), or with --batch a list of messages. For a
    message it returns a dict, a dataclass, a list of them, or None. If the function raises for a message, only that
    message fails. If it raises the same error for every message tried, the command ends. Python also looks for modules
    in the current folder. After SIGTERM or the first Ctrl-C, the command writes finished messages, gives the others
    back, and ends. The Python documentation of `Queue.consume` has the details.

    To write rows: --function my_module:my_function --output ./answers.

    Limits of message groups hold for all processes of the command together. With --group-limit tenant-7=5,2 the group
    tenant-7 gets at most 5 messages a second, and 2 calls at once. With "*=300/m" every other group gets at most 300
    messages a minute. With tenant-7=,2 only the calls are limited.

    \b
    Example:
      ledger consume work --function builtins:print --concurrency 8 --until once
    """
    group_limits = parse_group_limits(limits) if limits else None
    handler = load_function(function)
    root_uri = require_root(root)
    # After `open_ledger`, pyarrow takes pandas as not installed. The user's function may need both.
    from ledger.ledger import Ledger
    from ledger.settings import Settings

    ledger = Ledger.open(root_uri, create=False, settings=Settings.read(settings) if settings else None)

    def say(step: str) -> None:
        click.echo(f"{datetime.now():%H:%M:%S} {step}", err=True)

    try:
        consumed = ledger.queue(queue).consume(
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
            group_limits=group_limits,
            limits_folder=limits_folder,
            bar=bar,
            report=say,
        )
    except (LedgerError, OSError, MemoryError):
        raise
    except Exception as error:
        traceback.print_exception(error)
        raise click.ClickException(
            f"{function} raises the same error for every message: {type(error).__name__}: {error}. The messages were "
            "given back"
        ) from None
    if consumed.failed or consumed.rejected:
        say(f"`ledger history {queue}` says why messages failed")
    counts = {
        "messages": consumed.messages,
        "rows": consumed.rows,
        "failed": consumed.failed,
        "retried later": consumed.retried,
        "over a limit": consumed.limited,
        "rejected": consumed.rejected,
        "parked": consumed.parked,
        "lost": consumed.lost,
    }
    other_counts = "".join(f", {count:,} {name}" for name, count in counts.items() if count and name != "messages")
    spent = f", {cost} {consumed.cost:,.10g}" if cost else ""
    document = {"queue": queue, "claims": consumed.claims, **counts, **({"cost": consumed.cost} if cost else {})}
    report(json, document, f"consumed {pluralize(consumed.messages, 'message')} of {queue}{other_counts}{spent}")


def parse_group_limits(texts: Sequence[str]) -> dict[str | None, GroupLimit]:
    """Return the limits of --group-limit options, by group; None is every other group."""
    # `ledger --help` needs no Arrow.
    from ledger.work.group_limits import GroupLimit

    limits_by_group: dict[str | None, GroupLimit] = {}
    for text in texts:
        # A group's name may contain an equals sign.
        group, _, limit = text.rpartition("=")
        match = LIMIT_PATTERN.fullmatch(limit)
        if not group or match is None or not (match["rate"] or match["calls"]):
            raise InvalidParameterValue("--group-limit", text, LIMIT_FORM, LIMIT_EXAMPLE)
        name = None if group == "*" else group
        if name in limits_by_group:
            raise InvalidParameterValue("--group-limit", text, f"The group {group} has a limit already", LIMIT_EXAMPLE)
        rate = float(match["rate"]) / PERIOD_SECONDS[match["period"] or "s"] if match["rate"] else None
        try:
            limits_by_group[name] = GroupLimit(int(match["calls"]) if match["calls"] else None, rate)
        except InvalidParameterValue as error:
            raise InvalidParameterValue("--group-limit", text, f"{LIMIT_FORM} ({error})", LIMIT_EXAMPLE) from None
    return limits_by_group


def load_function(name: str) -> Callable[[Any], Any]:
    """Return the function MODULE:NAME, also from a module in the current folder."""
    module, _, attribute = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        function: Callable[[Any], Any] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidParameterValue("--function", name, f"It cannot be loaded as MODULE:NAME ({error})") from error
    except Exception as error:
        traceback.print_exception(error)
        bound = f"Its module raises when it is imported ({type(error).__name__}: {error})"
        raise InvalidParameterValue("--function", name, bound) from error
    return function
