"""The edge where time comes in. Everything below takes `now` as an argument."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone

#: Returns the instant in milliseconds since 1970, UTC.
Clock = Callable[[], int]


def system_clock() -> int:
    """The machine's clock."""
    return time.time_ns() // 1_000_000


def milliseconds_of(moment: datetime) -> int:
    """A moment in milliseconds since the beginning of 1970, UTC."""
    return round(moment.timestamp() * 1_000)


def instant(milliseconds: int) -> datetime:
    """An instant as an aware datetime, UTC."""
    return datetime.fromtimestamp(milliseconds / 1_000, timezone.utc)
