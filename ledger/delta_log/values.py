"""Values of columns: as SQL, and instants as milliseconds."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def literal(text: str) -> str:
    """A SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


#: The type of a column of instants.
INSTANT = pa.timestamp("us", tz="UTC")


def milliseconds(instants: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of instants, none of which is before 1970, as numbers."""
    # A cast that changes nothing takes as long as one that does.
    exact = instants if instants.type.unit == "us" else instants.cast(pa.timestamp("us", instants.type.tz))
    return pc.divide(exact.cast(pa.int64()), 1_000)
