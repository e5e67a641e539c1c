"""Locks between the writers of one machine, for local paths, where Spark's commits are not safe between processes.

Writers that detect conflicts themselves share a table; one that cannot has it alone, and one that lost too often would
rather. Who asks for that holds the gate, so newcomers queue behind it and it is never starved. But not for long: a
sharer that was stopped may stay for ever, and so may who holds the gate. Then the others go by, and for a while nobody
of any process holds the gate for long, or waits for it. Who holds it through a whole commit shows by the gate's time
that it goes on. What keeps a writer alone that has to be is not the gate, but the turn.

A lock belongs to the open file, which a forked child has open as well. So whoever leaves unlocks it, not only closes
it; and a child closes what it inherits, so that a lock ends with the process that took it.
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from ledger.delta_log.failures import naming
from ledger.errors import LedgerError
from ledger.rules.location import recorded
from ledger.runtime.threads import start_thread
from ledger.store.delta.commit.holdings import forget, note

if sys.platform != "win32":
    import fcntl

#: The folder of a ledger's locks, beside its tables.
LOCKS = "_locks"
#: So long who needs all of a ledger's tables waits for each lock, in seconds.
ALL_PATIENCE = 3.0
#: How often one that does not wait for ever looks again, in seconds: at first, and at last.
LOOKING, LOOKING_LATER = 0.0005, 0.01
#: So long one that wants a table alone keeps others from coming, and so long all know that it was in vain, in seconds.
PATIENCE, IN_VAIN = 2.0, 30.0
#: So long others wait for who holds the gate, which may have its patience and a commit; and so long while all know that
#: it was in vain: those who share the table are gone by then, most often, and who has to be alone gets it.
PATIENCE_AT_GATE, SHORT_OF_IT = PATIENCE + 1, 0.05
#: How often who holds it shows that it goes on, in seconds.
SHOWING = 0.5


class StillLocked(Exception):
    """Others had the table until the time was up."""


class TableLock:
    """A fair shared / exclusive lock, by two lock files in `folder`; works between threads and processes alike."""

    def __init__(self, folder: Path, table: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._gate, self._turn = folder / f"{table}.gate", folder / f"{table}.turn"
        #: Written anew whenever somebody held the gate in vain, or waited in vain for who holds it.
        self._in_vain, self._at_gate_in_vain = folder / f"{table}.in_vain", folder / f"{table}.at_gate_in_vain"

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Beside other sharers, never beside one that has the table alone."""
        with contextlib.ExitStack() as turn:
            with contextlib.ExitStack() as gate:
                if self._has_gate(gate):
                    turn.enter_context(_locked(self._turn, fcntl.LOCK_SH))
                else:
                    self._past_gate(turn)
            yield

    @contextlib.contextmanager
    def exclusive(self, until: float | None = None) -> Iterator[None]:
        """Alone. `until`: when to give up waiting, by time.monotonic(); then raises StillLocked."""
        alone = None
        while alone is None:
            alone = self._behind_gate(until) or self._between_others(until)
        with alone:
            yield

    @contextlib.contextmanager
    def rather_exclusive(self, seconds: float) -> Iterator[None]:
        """Alone, but for sharers that have not gone after some seconds, or had not a moment ago. Newcomers wait, unless
        this one is stopped: it is a sharer, too."""
        with contextlib.ExitStack() as both:
            if self._has_gate(both):
                both.enter_context(_showing(self._gate))
                with contextlib.ExitStack() as until_left:
                    self._is_left(until_left, seconds)
                both.enter_context(_locked(self._turn, fcntl.LOCK_SH))
            else:
                self._past_gate(both)
            yield

    def _has_gate(self, holder: contextlib.ExitStack, until: float | None = None) -> bool:
        """Whether newcomers wait for the holder from now on; else who they wait for does not go on, or did not a moment
        ago. Raises StillLocked, see `exclusive`."""
        while True:
            patience = SHORT_OF_IT if _is_recent(self._at_gate_in_vain, IN_VAIN) else PATIENCE_AT_GATE
            try:
                holder.enter_context(_locked(self._gate, fcntl.LOCK_EX, _earlier(time.monotonic() + patience, until)))
            except StillLocked:
                if until is not None and time.monotonic() >= until:
                    raise
                if patience == SHORT_OF_IT or not _is_recent(self._gate, PATIENCE_AT_GATE):
                    return False
            else:
                return True

    def _past_gate(self, turn: contextlib.ExitStack) -> None:
        """Beside other sharers, without the gate."""
        try:
            turn.enter_context(_locked(self._turn, fcntl.LOCK_SH, time.monotonic()))
        except StillLocked:
            # Somebody has the table alone, as long as that takes.
            turn.enter_context(_locked(self._turn, fcntl.LOCK_SH))
        else:
            # Who has waited for a moment has nothing to tell.
            if not _is_recent(self._at_gate_in_vain, IN_VAIN):
                _tell(self._at_gate_in_vain)

    def _behind_gate(self, until: float | None) -> contextlib.ExitStack | None:
        """Alone, which newcomers wait for. None: others do not go. Raises StillLocked, see `exclusive`."""
        with contextlib.ExitStack() as both:
            has_gate = self._has_gate(both, until)
            return both.pop_all() if has_gate and self._is_left(both, PATIENCE, until) else None

    def _is_left(self, holder: contextlib.ExitStack, seconds: float, until: float | None = None) -> bool:
        """Whether all sharers have gone in time; then the holder is alone. Raises StillLocked, see `exclusive`."""
        if _is_recent(self._in_vain, IN_VAIN):
            return False
        try:
            holder.enter_context(_locked(self._turn, fcntl.LOCK_EX, _earlier(time.monotonic() + seconds, until)))
        except StillLocked:
            if until is not None and time.monotonic() >= until:
                raise
            _tell(self._in_vain)
            return False
        return True

    def _between_others(self, until: float | None) -> contextlib.ExitStack | None:
        """Alone in a moment when nobody else has the table, for whom nobody waits. None: there was none for a while.
        Raises StillLocked, see `exclusive`."""
        with contextlib.ExitStack() as alone:
            try:
                alone.enter_context(_locked(self._turn, fcntl.LOCK_EX, _earlier(time.monotonic() + IN_VAIN, until)))
            except StillLocked:
                if until is not None and time.monotonic() >= until:
                    raise
                return None
            return alone.pop_all()


def _tell(found_out: Path) -> None:
    with naming(str(found_out)):
        found_out.touch()


def _is_recent(written: Path, seconds: float) -> bool:
    try:
        return 0 <= time.time() - written.stat().st_mtime < seconds
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _showing(gate: Path) -> Iterator[None]:
    """Writes the time down in the gate's, again and again: a process that is stopped does not."""
    over: queue.SimpleQueue[None] = queue.SimpleQueue()
    end = partial(over.put, None)

    def show() -> None:
        with contextlib.suppress(OSError, queue.Empty):
            gate.touch()
            while True:
                try:
                    return over.get(timeout=SHOWING)
                except queue.Empty:
                    gate.touch()

    note(end)
    try:
        start_thread(show, "ledger-gate")
        yield
    finally:
        end()
        forget(end)


def _earlier(limit: float, until: float | None) -> float:
    return limit if until is None else min(limit, until)


def table_lock(location: str) -> TableLock | NoLock:
    """The lock of a Delta table that is none of the ledger's own, by where it lies; the folder has to exist."""
    place = recorded(location)
    return TableLock(Path(place.text) / "_ledger_locks", "table") if place.is_local else NoLock()


@contextlib.contextmanager
def all_locked(root: Path, tables: Iterable[str]) -> Iterator[None]:
    """Hold the locks of a ledger's tables, alone, for what is done to all of them. Raises LedgerError while another
    process has one for longer than ALL_PATIENCE seconds."""
    with contextlib.ExitStack() as held:
        for name in tables:
            try:
                held.enter_context(TableLock(root / LOCKS, name).exclusive(time.monotonic() + ALL_PATIENCE))
            except StillLocked as error:
                advice = "Stop all that uses the ledger, and call again. Nothing was changed."
                raise LedgerError(
                    f"The ledger at {root} is in use: another process has the table {name}", advice
                ) from error
        yield


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


#: A fork comes before a file is opened and known, or after both: no child has one that it does not know of.
_opening = threading.RLock()


class _LockFile(io.FileIO):
    """A file that is open for one lock: its own per holder, as flock then also keeps the threads of one process apart.
    Where it is lost before anybody locks it, Python closes it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "a+")
        _files.add(self)

    def give_back(self) -> None:
        """Unlocks and closes it, once."""
        with _opening:
            # A child that was forked meanwhile has closed it, and would unlock its parent's.
            if not self.closed:
                with contextlib.suppress(OSError):
                    fcntl.flock(self.fileno(), fcntl.LOCK_UN)
                self.close()
            _files.discard(self)


#: The files that this process has open for its locks.
_files: set[_LockFile] = set()


@contextlib.contextmanager
def _locked(path: Path, kind: int, until: float | None = None) -> Iterator[None]:
    with naming(str(path), is_open=True), _opening:
        file = _LockFile(path)
    note(file.give_back)
    try:
        with naming(str(path), is_open=True):
            _wait(path, file.fileno(), kind, until)
        yield
    finally:
        file.give_back()
        forget(file.give_back)


def _wait(path: Path, descriptor: int, kind: int, until: float | None) -> None:
    if until is None:
        fcntl.flock(descriptor, kind)
        return
    pause = LOOKING
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise StillLocked(f"Others hold {path}") from None
        time.sleep(pause)
        pause = min(2 * pause, LOOKING_LATER)


def _forked() -> None:
    for file in _files:
        file.close()
    _files.clear()
    _opening.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_forked)
