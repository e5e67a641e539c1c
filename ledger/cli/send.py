"""The command `ledger send`: rows of a file, a table or stdin as messages, in one commit."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.opening import IN_PART, WrongInput, as_json, open_ledger, with_root
from ledger.cli.printing import ProgressLine, pluralize, print_json, text_for_people
from ledger.cli.words import error_text
from ledger.errors import LedgerError

if TYPE_CHECKING:
    from ledger.cli.inputs import InputContent

FORMATS = ("text", "json", "csv", "parquet", "delta")
#: The most refused rows, and the most unreadable lines, that are printed without --json.
MOST_LINES_NAMED = 20
_NOT_SHOWN = logging.NullHandler()


@click.command(short_help="Send rows of a file, a table or stdin as messages.")
@click.argument("queue")
@click.argument("source", metavar="[INPUT]", required=False)
@click.option("-m", "--message", multiple=True, metavar="TEXT", help="A message instead of INPUT; may be repeated.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="The format of INPUT (default: by its ending; stdin is text, a body a line).",
)
@click.option("--body", metavar="COLUMN", help="The column of bodies (default: `body`, else the whole row as JSON).")
@click.option("--delay", type=int, metavar="S", help="Seconds until messages are visible, for rows without a delay.")
@click.option("--group", metavar="ID", help="The message group, for rows without one.")
@click.option("--attempt-id", metavar="ID", help="A second call with the same ID and rows sends nothing twice.")
@click.option("--skip-malformed", is_flag=True, help="Name the lines that cannot be read, and send the others.")
@click.option("--all-or-nothing", is_flag=True, help="Send nothing if one row is refused.")
@click.option("--ids", is_flag=True, help="Print the id of every message.")
@as_json
@with_root
def send(
    queue: str,
    source: str | None,
    message: tuple[str, ...],
    kind: str | None,
    body: str | None,
    delay: int | None,
    group: str | None,
    attempt_id: str | None,
    skip_malformed: bool,
    all_or_nothing: bool,
    ids: bool,
    json: bool,
    root: str | None,
    settings: str | None,
) -> int:
    """Send the rows of INPUT to QUEUE as messages, all in one commit. INPUT is a file, a folder of Parquet files, a
    Delta table, or `-` for stdin. A file holds JSON lines (or one JSON array), CSV, Parquet or text. Files of JSON, CSV
    and text may be compressed, as .gz.

    The column `body` (or --body) of a row is the message's body. The columns delay_seconds, message_attributes (a JSON
    object), message_group_id, message_deduplication_id and aws_trace_header set the same fields of the message. If
    --body is not given and no row has a column `body`, each row is sent whole, as JSON. Then only message_group_id and
    message_deduplication_id set fields, and only on a FIFO queue. The command says whether rows are sent whole, and
    which columns are left out.

    CSV has commas between its columns, and all its values are text. If a line cannot be read, nothing is sent, unless
    you give --skip-malformed. If the queue refuses a row, for example because its body is too long, the command prints
    the line number and the reason. Unless you give --all-or-nothing, it sends the other rows, and the exit code is 3.
    If a row lacks the group or deduplication id that a FIFO queue needs, nothing is sent, and the exit code is 2. All
    rows are held in memory. For tens of millions of rows use jobs/send.py, which sends with Spark.

    \b
    Example:
      ledger send work orders.csv
      ledger send work -m "do this" -m "and that"
      cat bodies.txt | ledger send work -
    """
    if (source is None) == (not message):
        raise click.UsageError("Give INPUT (- is stdin), or --message TEXT.")
    target = open_ledger(root, settings).queue(queue)
    content = (
        _make_content(message, kind, body)
        if source is None
        else _read_with_progress(source, kind, body, target.attributes())
    )
    if content.malformed and not skip_malformed:
        if json:
            print_json({"queue": queue, "sent": 0, "refused": [], "malformed": _describe_malformed(content)})
        else:
            _print_lines((outcome.line, outcome.why) for outcome in content.malformed)
        raise WrongInput(
            f"{pluralize(len(content.malformed), 'line')} of {source} cannot be read. Nothing was sent; "
            "--skip-malformed sends the others."
        )
    if content.bodies is not None and not json:
        click.echo(f"ledger: {text_for_people(content.bodies)}", err=True)
    # The command itself prints the refused rows, which this log would repeat.
    logging.getLogger("ledger.send").addHandler(_NOT_SHOWN)
    progress = ProgressLine(every=0)
    progress(f"sending {pluralize(len(content.entries), 'message')}")
    try:
        outcomes = target.send(
            content.entries,
            attempt_id=attempt_id,
            delay_seconds=delay,
            message_group_id=group,
            all_or_nothing=all_or_nothing,
        )
    except LedgerError as error:
        if error.entry is None:
            raise
        from ledger.client.sending import NOTHING_SENT, entry_advice

        why = text_for_people(error_text(error)).replace(entry_advice(error.entry), NOTHING_SENT)
        raise click.UsageError(f"Line {content.lines[error.entry]}: {why}") from None
    finally:
        progress.done()
    sent = [outcome for outcome in outcomes if outcome]
    refused = [(line, outcome) for line, outcome in zip(content.lines, outcomes) if not outcome]
    if json:
        print_json(
            {
                "queue": queue,
                "sent": len(sent),
                "refused": [
                    {"line": line, "code": outcome.error_code, "message": outcome.error_message}
                    for line, outcome in refused
                ],
                "malformed": _describe_malformed(content),
                **({} if content.bodies is None else {"bodies": content.bodies}),
                **({"message_ids": sent} if ids else {}),
            }
        )
    else:
        remark = f"; refused: {pluralize(len(refused), 'row')}" if refused else ""
        remark += f"; not read: {pluralize(len(content.malformed), 'line')}" if content.malformed else ""
        if ids and sent:
            click.echo("\n".join(sent))
        click.echo(f"sent {pluralize(len(sent), 'message')} to {queue}{remark}", err=ids)
        _print_lines((line, f"was refused: {outcome.error_code}: {outcome.error}") for line, outcome in refused)
        _print_lines((outcome.line, f"{outcome.why}; it was left out") for outcome in content.malformed)
    return IN_PART if refused or content.malformed else 0


def _make_content(messages: tuple[str, ...], kind: str | None, body: str | None) -> InputContent:
    from ledger.cli.inputs import InputContent

    if kind or body:
        raise click.UsageError("--format and --body are about INPUT.")
    return InputContent([{"MessageBody": text} for text in messages], list(range(1, len(messages) + 1)), [])


def _read_with_progress(source: str, kind: str | None, body: str | None, attributes: Mapping[str, str]) -> InputContent:
    from ledger.cli.inputs import format_of, read_input

    progress = ProgressLine()
    try:
        return read_input(
            source, format_of(source, kind), body, attributes, lambda rows: progress(f"read {rows:,} rows")
        )
    finally:
        progress.done()


def _describe_malformed(content: InputContent) -> list[dict[str, Any]]:
    return [{"line": outcome.line, "why": outcome.why} for outcome in content.malformed]


def _print_lines(lines: Iterable[tuple[int, str]]) -> None:
    named_lines = list(lines)
    for line, problem in named_lines[:MOST_LINES_NAMED]:
        click.echo(f"line {line} {text_for_people(problem)}", err=True)
    if len(named_lines) > MOST_LINES_NAMED:
        click.echo(f"and {pluralize(len(named_lines) - MOST_LINES_NAMED, 'more line')} (--json names all)", err=True)
