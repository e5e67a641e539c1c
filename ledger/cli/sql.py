"""`ledger sql`."""

from __future__ import annotations

import sys

import click

from ledger.cli.opening import as_json, open_ledger, with_root
from ledger.cli.printing import print_json, print_table


@click.command(short_help="Ask the analysts' views in SQL.")
@click.argument("query")
@click.option("--version", type=int, metavar="N", help="As of a version of the table visibility, as in `receipts`.")
@click.option("--timestamp", metavar="TIME", help="As of an instant, such as 2026-01-31T12:00:00Z.")
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
    """The answer to a SQL QUERY on the views messages, in_flight, queue_depth, receipts, dead_letters and
    processing_times; - reads it from stdin. The SQL is DataFusion's; `SELECT * FROM comments` says what the views and
    their columns are. Reading disturbs nobody.

    \b
    Example:
      ledger sql "SELECT queue, visible FROM queue_depth"
      ledger sql "SELECT status, count(*) AS messages FROM messages GROUP BY status" --json
    """
    if as_csv and json:
        raise click.UsageError("Give --csv or --json.")
    ledger = open_ledger(root, settings, read_only=True)
    found = ledger.sql(sys.stdin.read() if query == "-" else query, version, timestamp=timestamp)
    if as_csv:
        import pyarrow.csv

        pyarrow.csv.write_csv(found, sys.stdout.buffer)
    elif json:
        for batch in found.to_batches(max_chunksize=10_000):
            print_json(*batch.to_pylist())
    else:
        rows = found.to_pylist()
        print_table(rows, f"no rows ({', '.join(found.column_names)})")
