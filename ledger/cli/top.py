"""`ledger top`: the queues as they are now, and again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.opening import as_json, named_root, open_ledger, with_root
from ledger.cli.printing import print_json, table_of

if TYPE_CHECKING:
    from ledger.ledger import Ledger

#: Verbs are counted over so many seconds.
WINDOW = 60
#: At first, at most so many commits of each table are looked through for that.
MOST_COMMITS = 500
TABLES = ("visibility", "messages")
_CLEAR = "\x1b[H\x1b[2J"


@click.command(short_help="The queues as they are now, refreshed.")
@click.argument("prefix", default="")
@click.option("--once", is_flag=True, help="Show it once and end; so it is also with --json and --prometheus.")
@click.option(
    "--interval", type=click.FloatRange(0.2), default=2.0, show_default=True, metavar="S", help="Seconds between looks."
)
@click.option("--prometheus", is_flag=True, help="As Prometheus reads it, by the names of `ledger serve`'s /metrics.")
@as_json
@with_root
def top(
    prefix: str, once: bool, interval: float, prometheus: bool, json: bool, root: str | None, settings: str | None
) -> None:
    """Queues whose names begin with PREFIX: depth, in flight, age of the oldest message, verbs a second (over the last
    minute; a send is one, however large). Refreshed until Ctrl-C; reading disturbs nobody.

    \b
    Example:
      ledger top --once
      ledger top --prometheus
    """
    if json and prometheus:
        raise click.UsageError("Give --json or --prometheus.")
    ledger = open_ledger(root, settings, read_only=True)
    if prefix and not ledger.list_queues(prefix, max_results=1):
        raise click.ClickException(f"no queue's name begins with {prefix!r}; `ledger queues list` shows all")
    rates = Rates(ledger)
    if prometheus:
        click.echo("\n".join(_metrics(ledger, prefix)))
        return
    if json:
        print_json(*rows(ledger, prefix, rates))
        return
    while True:
        found = rows(ledger, prefix, rates)
        text = table_of(found) if found else "no queues"
        if once:
            click.echo(text)
            return
        click.echo(f"{_CLEAR}ledger top  {named_root(root)}  {time.strftime('%H:%M:%S')}  (Ctrl-C ends it)\n\n{text}")
        try:
            time.sleep(interval)
        except KeyboardInterrupt:
            return


def rows(ledger: Ledger, prefix: str, rates: Rates) -> list[dict[str, Any]]:
    """A row for each queue, the fullest first."""
    found, rate = [], rates.now()
    for queue in ledger.list_queues(prefix):
        counts = queue.counts()
        age = counts.age_of_oldest
        found.append(
            {
                "queue": queue.name,
                "depth": counts.stored,
                "in_flight": counts.in_flight,
                "age_of_oldest": None if age is None else round(age, 1),
                "verbs_per_second": round(rate.get(queue.id, 0.0), 2),
            }
        )
    return sorted(found, key=lambda row: (-row["depth"] - row["in_flight"], row["queue"]))


class Rates:
    """How many verbs a second each queue had of late, by the commits' own times. Each commit is read once."""

    def __init__(self, ledger: Ledger) -> None:
        store: Any = ledger.store
        self._engine, self._clock = store.engine, ledger.clock
        self._last: dict[str, int] = {}
        #: When, on which queue (its id), how many.
        self._seen: list[tuple[int, str, int]] = []
        #: All since then is known.
        self._since = 0

    def now(self) -> dict[str, float]:
        """By the ids of queues, over the last WINDOW seconds, or as far back as was looked."""
        now = self._clock()
        for table in TABLES:
            self._follow(table)
        since = max(self._since, now - WINDOW * 1_000)
        self._seen = [one for one in self._seen if one[0] > since]
        counted: Counter[str] = Counter()
        for _, queue, verbs in self._seen:
            counted[queue] += verbs
        seconds = max(now - since, 1_000) / 1_000
        return {queue: verbs / seconds for queue, verbs in counted.items()}

    def _follow(self, table: str) -> None:
        newest = self._engine.version(table)
        first = table not in self._last
        commits = self._engine.history(table, newest - MOST_COMMITS if first else self._last[table])
        if first and len(commits) >= MOST_COMMITS:
            self._since = max(self._since, commits[0].timestamp)
        for commit in commits:
            said = commit.metadata
            if said.get("queue"):
                # A shared commit is several verbs, each with an event of its own.
                self._seen.append(
                    (said.get("at", commit.timestamp), said["queue"], max(1, len(said.get("events", ()))))
                )
        self._last[table] = max([newest, *(commit.version for commit in commits)])


def _metrics(ledger: Ledger, prefix: str) -> Iterator[str]:
    from ledger.endpoint.metrics import family, refused, upkeep, vitals

    counts = {queue.name: queue.counts() for queue in ledger.list_queues(prefix)}
    yield from family(
        "ledger_queue_messages",
        "gauge",
        "Messages of a queue, by state.",
        (
            ({"queue": name, "state": state}, getattr(known, state))
            for name, known in counts.items()
            for state in ("visible", "delayed", "locked", "in_flight")
        ),
    )
    ages = (({"queue": name}, known.age_of_oldest) for name, known in counts.items())
    yield from family(
        "ledger_queue_age_of_oldest_seconds",
        "gauge",
        "Age of the oldest message still there.",
        ((labels, age) for labels, age in ages if age is not None),
    )
    health = ledger.health()
    text = "Age of the oldest commit that no upkeep has gone over."
    yield from family("ledger_without_upkeep_seconds", "gauge", text, [({}, health.oldest_without_upkeep or 0.0)])
    yield from upkeep(health.commits_without_upkeep, bool(health.upkeep_overdue))
    yield from refused({name: table.refused for name, table in health.tables.items() if table.refused})
    if health.vitals is not None:
        yield from vitals(health.vitals)
