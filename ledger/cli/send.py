"""`ledger send`: rows of a file, a table or stdin as messages, in one commit."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from ledger.cli.opening import IN_PART, WrongInput, as_json, open_ledger, with_root
from ledger.cli.printing import Steps, many, print_json, shown
from ledger.cli.words import said
from ledger.errors import LedgerError

if TYPE_CHECKING:
    from ledger.cli.inputs import Read

FORMATS = ("text", "json", "csv", "parquet", "delta")
#: So many lines are named one by one; of the others it is said how many there are. With --json all are.
MOST_NAMED = 20
_NOT_SHOWN = logging.NullHandler()


@click.command(short_help="Send rows of a file, a table or stdin as messages.")
@click.argument("queue")
@click.argument("source", metavar="[INPUT]", required=False)
@click.option("-m", "--message", multiple=True, metavar="TEXT", help="A message, in place of INPUT; several times.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="What INPUT is (default: by its ending; stdin is text, a body a line).",
)
@click.option("--body", metavar="COLUMN", help="The column of bodies (default: `body`, else the whole row as JSON).")
@click.option("--delay", type=int, metavar="S", help="Seconds until they are visible, for rows that do not say.")
@click.option("--group", metavar="ID", help="The message group, for rows that do not say.")
@click.option("--attempt-id", metavar="ID", help="Called again with it and the same rows, nothing is sent twice.")
@click.option("--skip-malformed", is_flag=True, help="Send the others, where lines cannot be read; each is named.")
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
    """Send the rows of INPUT to QUEUE as messages, all in one commit: a file of JSON lines (or one JSON array), CSV,
    Parquet or text (text ones also as .gz), a Delta table, or `-` for stdin.

    A row's message is its column `body` (or --body), beside which the columns delay_seconds, message_attributes (a JSON
    object), message_group_id, message_deduplication_id and aws_trace_header count. Without a body it is the whole row
    as JSON, and these columns are part of it: a FIFO queue's group and deduplication id alone count then, too. What is
    made of the columns, and which of them are left out, is said. CSV has
    commas between its columns, and is text throughout. A line that cannot be read refuses the whole file, before
    anything is sent. A row that the queue refuses (too long, no group) is named with its line, the others are sent, and
    the exit code is 3. All rows pass through memory: for tens of millions, jobs/send.py has Spark do it.

    \b
    Example:
      ledger send work orders.csv
      ledger send work -m "do this" -m "and that"
      cat bodies.txt | ledger send work -
    """
    if (source is None) == (not message):
        raise click.UsageError("Give INPUT (- is stdin), or --message TEXT.")
    known = open_ledger(root, settings).queue(queue)
    found = _messages(message, kind, body) if source is None else _read(source, kind, body, known.attributes())
    if found.malformed and not skip_malformed:
        _name((one.line, one.why) for one in found.malformed)
        raise WrongInput(
            f"{many(len(found.malformed), 'line')} of {source} cannot be read. Nothing was sent; "
            "--skip-malformed sends the others."
        )
    if found.bodies is not None and not json:
        click.echo(f"ledger: {shown(found.bodies)}", err=True)
    # Every row that is refused is named below; what the log warns of for others would say it twice.
    logging.getLogger("ledger.send").addHandler(_NOT_SHOWN)
    progress = Steps(every=0)
    progress(f"sending {many(len(found.entries), 'message')}")
    try:
        outcomes = known.send(
            found.entries,
            attempt_id=attempt_id,
            delay_seconds=delay,
            message_group_id=group,
            all_or_nothing=all_or_nothing,
        )
    except LedgerError as error:
        if error.entry is None:
            raise
        from ledger.client.sending import NOTHING_SENT, of_entry

        why = shown(said(error)).replace(of_entry(error.entry), NOTHING_SENT)
        raise click.UsageError(f"Line {found.lines[error.entry]}: {why}") from None
    finally:
        progress.done()
    sent = [one for one in outcomes if one]
    refused = [(line, one) for line, one in zip(found.lines, outcomes) if not one]
    if json:
        print_json(
            {
                "queue": queue,
                "sent": len(sent),
                "refused": [
                    {"line": line, "code": one.error_code, "message": one.error_message} for line, one in refused
                ],
                "malformed": [{"line": one.line, "why": one.why} for one in found.malformed],
                **({} if found.bodies is None else {"bodies": found.bodies}),
                **({"message_ids": sent} if ids else {}),
            }
        )
    else:
        left = f"; refused: {many(len(refused), 'row')}" if refused else ""
        left += f"; not read: {many(len(found.malformed), 'line')}" if found.malformed else ""
        if ids and sent:
            click.echo("\n".join(sent))
        click.echo(f"sent {many(len(sent), 'message')} to {queue}{left}", err=ids)
        _name((line, f"was refused: {one.error_code}: {one.error}") for line, one in refused)
        _name((one.line, f"{one.why}; it was left out") for one in found.malformed)
    return IN_PART if refused or found.malformed else 0


def _messages(messages: tuple[str, ...], kind: str | None, body: str | None) -> Read:
    from ledger.cli.inputs import Read

    if kind or body:
        raise click.UsageError("--format and --body are about INPUT.")
    return Read([{"MessageBody": text} for text in messages], list(range(1, len(messages) + 1)), [])


def _read(source: str, kind: str | None, body: str | None, attributes: Mapping[str, str]) -> Read:
    from ledger.cli.inputs import format_of, read

    progress = Steps()
    try:
        return read(source, format_of(source, kind), body, attributes, lambda rows: progress(f"read {rows:,} rows"))
    finally:
        progress.done()


def _name(lines: Iterable[tuple[int, str]]) -> None:
    """Names lines on stderr, the first ones of many."""
    known = list(lines)
    for line, what in known[:MOST_NAMED]:
        click.echo(f"line {line} {shown(what)}", err=True)
    if len(known) > MOST_NAMED:
        click.echo(f"and {many(len(known) - MOST_NAMED, 'more line')} (--json names all)", err=True)
