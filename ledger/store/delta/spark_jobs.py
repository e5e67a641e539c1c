"""Names and tags of a verb's Spark jobs, for the UI, Spark's history and `interruptTag`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from ledger.delta_log.spark_sessions import has_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = "spark.job.description"


@contextmanager
def named_jobs(spark: SparkSession, verb: str, queue: str | None, receipt_id: str | None = None) -> Iterator[None]:
    """Mark the Spark jobs of the context by tags, and by a description after the user's own.

    The tags are `ledger`, `ledger.verb=…`, and, if given, `ledger.queue=…` and `ledger.receipt=…`. A job within another
    job loses the session's tags, so the Spark context gets them, too, except on Spark Connect.
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
