"""Commands that copy the messages of a queue: `copy`, `export` and `import`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from ledger.cli.opening import as_json, open_ledger, require_root, with_root
from ledger.cli.printing import pluralize, report

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from ledger.queue import Queue
    from ledger.results import Copied

#: Attributes that name queues or accounts of one ledger: `ledger copy --create` leaves them out.
ATTRIBUTES_OF_ONE_LEDGER = ("RedrivePolicy", "RedriveAllowPolicy", "Policy")
_attempt = click.option(
    "--attempt-id", metavar="ID", help="A new ID makes a further copy; an earlier ID continues its copy."
)
_bar = click.option(
    "--bar/--no-bar",
    default=None,
    help="A progress bar (default: on a terminal, if the extra `progress` is installed).",
)


def _say(line: str) -> None:
    click.echo(line, err=True)


@click.command(short_help="Send all messages of a queue to another queue, or ledger.")
@click.argument("queue")
@click.option("--to", "target_root", metavar="ROOT", help="The other ledger (default: the same one).")
@click.option("--to-queue", metavar="NAME", help="The other queue (default: the same name).")
@click.option(
    "--create",
    is_flag=True,
    help="Make the other queue, with this queue's attributes, and the ledger around it, if there is none.",
)
@_attempt
@_bar
@as_json
@with_root
def copy(
    queue: str,
    target_root: str | None,
    to_queue: str | None,
    create: bool,
    attempt_id: str | None,
    bar: bool | None,
    json: bool,
    root: str | None,
    settings: str | None,
) -> None:
    """Send a copy of every message of QUEUE to another queue, except for deleted and expired ones. The messages stay in
    QUEUE.

    First stop everything that sends to QUEUE or receives from it. After a crash, run the same command again: it sends
    only the messages that are missing. --create leaves out RedrivePolicy, RedriveAllowPolicy and Policy: they name
    queues and accounts of one ledger.

    \b
    Example:
      ledger copy work --to ./other-ledger --create
      ledger copy work --to-queue work-2 --create
    """
    from ledger.ledger import Ledger

    if target_root is None and to_queue is None:
        raise click.UsageError("Where to? Give --to ROOT, --to-queue NAME, or both.")
    source_root, name = require_root(root), to_queue or queue
    source = open_ledger(root, settings, read_only=target_root is not None)
    target = source if target_root is None else Ledger.open(target_root, create=create, settings=source.settings)
    queue_to_copy = source.queue(queue)
    target_queue = _find_or_create(target, name, queue_to_copy) if create else target.queue(name)
    copied = queue_to_copy.copy_to(target_queue, attempt_id=attempt_id, bar=bar, report=_say)
    to = f"{name} of {target_root or source_root}"
    _report_copy(
        json,
        {"queue": queue, "to": target_root or source_root, "to_queue": name},
        copied,
        f"copied %s of {queue} to {to}",
    )


def _find_or_create(target: Ledger, name: str, source: Queue) -> Queue:
    from ledger.errors import QueueDoesNotExist

    try:
        return target.queue(name)
    except QueueDoesNotExist:
        record = source.access.record()
        attributes = {key: value for key, value in record.attributes.items() if key not in ATTRIBUTES_OF_ONE_LEDGER}
        return target.create_queue(name, attributes, dict(record.tags))


def _require_file(path: str) -> None:
    """Raise click.UsageError for `-`: a Parquet file is read from its end."""
    if path == "-":
        raise click.UsageError("FILE is -, and an export is a Parquet file, no stream: name a file.")


@click.command(short_help="Write all messages of a queue to a Parquet file.")
@click.argument("queue")
@click.argument("path", metavar="FILE")
@_bar
@as_json
@with_root
def export(queue: str, path: str, bar: bool | None, json: bool, root: str | None, settings: str | None) -> None:
    """Write every message of QUEUE to the new Parquet file FILE, except for deleted and expired ones. The messages stay
    in QUEUE.

    \b
    Example:
      ledger export work work.parquet
    """
    _require_file(path)
    exported = open_ledger(root, settings, read_only=True).queue(queue).export_to(path, bar=bar, report=_say)
    sentence = f"wrote {pluralize(exported.messages, 'message')} of {queue} to {exported.path}"
    report(json, {"queue": queue, **dataclasses.asdict(exported)}, sentence)


@click.command("import", short_help="Send the messages of an exported file.")
@click.argument("queue")
@click.argument("path", metavar="FILE")
@_attempt
@_bar
@as_json
@with_root
def import_(
    queue: str, path: str, attempt_id: str | None, bar: bool | None, json: bool, root: str | None, settings: str | None
) -> None:
    """Send the messages of FILE, which `ledger export` wrote, to QUEUE.

    After a crash, run the same command again: it sends only the messages that are missing.

    \b
    Example:
      ledger import work monday.parquet
    """
    _require_file(path)
    imported = open_ledger(root, settings).queue(queue).import_from(path, attempt_id=attempt_id, bar=bar, report=_say)
    _report_copy(json, {"queue": queue, "path": path}, imported, f"imported %s of {path} to {queue}")


def _report_copy(json: bool, about: dict[str, object], done: Copied, sentence: str) -> None:
    before = f"; {pluralize(done.before, 'message')} had been sent before" if done.before else ""
    if done.before and not done.messages:
        before += ". To send all once more, give a new --attempt-id"
    report(json, {**about, **dataclasses.asdict(done)}, sentence % pluralize(done.messages, "message") + before)
