"""The store's engine on a Spark session, without delta-rs, and the names of a verb's Spark jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from ledger.delta_log.by_spark import SparkTables
from ledger.delta_log.failures import advise_nothing
from ledger.delta_log.spark_sessions import has_jvm
from ledger.errors import StorageFailed
from ledger.store.delta.engine import LedgerTables, ledger_metadata_in, verb_of
from ledger.store.delta.model.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = "spark.job.description"


@contextmanager
def named_jobs(spark: SparkSession, verb: str, queue: str | None, receipt_id: str | None = None) -> Iterator[None]:
    """Mark the Spark jobs of the context by tags, and except on Spark Connect, by a description after the user's own.

    The tags are `ledger`, `ledger.verb=…`, and, if given, `ledger.queue=…` and `ledger.receipt=…`. A job within another
    job loses the session's tags, so the Spark context, if there is one, gets them, too.
    """
    tag_values = {"verb": verb, "queue": queue, "receipt": receipt_id}
    all_tags = {"ledger", *(f"ledger.{name}={value}" for name, value in tag_values.items() if value)}
    tags = all_tags - spark.getTags()
    context: Any = spark.sparkContext if has_jvm(spark) else None
    of_context: set[str] = all_tags - set(context.getJobTags()) if context else set()
    before: Any = context and context.getLocalProperty(DESCRIPTION)
    if context:
        of_queue, of_receipt = f" on {queue}" if queue else "", f", receipt {receipt_id}" if receipt_id else ""
        description = f"ledger: {verb}{of_queue}{of_receipt}"
        context.setLocalProperty(DESCRIPTION, f"{before} / {description}" if before else description)
    for tag in tags:
        spark.addTag(tag)
    for tag in of_context:
        context.addJobTag(tag)
    try:
        yield
    finally:
        for tag in tags:
            spark.removeTag(tag)
        for tag in of_context:
            context.removeJobTag(tag)
        if context:
            context.setLocalProperty(DESCRIPTION, before)


def jobs_of_commit(spark: SparkSession, metadata: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Mark the Spark jobs of a commit. No verb means upkeep."""
    return named_jobs(spark, metadata.get("verb", "upkeep"), metadata.get("queue"))


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
        """`sync`: commits survive a power cut on a local path, and direct commits on HDFS. For the other arguments see
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
