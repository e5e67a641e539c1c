"""The choice among three writers of rows to an output table.

Spark stages a DataFrame, and delta-rs publishes it. Where delta-rs cannot or may not publish, Spark alone writes the
rows. delta-rs alone writes an Arrow table.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ledger.client.access import Access
from ledger.client.tables import (
    UnreadableByLibrary,
    is_spark,
    read_arrow_table,
    reading_by_library,
    require_batch,
    require_no_nul,
)
from ledger.delta_log.alterations import explain_forgetting
from ledger.delta_log.protocol import reason
from ledger.errors import InvalidParameterValue, LedgerError, OutputNotWritten
from ledger.output_tables.arrow_types import schema_of_rows
from ledger.output_tables.protocol import Target
from ledger.output_tables.schemas import translating_column_errors
from ledger.outputs.arrow_writer import ArrowWriter
from ledger.outputs.messages import CARRIED, Named, require_failed
from ledger.outputs.spark_writers import WHY_SPARK_DOES_NOT_WIDEN, SparkWriter, StagedWriter
from ledger.outputs.targets import (
    not_written,
    place_of,
    place_of_new,
    read_spark_table,
)
from ledger.rules.column_types import has_local_time_in_map
from ledger.rules.location import Location
from ledger.rules.output_columns import (
    IN_SCHEMA,
    NOTHING_ASKED,
    WIDEN,
    Columns,
    ColumnsAsked,
    ColumnsDiffer,
    merge_columns,
    paths_without_type,
    plan_new_columns,
    properties_of,
)
from ledger.rules.publishable import MAPPING, NOT_IN_NAMES, demands_of_new, find_odd_name, list_unapplied_demands
from ledger.store.delta.dataframes.column_casts import schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.output_tables.protocol import OutputPublishing

#: A session's settings. The first lets a write by Spark change the table's columns; the others give new tables
#: properties.
AUTO_MERGE_SETTING = "spark.databricks.delta.schema.autoMerge.enabled"
TABLE_DEFAULTS_PREFIX = "spark.databricks.delta.properties.defaults."


class Writer(Protocol):
    """Writes rows to one table.

    *Failed rows* have a value in the column of failures, if there is one. Failed rows are not written.
    """

    @property
    def columns(self) -> Mapping[str, str]:
        """The types of the rows' columns, by name."""

    def evaluated(self) -> contextlib.AbstractContextManager[None]:
        """Compute the rows once for the block: the rows that `named` reads are the rows that `write` writes."""

    def named(self, column: str, queue: str) -> Named:
        """Return which messages a column of the rows names. `queue` is the queue's id."""

    def find_named_failed(self, column: str, queue: str) -> Named:
        """Return which messages a column of the failed rows names."""

    def failed(self, column: str) -> pa.Table:
        """Return this column and the column of failures, for the failed rows."""

    def make(self, before_changing: Callable[[], None]) -> Location:
        """Return the place of the table. Make an empty table if there is none. Raises OutputNotWritten.

        Some writers also change the table's columns here, and others in `write`. Before this method makes or changes
        the table, it calls `before_changing`, and raises its LedgerErrors. SparkWriter calls it in any case.
        """

    def table_id(self, location: str) -> str:
        """Return the id of the table at a location, after `make`. Raises OutputUnreadable."""

    def write(self, location: str, application: str, metadata: Mapping[str, Any]) -> bool:
        """Write the rows in one commit, under the transaction id `application`. Raises any error.

        Earlier commits may change the table's columns. Returns False if only the table shows whether the rows are in.
        """

    def ended(self, *, written: bool) -> None:
        """Note whether the rows are in the table."""

    def make_error(self, location: str, failure: Exception) -> OutputNotWritten:
        """Return the error that says why the rows were not written: a refused value, other columns, or `failure`."""


def parse_schema_argument(schema: Any) -> ColumnsAsked:
    """Return what the argument `schema` of Claim.write (None, "widen", or an Arrow schema) asks of the table's columns.

    Raises InvalidParameterValue for any other value, and for types that Delta does not have, or that hold only nulls.
    """
    if schema is None:
        return NOTHING_ASKED
    if isinstance(schema, str) and schema == WIDEN:
        return ColumnsAsked(widen=True)
    if not hasattr(schema, "__arrow_c_schema__"):
        raise InvalidParameterValue("schema", schema, f'Must be "{WIDEN}", or a schema of Arrow (pyarrow.schema(...))')
    try:
        with reading_by_library():
            # Take a schema of pyarrow as it is: through Arrow's C interface a name would end at its first NUL.
            arrow_schema = schema if isinstance(schema, pa.Schema) else pa.schema(schema)
            require_no_nul(arrow_schema.empty_table())
            rows = read_arrow_table("schema", arrow_schema.empty_table())
        assert rows is not None
        declared = schema_of_rows(rows)
    except (UnreadableByLibrary, ColumnsDiffer) as error:
        raise InvalidParameterValue("schema", "a schema of Arrow", str(error), "Give types of Delta's.") from None
    for field in arrow_schema:
        if pa.types.is_decimal(field.type) and field.type.scale < 0:
            bound = f"It is {field.type}, and Delta has no negative scale"
            raise InvalidParameterValue("schema", field.name, bound, "Give a scale of 0 or more.")
    for column in declared["fields"]:
        for path in paths_without_type(column["name"], column["type"]):
            fix = "Give its type, or leave the column out until rows show its type."
            raise InvalidParameterValue("schema", path, "Its type has nulls alone, or nothing, inside", fix)
    return ColumnsAsked(declared=declared)


def require_declared(access: Access, table: object, schema: Any) -> None:
    """Raise InvalidParameterValue for an Arrow `schema` that gives a column another type than the existing table has.

    Tables of Spark's catalog, and tables that delta-rs cannot read, are checked only by the write.
    """
    asked = parse_schema_argument(schema)
    if asked.declared is None:
        return
    try:
        ArrowWriter(access.store.outputs, pa.schema(schema).empty_table(), table, None, asked).require_fitting()
    except OutputNotWritten as error:
        if IN_SCHEMA in error.reason:
            fix = 'If per_row asks for a schema, one claim.write of such rows with schema="widen" widens the table.'
            fix = fix if f'"{WIDEN}"' in error.reason else ""
            raise InvalidParameterValue("schema", str(table), error.reason, fix) from None
    except (LedgerError, NotImplementedError):
        return


def make_writer(
    access: Access, rows: Any, table: object, failed: str | None = None, asked: ColumnsAsked = NOTHING_ASKED
) -> Writer:
    """Return the writer of these rows to this table. Rows with a value in the column `failed` are not written.

    Raises:
        InvalidParameterValue, SparkIsNeeded: for rows or a table that cannot be written.
        OutputNotWritten: for a DataFrame that does not fit the table. Also for a table that forgets transactions, if
            delta-rs reads it here.
        UnsafeStorage: if one commit to the table could overwrite another.
        StorageFailed: if the storage cannot be reached.
    """
    outputs = access.store.outputs
    if not is_spark(rows):
        return ArrowWriter(outputs, rows, table, failed, asked)
    require_batch("rows", rows, "claim.write(batch, table)")
    require_failed(failed, rows.columns)
    rows, spark = _with_ids_as_texts(rows), rows.sparkSession
    written = schema_of(rows if failed is None else rows.drop(failed))
    place = place_of(table, spark)
    if place is None:
        # The place is certain only after Spark has made the table.
        planned = place_of_new(str(table), spark)
        if planned is not None:
            outputs.require_allowed(planned.text)
            outputs.require_safe(planned.text, f"The catalog has no table {table} yet, and Spark would make it")
        with translating_column_errors(table):
            columns = _columns_of_new(spark, written, asked)
        return SparkWriter(outputs, rows, table, failed, columns, None)
    outputs.require_allowed(place.text)
    publishing = outputs.publishing(place.text)
    if publishing is None:
        why = "Spark has to commit to it, as the ledger is opened with an engine that does not publish there"
    else:
        with translating_column_errors(place.text, partial(publishing.why_not_widened, place.text)):
            target, columns, why = _plan_publishing(publishing, spark, written, place.text, asked)
        if target is not None:
            return StagedWriter(outputs, rows, table, failed, columns, place, publishing, target, access.clock)
    outputs.require_safe(place.text, why)
    return SparkWriter(outputs, rows, table, failed, _columns_by_spark(spark, written, place.text, asked), place)


def _plan_publishing(
    publishing: OutputPublishing, spark: SparkSession, rows: Mapping[str, Any], location: str, asked: ColumnsAsked
) -> tuple[Target | None, Columns, str]:
    """Return the target, the table's columns once the rows are in, and "".

    If only Spark may commit, return None, columns not to be used, and the reason in words.
    """
    unchanged = Columns(rows)
    if _evolves(spark):
        return None, unchanged, f"Spark has to commit to it, as the session sets {AUTO_MERGE_SETTING}"
    try:
        target = publishing.look(location)
    except Exception as error:
        return None, unchanged, f"delta-rs cannot read it ({reason(error)})"
    if target is None:
        columns = _columns_of_new(spark, rows, asked)
        is_plain = not any(column.get("metadata") for column in rows["fields"]) and not _sets_defaults(spark)
        is_plain &= not any(has_local_time_in_map(column["type"]) for column in columns.schema["fields"])
        demands = demands_of_new(json.dumps(columns.schema), properties_of(columns)) if is_plain else None
        why = "Spark has to make it, with the defaults of its session, or for columns that delta-rs does not make"
        return (None, unchanged, why) if demands is None else (Target("", demands), columns, "")
    if forgetful := explain_forgetting(target.demands.properties):
        raise OutputNotWritten(location, forgetful)
    why = ", ".join(list_unapplied_demands(target.demands))
    if why:
        return None, unchanged, f"Spark has to commit to it, as it has {why}"
    columns = merge_columns(json.loads(target.demands.schema), rows, target.demands.properties, asked)
    _require_names(_list_added_columns(columns), target.demands.properties.get(MAPPING))
    inside = [name for name in columns.added if "." in name]
    if inside:
        return None, unchanged, f"Spark has to commit to it, as it adds {inside[0]} inside a column"
    return target, columns, ""


def _columns_by_spark(spark: SparkSession, rows: Mapping[str, Any], location: str, asked: ColumnsAsked) -> Columns:
    with not_written(location), translating_column_errors(location, lambda: WHY_SPARK_DOES_NOT_WIDEN):
        current = read_spark_table(spark, location)
        if current is None:
            return _columns_of_new(spark, rows, asked)
        columns = merge_columns(current[0], rows, current[1], replace(asked, add=asked.add or _evolves(spark)))
        _require_names(_list_added_columns(columns), current[1].get(MAPPING))
        if columns.retyped:
            raise ColumnsDiffer(
                f"the columns {', '.join(columns.retyped)} are not widened here, as Spark has to commit to the table: "
                'write it anew, spark.read.format("delta").load(...).withColumn(...).write.format("delta")'
                '.mode("overwrite").option("overwriteSchema", True).save(...)'
            )
    return columns


def _columns_of_new(spark: SparkSession, rows: Mapping[str, Any], asked: ColumnsAsked) -> Columns:
    columns = plan_new_columns(rows, asked)
    _require_names(columns.schema, spark.conf.get(f"{TABLE_DEFAULTS_PREFIX}{MAPPING.removeprefix('delta.')}", None))
    return columns


def _list_added_columns(columns: Columns) -> Mapping[str, Any]:
    """Return a schema of the added columns, only for a check of their names."""
    whole = {column["name"]: column["type"] for column in columns.schema["fields"]}
    names = [name if name in whole else name.rpartition(".")[2] for name in columns.added]
    return {"fields": [{"name": name, "type": whole.get(name, "string")} for name in names]}


def _require_names(schema: Mapping[str, Any], mapping: str | None) -> None:
    """Refuse a column name that Spark refuses without column mapping. `mapping` is the table's mode, if any."""
    odd = find_odd_name(schema) if mapping in (None, "none") else None
    if odd is not None:
        raise ColumnsDiffer(
            f"the column {odd!r} has one of the characters {NOT_IN_NAMES!r} in its name. Spark adds no such column to "
            f"a table without column mapping: rename it (withColumnRenamed), or make the table with {MAPPING} = 'name'"
        )


def _evolves(spark: SparkSession) -> bool:
    return str(spark.conf.get(AUTO_MERGE_SETTING, "false")).lower() == "true"


def _with_ids_as_texts(rows: DataFrame) -> DataFrame:
    for name, kind in rows.dtypes:
        if name in CARRIED and kind == "void":
            rows = rows.withColumn(name, rows[name].cast("string"))
    return rows


def _sets_defaults(spark: SparkSession) -> bool:
    return not spark.sql("SET").where(f"key LIKE '{TABLE_DEFAULTS_PREFIX}%'").isEmpty()
