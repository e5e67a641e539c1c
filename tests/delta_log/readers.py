"""Readers of one table that share as little code as can be, and what they tell in one form.

| reader | log | files |
|---|---|---|
| `by_hand` | tests/delta_log/by_hand.py | Arrow |
| `delta_rs` | delta-rs | DataFusion |
| `duckdb` | delta-kernel-rs, as DuckDB's extension has it | DuckDB |
| `spark` | Delta on Spark | Spark |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import duckdb as duck
import duckdb_extension_delta
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.delta_log import by_hand as hand

#: A row, by its columns' names; values in one form, whoever read them.
Row = tuple[tuple[str, Any], ...]


def by_hand(location: str) -> pa.Table:
    return hand.rows_of(location)


def delta_rs(location: str) -> pa.Table:
    table = DeltaTable(location)
    return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


@cache
def _duckdb() -> duck.DuckDBPyConnection:
    (extension,) = Path(duckdb_extension_delta.__path__[0]).rglob("delta.duckdb_extension")
    connection = duck.connect(config={"autoinstall_known_extensions": False})
    connection.load_extension(str(extension))
    return connection


def duckdb(location: str) -> pa.Table:
    return _duckdb().execute("SELECT * FROM delta_scan(?)", [location]).to_arrow_table()


def spark_reader(spark: Any) -> Callable[[str], pa.Table]:
    def read(location: str) -> pa.Table:
        return spark.sql(f"SELECT * FROM delta.`{location}`").toArrow()

    read.__name__ = "spark"
    return read


#: Those that need no JVM.
READERS = (by_hand, delta_rs, duckdb)


def told(rows: pa.Table) -> list[Row]:
    """Rows in one form and one order."""
    return told_of(rows.to_pylist())


def told_of(rows: Iterable[dict[str, Any]]) -> list[Row]:
    """The same, of rows as dictionaries."""
    return sorted((tuple(sorted((name, cell(value)) for name, value in row.items())) for row in rows), key=repr)


def cell(value: Any) -> Any:
    """A value in one form: an instant is in UTC, a map or a struct is sorted, NaN is equal to itself."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc).isoformat()
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return tuple(sorted((name, cell(one)) for name, one in value.items()))
    if isinstance(value, list | tuple):
        some = tuple(cell(one) for one in value)
        # The entries of a map have no order.
        return tuple(sorted(some, key=repr)) if value and isinstance(value[0], tuple) else some
    return value


def require_same(location: str, *readers: Callable[[str], pa.Table]) -> list[Row]:
    """What all readers tell of a table, cell by cell; its log is valid."""
    assert hand.violations(location) == []
    rows = {reader.__name__: told(reader(location)) for reader in (*READERS, *readers)}
    expected = rows["by_hand"]
    assert {name: one == expected for name, one in rows.items()} == dict.fromkeys(rows, True)
    return expected
