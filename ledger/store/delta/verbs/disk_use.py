"""The disk use of a ledger's tables, and the bytes that are written a day, by the sizes and times of the files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from ledger.delta_log.storage import LOG, StoredFile
from ledger.rules.location import recorded

DAY_SECONDS, HOUR_SECONDS = 86_400.0, 3_600.0


@dataclass(frozen=True)
class DiskUse:
    """The room that a ledger's tables take, including logs and past versions.

    Attributes:
        written_a_day: The bytes that were written within `measured_seconds` and are still there, scaled to a day.
        measured_seconds: A day, or the oldest file's age if that is less, but at least an hour.
        free: The bytes that this user may still write on the disk (None: the tables are on an object store).
    """

    files: int
    bytes: int
    log_files: int
    log_bytes: int
    written_a_day: int
    measured_seconds: float
    free: int | None

    @property
    def days_left(self) -> float | None:
        """The days until the disk is full if nothing is removed (None: nothing was written, or `free` is not known)."""
        return None if self.free is None or not self.written_a_day else self.free / self.written_a_day


def measure_files(files: Iterable[StoredFile], now: float, free: int | None) -> DiskUse:
    count, total, logs, of_logs, lately, oldest = 0, 0, 0, 0, 0, now
    for path, size, at in files:
        count, total, oldest = count + 1, total + size, min(oldest, at)
        lately += size if at > now - DAY_SECONDS else 0
        if path.startswith(LOG):
            logs, of_logs = logs + 1, of_logs + size
    measured = min(DAY_SECONDS, max(HOUR_SECONDS, now - oldest))
    return DiskUse(count, total, logs, of_logs, round(lately * DAY_SECONDS / measured), measured, free)


def free_bytes(place: str) -> int | None:
    """Return the bytes that this user may still write at the place of a table (None: not a local path). Raises
    OSError."""
    location = recorded(place)
    if not location.is_local:
        return None
    disk = os.statvfs(location.text)
    return disk.f_bavail * disk.f_frsize
