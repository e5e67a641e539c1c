"""A check whether a ledger can take commits now, for a service that is asked every few seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from ledger.clock import Clock
from ledger.delta_log.failures import translating_errors
from ledger.errors import StorageFailed, TableAltered
from ledger.rules.instants import require_alike
from ledger.store.delta.commit.clocks import StorageClock
from ledger.store.delta.engine import Engine
from ledger.store.delta.model.tables import TABLES

#: Only upkeep removes rows of `messages`, and nothing removes rows of `receipts`.
APPENDED = ("messages", "receipts")
#: In seconds, between two successful readings of the storage's clock: an object store takes three requests.
INTERVAL_SECONDS = 10.0


class Readiness:
    """Checks whether the tables, the disk and the clocks are fit for commits. Threads may share it.

    Args:
        engine: The engine of the ledger's tables.
        folder: The tables' folder, if it is on this machine.
        clock: This process's clock.
        storage: The storage's clock, or None.
        maximum_skew: The most seconds between two clocks.
        passing: Seconds that only grow.
    """

    def __init__(
        self,
        engine: Engine,
        folder: Path | None,
        clock: Clock,
        storage: Clock | None,
        maximum_skew: float,
        passing: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._folder, self._clock, self._storage = engine, folder, clock, storage
        self._maximum_skew, self._passing = maximum_skew, passing
        self._compared_at: float | None = None

    def require(self, free_bytes: int) -> None:
        """Raise an error if the ledger cannot take commits now. Writes at most a small file, and removes it.

        Raises:
            StorageFailed: A table cannot be read, or the disk has fewer than `free_bytes` free for this user, no free
                inode, or takes no file.
            TableAltered: The engine no longer reads or writes one of the tables.
            ClocksDisagree: This process's clock made a step, or is too far from the storage's, or behind the newest
                commit to `visibility`.
        """
        for table, refusal in self.refusals().items():
            raise TableAltered(self._engine.place(table), *refusal)
        if self._folder is not None:
            self._require_space(self._folder, free_bytes)
        self._require_no_later_commit()
        if self._compared_at is None or self._passing() - self._compared_at >= INTERVAL_SECONDS:
            self._compared_at = None
            # A new StorageClock compares at once.
            StorageClock(self._clock, self._storage, self._maximum_skew).check()
            self._compared_at = self._passing()

    def refusals(self) -> dict[str, tuple[str, str]]:
        """Return, by table, why the engine no longer reads or writes it, and what to do (see TableAltered)."""
        refusals = {table: self._engine.refusal(table, appends=table in APPENDED) for table in TABLES}
        return {table: refusal for table, refusal in refusals.items() if refusal is not None}

    def _require_space(self, folder: Path, free_bytes: int) -> None:
        with translating_errors(str(folder)):
            disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
        if free < free_bytes:
            raise StorageFailed(str(folder), f"the disk has {free:,} bytes free, and {free_bytes:,} are needed")
        # File systems without a fixed number of inodes report zero.
        if disk.f_files and not disk.f_favail:
            raise StorageFailed(str(folder), "the disk has no inode left for another file")

    def _require_no_later_commit(self) -> None:
        """Raise ClocksDisagree if the newest commit is so far ahead that verbs on its lanes fail."""
        newest = self._engine.version("visibility")
        for commit in self._engine.history("visibility", newest - 1):
            at = commit.metadata.get("at")
            if isinstance(at, int):
                require_alike(self._clock(), at, self._maximum_skew, "the last commit is ahead", only_behind=True)
