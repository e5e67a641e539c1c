"""The analyst views: SQL files, bound to the tables of a ledger, now or as of a version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

import pyarrow as pa

from ledger.errors import InvalidParameterValue
from ledger.rules.state import Status
from ledger.store.delta.dataframes.catalogs import warn_if_forgotten
from ledger.store.delta.dataframes.columns import (
    BITS_OF_BLOCK,
    BLOCK_SHIFT,
    BLOCKS,
    EXPIRES_AT,
    SHOWN_COLUMNS,
    STATUS,
    WORD,
    instant_literal,
    is_member,
)
from ledger.store.delta.engines.protocol import Commit, Tables
from ledger.store.delta.engines.spark_tables import arrow_frame
from ledger.store.delta.model.tables import BITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEWS = ("messages", "in_flight", "queue_depth", "receipts")
#: The states that queue_depth has a column of.
DEPTHS = (Status.VISIBLE, Status.DELAYED, Status.LOCKED, Status.IN_FLIGHT, Status.DELETED, Status.EXPIRED)


def view_statement(name: str, tables: Mapping[str, str], now: str) -> str:
    """The SELECT of a view over tables given by their names in SQL, at the instant `now` (SQL)."""
    if name not in VIEWS:
        raise InvalidParameterValue("view", name, f"Must be one of {', '.join(VIEWS)}")
    rules = {"status": STATUS.format(now=now), "expires_at": EXPIRES_AT, "block_shift": BLOCK_SHIFT}
    rules |= {"blocks": BLOCKS, "word": WORD, "bits": BITS_OF_BLOCK, "is_member": is_member("stored.seq", "recorded.")}
    rules["fields"] = ",\n    ".join(SHOWN_COLUMNS)
    known = {**tables, **rules, "now": now}
    if name == "queue_depth":
        known["every_message"] = _text("messages").format(**known)
    return _text(name).format(**known)


def _text(name: str) -> str:
    return (files(__package__) / "views" / f"{name}.sql").read_text()


def open_view(
    spark: SparkSession, engine: Tables, locations: Mapping[str, str], name: str, now: int, version: int | None
) -> DataFrame:
    """A view as a DataFrame: at `now`, or as it was at a version of the visibility table."""
    tables = {table: f"delta.`{path}`" for table, path in locations.items()}
    if version is None:
        tables["visibility"] = _with_bits(spark, tables["visibility"])
        return spark.sql(view_statement(name, tables, instant_literal(now)))
    commits = engine.history("visibility", -1)
    then = next((commit for commit in commits if commit.version == version and type(version) is int), None)
    if then is None:
        raise InvalidParameterValue(
            "version",
            version,
            f"The visibility table has the versions from {commits[0].version if commits else 0} "
            f"to {engine.version('visibility')}",
            "Those of the last days can be read, for as long as the settings deleted_file_retention and log_retention "
            "of upkeep say.",
        )
    tables["visibility"] = _with_bits(spark, f"{tables['visibility']} VERSION AS OF {version}")
    for table in ("messages", "queues"):
        tables[table] += f" VERSION AS OF {_version_then(engine, table, then, commits)}"
    # Filled later than the commits that it tells of: its own versions say nothing.
    tables["receipts"] = f"(SELECT * FROM {tables['receipts']} WHERE version <= {version})"
    return spark.sql(view_statement(name, tables, instant_literal(then.metadata.get("at", then.timestamp))))


def queue_depth(spark: SparkSession, counted: Mapping[str, Mapping[Status, int]]) -> DataFrame:
    """The view queue_depth of what was counted of each queue, by its name."""
    columns = {"queue": pa.array(list(counted), pa.string())}
    for status in DEPTHS:
        counts = [by_status.get(status, 0) for by_status in counted.values()]
        columns[status.value.replace(" ", "_")] = pa.array(counts, pa.int64())
    return arrow_frame(spark, pa.table(columns))


def _with_bits(spark: SparkSession, visibility: str) -> str:
    """The table `visibility` in SQL, with the column `bits` also where an earlier release has written it."""
    if BITS in spark.sql(f"SELECT * FROM {visibility}").columns:
        return visibility
    return f"(SELECT *, CAST(NULL AS ARRAY<BIGINT>) AS {BITS} FROM {visibility})"


def _version_then(engine: Tables, table: str, then: Commit, commits: Sequence[Commit]) -> int:
    """Which version of a table a commit to `visibility` goes with: the one that its decision read, if it says so.

    If it read none: the newest one by the timestamps of the commits, which clocks of several machines write, but none
    older than what an earlier decision read.
    """
    noted: int | None = then.metadata.get("read", {}).get(table)
    if noted is not None:
        return noted
    earlier = [commit.metadata.get("read", {}).get(table) for commit in commits if commit.version < then.version]
    history = engine.history(table, -1)
    by_time = [commit.version for commit in history if commit.timestamp <= then.timestamp]
    return max([*by_time, *(version for version in earlier if version is not None)], default=history[0].version)


def deploy_views(spark: SparkSession, locations: Mapping[str, str], schema: str, prefix: str = "") -> list[str]:
    """Creates or replaces the views in a schema of the catalog; returns their names."""
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    warn_if_forgotten(spark, schema, "the views")
    tables = {table: f"delta.`{path}`" for table, path in locations.items()}
    names = [f"{schema}.{prefix}{name}" for name in VIEWS]
    for name, full_name in zip(VIEWS, names):
        spark.sql(f"CREATE OR REPLACE VIEW {full_name} AS {view_statement(name, tables, 'current_timestamp()')}")
    return names
