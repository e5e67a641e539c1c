"""Locks between the writers of one machine, for local paths, where Spark's commits are not safe between processes.

Writers that detect conflicts themselves share a table; one that cannot, or that lost too often, has it alone. Who
asks to have it alone holds the gate, so newcomers queue behind it and it is never starved.

A lock belongs to the open file, which a forked child has open as well. So whoever leaves unlocks it, not only closes
it; and a child closes what it inherits, so that a lock ends with the process that took it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ledger.rules.location import recorded
from ledger.store.delta.model.failures import naming

if sys.platform != "win32":
    import fcntl

#: How often one that does not wait for ever looks again, in seconds.
LOOKING = 0.01


class StillLocked(Exception):
    """Others had the table until the time was up."""


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
    def exclusive(self, until: float | None = None) -> Iterator[None]:
        """Alone. `until`: when to give up waiting, by time.monotonic(); then raises StillLocked."""
        with _locked(self._gate, fcntl.LOCK_EX, until), _locked(self._turn, fcntl.LOCK_EX, until):
            yield

    @contextlib.contextmanager
    def rather_exclusive(self, seconds: float) -> Iterator[None]:
        """Alone, or beside sharers that have not gone after some seconds: who is stopped may have the table for ever.
        The gate is waited for as long as it takes: whoever holds it waits no longer than this."""
        with contextlib.ExitStack() as held:
            try:
                with contextlib.ExitStack() as both:
                    both.enter_context(_locked(self._gate, fcntl.LOCK_EX))
                    both.enter_context(_locked(self._turn, fcntl.LOCK_EX, time.monotonic() + seconds))
                    held.push(both.pop_all())
            except StillLocked:
                held.enter_context(self.shared())
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

    @contextlib.contextmanager
    def exclusive(self, until: float | None = None) -> Iterator[None]:
        """Nothing to wait for."""
        yield

    @contextlib.contextmanager
    def rather_exclusive(self, seconds: float) -> Iterator[None]:
        """Nothing to wait for."""
        yield


#: The files that this process has open for its locks, by their holders.
_open: dict[object, int] = {}
#: A fork comes before a file is opened and known, or after both: no child has one that it does not know of.
_opening = threading.RLock()


@contextlib.contextmanager
def _locked(path: Path, kind: int, until: float | None = None) -> Iterator[None]:
    holder = object()
    # A descriptor of its own per holder: flock then also keeps the threads of one process apart.
    with naming(str(path)), _opening:
        descriptor = _open[holder] = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with naming(str(path)):
            _wait(path, descriptor, kind, until)
        yield
    finally:
        with _opening:
            # A child that was forked in here has no such file any more, and would unlock its parent's.
            if _open.pop(holder, None) is not None:
                with contextlib.suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)


def _wait(path: Path, descriptor: int, kind: int, until: float | None) -> None:
    if until is None:
        fcntl.flock(descriptor, kind)
        return
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise StillLocked(f"Others hold {path}") from None
        time.sleep(LOOKING)


def _forked() -> None:
    for descriptor in _open.values():
        os.close(descriptor)
    _open.clear()
    _opening.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_forked)
