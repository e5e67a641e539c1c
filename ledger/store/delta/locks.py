"""Locks between the writers of one machine, for local paths, where Spark's commits are not safe between processes.

Writers that detect conflicts themselves share a table; one that cannot, or that lost too often, has it alone. Who
asks to have it alone holds the gate, so newcomers queue behind it and it is never starved.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ledger.rules.location import recorded
from ledger.store.delta.failures import naming

if sys.platform != "win32":
    import fcntl


class TableLock:
    """A fair shared / exclusive lock, by two lock files in `folder`; works between threads and processes alike."""

    def __init__(self, folder: Path, table: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._gate, self._turn = folder / f"{table}.gate", folder / f"{table}.turn"

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Beside other sharers, never beside one that has the table alone."""
        with _locked(self._gate, fcntl.LOCK_EX):
            turn = _locked(self._turn, fcntl.LOCK_SH)
            turn.__enter__()
        try:
            yield
        finally:
            turn.__exit__(None, None, None)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Alone."""
        with _locked(self._gate, fcntl.LOCK_EX), _locked(self._turn, fcntl.LOCK_EX):
            yield


def table_lock(location: str) -> TableLock | NoLock:
    """The lock of a Delta table that is none of the ledger's own, by where it lies; the folder has to exist."""
    place = recorded(location)
    return TableLock(Path(place.text) / "_ledger_locks", "table") if place.is_local else NoLock()


class NoLock:
    """For storage whose commits are safe between machines: optimistic concurrency alone."""

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Nothing to wait for."""
        yield

    exclusive = shared


@contextlib.contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    # A descriptor of its own per holder: flock then also keeps the threads of one process apart.
    with naming(str(path)):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with naming(str(path)):
            fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)
