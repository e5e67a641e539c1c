"""The Delta tables that work is written to: each message's rows once, whoever brings them and however often."""

from __future__ import annotations

import json
import random
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
ATTEMPTS = 20
Answer = TypeVar("Answer")


class Results:
    """A Delta table of results.

    Why each message's rows are there exactly once: a worker writes, then acknowledges. If it dies in between, its
    lease runs out and another worker does the same messages again; and a worker that slept through its deadline may
    write after the one that took over. Neither the receipt nor a transaction id tells these from each other, as every
    worker has a receipt of its own. So the rule is about the message: all its rows enter in one MERGE that inserts
    only messages that the table does not have. Delta runs such MERGEs as if one after the other (it is Serializable,
    a MERGE reads the whole key), so of two writers of a message the second inserts nothing.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark, self._path = spark, path
        self._lock = _lock(path)

    def add(self, rows: DataFrame, metadata: dict[str, Any]) -> int:
        """Inserts the rows of messages that are not there yet, in one commit; answers how many rows."""
        rows.createOrReplaceTempView("brought")
        statement = (
            f"MERGE INTO delta.`{self._path}` AS stored USING brought ON stored.message_id = brought.message_id "
            "WHEN NOT MATCHED THEN INSERT *"
        )

        def commit() -> int:
            if not self._exists():
                rows.limit(0).write.format("delta").mode("append").save(self._path)
            with _user_metadata(self._spark, metadata):
                return self._spark.sql(statement).first().num_affected_rows

        # Safe to repeat even if the commit landed and only its answer was lost.
        return self._committed(commit)

    def append_once(self, rows: DataFrame, application: str, version: int) -> None:
        """Appends rows; done again under the same name and version it does nothing (Delta's transaction id)."""
        write = rows.write.format("delta").mode("append").option("txnAppId", application).option("txnVersion", version)
        self._committed(lambda: write.save(self._path))

    def _committed(self, commit: Callable[[], Answer]) -> Answer:
        from ledger.store.delta.spark_engine import CONFLICTS

        for attempt in range(1, ATTEMPTS):
            try:
                with self._lock.exclusive():
                    return commit()
            except CONFLICTS:
                time.sleep(random.uniform(0, min(5.0, 0.1 * 2**attempt)))
        with self._lock.exclusive():
            return commit()

    def _exists(self) -> bool:
        from pyspark.errors import AnalysisException

        try:
            return bool(self._spark.read.format("delta").load(self._path).columns)
        except AnalysisException:
            return False


@contextmanager
def _user_metadata(spark: SparkSession, metadata: dict[str, Any]) -> Iterator[None]:
    """Commits say whose they are: DESCRIBE HISTORY shows it as userMetadata."""
    spark.conf.set(USER_METADATA, json.dumps(metadata))
    try:
        yield
    finally:
        spark.conf.unset(USER_METADATA)


def _lock(path: str) -> Any:
    """On a local path Spark's commits are not safe between processes; there a file lock keeps the writers apart."""
    from ledger.store.delta.locks import NoLock, TableLock

    local = path.removeprefix("file://").removeprefix("file:")
    if "://" in local:
        return NoLock()
    return TableLock(Path(local).absolute().parent / "_locks", Path(local).name)
