"""The evaluation of rows in a user's session: once, complete, with instants in microseconds.

Spark stores instants as INT96 by default. Many readers convert these to nanoseconds in 64 bits, which overflow after
the year 2262. Only the session has a setting for the unit.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledger.delta_log.failures import message_of
from ledger.errors import LedgerError, StorageFailed
from ledger.runtime.threads import renew_in_child

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.store.delta.engine import Engine

PASSES_BY = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")


def require_readable(
    session: SparkSession, rows: Callable[[SparkSession], DataFrame], engine: Engine, verb: str
) -> None:
    """Raise an error for a missing or corrupt file of `messages` that a setting of the session would skip.

    `rows` makes the same rows in another session. `verb` names the caller's action in errors. Raises LedgerDamaged or
    StorageFailed.
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
        raise (engine.damage("messages") or StorageFailed(engine.place("messages"), message_of(error), verb)) from error


@contextmanager
def evaluated_once(frame: DataFrame) -> Iterator[DataFrame]:
    """Yield the frame's rows, which are computed now and never again, and free them at the end.

    `persist` would compute lost rows again, perhaps with other values, and serve its rows to any later frame of an
    equal plan. Lost rows of a local checkpoint are an error.
    """
    kept = frame.localCheckpoint(eager=True)
    try:
        yield kept
    finally:
        plan = getattr(kept, "_jdf", None)
        # Spark Connect frees the rows once nothing refers to them.
        if plan is not None:
            plan.queryExecution().logical().rdd().unpersist(False)


SETTING, MICROSECONDS = "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"


class _Sessions:
    """Counts each session's writes, and keeps its setting from before them."""

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
    """Let a session write instants in microseconds. The last of several such writes restores the setting."""
    session = rows.sparkSession
    if "timestamp" not in rows.schema.json():
        yield
        return
    _sessions.enter(session)
    try:
        yield
    finally:
        _sessions.leave(session)
