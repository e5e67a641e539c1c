"""How Spark writes instants into the files of output tables: in microseconds, whatever its session says.

Spark's default is INT96, a number of nanoseconds that many readers take for one of 64 bits: to pyarrow, the last second
of the year 9999 is a day of 1816. Delta's writer takes no option for that, only the setting of the session.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ledger.forks import renew_in_child

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


@contextlib.contextmanager
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
