"""Threads that an interrupt does not block, and forked processes: what a child makes anew, and what it cannot use.

KeyboardInterrupt can come between any two instructions of the main thread, even within the Python code of `threading`
and `concurrent.futures`. After that a Condition can stay locked for ever. SimpleQueue and raw threads are C code, which
no interrupt divides.

A lock that another thread holds at a fork stays locked in the child for ever. Objects that threads share therefore
register a function that renews them directly after the fork.

delta-rs, obstore and a Spark session do not work in a child. If an ancestor has used such a library, `require_own`
raises ForkedProcess, instead of a call that hangs or panics.

If another thread uses Arrow's locks or allocator at the fork, the child's next call that needs them would hang. So a
fork waits until no other thread is in a function that is marked `uses_arrow`, for at most FORK_SECONDS. If a thread
still is in one, the marked functions raise ForkedProcess in the child, and no object is renewed there.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import os
import queue
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from ledger.errors import ForkedProcess

Item = TypeVar("Item")
Result = TypeVar("Result")


def start_thread(target: Callable[[], object], name: str) -> None:
    """Start a daemon thread. Raises RuntimeError if no thread can be started."""

    def begin() -> None:
        # Only the main thread gets KeyboardInterrupt, so none comes in the middle of these lines.
        try:
            threading.Thread(target=target, name=name, daemon=True).start()
        except RuntimeError:
            target()

    _thread.start_new_thread(begin, ())


class Job(Generic[Result]):
    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self._answers: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def run(self) -> None:
        try:
            self._answers.put((self._call(), None))
        except BaseException as error:
            self._answers.put((None, error))

    def outcome(self) -> tuple[Result | None, BaseException | None]:
        """Wait for the call's end. Can be called once."""
        return self._answers.get()

    def result(self) -> Result:
        """Return the result or raise the error of the `outcome`."""
        answer, error = self.outcome()
        if error is not None:
            raise error
        return answer  # type: ignore[return-value] # it is None where the call returned None


class Workers:
    """Up to `most` threads for calls. If all of them are busy, a call waits for a thread. No thread ends."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name, self._started = most, name, 0
        self._jobs: queue.SimpleQueue[Job[Any]] = queue.SimpleQueue()
        #: An item for each thread that waits.
        self._waiting: queue.SimpleQueue[None] = queue.SimpleQueue()

    def begin(self, call: Callable[[], Result]) -> Job[Result]:
        """Begin a call in a thread. Make it at once if no thread runs and none can start, or the interpreter ends."""
        job = Job(call)
        if sys.is_finalizing() or not self._has_thread():
            job.run()
        else:
            self._jobs.put(job)
        return job

    def _has_thread(self) -> bool:
        try:
            self._waiting.get_nowait()
        except queue.Empty:
            if self._started < self._most:
                try:
                    start_thread(self._work, self._name)
                except RuntimeError:
                    return self._started > 0
                self._started += 1
        return True

    def _work(self) -> None:
        while True:
            self._jobs.get().run()
            self._waiting.put(None)


def map_at_once(function: Callable[[Item], Result], items: Iterable[Item], most: int) -> list[Result]:
    """Call a function with each item, in up to `most` threads, and return the results in the items' order.

    After all calls have ended, raises the error of the first item that has one. An interrupt of the wait is raised at
    once: running calls continue, and no further call begins.
    """
    jobs = [Job(partial(function, item)) for item in items]
    if len(jobs) == 1:
        jobs[0].run()
        return [jobs[0].result()]
    waiting: queue.SimpleQueue[Job[Result]] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)

    def work() -> None:
        while (job := _take_job(waiting)) is not None:
            job.run()

    try:
        for number in range(min(most, len(jobs))):
            try:
                start_thread(work, "ledger-files")
            except RuntimeError:
                if not number:
                    work()
                break
        outcomes = [job.outcome() for job in jobs]
    except BaseException:
        while _take_job(waiting) is not None:
            pass
        raise
    for _, error in outcomes:
        if error is not None:
            raise error
    return [answer for answer, _ in outcomes]  # type: ignore[misc] # None where the function returned None


def _take_job(jobs: queue.SimpleQueue[Job[Result]]) -> Job[Result] | None:
    try:
        return jobs.get_nowait()
    except queue.Empty:
        return None


Owner = TypeVar("Owner")
Parameters = ParamSpec("Parameters")
#: A fork waits for at most FORK_SECONDS, and keeps calls that use Arrow from beginning for SHUT_SECONDS at a time.
FORK_SECONDS, SHUT_SECONDS, LOOK_SECONDS = 5.0, 0.25, 0.0005
RESEND_DELAY_SECONDS = 0.02
_renewals: weakref.WeakKeyDictionary[Any, Callable[[Any], object]] = weakref.WeakKeyDictionary()
#: By library, the process that used it first: this one, or an ancestor.
_first_user_pids: dict[str, int] = {}
#: The panic of delta-rs and obstore in a forked process. A panic is a BaseException, no Exception.
_PANIC = "Forked process detected"


def renew_in_child(owner: Owner, renew: Callable[[Owner], object]) -> None:
    """Call `renew(owner)` in every child that is forked while `owner` lives, unless Arrow is broken there."""
    _renewals[owner] = renew


def require_own(library: str) -> None:
    """Note that this process uses a library. Raise ForkedProcess if an ancestor used it before the fork."""
    if _first_user_pids.setdefault(library, os.getpid()) != os.getpid():
        raise ForkedProcess(library)


def is_inherited(library: str) -> bool:
    return _first_user_pids.get(library, os.getpid()) != os.getpid()


def is_panic(error: BaseException) -> bool:
    return not isinstance(error, Exception) and str(error).startswith(_PANIC)


class _ArrowUse:
    """The calls that use Arrow, by thread. A thread locks `door` to begin such a call, and to fork."""

    def __init__(self) -> None:
        self.door, self.calls = threading.RLock(), dict[int, object]()
        self.forking: int | None = None
        #: Whether another thread of the parent used Arrow at the fork.
        self.is_broken = False
        #: Calls for which a fork has waited in vain.
        self._given_up = set[object]()

    def begin(self, thread: int) -> None:
        if self.is_broken:
            raise ForkedProcess("Arrow in another thread at that moment")
        if self.forking == thread:
            # A signal handler calls while its thread forks. It may wait for a thread that waits at the door.
            self.open()
        with self.door:
            self.calls[thread] = object()

    def shut(self, thread: int, until: float) -> None:
        """Lock the door for a fork by this thread, and wait until no other thread uses Arrow, at most until `until`.

        A long call must not keep others waiting: after SHUT_SECONDS the door is opened until the calls of that moment
        end. A fork does not begin to wait if only calls run for which the last fork waited in vain.
        """
        while True:
            _acquire_if_not_owned(self.door)
            self.forking = thread
            soon = min(time.monotonic() + SHUT_SECONDS, until)
            while (others := self._others(thread)) and not others <= self._given_up and time.monotonic() < soon:
                time.sleep(LOOK_SECONDS)
            if self.forking != thread:
                continue
            if not others or others <= self._given_up or time.monotonic() >= until:
                self._given_up = others
                return
            self.open()
            new = others - self._given_up
            while not new.isdisjoint(list(self.calls.values())) and time.monotonic() < until:
                time.sleep(LOOK_SECONDS)

    def open(self) -> None:
        self.forking = None
        _release_if_owned(self.door)

    def renew(self) -> None:
        """Start anew in a child. The thread that forked may be in such a call itself."""
        thread = threading.get_ident()
        self.is_broken = self.is_broken or bool(self._others(thread))
        self.door, self.forking, self._given_up = threading.RLock(), None, set()
        self.calls = {thread: self.calls[thread]} if thread in self.calls else {}

    def _others(self, thread: int) -> set[object]:
        return {call for caller, call in list(self.calls.items()) if caller != thread}


def _is_owned(lock: Any) -> bool:
    """Return whether this thread has an RLock. Ask the lock: a signal may come between its taking and a note of it."""
    return bool(lock._is_owned())


def _acquire_if_not_owned(lock: Any) -> None:
    if not _is_owned(lock):
        lock.acquire()


def _release_if_owned(lock: Any) -> None:
    if _is_owned(lock):
        lock.release()


_arrow_use = _ArrowUse()


def uses_arrow(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Let forks by other threads wait for the end of a function."""

    @functools.wraps(function)
    def called(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        thread = threading.get_ident()
        if thread in _arrow_use.calls:
            return function(*arguments, **keywords)
        try:
            _arrow_use.begin(thread)
            return function(*arguments, **keywords)
        finally:
            _arrow_use.calls.pop(thread, None)

    return called


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Return a context in which a function that `uses_arrow` only waits, so that forks need not wait for it."""
    thread = threading.get_ident()
    if _arrow_use.calls.pop(thread, None) is None:
        yield
        return
    try:
        yield
    finally:
        _arrow_use.begin(thread)


_held: list[tuple[Any, Callable[[], object]]] = []


def hold_in_forks(lock: Any, renew: Callable[[], object]) -> None:
    """Take an RLock before each fork, after the wait for other threads, and release it after it in parent and child.

    The child calls `renew` before that. A fork within a fork, by a signal handler, takes and releases nothing.
    """
    _held.append((lock, renew))


class _Forks(threading.local):
    """The forks that this thread is making: a signal handler may fork while another fork waits.

    `locks` has, by fork, the locks that it takes. `interrupt` is the error of a signal handler. Python would ignore it,
    so the signal is sent again after the fork.
    """

    def __init__(self) -> None:
        self.locks: list[list[Any]] = []
        self.interrupt: BaseException | None = None


_forks = _Forks()


def _hold_before_fork() -> None:
    thread, mine, until = threading.get_ident(), list[Any](), time.monotonic() + FORK_SECONDS
    while True:
        try:
            if not any(locks is mine for locks in _forks.locks):
                if _arrow_use.forking != thread:
                    # A signal handler may fork while its thread has a lock.
                    mine[:] = [lock for lock in (_arrow_use.door, *(lock for lock, _ in _held)) if not _is_owned(lock)]
                _forks.locks.append(mine)
            if _arrow_use.door in mine:
                _arrow_use.shut(thread, until)
            for lock in mine:
                _acquire_if_not_owned(lock)
            return
        except BaseException as interrupt:
            # Each step above can be repeated.
            _forks.interrupt = interrupt


def _release() -> None:
    mine = _forks.locks[-1] if _forks.locks else []
    while True:
        try:
            if _arrow_use.door in mine:
                _arrow_use.forking = None
            for lock in reversed(mine):
                _release_if_owned(lock)
            if _forks.locks and _forks.locks[-1] is mine:
                _forks.locks.pop()
            return
        except BaseException as interrupt:
            _forks.interrupt = interrupt


def _let_signals_land() -> None:
    """Do nothing, in place of a function that must run: Python handles a waiting signal when a function begins.

    If the signal's handler raises beside a fork, Python leaves out that function and ignores the error.
    """


def _release_in_parent() -> None:
    _release()
    interrupt, _forks.interrupt = _forks.interrupt, None
    if interrupt is not None:
        number = signal.SIGTERM if isinstance(interrupt, SystemExit) else signal.SIGINT
        # Python ignores an error in this function, too.
        later = threading.Timer(RESEND_DELAY_SECONDS, _thread.interrupt_main, [number])
        later.daemon = True
        later.start()


def _start_anew_in_child() -> None:
    _forks.interrupt = None
    for _, renew in _held:
        renew()
    _release()
    _arrow_use.renew()
    if _arrow_use.is_broken:
        # A renewal may free Arrow's memory, which may hang.
        return
    for owner, renew_owner in list(_renewals.items()):
        renew_owner(owner)


if hasattr(os, "register_at_fork"):
    # `_let_signals_land` runs first, before and after a fork: Python calls what is for `before` in reverse order.
    os.register_at_fork(after_in_parent=_let_signals_land)
    os.register_at_fork(
        before=_hold_before_fork, after_in_parent=_release_in_parent, after_in_child=_start_anew_in_child
    )
    os.register_at_fork(before=_let_signals_land)
