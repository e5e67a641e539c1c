"""Commands that look at a ledger and change nothing: `history`, `sql`, `explain` and `top`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.opening import as_json, open_ledger, require_root, with_root
from ledger.cli.printing import format_table, print_csv, print_json, print_table
from ledger.errors import InvalidParameterValue

if TYPE_CHECKING:
    import pyarrow as pa

    from ledger.client.explanation import Explanation
    from ledger.ledger import Ledger
    from ledger.queue import Queue


@click.command(short_help="Show who received what, and what became of it.")
@click.argument("queue", required=False)
@click.option("--receipt", metavar="ID", help="Only events of this receipt.")
@click.option(
    "--message",
    metavar="ID",
    help="Only events of receipts that this message of QUEUE has had, there or in earlier queues.",
)
@click.option(
    "-n", "--last", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="The last N events."
)
@as_json
@with_root
def history(
    queue: str | None,
    receipt: str | None,
    message: str | None,
    last: int,
    json: bool,
    root: str | None,
    settings: str | None,
) -> None:
    """Show the last events of QUEUE, or of the ledger, oldest first: who received messages, and what became of these
    messages. With --message, receipts before the last one come from past versions of the tables, as far back as those
    versions are kept.

    \b
    Example:
      ledger history work
      ledger history work --message MESSAGE_ID
    """
    from ledger.clock import instant
    from ledger.store.delta.verbs.receipts import read_events as events

    if message is not None and (queue is None or receipt is not None):
        raise click.UsageError("--message needs its QUEUE, and no --receipt.")
    ledger = open_ledger(root, settings, read_only=True)
    names = {record.id: record.name for record in ledger.store.queues()}
    store: Any = ledger.store
    record = None if queue is None else store.queue(queue)
    matching_events = events(store.engine, None if message else record and record.id, receipt)
    if message is not None:
        stored = store.peek(record, message)
        receipts, are_all = _find_receipts(ledger, message, matching_events, names)
        if not receipts and are_all and not stored.record.receive_count:
            raise click.ClickException(f"the message {message} has no receipt: it was never received")
        if not receipts:
            raise click.ClickException(f"no receipt of the message {message} is known")
        matching_events = [event for event in matching_events if event["receipt_id"] in receipts]
    shown = matching_events[-last:]
    if receipt is not None and not matching_events:
        raise click.ClickException(f"nothing is known of a receipt {receipt}{'' if queue is None else f' of {queue}'}")
    rows = [
        {
            "at": instant(event["at"]),
            "queue": names.get(event["queue"], event["queue"]),
            "event": event["event"],
            "messages": event["messages"],
            "receipt_id": event["receipt_id"],
            "attempt_id": event["attempt_id"],
            "visible_at": None if event["visible_at"] is None else instant(event["visible_at"]),
            "reason": event.get("reason"),
            "owner": event["owner"],
            "version": event["version"],
        }
        for event in shown
    ]
    if len(shown) < len(matching_events):
        click.echo(f"ledger: the last {last} of {len(matching_events)} events; --last shows more", err=True)
    if json:
        print_json(*rows)
    else:
        shorter = [{name: row[name] for name in row if name not in ("attempt_id", "version")} for row in rows]
        print_table(shorter, "nothing was received yet")


def _find_receipts(
    ledger: Ledger, message: str, events: Sequence[Mapping[str, Any]], names: Mapping[str, str]
) -> tuple[set[str], bool]:
    """Return the receipts that a message has had, also in earlier queues, and whether all needed versions were kept.

    Search backwards from the message's present queue and receipt. The version before a receipt's grant shows the
    previous receipt. The version before an arrival or a restore shows the previous queue and receipt.
    """
    # A receipt has one event `granted`. A retry's event is `granted again`.
    granted = {event["receipt_id"]: event["version"] for event in reversed(events) if event["event"] == "granted"}
    arrivals = [
        (event["version"], names.get(event["queue"])) for event in events if event["event"] in ("arrived", "restored")
    ]
    receipts: set[str] = set()
    try:
        position = _find_position(ledger, message, None)
        while position is not None:
            queue, receipt = position
            if receipt is not None:
                receipts.add(receipt)
                position = _find_position(ledger, message, granted[receipt] - 1) if receipt in granted else None
                arrivals = [arrival for arrival in arrivals if arrival[0] < granted.get(receipt, 0)]
                continue
            # Nobody has received the message since it arrived in this queue, or was restored.
            before: tuple[str, str | None] | None = position
            while arrivals and before == position:
                version, arrived_in = arrivals.pop()
                before = _find_position(ledger, message, version - 1) if arrived_in == queue else position
            position = None if before == position else before
    except InvalidParameterValue:
        click.echo("ledger: the versions with earlier receipts are not kept any more", err=True)
        return receipts, False
    return receipts, True


def _find_position(ledger: Ledger, message: str, version: int | None) -> tuple[str, str | None] | None:
    """Return a message's queue and receipt as of a version (None: now), if it existed then."""
    from ledger.rules.message_id import place

    segment, seq = place(message)
    query = f"SELECT queue, receipt_id FROM messages WHERE segment = '{segment}' AND seq = {seq}"
    rows = ledger.sql(query, version).to_pylist()
    return (rows[0]["queue"], rows[0]["receipt_id"]) if rows else None


@click.command(short_help="Query the analysts' views in SQL.")
@click.argument("query")
@click.option(
    "--version",
    type=int,
    metavar="N",
    help="Read version N of the table visibility, a number in the column version of the view receipts.",
)
@click.option("--timestamp", metavar="TIME", help="Read as of an instant, such as 2026-01-31T12:00:00Z.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@as_json
@with_root
def sql(
    query: str,
    version: int | None,
    timestamp: str | None,
    as_csv: bool,
    json: bool,
    root: str | None,
    settings: str | None,
) -> None:
    """Answer a SQL QUERY on the views messages, in_flight, queue_depth, receipts, dead_letters and processing_times. If
    QUERY is `-`, the command reads it from stdin. The dialect is DataFusion's. `SELECT * FROM comments` describes the
    views and their columns. Reading takes no lock.

    The command does not read other Delta tables, such as OUTPUT_failed of a worker. Read these tables with deltalake's
    DeltaTable(PATH).to_pandas(), or with Spark.

    \b
    Example:
      ledger sql "SELECT queue, visible FROM queue_depth"
      ledger sql "SELECT status, count(*) AS messages FROM messages GROUP BY status" --json
    """
    if as_csv and json:
        raise click.UsageError("Give --csv or --json.")
    ledger = open_ledger(root, settings, read_only=True)
    table = ledger.sql(sys.stdin.read() if query == "-" else query, version, timestamp=timestamp)
    rows = _list_table_rows(_cut_to_microseconds(table))
    if as_csv:
        print_csv(table.column_names, rows)
    elif json:
        print_json(*rows)
    else:
        print_table(rows, f"no rows ({', '.join(table.column_names)})")


def _cut_to_microseconds(table: pa.Table) -> pa.Table:
    """Cut the nanoseconds, which Python's instants do not have."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            column = table.column(place)
            table = table.set_column(place, field.name, column.cast(pa.timestamp("us", field.type.tz), safe=False))
    return table


def _list_table_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return a table's rows, with texts for instants and durations that Python cannot hold."""
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OverflowError, ValueError):
        columns = [[_convert_value(value) for value in column] for column in table.columns]
        return [dict(zip(table.column_names, row)) for row in zip(*columns)]
    return rows


def _convert_value(scalar: Any) -> Any:
    import pyarrow as pa

    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if isinstance(scalar, pa.StructScalar):
            return {name: _convert_value(value) for name, value in scalar.items()}
        if pa.types.is_nested(scalar.type):
            return [_convert_value(value) for value in scalar.values]
        if pa.types.is_duration(scalar.type):
            return f"{scalar.value} {scalar.type.unit}"
        # For years outside 1 to 9999, Arrow's text of an instant with a zone is wrong.
        naive = scalar.cast(pa.timestamp(scalar.type.unit)) if pa.types.is_timestamp(scalar.type) else scalar
        return naive.cast(pa.string()).as_py()


HANDLE_VERBS = ("extend", "release", "delete")
QUEUE_VERBS = ("purge", "redrive")


@click.command(short_help="Show the statement of a verb, and change nothing.")
@click.argument("verb", type=click.Choice(["receive", "send", *HANDLE_VERBS, "restore", *QUEUE_VERBS]), metavar="VERB")
@click.argument("queue")
@click.argument("handles", nargs=-1, metavar="[HANDLE|BODY]...")
@click.option("--receipt", metavar="ID", help="The receipt of a whole claim, from `ledger receive --claim`.")
@click.option("--group", metavar="ID", help="For send to a FIFO queue: the message group.")
@click.option("--to", metavar="QUEUE", help="For redrive: the target (default: where the messages came from).")
@click.option("-n", "--max", "most", type=int, default=1, show_default=True, metavar="N", help="For receive.")
@click.option("--visibility-timeout", type=int, metavar="S", help="For receive and extend.")
@as_json
@with_root
def explain(
    verb: str,
    queue: str,
    handles: tuple[str, ...],
    receipt: str | None,
    group: str | None,
    to: str | None,
    most: int,
    visibility_timeout: int | None,
    json: bool,
    root: str | None,
    settings: str | None,
) -> None:
    """Show the first commit that VERB would make on QUEUE now, and change nothing. The command prints the SQL statement
    and its source rows, and says whether an engine would run the statement, or the ledger would write the rows itself.

    VERB is receive, send, extend, release, delete, restore, purge or redrive. In Python, `queue.explain` explains more
    verbs, such as lock.

    \b
    Example:
      ledger explain receive work --max 10
      ledger explain delete work HANDLE
      ledger explain extend work --receipt ID --visibility-timeout 600
      ledger explain send work "order 7"
      ledger explain restore work --receipt ID
    """
    if verb in HANDLE_VERBS and (receipt is None) == (not handles):
        raise click.UsageError(f"{verb} needs receipt handles, or --receipt ID for a whole claim.")
    if verb == "restore" and receipt is None:
        raise click.UsageError("restore needs --receipt ID, of the claim that was deleted.")
    if verb == "send" and not handles:
        raise click.UsageError("send needs the bodies of messages.")
    if handles and verb not in (*HANDLE_VERBS, "send"):
        raise click.UsageError(f"{verb} takes no handles and no bodies.")
    explained_queue = open_ledger(root, settings, read_only=True).queue(queue)
    explanation = _explain_verb(explained_queue, verb, handles, receipt, group, to, most, visibility_timeout)
    if not json:
        click.echo(str(explanation))
        return
    rows = None if explanation.rows is None else explanation.rows.to_pylist()
    print_json(
        {
            "verb": verb,
            "table": explanation.table,
            "statement": explanation.statement,
            "rows": rows,
            "engine": explanation.engine,
            "why_statement": explanation.why_statement,
        }
    )


def _explain_verb(
    queue: Queue,
    verb: str,
    handles: tuple[str, ...],
    receipt: str | None,
    group: str | None,
    to: str | None,
    most: int,
    timeout: int | None,
) -> Explanation:
    if verb == "receive":
        return queue.explain(verb, most, timeout)
    if verb == "send":
        return queue.explain(verb, list(handles), message_group_id=group)
    if verb == "restore":
        return queue.explain(verb, receipt)
    if verb == "redrive":
        return queue.explain(verb, destination=to)
    if verb == "purge":
        return queue.explain(verb)
    if receipt is not None:
        claim = queue.claim(receipt)
        return claim.explain(verb, timeout) if verb == "extend" else claim.explain(verb)
    timeouts = {"visibility_timeout": timeout} if verb == "extend" else {}
    explanation = queue.explain("settle", **{verb: list(handles)}, **timeouts)
    return replace(explanation, verb=verb)


WINDOW_SECONDS = 60
#: The most commits of each table that the first look reads.
MOST_COMMITS_READ = 500
COUNTED_TABLES = ("visibility", "messages")
_CLEAR_SCREEN = "\x1b[H\x1b[2J"


@click.command(short_help="Show the queues as they are now, refreshed.")
@click.argument("prefix", default="")
@click.option("--once", is_flag=True, help="Show the queues once and end; --json and --prometheus do so, too.")
@click.option(
    "--interval", type=click.FloatRange(0.2), default=2.0, show_default=True, metavar="S", help="Seconds between looks."
)
@click.option("--prometheus", is_flag=True, help="Print Prometheus text, with the names of `ledger serve`'s /metrics.")
@as_json
@with_root
def top(
    prefix: str, once: bool, interval: float, prometheus: bool, json: bool, root: str | None, settings: str | None
) -> None:
    """Show the queues whose names begin with PREFIX, and refresh until Ctrl-C: depth, messages in flight, age of the
    oldest message in seconds, and verbs a second over the last minute. The depth counts the messages that are visible,
    delayed or locked. The rate is approximate: a send is one verb, however large, and small sends that share a commit
    are one.

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
        click.echo("\n".join(_format_metrics(ledger, prefix)))
        return
    if json:
        print_json(*rows(ledger, prefix, rates))
        return
    if once:
        click.echo(_queues_as_text(ledger, prefix, rates))
        return
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            head = f"ledger top  {require_root(root)}  {time.strftime('%H:%M:%S')}  (Ctrl-C ends it)"
            click.echo(f"{_CLEAR_SCREEN}{head}\n\n{_queues_as_text(ledger, prefix, rates)}")
            time.sleep(interval)


def _queues_as_text(ledger: Ledger, prefix: str, rates: Rates) -> str:
    queue_rows = rows(ledger, prefix, rates)
    return format_table(queue_rows) if queue_rows else "no queues"


def rows(ledger: Ledger, prefix: str, rates: Rates) -> list[dict[str, Any]]:
    """Return a row for each queue whose name begins with `prefix`, the queue with the most messages first."""
    queue_rows, rate = [], rates.now()
    for queue in ledger.list_queues(prefix):
        counts = queue.counts()
        age = counts.age_of_oldest
        queue_rows.append(
            {
                "queue": queue.name,
                "depth": counts.stored,
                "in_flight": counts.in_flight,
                "age_of_oldest": None if age is None else round(age, 1),
                "verbs_per_second": round(rate.get(queue.id, 0.0), 2),
            }
        )
    return sorted(queue_rows, key=lambda row: (-row["depth"] - row["in_flight"], row["queue"]))


class Rates:
    """The verbs a second of each queue in the last WINDOW_SECONDS, by the times in the commits.

    A commit without events counts as one verb, even if several sends share it.
    """

    def __init__(self, ledger: Ledger) -> None:
        store: Any = ledger.store
        self._engine, self._clock = store.engine, ledger.clock
        self._last: dict[str, int] = {}
        #: Time (ms), id of the queue, number of verbs.
        self._seen: list[tuple[int, str, int]] = []
        #: The first look has read every commit since this instant (ms).
        self._since = 0

    def now(self) -> dict[str, float]:
        """Return the verbs a second by the queue's id."""
        now = self._clock()
        for table in COUNTED_TABLES:
            self._follow(table)
        since = max(self._since, now - WINDOW_SECONDS * 1_000)
        self._seen = [commit for commit in self._seen if commit[0] > since]
        counted: Counter[str] = Counter()
        for _, queue, verbs in self._seen:
            counted[queue] += verbs
        seconds = max(now - since, 1_000) / 1_000
        return {queue: verbs / seconds for queue, verbs in counted.items()}

    def _follow(self, table: str) -> None:
        newest = self._engine.version(table)
        first = table not in self._last
        commits = self._engine.history(table, newest - MOST_COMMITS_READ if first else self._last[table])
        if first and len(commits) >= MOST_COMMITS_READ:
            self._since = max(self._since, commits[0].timestamp)
        for commit in commits:
            metadata = commit.metadata
            if metadata.get("queue"):
                # A commit has the events of all its verbs. A send has none.
                self._seen.append(
                    (metadata.get("at", commit.timestamp), metadata["queue"], max(1, len(metadata.get("events", ()))))
                )
        self._last[table] = max([newest, *(commit.version for commit in commits)])


def _format_metrics(ledger: Ledger, prefix: str) -> Iterator[str]:
    from ledger.endpoint.metrics import (
        format_dead_letters,
        format_family,
        format_refused_tables,
        format_upkeep,
        format_vitals,
    )
    from ledger.rules.redrive import dead_letter_names

    counts = {queue.name: queue.counts() for queue in ledger.list_queues(prefix)}
    yield from format_family(
        "ledger_queue_messages",
        "gauge",
        "Messages of a queue, by state.",
        (
            ({"queue": name, "state": state}, getattr(queue_counts, state))
            for name, queue_counts in counts.items()
            for state in ("visible", "delayed", "locked", "in_flight")
        ),
    )
    ages = (({"queue": name}, queue_counts.age_of_oldest) for name, queue_counts in counts.items())
    yield from format_family(
        "ledger_queue_age_of_oldest_seconds",
        "gauge",
        "Age of the oldest message still there.",
        ((labels, age) for labels, age in ages if age is not None),
    )
    yield from format_dead_letters(counts, dead_letter_names(record.attributes for record in ledger.store.queues()))
    health = ledger.health()
    text = "Age of the oldest commit that no upkeep has gone over."
    yield from format_family(
        "ledger_without_upkeep_seconds", "gauge", text, [({}, health.oldest_without_upkeep or 0.0)]
    )
    yield from format_upkeep(health.commits_without_upkeep, bool(health.upkeep_overdue))
    tables = health.tables.items()
    yield from format_refused_tables(
        {name: table.refused for name, table in tables if table.refused and not table.takes_appends}
    )
    if health.vitals is not None:
        yield from format_vitals(health.vitals)
