"""The room that a ledger's tables take, and what is written to them a day: by the sizes and times of their files.

Nothing is stored for this. A file is never written twice, so the time of each says when its bytes came. Nobody knows
what was removed meanwhile, so the bytes a day are those that are still there: the disk in use has grown by no more.
Where upkeep runs, it removes as much from some day on (`deleted_file_retention` and `log_retention`), and the disk in
use stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from ledger.delta_log.storage import LOG, StoredFile
from ledger.rules.location import recorded

DAY_SECONDS, HOUR_SECONDS = 86_400.0, 3_600.0


@dataclass(frozen=True)
class DiskUse:
    """Attributes:
    files: All files of the tables, of the logs and of the past, too.
    bytes: What these have.
    log_files: Those of the logs alone.
    log_bytes: What these have.
    written_a_day: The bytes that were written within `measured_seconds` and are still there, scaled to a day.
    measured_seconds: The last day. Of a ledger that is younger, its age, and at least an hour.
    free: The bytes that this user may still write on the disk; None on an object store.
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
        """In how many days the disk is full if nothing is removed; None: nothing was written, or there is no disk."""
        return None if self.free is None or not self.written_a_day else self.free / self.written_a_day


def measure_files(files: Iterable[StoredFile], now: float, free: int | None) -> DiskUse:
    """Return what files take, at a time in seconds since 1970 by the clock of their storage."""
    count, total, logs, of_logs, lately, oldest = 0, 0, 0, 0, 0, now
    for path, size, at in files:
        count, total, oldest = count + 1, total + size, min(oldest, at)
        lately += size if at > now - DAY_SECONDS else 0
        if path.startswith(LOG):
            logs, of_logs = logs + 1, of_logs + size
    measured = min(DAY_SECONDS, max(HOUR_SECONDS, now - oldest))
    return DiskUse(count, total, logs, of_logs, round(lately * DAY_SECONDS / measured), measured, free)


def free_bytes(place: str) -> int | None:
    """Return how many bytes this user may still write where a table lies; None elsewhere than on a local path.

    Raises OSError.
    """
    known = recorded(place)
    if not known.is_local:
        return None
    disk = os.statvfs(known.text)
    return disk.f_bavail * disk.f_frsize
