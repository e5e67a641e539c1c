"""The clocks by which the ledger reads the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path

#: Returns the instant in milliseconds since 1970, UTC.
Clock = Callable[[], int]
#: Returns seconds that grow steadily, even when somebody sets the clock.
Passing = Callable[[], float]
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def system_clock() -> int:
    return time.time_ns() // 1_000_000


class Uptime:
    """The seconds since this machine was started. On Linux they include the time that the machine slept."""

    def __call__(self) -> float:
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    @cached_property
    def boot(self) -> str:
        """The id of this boot of the machine; empty if unknown."""
        try:
            return _BOOT.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""


UPTIME = Uptime()


def passing_of(clock: Clock) -> Passing:
    """Return a clock's method `passing`, or else the machine's uptime."""
    passing: Passing = getattr(clock, "passing", UPTIME)
    return passing


def boot_of(passing: Passing) -> str:
    """Return the name of the moment from which `passing` counts; empty if unknown.

    Seconds of two processes can be compared if both names are equal and not empty.
    """
    return str(getattr(passing, "boot", ""))


def milliseconds_of(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)


def instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1_000, timezone.utc)
