"""Locations of a ledger's tables in a schema of Spark's catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.delta_log.spark_sessions import create_table
from ledger.errors import LedgerDoesNotExist
from ledger.rules.location import of_spark
from ledger.store.delta.dataframes.catalogs import FIX, is_in_memory_only, warn_if_forgotten
from ledger.store.delta.model.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def schema_locations(spark: SparkSession, schema: str, create: bool = True) -> dict[str, str]:
    """Return the locations of a ledger's tables in a catalog schema. With `create`, make the schema and missing tables.

    Without it, raises LedgerDoesNotExist if the schema or a table does not exist.
    """
    if not create:
        _require_schema(spark, schema)
    else:
        if not spark.catalog.databaseExists(schema):
            warn_if_forgotten(spark, schema, "the names of a new ledger")
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    locations, scheme = {}, spark.catalog.getDatabase(schema).locationUri.partition(":")[0]
    for table in TABLES:
        if create:
            create_table(spark, f"{schema}.{table}", TABLES[table], scheme)
        (detail,) = spark.sql(f"DESCRIBE DETAIL {schema}.{table}").select("location").collect()
        locations[table] = of_spark(detail.location).text
    return locations


def _require_schema(spark: SparkSession, schema: str) -> None:
    if not spark.catalog.databaseExists(schema):
        forgotten = f", and is in this session's memory alone: {FIX}" if is_in_memory_only(spark, schema) else ""
        raise LedgerDoesNotExist(f"schema:{schema}", f"the catalog has no such schema{forgotten}")
    missing = [table for table in TABLES if not spark.catalog.tableExists(f"{schema}.{table}")]
    if missing:
        raise LedgerDoesNotExist(f"schema:{schema}", f"the schema has no {', '.join(missing)}")
