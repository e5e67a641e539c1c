"""The output table that a user names: its place and columns, and how Spark makes it."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ledger.delta_log.alterations import explain_forgetting
from ledger.delta_log.protocol import reason
from ledger.delta_log.spark_sessions import warn_if_forgotten
from ledger.delta_log.statements import literal
from ledger.errors import InvalidParameterValue, LedgerError, OutputNotWritten, OutputUnreadable, SparkIsNeeded
from ledger.place import locate_here
from ledger.rules.location import (
    S3,
    SAFE_FOR_BOTH,
    SAFE_FOR_SPARK,
    Location,
    explain_unknown_scheme,
    is_name,
    name_for_delta_rs,
    name_for_spark,
    of_spark,
    recorded,
)
from ledger.rules.publishable import FOLDER
from ledger.store.delta.commit.locks import releasing, table_lock

#: Parts of errors of Spark and delta-rs about a write whose columns are not the table's.
OTHER_COLUMNS = ("DELTA_METADATA_MISMATCH", "DELTA_FAILED_TO_MERGE_FIELDS", "SchemaMismatch", "Cast error")
NO_TABLE = ("DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE", "DELTA_PATH_DOES_NOT_EXIST", "PATH_NOT_FOUND")
_PARTS = re.compile(r"\w+|`[^`]+`")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession


@overload
def place_of(table: object, spark: None) -> Location: ...
@overload
def place_of(table: object, spark: SparkSession | None) -> Location | None: ...
def place_of(table: object, spark: SparkSession | None) -> Location | None:
    """Return the place of the table; None if the catalog has no such table yet.

    A path object is a path. A text with a / or a colon is a path or a URI. Any other text is the name of a table in
    Spark's catalog.

    Raises:
        InvalidParameterValue: for a value of no such form, an unknown scheme, and something that is no Delta table.
        SparkIsNeeded: if `spark` is None, for a name, and for a place to which only Spark writes.
    """
    if isinstance(table, os.PathLike) or (isinstance(table, str) and ("/" in table or ":" in table)):
        place = _normalize_place(locate_here("table", table))
        if place.is_local:
            _require_delta_or_nothing(table, Path(place.text))
        elif spark is None and place.scheme not in (*SAFE_FOR_BOTH, *S3):
            if place.scheme not in SAFE_FOR_SPARK:
                raise InvalidParameterValue("table", table, *explain_unknown_scheme(place.scheme))
            raise SparkIsNeeded(f"Only Spark writes to {place.scheme}: write a DataFrame, not an Arrow table")
        return place
    if not is_name(table):
        raise InvalidParameterValue(
            "table",
            table,
            "Must be a path (with a / in it), a URI, or the name of a table in Spark's catalog",
            "A folder here is ./NAME.",
        )
    if spark is None:
        problem = f"{table}, without a /, names a table of Spark's catalog, which takes DataFrames alone"
        raise SparkIsNeeded(f"{problem}. A folder here is ./{table}")
    return _place_in_catalog(table, spark)


def place_of_new(table: str, spark: SparkSession) -> Location | None:
    """Return where Spark would make a new table of this name; None if that is unknown."""
    *schema, name = _PARTS.findall(table)
    try:
        within = ".".join(schema) or f"`{spark.catalog.currentDatabase()}`"
        schema_info = {row.info_name: row.info_value for row in spark.sql(f"DESCRIBE SCHEMA {within}").collect()}
        return _normalize_place(of_spark(schema_info["Location"])).below(name.strip("`"))
    except Exception:
        return None


@releasing
def make_empty_table(
    table: object, place: Location | None, rows: DataFrame, properties: Mapping[str, str] | None = None
) -> Location:
    """Make an empty table with the columns of `rows` if there is none. Return its place.

    The write's transaction id has the table's id in it, so the table must exist first. An existing table gets the
    `properties`, too.
    """
    from ledger.delta_log.spark_commits import CONFLICTS

    spark, nothing = rows.sparkSession, rows.limit(0).write.format("delta").mode("ignore")
    # Two writers may find no table at the same time. One of them gets a conflict.
    with not_written(table), contextlib.suppress(*CONFLICTS):
        if place is None:
            _make_in_catalog(str(table), nothing, spark)
            warn_if_forgotten(spark, str(table).rpartition(".")[0] or "default", f"the output table {table}")
        else:
            with table_lock(place.text).exclusive():
                nothing.save(name_for_spark(place.text))
    made = place or _place_in_catalog(str(table), spark)
    if made is None:
        raise OutputNotWritten(table, "it was made, and Spark's catalog no longer has it")
    if properties:
        with not_written(table):
            assignments = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
            spark.sql(f"ALTER TABLE delta.`{name_for_spark(made.text)}` SET TBLPROPERTIES ({assignments})")
    return made


def read_spark_table(spark: SparkSession, location: str) -> tuple[dict[str, Any], Mapping[str, str]] | None:
    """Return a Delta table's columns, as its log writes them, and its properties; None if there is no table."""
    table = f"delta.`{name_for_spark(location)}`"
    try:
        (detail,) = spark.sql(f"DESCRIBE DETAIL {table}").select("properties").collect()
    except Exception as error:
        if any(part in str(error) for part in NO_TABLE):
            return None
        raise
    return json.loads(spark.table(table).schema.json()), dict(detail.properties)


def read_partitions(spark: SparkSession, location: str) -> tuple[str, ...]:
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{name_for_spark(location)}`").select("partitionColumns").collect()
    return tuple(detail.partitionColumns)


def require_transactions_kept(table: object, place: Location, spark: SparkSession) -> None:
    """Raise OutputNotWritten for a table that forgets transactions.

    Such a table could later deny a write whose rows are in. Then the rows would be written once more.
    """
    with not_written(table):
        (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{name_for_spark(place.text)}`").select("properties").collect()
    if why := explain_forgetting(detail.properties):
        raise OutputNotWritten(table, why)


@contextlib.contextmanager
def not_written(table: object) -> Iterator[None]:
    """Turn errors before a write into OutputNotWritten, but of the ledger's own errors only OutputUnreadable."""
    try:
        yield
    except OutputUnreadable as error:
        raise OutputNotWritten(table, error.reason) from error
    except LedgerError:
        raise
    except Exception as error:
        raise OutputNotWritten(table, reason(error)) from error


def restate_refusal(location: str, failure: Exception) -> OutputNotWritten | None:
    """Return a copy of an OutputNotWritten, to be raised from it; None for other failures."""
    return (
        OutputNotWritten(location, failure.reason, place=failure.place) if type(failure) is OutputNotWritten else None
    )


def describe_different_columns(rows: Mapping[str, str], table: Mapping[str, str], *, needs_all: bool) -> str:
    """Return in words how rows do not fit a table; empty if they fit. `needs_all`: an absent column does not fit."""
    table_columns = {name.lower(): kind for name, kind in table.items()}
    problems = [
        f"the table has no column {name} ({kind})" for name, kind in rows.items() if name.lower() not in table_columns
    ]
    for name, kind in rows.items():
        table_kind = table_columns.pop(name.lower(), kind)
        if _drop_variant(table_kind) != _drop_variant(kind):
            problems.append(f"column {name} is {kind}, and {table_kind} in the table")
    problems += [f"the rows have no column {name}" for name in table_columns if needs_all]
    return f"; {', '.join(problems)}" if problems else ""


def is_about_columns(failure: Exception) -> bool:
    return any(part in f"{type(failure).__name__}: {failure}" for part in OTHER_COLUMNS)


def _drop_variant(kind: str) -> str:
    """Drop `large_` and `_view`: to Delta these variants are one type."""
    return kind.removeprefix("large_").removesuffix("_view")


def _make_in_catalog(table: str, nothing: DataFrameWriter, spark: SparkSession) -> None:
    try:
        nothing.saveAsTable(table)
    except Exception:
        if _place_in_catalog(table, spark) is None:
            raise


def _place_in_catalog(table: str, spark: SparkSession) -> Location | None:
    try:
        if not spark.catalog.tableExists(table):
            return None
        entry = spark.catalog.getTable(table)
        if entry.isTemporary or entry.tableType == "VIEW":
            raise InvalidParameterValue("table", table, "It is a view, which has no rows of its own", "Name its table.")
        (detail,) = spark.sql(f"DESCRIBE DETAIL {table}").select("format", "location").collect()
    except InvalidParameterValue:
        raise
    except Exception as error:
        raise InvalidParameterValue(
            "table", table, f"Spark's catalog does not say where it is ({reason(error)})"
        ) from error
    if detail.format != "delta":
        raise InvalidParameterValue(
            "table", table, f"It is a table of the format {detail.format} and must be delta", "Name another one."
        )
    return _normalize_place(of_spark(detail.location))


def _normalize_place(place: Location) -> Location:
    return recorded(name_for_delta_rs(place.text))


def _require_delta_or_nothing(table: object, folder: Path) -> None:
    """Refuse a file, an unreadable folder, and a folder with visible files that is no Delta table."""
    try:
        is_delta = (folder / "_delta_log").is_dir()
        # FOLDER is not counted: a write that stages rows for a new table makes FOLDER before the table.
        names = [] if is_delta else [entry.name for entry in folder.iterdir()]
        others = [name for name in names if name[0] not in "._" and name != FOLDER]
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidParameterValue("table", table, f"It is no folder that can be read ({error.strerror})") from error
    if others:
        raise InvalidParameterValue(
            "table", table, f"The folder is no Delta table and has {sorted(others)[0]!r} in it", "Name an empty one."
        )
