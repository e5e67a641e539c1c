"""Values of columns as SQL and log text."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


INSTANT = pa.timestamp("us", tz="UTC")


def milliseconds(instants: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of instants, none of which is before 1970, as milliseconds."""
    # A cast that changes nothing takes as long as any other.
    exact = instants if instants.type.unit == "us" else instants.cast(pa.timestamp("us", instants.type.tz))
    return pc.divide(exact.cast(pa.int64()), 1_000)


def partition_text(value: Any) -> str | None:
    """Return the log's text of a partition's value. Source: Delta's protocol, "Partition Value Serialization"."""
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def bound_text(value: Any) -> Any:
    """Return a least or greatest value as the statistics of the log have it.

    An instant has microseconds if it needs them. If those of a greatest value were cut off, delta-rs would skip the
    file when a reader looks for that value.
    """
    if isinstance(value, datetime):
        exact = "microseconds" if value.microsecond % 1_000 else "milliseconds"
        return value.replace(tzinfo=None).isoformat(timespec=exact) + "Z"
    return value.isoformat() if isinstance(value, date) else value
