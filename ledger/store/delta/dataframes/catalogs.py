"""A check whether Spark's catalog, with the names of ledgers and views, outlives the session."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("ledger.catalog")
FIX = "start sessions with a metastore, by the lines of conf/spark-hive.conf"


def is_in_memory_only(spark: SparkSession, schema: str) -> bool:
    is_session_catalog = "." not in schema and spark.catalog.currentCatalog() == "spark_catalog"
    return is_session_catalog and spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory"


def warn_if_forgotten(spark: SparkSession, schema: str, content: str) -> None:
    """Log a warning if `content`, which is made in a schema, will vanish with the session."""
    if is_in_memory_only(spark, schema):
        log.warning(
            "The catalog is in this session's memory: %s, in %s, will be gone with it; %s", content, schema, FIX
        )
