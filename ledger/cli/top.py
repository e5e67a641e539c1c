"""`ledger top`: the queues as they are now, and again."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.opening import as_json, named_root, open_ledger, with_root
from ledger.cli.printing import print_json, table_of

if TYPE_CHECKING:
    from ledger.ledger import Ledger

#: Verbs are counted over so many seconds.
WINDOW = 60
#: At most so many commits of each table are looked through for that.
MOST_COMMITS = 2_000
_CLEAR = "\x1b[H\x1b[2J"


@click.command(short_help="The queues as they are now, refreshed.")
@click.argument("prefix", default="")
@click.option("--once", is_flag=True, help="Show it once and end; so it is also with --json.")
@click.option(
    "--interval", type=click.FloatRange(0.2), default=2.0, show_default=True, metavar="S", help="Seconds between looks."
)
@as_json
@with_root
def top(prefix: str, once: bool, interval: float, json: bool, root: str | None, settings: str | None) -> None:
    """Queues whose names begin with PREFIX: depth, in flight, age of the oldest message, verbs a second (over the last
    minute; a send is one, however large). Refreshed until Ctrl-C; reading disturbs nobody.

    \b
    Example:
      ledger top --once
    """
    ledger = open_ledger(root, settings, read_only=True)
    if json:
        print_json(*rows(ledger, prefix))
        return
    while True:
        found = rows(ledger, prefix)
        text = table_of(found) if found else "no queues"
        if once:
            click.echo(text)
            return
        click.echo(f"{_CLEAR}ledger top  {named_root(root)}  {time.strftime('%H:%M:%S')}  (Ctrl-C ends it)\n\n{text}")
        try:
            time.sleep(interval)
        except KeyboardInterrupt:
            return


def rows(ledger: Ledger, prefix: str) -> list[dict[str, Any]]:
    """A row for each queue, the fullest first."""
    rates = verbs_a_second(ledger)
    found = []
    for queue in ledger.list_queues(prefix):
        counts = queue.counts()
        age = counts.age_of_oldest
        found.append(
            {
                "queue": queue.name,
                "depth": counts.stored,
                "in_flight": counts.in_flight,
                "oldest_seconds": None if age is None else round(age, 1),
                "verbs_per_second": round(rates.get(queue.id, 0.0), 2),
            }
        )
    return sorted(found, key=lambda row: (-row["depth"] - row["in_flight"], row["queue"]))


def verbs_a_second(ledger: Ledger) -> dict[str, float]:
    """By the ids of queues: what was committed in the last WINDOW seconds, by the commits' own times."""
    store: Any = ledger.store
    since = ledger.clock() - WINDOW * 1_000
    counted: Counter[str] = Counter()
    for table in ("visibility", "messages"):
        for commit in store.engine.history(table, store.engine.version(table) - MOST_COMMITS):
            said = commit.metadata
            if said.get("queue") and said.get("at", 0) > since:
                # A shared commit is several verbs, each with an event of its own.
                counted[said["queue"]] += max(1, len(said.get("events", ())))
    return {queue: count / WINDOW for queue, count in counted.items()}
