"""How a user's session evaluates rows, once and without passing by files, and how it stores their instants.

What is written and what is acknowledged, or counted, have to be the same rows, so they are computed once.

In a session that passes by files which are missing or corrupt, such rows are read once more. Spark raises an error for
such a file, unless a session's settings say otherwise. Delta's reader takes no option against these settings, and the
session is the user's. So the second read is in a session of our own.

Instants are stored in microseconds, whatever the session says. Spark's default is INT96, a number of nanoseconds that
many readers take for one of 64 bits: to pyarrow, the last second of the year 9999 is a day of 1816. Delta's writer
takes no option for that, only the setting of the session.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledger.delta_log.failures import shown
from ledger.errors import LedgerError, StorageFailed
from ledger.runtime.forks import renew_in_child

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


SETTING, MICROSECONDS = "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"


class _Sessions:
    """How many writes each session has under way, and what it said before the first of them."""

    def __init__(self) -> None:
        self._renew()
        renew_in_child(self, _Sessions._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._known: weakref.WeakKeyDictionary[SparkSession, tuple[int, str]] = weakref.WeakKeyDictionary()

    def enter(self, session: SparkSession) -> None:
        with self._lock:
            count, before = self._known.get(session) or (0, str(session.conf.get(SETTING)))
            self._known[session] = count + 1, before
            if before != MICROSECONDS:
                session.conf.set(SETTING, MICROSECONDS)

    def leave(self, session: SparkSession) -> None:
        with self._lock:
            count, before = self._known.pop(session)
            if count > 1:
                self._known[session] = count - 1, before
            elif before != MICROSECONDS:
                session.conf.set(SETTING, before)


_sessions = _Sessions()


@contextmanager
def stored_in_microseconds(rows: DataFrame) -> Iterator[None]:
    """While rows are written: their session writes instants in microseconds. Then it is again as its user set it."""
    session = rows.sparkSession
    if "timestamp" not in rows.schema.json():
        yield
        return
    _sessions.enter(session)
    try:
        yield
    finally:
        _sessions.leave(session)
