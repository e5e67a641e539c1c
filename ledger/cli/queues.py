"""The commands of `ledger queues`: list, show, create, set, delete, purge."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.opening import as_json, open_ledger, require_root, with_root
from ledger.cli.printing import pluralize, print_blocks, print_json, print_table, report

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from ledger.queue import Queue
    from ledger.results import Counts


@click.group()
def queues() -> None:
    """List, show, create, change, delete and purge queues."""


@queues.command("list")
@click.argument("prefix", default="")
@as_json
@with_root
def list_queues(prefix: str, json: bool, root: str | None, settings: str | None) -> int:
    """Show how many messages are visible, delayed, locked (by `Queue.lock`), in flight and deleted, for queues whose
    names begin with PREFIX. A queue whose verbs raise ClocksDisagree has no counts, and the exit code is then 1.

    \b
    Example:
      ledger queues list
    """
    from ledger.errors import ClocksDisagree

    rows, wrong = [], list[str]()
    for queue in open_ledger(root, settings, read_only=True).list_queues(prefix):
        try:
            rows.append(depth_of(queue))
        except ClocksDisagree as error:
            rows.append(_make_row(queue.name, None))
            wrong.append(f"{queue.name}: {error}")
    for line in wrong:
        click.echo(f"ledger: {line}", err=True)
    if json:
        print_json(*rows)
    else:
        names = {"in_flight": "in flight", "age_of_oldest": "age of oldest (s)"}
        print_table([{names.get(name, name): value for name, value in row.items()} for row in rows], "no queues")
    return int(bool(wrong))


#: Fields of `results.Counts`.
SHOWN_STATES = ("visible", "delayed", "locked", "in_flight", "deleted")


def depth_of(queue: Queue) -> dict[str, Any]:
    """Return how many messages a queue has in each of SHOWN_STATES, and the age of the oldest in seconds."""
    return _make_row(queue.name, queue.counts())


def _make_row(name: str, counts: Counts | None) -> dict[str, Any]:
    age = None if counts is None else counts.age_of_oldest
    states = {state: getattr(counts, state, None) for state in SHOWN_STATES}
    return {"queue": name, **states, "age_of_oldest": None if age is None else round(age, 1)}


@queues.command()
@click.argument("queue")
@as_json
@with_root
def show(queue: str, json: bool, root: str | None, settings: str | None) -> None:
    """Show the counts, attributes and tags of QUEUE, and the queues whose dead letters it takes.

    \b
    Example:
      ledger queues show work
    """
    show_queue(open_ledger(root, settings, read_only=True).queue(queue), json)


def show_queue(queue: Queue, json: bool) -> None:
    parts = {"counts": depth_of(queue), "attributes": queue.attributes(), "tags": queue.tags()}
    sources = queue.dead_letter_source_queues()
    if json:
        print_json({"queue": queue.name, **parts, "dead_letters_of": sources})
        return
    print_blocks([parts["counts"], {**parts["attributes"], "dead letters of": ", ".join(sources)}], "")
    if parts["tags"]:
        print_blocks([{f"tag {name}": value for name, value in parts["tags"].items()}], "")


def parse_pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    """Return NAME=VALUE texts as a dictionary. Raise click.BadParameter for other texts and repeated names."""
    values: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} must be NAME=VALUE", param_hint=option)
        if name in values:
            raise click.BadParameter(f"{name} is given twice", param_hint=option)
        values[name] = value
    return values


_attribute = click.option(
    "-a", "--attribute", multiple=True, metavar="NAME=VALUE", help="Such as VisibilityTimeout=600; may be repeated."
)
_tag = click.option("-t", "--tag", multiple=True, metavar="NAME=VALUE", help="A tag; may be repeated.")


@queues.command()
@click.argument("queue")
@_attribute
@_tag
@as_json
@with_root
def create(
    queue: str, attribute: tuple[str, ...], tag: tuple[str, ...], json: bool, root: str | None, settings: str | None
) -> None:
    """Make QUEUE, and the ledger around it if there is none. If QUEUE exists, nothing is changed, and the command fails
    if QUEUE has other values of these attributes, or other tags than those given.

    \b
    Example:
      ledger queues create work -a VisibilityTimeout=600 -t team=data
    """
    from ledger.errors import QueueNameExists

    attributes, tags = parse_pairs(attribute, "--attribute"), parse_pairs(tag, "--tag")
    ledger = _open_or_create_ledger(root, settings)
    try:
        made = ledger.create_queue(queue, attributes, tags)
    except QueueNameExists as error:
        option = "-t KEY=VALUE" if error.attribute == "tags" else f"-a {error.attribute}={error.asked}"
        raise click.ClickException(
            f"{error.message}: {error.name} has {error.there}, and {error.asked} was given. "
            f"`ledger queues set {queue} {option}` changes it, unless it is fixed at creation."
        ) from None
    show_queue(made, json)


def _open_or_create_ledger(root: str | None, settings: str | None) -> Ledger:
    from ledger.errors import LedgerDoesNotExist

    try:
        return open_ledger(root, settings)
    except LedgerDoesNotExist:
        made = open_ledger(root, settings, create=True)
        click.echo(f"made a new ledger at {require_root(root)}", err=True)
        return made


@queues.command("set")
@click.argument("queue")
@_attribute
@_tag
@click.option("--untag", multiple=True, metavar="NAME", help="Remove a tag; may be repeated.")
@as_json
@with_root
def set_attributes(
    queue: str,
    attribute: tuple[str, ...],
    tag: tuple[str, ...],
    untag: tuple[str, ...],
    json: bool,
    root: str | None,
    settings: str | None,
) -> None:
    """Change attributes and tags of QUEUE. Attributes and tags that are not named stay. --attribute, --tag and --untag
    are a commit each.

    \b
    Example:
      ledger queues set work -a VisibilityTimeout=900 --untag team
    """
    attributes, tags = parse_pairs(attribute, "--attribute"), parse_pairs(tag, "--tag")
    if not (attributes or tags or untag):
        raise click.UsageError("Nothing to change: give --attribute, --tag or --untag.")
    changed_queue = open_ledger(root, settings).queue(queue)
    if attributes:
        changed_queue.set_attributes(attributes)
    if tags:
        changed_queue.tag(tags)
    if untag:
        changed_queue.untag(untag)
    show_queue(changed_queue, json)


_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, yes: bool) -> None:
    """Ask the question on a terminal, unless `yes`. Raise click.ClickException if the user does not agree."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask on: add --yes.")
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was changed")


@queues.command()
@click.argument("queue")
@_yes
@as_json
@with_root
def delete(queue: str, yes: bool, json: bool, root: str | None, settings: str | None) -> None:
    """Delete QUEUE with all its messages. The command asks on a terminal. If stdin is no terminal, --yes is needed. If
    other queues name QUEUE as their dead-letter queue, the command warns of it.

    \b
    Example:
      ledger queues delete work --yes
    """
    ledger = open_ledger(root, settings)
    counts = ledger.queue(queue).counts()
    remaining = counts.stored + counts.in_flight
    sources = [source for source in ledger.queue(queue).dead_letter_source_queues() if source != queue]
    if sources:
        click.echo(
            f"ledger: {queue} is the dead-letter queue of {', '.join(sources)}. Without {queue}, messages that fail in "
            f"those queues are received again and again. After the deletion, create {queue} anew "
            f"(`ledger queues create {queue}`), or take the policy away "
            f"(`ledger queues set {sources[0]} -a RedrivePolicy=`)",
            err=True,
        )
    confirm(
        f"Delete the queue {queue} with its {pluralize(remaining, 'message')}, {counts.in_flight:,} of them in flight?",
        yes,
    )
    ledger.delete_queue(queue)
    report(json, {"queue": queue, "deleted": True, "messages": remaining}, f"deleted {queue}")


@queues.command()
@click.argument("queue")
@click.option("--older-than", metavar="AGE", help="Only messages sent longer ago than AGE (90s, 30m, 12h, 7d).")
@_yes
@as_json
@with_root
def purge(queue: str, older_than: str | None, yes: bool, json: bool, root: str | None, settings: str | None) -> None:
    """Delete every message of QUEUE, in flight or not. With --older-than, delete only messages that were sent longer
    ago than AGE. The command asks on a terminal. If stdin is no terminal, --yes is needed.

    \b
    Example:
      ledger queues purge work --yes
      ledger queues purge work --older-than 7d --yes
    """
    age = None if older_than is None else _parse_age("older-than", older_than)
    purged_queue = open_ledger(root, settings).queue(queue)
    counts = purged_queue.counts()
    remaining = counts.stored + counts.in_flight
    whole = f"{pluralize(remaining, 'message')} in {queue} ({counts.in_flight:,} in flight)"
    sent_before = f"those that were sent more than {older_than} ago, of the {whole}"
    confirm(f"Delete {whole}?" if age is None else f"Delete {sent_before}?", yes)
    deleted = purged_queue.purge(older_than=age)
    report(json, {"queue": queue, "messages": deleted}, f"deleted {pluralize(deleted, 'message')} of {queue}")


def _parse_age(name: str, text: str) -> float:
    from ledger.errors import InvalidParameterValue
    from ledger.rules.limits import parse_seconds

    seconds = parse_seconds(text)
    if seconds is None:
        bound = "Must be a number with the unit s, m, h or d"
        raise InvalidParameterValue(name, text, bound, "Such as 90s, 30m, 12h or 7d. Nothing was changed.")
    return seconds
