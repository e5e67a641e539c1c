"""What Spark makes for us: tables, and DataFrames of Arrow's rows; and the JVM behind it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledger.delta_log.spec import TableSpec
from ledger.delta_log.sql import literal
from ledger.rules.location import FILE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def arrow_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """A DataFrame of an Arrow table's rows, all of them: PySpark 4.2 loses those behind an empty chunk."""
    return spark.createDataFrame(rows.combine_chunks())


@contextmanager
def temporary_view(spark: SparkSession, rows: pa.Table) -> Iterator[str]:
    """A temporary view of an Arrow table's rows, there within the context: its name in SQL."""
    name = f"ledger_edits_{secrets.token_hex(4)}"
    arrow_frame(spark, rows).createOrReplaceTempView(name)
    try:
        yield name
    finally:
        spark.catalog.dropTempView(name)


def jvm_of(spark: SparkSession) -> Any:
    """The JVM that a session runs on. Nothing says of what types its classes are."""
    return spark._jvm


def create_table(spark: SparkSession, name: str, known: TableSpec, scheme: str = FILE) -> None:
    """CREATE TABLE IF NOT EXISTS for a table under a name in SQL, on the storage of a scheme."""
    from pyspark.sql.pandas.types import from_arrow_schema

    layout = known.layout(scheme)
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in from_arrow_schema(known.schema))
    partitions = f"PARTITIONED BY ({', '.join(known.partitions)})" if known.partitions else ""
    properties = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in layout.properties.items())
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING delta {partitions} "
        f"COMMENT {literal(layout.description or '')} TBLPROPERTIES ({properties})"
    )
