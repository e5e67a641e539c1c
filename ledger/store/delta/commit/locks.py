"""Turns between a process's threads, file locks between a machine's processes, and each thread's notes of both.

A KeyboardInterrupt may come within the code that gives a lock back, where `finally` does not help. A thread therefore
notes each lock or turn before taking it. If an error ends a `releasing` function, the function gives back what its
thread noted within it. Giving back twice does no harm.

Turns go by arrival. A thread may carry out the calls of waiting threads, too, in one commit. Turns only save work:
correctness does not rely on them.

Writers that detect conflicts share a table (`shared`). A writer that cannot, such as Spark, has it alone (`exclusive`).
A writer that lost too often prefers to have it alone (`prefer_exclusive`). Only the lock `turn` excludes writers.

A writer that wants the table alone holds the gate, where newcomers queue, so that they do not starve it. A suspended
process may hold the gate, or share the table, for ever. The waits at the gate are therefore bounded, and so are the
waits of the gate's holder for those who share the table. After a wait in vain, such waits are brief or left out for
IN_VAIN seconds. A writer that waited in vain at the gate goes on without it.

A lock belongs to the open file, which a forked child has open, too. Therefore a holder unlocks the file before closing
it, and a child closes the files that it inherits.
"""

from __future__ import annotations

import contextlib
import functools
import io
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast

from ledger.delta_log.failures import translating_errors
from ledger.errors import LedgerError
from ledger.rules.location import recorded
from ledger.runtime.threads import hold_in_forks, renew_in_child, start_thread, waiting

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class _Noted(threading.local):
    def __init__(self) -> None:
        self.releases: list[Callable[[], object]] = []


_noted = _Noted()


def note(release: Callable[[], object]) -> None:
    """Note how to give back the lock or turn that the thread takes next."""
    _noted.releases.append(release)


def forget(release: Callable[[], object]) -> None:
    if release in _noted.releases:
        _noted.releases.remove(release)


def releasing(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """If an error ends the function, give back the locks and turns that its thread took within it."""

    @functools.wraps(function)
    def called(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        before = len(_noted.releases)
        try:
            return function(*arguments, **keywords)
        except BaseException:
            # Newest first: a file's lock before the turn in which it was taken.
            while len(_noted.releases) > before:
                _noted.releases[-1]()
                _noted.releases.pop()
            raise

    return called


class PendingCall(Generic[Result]):
    """A call that waits for its turn, and that another thread may carry out along with its own.

    Calls of one `kind` go together, as many as their `size` allows. `name` is the verb in errors.
    """

    name = ""

    def __init__(self, kind: object, size: int = 0) -> None:
        self.kind, self.size = kind, size
        self.done = False
        self._result: Result | None = None
        self._error: BaseException | None = None

    def granted(self, result: Result) -> None:
        self._result, self.done = result, True

    def refused(self, error: BaseException) -> None:
        self._error, self.done = error, True

    def result(self) -> Result:
        if self._error is not None:
            raise self._error
        return cast(Result, self._result)


class _Place:
    """One thread's place in the line at a key. Its `lock` is released when its wait ends.

    `taken`: another thread takes the `call` along. `company`: the places whose calls this thread takes along.
    """

    def __init__(self, key: Hashable, call: PendingCall[Any] | None) -> None:
        self.key, self.call, self.taken, self.lock = key, call, False, threading.Lock()
        self.line, self.company = deque[_Place](), list[_Place]()
        self.lock.acquire()

    def let_go(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.lock.release()


class Turns:
    """Fair locks by key. A lock exists only while a thread holds or awaits it."""

    def __init__(self) -> None:
        self._begin()
        renew_in_child(self, Turns._begin)

    def _begin(self) -> None:
        self._guard = threading.Lock()
        #: First the thread that has the turn, then those that wait.
        self._queues: dict[Hashable, deque[_Place]] = {}
        self._mine = threading.local()

    @contextlib.contextmanager
    def of(self, key: Hashable) -> Iterator[None]:
        """Take the thread's turn at a key. A thread that has a turn, at any key, never waits, which excludes
        deadlocks."""
        with self._turn(key, None, 0):
            yield

    @contextlib.contextmanager
    def together(self, key: Hashable, call: PendingCall[Any], most: int, most_size: int = 0) -> Iterator[list[Any]]:
        """Take a turn for this call and for up to `most` waiting calls of its kind, and yield them.

        The sizes of all add up to `most_size` at most, unless this call alone has more. The other calls' threads wait
        until this turn ends. An empty list: another thread took this call along, and that thread's turn is over. A call
        that is not `done` may wait again. A thread that has a turn already gets only its own call.
        """
        with self._turn(key, call, most, most_size) as calls:
            yield calls

    def waiting(self, key: Hashable) -> int:
        """Return how many threads await their turn, without those whose calls were taken along."""
        with self._guard:
            return max(0, len(self._queues.get(key, ())) - 1)

    @contextlib.contextmanager
    def _turn(self, key: Hashable, call: PendingCall[Any] | None, most: int, most_size: int = 0) -> Iterator[list[Any]]:
        if getattr(self._mine, "place", None) is not None:
            yield [call]
            return
        me = _Place(key, call)
        end = partial(self._end, me)
        # Noted first: a KeyboardInterrupt may end the wait.
        note(end)
        try:
            with self._guard:
                me.line = self._queues.setdefault(key, me.line)
                me.line.append(me)
                if me.line[0] is me:
                    me.let_go()
            with waiting():
                me.lock.acquire()
            if not me.taken:
                self._mine.place = me
                self._take_along(me, most, most_size)
            yield [] if me.taken else [call, *(place.call for place in me.company)]
        finally:
            end()
            forget(end)

    def _take_along(self, me: _Place, most: int, most_size: int) -> None:
        if me.call is None or not most:
            return
        size = me.call.size
        with self._guard:
            waiting = [
                (place, place.call.size)
                for place in me.line
                if place is not me and place.call and place.call.kind == me.call.kind
            ]
            for place, more in waiting[:most]:
                size += more
                if size > most_size:
                    # A smaller call must not overtake this one.
                    break
                # From here on, `_end` ends the wait of this place, also after an interrupt.
                me.company.append(place)
                place.taken = True
                me.line.remove(place)

    def _end(self, me: _Place) -> None:
        """Leave the line, and end the waits of the company. Each step may run twice.

        At a second run the thread may have another turn, which must stay.
        """
        if getattr(self._mine, "place", None) is me:
            self._mine.place = None
        for place in me.company:
            place.let_go()
        with self._guard:
            line = me.line
            if me in line:
                if line[0] is me and len(line) > 1:
                    line[1].let_go()
                line.remove(me)
            if not line and self._queues.get(me.key) is line:
                del self._queues[me.key]


if sys.platform != "win32":
    import fcntl

LOCKS = "_locks"
#: In seconds, the wait of `all_locked` for each lock.
ALL_PATIENCE = 3.0
#: In seconds, between two attempts of a bounded wait: first and longest.
LOOKING, LOOKING_LATER = 0.0005, 0.01
#: In seconds: the wait of the gate's holder for sharers, and how long a wait in vain is remembered.
PATIENCE, IN_VAIN = 2.0, 30.0
#: In seconds, the wait of others at the gate: at first, and after a recent wait in vain there.
PATIENCE_AT_GATE, SHORT_OF_IT = PATIENCE + 1, 0.05
SHOWING = 0.5


class StillLocked(Exception):
    """Other writers held the table or its gate until the time to wait was over."""


class TableLock:
    """A lock between threads and processes."""

    def __init__(self, folder: Path, table: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._gate, self._turn = folder / f"{table}.gate", folder / f"{table}.turn"
        #: Their modification times: when the gate's holder last waited in vain for sharers, and others at the gate.
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
        """Hold the gate, and share the table once others left it or `seconds` passed. Without the gate, only share
        it."""
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
            if _lock_in_time(holder, self._gate, patience, until):
                return True
            if patience == SHORT_OF_IT or not _is_recent(self._gate, PATIENCE_AT_GATE):
                return False

    def _share_without_gate(self, turn: contextlib.ExitStack) -> None:
        try:
            turn.enter_context(_locked(self._turn, fcntl.LOCK_SH, time.monotonic()))
        except StillLocked:
            turn.enter_context(_locked(self._turn, fcntl.LOCK_SH))
        else:
            # Only long waits are noted: a wait is brief if an earlier one is remembered.
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
        is_alone = _lock_in_time(holder, self._turn, seconds, until)
        if not is_alone:
            _tell(self._in_vain)
        return is_alone

    def _take_alone_without_gate(self, until: float | None) -> contextlib.ExitStack | None:
        """Take the table when nobody has it. Return None after IN_VAIN seconds."""
        with contextlib.ExitStack() as alone:
            return alone.pop_all() if _lock_in_time(alone, self._turn, IN_VAIN, until) else None


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
    """Touch the gate's file, which shows that this process is not suspended."""
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


def _lock_in_time(holder: contextlib.ExitStack, path: Path, seconds: float, until: float | None) -> bool:
    """Lock a file exclusively in `holder`. Return False after so many seconds; raise StillLocked at `until`."""
    limit = time.monotonic() + seconds
    try:
        holder.enter_context(_locked(path, fcntl.LOCK_EX, limit if until is None else min(limit, until)))
    except StillLocked:
        if until is not None and time.monotonic() >= until:
            raise
        return False
    return True


def table_lock(location: str) -> TableLock | NoLock:
    """Return the lock of an output table. A local table's folder must exist."""
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
    """A file that is open for one lock: each holder has its own, so flock also excludes threads.

    If an interrupt comes before the file is in `_files`, Python closes it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "a+")
        _files.add(self)

    def give_back(self) -> None:
        with _opening:
            # A forked child has closed its copy: unlocking a copy would unlock the parent's lock.
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


hold_in_forks(_opening, _close_files_in_child)
