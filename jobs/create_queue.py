"""Creates a queue, and its ledger if there is none: `jobs/create_queue.py ROOT QUEUE [--attribute NAME=VALUE]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs import common

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from ledger.queue import Queue


def parser() -> argparse.ArgumentParser:
    arguments = common.arguments(
        "Make a queue, and the ledger around it if there is none. If the queue exists already, nothing changes.",
        json=True,
    )
    arguments.add_argument(
        "queue", help="The queue's name: 1 to 80 letters, digits, - and _; a FIFO queue's name ends with .fifo."
    )
    arguments.add_argument(
        "--attribute",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="An attribute, such as VisibilityTimeout=3600 or Lanes=16; may be repeated.",
    )
    arguments.add_argument("--tag", action="append", default=[], metavar="NAME=VALUE", help="A tag; may be repeated.")
    arguments.add_argument(
        "--change",
        action="store_true",
        help="If the queue exists, set these attributes and tags. Without this option, other values are an error.",
    )
    return arguments


def main(options: argparse.Namespace) -> None:
    attributes, tags = common.pairs(options.attribute, "--attribute"), common.pairs(options.tag, "--tag")
    ledger = common.open_ledger(options, make=True)
    if options.change and options.queue in {queue.name for queue in ledger.list_queues(options.queue)}:
        queue = ledger.queue(options.queue)
        queue.set_attributes(attributes)
        queue.tag(tags)
    else:
        queue = create(ledger, options.queue, attributes, tags)
    attribute_values = queue.attributes()
    rows = [{"attribute": name, "value": str(value)} for name, value in attribute_values.items()]
    document = {"queue": queue.name, "root": options.root, "attributes": attribute_values}
    common.report(options, document, f"queue {queue.name} in {options.root}\n\n{common.table(rows)}")


def create(ledger: Ledger, name: str, attributes: dict[str, str], tags: dict[str, str]) -> Queue:
    """Return the queue, and create it if there is none. An error about other attributes names the option --change."""
    from ledger.errors import LedgerError, QueueNameExists

    try:
        return ledger.create_queue(name, attributes, tags)
    except QueueNameExists as error:
        difference = f"{error.name} has {error.there}, asked was {error.asked}"
        raise LedgerError(
            error.message, f"{difference}. --change gives it this; else leave the attribute out."
        ) from error


if __name__ == "__main__":
    sys.exit(common.run(parser(), main))
