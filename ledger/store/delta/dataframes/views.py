"""The analysts' views as DataFrames, and as views of Spark's catalog."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ledger.clock import Clock
from ledger.delta_log.spark_sessions import arrow_frame, warn_if_forgotten
from ledger.delta_log.statements import literal
from ledger.errors import InvalidParameterValue
from ledger.rules.location import is_name
from ledger.store.delta.dataframes.columns import instant_literal
from ledger.store.delta.engine import Tables
from ledger.store.delta.verbs.receipts import find_unfilled
from ledger.store.delta.views import statements
from ledger.store.delta.views.past import PastMoment, find_moment
from ledger.store.delta.views.statements import VIEWS, comments_of, tables_of, view_statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.store.delta.verbs.store import DeltaStore


def open_view(
    spark: SparkSession,
    engine: Tables,
    locations: Mapping[str, str],
    name: str,
    now: int,
    version: int | None = None,
    timestamp: datetime | str | None = None,
) -> DataFrame:
    """Return a view as a DataFrame: at `now`, at a version of the table `visibility`, or at an earlier instant."""
    table_names = tables_of(name)
    at = find_moment(engine, now, version, timestamp)
    tables, pending = _tables(spark, locations, at), dict[str, Any]()
    if "receipts" in table_names:
        filled, rows = find_unfilled(engine)
        if rows.num_rows:
            columns = ", ".join(column for column in rows.column_names if column != "day")
            all_rows = f"SELECT {columns} FROM {tables['receipts']} WHERE version <= {filled}"
            all_rows += f" UNION ALL SELECT {columns} FROM {{pending}}"
            tables["receipts"] = _until(f"({all_rows})", at)
            pending = {"pending": arrow_frame(spark, rows)}
    return spark.sql(view_statement(name, tables, instant_literal(at.now)), **pending)


def queue_depth(spark: SparkSession, store: DeltaStore, clock: Clock) -> DataFrame:
    return arrow_frame(spark, statements.queue_depth(store.all_counts(clock)))


def deploy_views(
    spark: SparkSession, engine: Tables, locations: Mapping[str, str], schema: str, prefix: str, now: int,
    version: int | None, timestamp: datetime | str | None,
) -> list[str]:  # fmt: skip
    """Create or replace the views in a schema of the catalog, and return their names.

    Without `version` and `timestamp`, a view shows the moment of the query, with the receipts filled in by that moment.
    Raises InvalidParameterValue for an invalid schema or prefix, or a table with a view's name.
    """
    if not is_name(schema):
        raise InvalidParameterValue(
            "schema", schema, "Must be a valid schema name of Spark's catalog", "Quote it: `a-b`."
        )
    if not isinstance(prefix, str) or not re.fullmatch(r"[A-Za-z0-9_]*", prefix):
        raise InvalidParameterValue("prefix", prefix, "Must be letters, digits and _", "Leave it out for none.")
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    warn_if_forgotten(spark, schema, "the views")
    at = find_moment(engine, now, version, timestamp)
    tables = _tables(spark, locations, at)
    instant = "current_timestamp()" if at.versions is None else instant_literal(at.now)
    names = [f"{schema}.{prefix}{name}" for name in VIEWS]
    for name, full_name in zip(VIEWS, names):
        comments = comments_of(name)
        columns = ", ".join(f"{column} COMMENT {literal(text)}" for column, text in comments.columns.items())
        statement = view_statement(name, tables, instant)
        try:
            spark.sql(f"CREATE OR REPLACE VIEW {full_name} ({columns}) COMMENT {literal(comments.view)} AS {statement}")
        except Exception as error:
            if "EXPECT_VIEW_NOT_TABLE" not in str(error):
                raise
            bound = f"There is a table {full_name}, which a view cannot take the place of"
            raise InvalidParameterValue("schema", schema, bound, "Name another schema, or give a prefix.") from error
    return names


def _tables(spark: SparkSession, locations: Mapping[str, str], at: PastMoment) -> dict[str, str]:
    tables = {table: f"delta.`{path}`" for table, path in locations.items()}
    for table, version in (at.versions or {}).items():
        tables[table] += f" VERSION AS OF {version}"
    tables["receipts"] = _until(tables["receipts"], at)
    return tables


def _until(receipts: str, at: PastMoment) -> str:
    return receipts if at.until is None else f"(SELECT * FROM {receipts} WHERE version <= {at.until})"
