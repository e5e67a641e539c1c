"""The hand-rolled control table: one row per message in a Delta table, claimed by a Spark MERGE on the id."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bodies import bodies
from folders import linked_copy, remove
from timing import Cell, OverBudget, timed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLAIM = """
    MERGE INTO delta.`{table}` t
    USING (SELECT id FROM delta.`{table}` WHERE visible_at <= current_timestamp() {limit}) s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET
        visible_at = current_timestamp() + INTERVAL 1 HOUR, receipt = '{receipt}', receive_count = t.receive_count + 1
"""
EXTEND = """
    UPDATE delta.`{table}` SET visible_at = current_timestamp() + INTERVAL 2 HOURS WHERE receipt = '{receipt}'
"""
RELEASE = "UPDATE delta.`{table}` SET visible_at = current_timestamp() WHERE receipt = '{receipt}'"
DELETE = "DELETE FROM delta.`{table}` WHERE receipt = '{receipt}'"


class MergeById:
    """A contestant. Whole claims are extended, released and deleted by receipt, which is the kindest statement."""

    name = "Delta, MERGE by id"

    def __init__(self, work: Path, spark: SparkSession, budget: float) -> None:
        self._work, self._spark, self._budget = work / "merge-by-id", spark, budget
        self._template: Path | None = None
        self._copy: Path | None = None

    def load(self, messages: int) -> Cell:
        self._template = self._work / f"template-{messages}"
        rows = bodies(self._spark, messages).selectExpr(
            "id", "body", "timestamp'2000-01-01' AS visible_at", "cast(null AS string) AS receipt", "0 AS receive_count"
        )
        seconds, _ = timed(lambda: rows.write.format("delta").save(str(self._template)))
        return Cell([seconds])

    def restore(self, taken: int) -> None:
        remove(self._copy)
        self._copy = linked_copy(self._template)

    def settle(self) -> None:
        pass

    def claim(self, messages: int | None) -> tuple[str, int]:
        receipt = secrets.token_hex(16)
        limit = "" if messages is None else f"ORDER BY id LIMIT {messages}"
        return receipt, self._limited(CLAIM, receipt, limit)

    def count(self, claim: tuple[str, int]) -> int:
        return claim[1]

    def extend(self, claim: tuple[str, int]) -> None:
        self._limited(EXTEND, claim[0])

    def release(self, claim: tuple[str, int]) -> None:
        self._limited(RELEASE, claim[0])

    def delete(self, claim: tuple[str, int]) -> None:
        self._limited(DELETE, claim[0])

    def unload(self) -> None:
        remove(self._copy)
        remove(self._template)
        self._copy = None

    def _limited(self, statement: str, receipt: str, limit: str = "") -> int:
        text = statement.format(table=self._copy, receipt=receipt, limit=limit)
        with within(self._spark, self._budget):
            return int(self._spark.sql(text).collect()[0][0])


@contextmanager
def within(spark: SparkSession, budget: float) -> Iterator[None]:
    """Cancels Spark's work after `budget` seconds and raises OverBudget instead of what that leads to."""
    over = threading.Event()

    def stop() -> None:
        over.set()
        spark.sparkContext.cancelAllJobs()

    # A statement is many jobs: cancel again until the statement has noticed.
    finished = threading.Event()
    watch = threading.Thread(target=_watch, args=(finished, budget, stop), daemon=True)
    watch.start()
    try:
        yield
    except Exception as error:
        if over.is_set():
            raise OverBudget from error
        raise
    finally:
        finished.set()
        watch.join()


def _watch(finished: threading.Event, budget: float, stop: Callable[[], Any]) -> None:
    pause = budget
    while not finished.wait(pause):
        stop()
        pause = 0.5
