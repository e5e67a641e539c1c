"""File locks between the writers of one machine, for tables on local paths.

Writers that detect conflicts share a table (`shared`). A writer that cannot, such as Spark, has it alone (`exclusive`).
A writer that lost too often prefers to have it alone (`prefer_exclusive`). Only the lock `turn` excludes writers.

A writer that wants the table alone holds the gate, where newcomers queue, so that they do not starve it. A suspended
process may hold the gate, or share the table, for ever. So waits at the gate, and its holder's waits for sharers, are
bounded. After one was in vain, such waits are brief or left out for IN_VAIN seconds. A writer that waited in vain at
the gate passes it.

A lock belongs to the open file, which a forked child has open, too. Therefore a holder unlocks the file before closing
it, and a child closes the files that it inherits.
"""

from __future__ import annotations

import contextlib
import io
import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from ledger.delta_log.failures import translating_errors
from ledger.errors import LedgerError
from ledger.rules.location import recorded
from ledger.runtime.forks import hold_in_forks, waiting
from ledger.runtime.threads import start_thread
from ledger.store.delta.commit.holdings import forget, note

if sys.platform != "win32":
    import fcntl

LOCKS = "_locks"
#: In seconds, the wait of `all_locked` for each lock.
ALL_PATIENCE = 3.0
#: In seconds, between two attempts of a bounded wait: first and longest.
LOOKING, LOOKING_LATER = 0.0005, 0.01
#: In seconds: the wait of the gate's holder for sharers, and how long a wait in vain is remembered.
PATIENCE, IN_VAIN = 2.0, 30.0
#: In seconds, the wait of others at the gate: at first (its holder may wait for PATIENCE), and after a recent wait in
#: vain there.
PATIENCE_AT_GATE, SHORT_OF_IT = PATIENCE + 1, 0.05
SHOWING = 0.5


class StillLocked(Exception):
    """Other writers had the table until the time to wait was over."""


class TableLock:
    """A lock between threads and processes."""

    def __init__(self, folder: Path, table: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._gate, self._turn = folder / f"{table}.gate", folder / f"{table}.turn"
        #: As modification times: when the gate's holder last waited in vain for sharers, and others at the gate.
        self._in_vain, self._at_gate_in_vain = folder / f"{table}.in_vain", folder / f"{table}.at_gate_in_vain"

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the table with other sharers. Only the wait for a writer in `exclusive` has no bound."""
        with contextlib.ExitStack() as turn:
            with contextlib.ExitStack() as gate:
                if self._take_gate(gate):
                    turn.enter_context(_locked(self._turn, fcntl.LOCK_SH))
                else:
                    self._share_without_gate(turn)
            yield

    @contextlib.contextmanager
    def exclusive(self, until: float | None = None) -> Iterator[None]:
        """Hold the table alone. Raises StillLocked at `until`, an instant of time.monotonic() (None: wait without
        end)."""
        alone = None
        while alone is None:
            alone = self._take_alone_with_gate(until) or self._take_alone_without_gate(until)
        with alone:
            yield

    @contextlib.contextmanager
    def prefer_exclusive(self, seconds: float) -> Iterator[None]:
        """Hold the gate, and the table once sharers left or `seconds` passed. Without the gate, share the table."""
        with contextlib.ExitStack() as held:
            if self._take_gate(held):
                held.enter_context(_touching_gate(self._gate))
                with contextlib.ExitStack() as until_left:
                    self._take_turn_alone(until_left, seconds)
                held.enter_context(_locked(self._turn, fcntl.LOCK_SH))
            else:
                self._share_without_gate(held)
            yield

    def _take_gate(self, holder: contextlib.ExitStack, until: float | None = None) -> bool:
        """Take the gate, or return False after a wait in vain. Raises StillLocked, see `exclusive`.

        A long wait is not in vain if the holder touched the gate's file meanwhile.
        """
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

    def _share_without_gate(self, turn: contextlib.ExitStack) -> None:
        try:
            turn.enter_context(_locked(self._turn, fcntl.LOCK_SH, time.monotonic()))
        except StillLocked:
            turn.enter_context(_locked(self._turn, fcntl.LOCK_SH))
        else:
            # A wait is brief only if an earlier one is remembered.
            if not _is_recent(self._at_gate_in_vain, IN_VAIN):
                _tell(self._at_gate_in_vain)

    def _take_alone_with_gate(self, until: float | None) -> contextlib.ExitStack | None:
        """Take the gate and the table, or return None if either is not free in time."""
        with contextlib.ExitStack() as held:
            has_gate = self._take_gate(held, until)
            return held.pop_all() if has_gate and self._take_turn_alone(held, PATIENCE, until) else None

    def _take_turn_alone(self, holder: contextlib.ExitStack, seconds: float, until: float | None = None) -> bool:
        """Take the table alone. Return False if sharers do not leave in time, or at once after a recent wait in
        vain."""
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

    def _take_alone_without_gate(self, until: float | None) -> contextlib.ExitStack | None:
        """Take the table when nobody has it. Return None after IN_VAIN seconds."""
        with contextlib.ExitStack() as alone:
            try:
                alone.enter_context(_locked(self._turn, fcntl.LOCK_EX, _earlier(time.monotonic() + IN_VAIN, until)))
            except StillLocked:
                if until is not None and time.monotonic() >= until:
                    raise
                return None
            return alone.pop_all()


def _tell(file: Path) -> None:
    with translating_errors(str(file)):
        file.touch()


def _is_recent(file: Path, seconds: float) -> bool:
    try:
        return 0 <= time.time() - file.stat().st_mtime < seconds
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _touching_gate(gate: Path) -> Iterator[None]:
    """Show that this process is not suspended."""
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
    """Return the lock of another table than the ledger's. A local folder must exist."""
    place = recorded(location)
    return TableLock(Path(place.text) / "_ledger_locks", "table") if place.is_local else NoLock()


@contextlib.contextmanager
def all_locked(root: Path, tables: Iterable[str]) -> Iterator[None]:
    """Hold the locks of all tables of a ledger alone. Raises LedgerError if others hold one for ALL_PATIENCE
    seconds."""
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
    """For storage whose commits are safe between machines, and for a read-only ledger."""

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Do nothing."""
        yield

    @contextlib.contextmanager
    def exclusive(self, until: float | None = None) -> Iterator[None]:
        """Do nothing."""
        yield

    @contextlib.contextmanager
    def prefer_exclusive(self, seconds: float) -> Iterator[None]:
        """Do nothing."""
        yield


#: Held while a lock file is opened and registered, and during a fork, so a child knows all open lock files.
_opening = threading.RLock()


class _LockFile(io.FileIO):
    """Open for one lock: each holder has its own file, so flock also excludes threads.

    If an interrupt comes before the file is in `_files`, Python closes it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "a+")
        _files.add(self)

    def give_back(self) -> None:
        with _opening:
            # A forked child has closed its copy: to unlock it would unlock the parent's lock.
            if not self.closed:
                with contextlib.suppress(OSError):
                    fcntl.flock(self.fileno(), fcntl.LOCK_UN)
                self.close()
            _files.discard(self)


_files: set[_LockFile] = set()


@contextlib.contextmanager
def _locked(path: Path, kind: int, until: float | None = None) -> Iterator[None]:
    with translating_errors(str(path), is_open=True), _opening:
        file = _LockFile(path)
    note(file.give_back)
    try:
        with translating_errors(str(path), is_open=True):
            _wait(path, file.fileno(), kind, until)
        yield
    finally:
        file.give_back()
        forget(file.give_back)


def _wait(path: Path, descriptor: int, kind: int, until: float | None) -> None:
    with waiting():
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


def _close_files_in_child() -> None:
    for file in _files:
        file.close()
    _files.clear()


hold_in_forks(_opening.acquire, _opening.release, _close_files_in_child)
