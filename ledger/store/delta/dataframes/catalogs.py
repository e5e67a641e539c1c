"""Whether Spark's catalog outlives the session. Schemas of ledgers and deployed views are only entries of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("ledger.catalog")
FIX = "start sessions with a metastore, by the lines of conf/spark-hive.conf"


def is_forgotten(spark: SparkSession, schema: str) -> bool:
    """Whether the catalog of a schema is in this session's memory: no other process will find the schema there."""
    own = "." not in schema and spark.catalog.currentCatalog() == "spark_catalog"
    return own and spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory"


def warn_if_forgotten(spark: SparkSession, schema: str, what: str) -> None:
    """Says in the log that what was made in a schema is gone with this session, where it is."""
    if is_forgotten(spark, schema):
        log.warning("The catalog is in this session's memory: %s, in %s, will be gone with it; %s", what, schema, FIX)
