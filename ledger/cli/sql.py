"""`ledger sql`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.opening import as_json, open_ledger, with_root
from ledger.cli.printing import print_csv, print_json, print_table

if TYPE_CHECKING:
    import pyarrow as pa


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
    their columns are. Reading disturbs nobody. Other Delta tables (OUTPUT_failed of a worker) are not read by it: use
    deltalake's DeltaTable(PATH).to_pandas(), or Spark.

    \b
    Example:
      ledger sql "SELECT queue, visible FROM queue_depth"
      ledger sql "SELECT status, count(*) AS messages FROM messages GROUP BY status" --json
    """
    if as_csv and json:
        raise click.UsageError("Give --csv or --json.")
    ledger = open_ledger(root, settings, read_only=True)
    found = ledger.sql(sys.stdin.read() if query == "-" else query, version, timestamp=timestamp)
    rows = _rows(_shown(found))
    if as_csv:
        print_csv(found.column_names, rows)
    elif json:
        print_json(*rows)
    else:
        print_table(rows, f"no rows ({', '.join(found.column_names)})")


def _shown(table: pa.Table) -> pa.Table:
    """The same with instants that Python has, which knows no nanoseconds."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            column = table.column(place)
            table = table.set_column(place, field.name, column.cast(pa.timestamp("us", field.type.tz), safe=False))
    return table


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """A table's rows. Python has the years 1 to 9999, and durations of as many days: Arrow's others are texts."""
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OverflowError, ValueError):
        columns = [[_value(one) for one in column] for column in table.columns]
        return [dict(zip(table.column_names, row)) for row in zip(*columns)]
    return rows


def _value(one: Any) -> Any:
    import pyarrow as pa

    try:
        return one.as_py()
    except (OverflowError, ValueError):
        if isinstance(one, pa.StructScalar):
            return {name: _value(value) for name, value in one.items()}
        if pa.types.is_nested(one.type):
            return [_value(value) for value in one.values]
        if pa.types.is_duration(one.type):
            return f"{one.value} {one.type.unit}"
        # Of those with a zone Arrow's own texts are nonsense out of here.
        naive = one.cast(pa.timestamp(one.type.unit)) if pa.types.is_timestamp(one.type) else one
        return naive.cast(pa.string()).as_py()
