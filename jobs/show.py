"""Shows a ledger's queues and messages in flight, and changes nothing: `jobs/show.py ROOT [--in-flight]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs import common

if TYPE_CHECKING:
    from ledger.ledger import Ledger


def parser() -> argparse.ArgumentParser:
    arguments = common.arguments(
        "Show a ledger's queues with the number of messages in each state. Changes nothing.", json=True
    )
    arguments.add_argument("--queue", default="", metavar="PREFIX", help="Only queues whose names begin with PREFIX.")
    arguments.add_argument(
        "--in-flight",
        action="store_true",
        help="Also every receipt that holds messages, and what is parked or postponed (starts Spark).",
    )
    arguments.add_argument(
        "--history",
        type=int,
        default=0,
        metavar="N",
        help="Also the last N events of the receipts ledger (starts Spark).",
    )
    return arguments


def main(options: argparse.Namespace) -> None:
    ledger = common.open_ledger(options, spark=options.in_flight or options.history > 0)
    rows = []
    for queue in ledger.list_queues(options.queue):
        counts = queue.counts()
        rows.append(
            {
                "queue": queue.name,
                "visible": counts.visible,
                "delayed": counts.delayed,
                "locked": counts.locked,
                "in flight": counts.in_flight,
                "deleted": counts.deleted,
                "age of oldest (s)": None if counts.age_of_oldest is None else round(counts.age_of_oldest),
            }
        )
    show(options, "queue", "Queues", rows)
    if options.in_flight:
        show(options, "receipt", "In flight", in_flight(ledger, options.queue))
    if options.history > 0:
        show(options, "event", f"Last {options.history} events", history(ledger, options.queue, options.history))


def in_flight(ledger: Ledger, prefix: str) -> list[dict[str, object]]:
    """Return a row for each receipt that holds messages, with its holder, the earliest deadline first."""
    from pyspark.sql import functions as F

    holders = ledger.view("receipts").where("event = 'granted'").select("receipt_id", F.col("owner").alias("holder"))
    held = ledger.view("in_flight").where(F.col("queue").startswith(prefix)).join(holders, "receipt_id", "left")
    return [
        {
            "queue": row.queue,
            "state": row.state,
            "receipt": row.receipt_id,
            "attempt": row.attempt_id,
            "holder": row.holder,
            "messages": row.messages,
            "received": f"{row.received_at:%F %T}",
            "deadline": f"{row.earliest_deadline:%F %T}",
        }
        for row in held.orderBy("earliest_deadline").collect()
    ]


def history(ledger: Ledger, prefix: str, most: int) -> list[dict[str, object]]:
    """Return the last events of the receipts ledger, oldest first."""
    from pyspark.sql import functions as F

    events = ledger.view("receipts").where(F.col("queue").startswith(prefix)).orderBy(F.desc("version")).limit(most)
    return [
        {
            "at": f"{row.at:%F %T}",
            "queue": row.queue,
            "event": row.event,
            "messages": row.messages,
            "receipt": row.receipt_id,
            "owner": row.owner,
        }
        for row in sorted(events.collect(), key=lambda row: row.version)
    ]


def show(options: argparse.Namespace, kind: str, title: str, rows: list[dict[str, object]]) -> None:
    """Print rows under a title, or that there are none. With --json, print a document for each row."""
    if options.json:
        from ledger.cli.printing import print_json

        print_json(*({"kind": kind, **row} for row in rows))
    else:
        print(f"{title}\n\n{common.table(rows)}\n" if rows else f"{title}: none\n")


if __name__ == "__main__":
    sys.exit(common.run(parser(), main))
