"""The edge where time comes in. Everything below takes `now` as an argument."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path

#: Returns the instant in milliseconds since 1970, UTC.
Clock = Callable[[], int]
#: Returns seconds that only grow with the time that passes, whatever anybody sets the clock to.
Passing = Callable[[], float]
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def system_clock() -> int:
    """The machine's clock."""
    return time.time_ns() // 1_000_000


class Uptime:
    """The seconds that passed since this machine was started, the time that it slept included where Linux tells it."""

    def __call__(self) -> float:
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    @cached_property
    def boot(self) -> str:
        """Names this start of this machine: processes with the same name count from the same moment. Empty: unknown."""
        try:
            return _BOOT.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""


#: The machine's own.
UPTIME = Uptime()


def passing_of(clock: Clock) -> Passing:
    """The passing time that belongs to a clock: its method `passing`, if it has one, else the machine's uptime."""
    passing: Passing = getattr(clock, "passing", UPTIME)
    return passing


def boot_of(passing: Passing) -> str:
    """What `passing` counts from, as a name that other processes have, too. Empty: no other process counts from it."""
    return str(getattr(passing, "boot", ""))


def milliseconds_of(moment: datetime) -> int:
    """A moment in milliseconds since the beginning of 1970, UTC."""
    return round(moment.timestamp() * 1_000)


def instant(milliseconds: int) -> datetime:
    """An instant as an aware datetime, UTC."""
    return datetime.fromtimestamp(milliseconds / 1_000, timezone.utc)
