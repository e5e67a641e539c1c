"""How a session evaluates rows that a decision relies on: once, and without passing by files.

What is written and what is acknowledged, or counted, have to be the same rows, so they are computed once.

In a session that passes by files which are missing or corrupt, such rows are read once more. Spark raises an error for
such a file, unless a session's settings say otherwise. Delta's reader takes no option against these settings, and the
session is the user's. So the second read is in a session of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledger.delta_log.failures import shown
from ledger.errors import LedgerError, StorageFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.store.delta.engine import Engine

#: Settings of sessions that pass by files which are missing or corrupt.
PASSES_BY = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")


def require_readable(
    session: SparkSession, rows: Callable[[SparkSession], DataFrame], engine: Engine, verb: str
) -> None:
    """Read rows of `messages` where the session passes by files; else do nothing.

    Args:
        session: What the rows are read in for the decision.
        rows: Makes the same rows in another session.
        engine: Whose table it is.
        verb: What they are read for, as errors say it.

    Raises LedgerDamaged or StorageFailed where a file that they lie in is missing or corrupt.
    """
    if not any(str(session.conf.get(name, "false")).lower() == "true" for name in PASSES_BY):
        return
    strict = session.newSession()
    for name in PASSES_BY:
        strict.conf.set(name, "false")
    try:
        rows(strict).write.format("noop").mode("overwrite").save()
    except LedgerError:
        raise
    except Exception as error:
        raise (engine.damage("messages") or StorageFailed(engine.place("messages"), shown(error), verb)) from error


@contextmanager
def evaluated_once(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame's rows, computed now and never again, and freed at the end.

    Not `persist`: what is persisted is looked up by its plan, so that any later frame of an equal plan, the user's own
    reads among them, would be served these rows, however its source changed. And what was lost of it is computed anew,
    to other rows perhaps, where a local checkpoint fails. A frame that the user cached is read from there and stays so.
    """
    kept = frame.localCheckpoint(eager=True)
    try:
        yield kept
    finally:
        plan = getattr(kept, "_jdf", None)
        # Spark Connect frees it when nobody refers to it any more.
        if plan is not None:
            plan.queryExecution().logical().rdd().unpersist(False)
