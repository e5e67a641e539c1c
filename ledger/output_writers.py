"""How the rows of a claim get into an output table: staged by Spark and published by delta-rs, by Spark alone, or as an
Arrow table by delta-rs alone."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ledger.access import Access
from ledger.output_arrow import ArrowWriter
from ledger.output_dataframes import SparkWriter, StagedWriter
from ledger.output_messages import require_failed
from ledger.rules.location import Location
from ledger.rules.publishable import demands_of_new, not_applied
from ledger.store.delta.dataframes.named_messages import Named
from ledger.store.delta.dataframes.output_target import (
    place_of,
    place_of_new,
)
from ledger.store.delta.engines.protocol import Target, reason
from ledger.tabular import is_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.store.delta.engines.protocol import OutputPublishing

#: Settings of a session by which a write changes the table's columns, or a new table is another than its rows ask for.
EVOLVES = "spark.databricks.delta.schema.autoMerge.enabled"
OF_NEW = "spark.databricks.delta.properties.defaults."


class Writer(Protocol):
    """Writes rows to one table."""

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns of the rows and their types."""

    def evaluated(self) -> contextlib.AbstractContextManager[None]:
        """Computes the rows, once: those that are looked at are those that are written."""

    def named(self, column: str, queue: str) -> Named:
        """Which messages a column of the rows names."""

    def named_failed(self, column: str, queue: str) -> Named:
        """The same of the rows with a value in the column that says that their message failed: they are not written."""

    def failed(self, column: str) -> pa.Table:
        """This column of theirs, and what it says."""

    def make(self) -> Location:
        """Where the table lies; makes it, empty, when there is none. Raises OutputNotWritten."""

    def table_id(self, location: str) -> str:
        """The id of the table there. Raises OutputUnreadable."""

    def write(self, location: str, application: str, metadata: Mapping[str, Any]) -> bool:
        """One commit under the transaction; raises whatever goes wrong. True: it is certain that the rows are in."""

    def ended(self, *, written: bool) -> None:
        """Tells it what the table said."""

    def mismatch(self, location: str, failure: Exception) -> str:
        """In words, where the table has other columns than the rows, when that is what went wrong."""


def writer_of(access: Access, rows: Any, table: object, failed: str | None = None) -> Writer:
    """What writes these rows to this table, but for those with a value in the column `failed`.

    Raises InvalidParameterValue and SparkIsNeeded for what cannot be written, UnsafeStorage where Spark would have to
    commit and another driver could write over that: before anything is made.
    """
    outputs = access.store.outputs
    if not is_spark(rows):
        return ArrowWriter(outputs, rows, table, failed)
    require_failed(failed, rows.columns)
    spark = rows.sparkSession
    place = place_of(table, spark)
    if place is None:
        # A table that the catalog has not. Spark makes it, and only then it surely has a place.
        planned = place_of_new(str(table), spark)
        if planned is not None:
            outputs.require_allowed(planned.text)
            outputs.require_safe(planned.text, f"The catalog has no table {table} yet, and Spark would make it")
        return SparkWriter(outputs, rows, table, failed, None)
    outputs.require_allowed(place.text)
    publishing = outputs.publishing(place.text)
    if publishing is None:
        why = "Spark has to commit to it, as the ledger is opened with an engine that does not publish there"
    else:
        found, why = _to_publish(publishing, rows if failed is None else rows.drop(failed), place.text)
        if found is not None:
            return StagedWriter(outputs, rows, table, failed, place, publishing, found, access.clock)
    outputs.require_safe(place.text, why)
    return SparkWriter(outputs, rows, table, failed, place)


def _to_publish(publishing: OutputPublishing, rows: DataFrame, location: str) -> tuple[Target | None, str]:
    """What the table asks for, or will when it is made, if files may be published to it; else why not."""
    spark = rows.sparkSession
    if str(spark.conf.get(EVOLVES, "false")).lower() == "true":
        return None, f"Spark has to commit to it, as the session sets {EVOLVES}"
    try:
        found = publishing.look(location)
    except Exception as error:
        return None, f"delta-rs cannot read it ({reason(error)})"
    if found is None:
        demands = None if _sets_defaults(spark) else demands_of_new(rows.schema.json())
        why = "Spark has to make it, with the defaults of its session, or for columns that delta-rs does not make"
        return (None, why) if demands is None else (Target("", demands), "")
    why = ", ".join(not_applied(found.demands))
    return (None, f"Spark has to commit to it, as it has {why}") if why else (found, "")


def _sets_defaults(spark: SparkSession) -> bool:
    return not spark.sql("SET").where(f"key LIKE '{OF_NEW}%'").isEmpty()
