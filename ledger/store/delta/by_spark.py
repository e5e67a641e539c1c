"""The store's engine on a Spark session, without delta-rs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ledger.delta_log.by_spark import SparkTables
from ledger.delta_log.failures import advise_nothing
from ledger.errors import StorageFailed
from ledger.store.delta.commit_metadata import ledger_metadata_in, verb_of
from ledger.store.delta.engine import LedgerTables
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.spark_jobs import jobs_of_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkEngine(SparkTables, LedgerTables):
    """Engine on a Spark session. Threads may share the engine."""

    def __init__(
        self,
        spark: SparkSession,
        locations: Mapping[str, str],
        *,
        sync: bool = True,
        by_statement: bool = False,
        advise: Callable[[StorageFailed], str] = advise_nothing,
    ) -> None:
        """`sync`: commits survive a power cut on a local path, and direct commits on HDFS. For the others see
        SparkTables."""
        super().__init__(
            TABLES,
            spark,
            locations,
            sync=sync,
            by_statement=by_statement,
            read_metadata=ledger_metadata_in,
            purpose_of=verb_of,
            name_jobs=jobs_of_commit,
            advise=advise,
        )

    def publishing(self) -> None:
        """See Engine."""
