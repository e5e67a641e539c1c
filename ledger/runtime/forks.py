"""Forked processes: what a child makes anew, and what it cannot use.

A child has its parent's memory, but only the thread that forked. In the child, a lock that another thread held stays
locked for ever. Objects that threads share therefore register a function, which renews them in a child directly after
the fork.

delta-rs, obstore and a Spark session have threads and connections that do not work in a child. If a process has used
one of these libraries, its child gets ForkedProcess from `require_own`, instead of a call that hangs or panics.

Arrow has locks and an allocator that another thread of the parent may be using at the moment of the fork. In the child,
the next call that needs them would hang. So a fork waits until no other thread is in a function that is marked
`uses_arrow`. After FORK_SECONDS it waits no longer. Then the marked functions raise ForkedProcess in the child.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from ledger.errors import ForkedProcess

Owner = TypeVar("Owner")
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
#: The most seconds that a fork waits for other threads' calls, and the seconds between two looks.
FORK_SECONDS, LOOK_SECONDS = 5.0, 0.0005
#: By object, the function that renews it in a child.
_renewals: weakref.WeakKeyDictionary[Any, Callable[[Any], object]] = weakref.WeakKeyDictionary()
#: By library, the id of the process that used it first: this process, or an ancestor from which it was forked.
_first_user_pids: dict[str, int] = {}
#: The beginning of the panic of delta-rs and obstore in a forked process. A panic is a BaseException, no Exception.
_PANIC = "Forked process detected"


def renew_in_child(owner: Owner, renew: Callable[[Owner], object]) -> None:
    """Call `renew(owner)` in every child that is forked while `owner` lives."""
    _renewals[owner] = renew


def require_own(library: str) -> None:
    """Note that this process uses a library. Raise ForkedProcess if an ancestor used it before the fork."""
    if _first_user_pids.setdefault(library, os.getpid()) != os.getpid():
        raise ForkedProcess(library)


def is_inherited(library: str) -> bool:
    """Return whether `require_own` would raise ForkedProcess."""
    return _first_user_pids.get(library, os.getpid()) != os.getpid()


def is_panic(error: BaseException) -> bool:
    """Return whether an error is the panic of delta-rs or obstore in a process that was forked after their use."""
    return not isinstance(error, Exception) and str(error).startswith(_PANIC)


class _ArrowUse:
    """The threads that are in functions which use Arrow. `gate` is held to begin such a function, and during a fork."""

    def __init__(self) -> None:
        self.gate, self.threads = threading.Lock(), set[int]()
        #: Whether another thread of the parent used Arrow when this process was forked.
        self.is_broken = False

    def begin(self, thread: int) -> None:
        """Note a thread. While a fork waits or is made, wait."""
        if self.is_broken:
            raise ForkedProcess("Arrow in another thread at that moment")
        with self.gate:
            self.threads.add(thread)

    def await_end(self) -> None:
        """Wait for the other threads. The caller holds the gate."""
        until = time.monotonic() + FORK_SECONDS
        while self._others() and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)

    def renew(self) -> None:
        """Start anew in a child. The thread that forked may be in such a function itself."""
        self.gate, self.is_broken = threading.Lock(), self.is_broken or bool(self._others())
        self.threads &= {threading.get_ident()}

    def _others(self) -> set[int]:
        return self.threads - {threading.get_ident()}


_arrow_use = _ArrowUse()
#: For each call of `hold_in_forks`: what it was given.
_held: list[tuple[Callable[[], object], Callable[[], object], Callable[[], object]]] = []


def uses_arrow(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Let forks by other threads wait for the end of a function (see the module). In a child it may raise
    ForkedProcess."""

    @functools.wraps(function)
    def called(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        thread = threading.get_ident()
        if thread in _arrow_use.threads:
            return function(*arguments, **keywords)
        try:
            _arrow_use.begin(thread)
            return function(*arguments, **keywords)
        finally:
            _arrow_use.threads.discard(thread)

    return called


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Return a context in which a function that `uses_arrow` uses none: it waits, and forks do not wait for it."""
    thread = threading.get_ident()
    if thread not in _arrow_use.threads:
        yield
        return
    _arrow_use.threads.discard(thread)
    try:
        yield
    finally:
        _arrow_use.begin(thread)


def hold_in_forks(acquire: Callable[[], object], release: Callable[[], object], renew: Callable[[], object]) -> None:
    """Call `acquire` before each fork, after the wait for other threads.

    After the fork, call `release` in parent and child if `acquire` returned. In the child, call `renew` before.
    """
    _held.append((acquire, release, renew))


#: The releases of what the thread that forks has acquired, oldest first. If an interrupt ends `_before`, Python still
#: forks.
_acquired: list[Callable[[], object]] = []


def _before() -> None:
    _arrow_use.gate.acquire()
    _acquired.append(_arrow_use.gate.release)
    _arrow_use.await_end()
    for acquire, release, _ in _held:
        acquire()
        _acquired.append(release)


def _release() -> None:
    while _acquired:
        _acquired.pop()()


def _in_child() -> None:
    for _, _, renew in _held:
        renew()
    _release()
    _arrow_use.renew()
    if _arrow_use.is_broken:
        # A renewal may free Arrow's memory, which may hang.
        return
    for owner, renew_owner in list(_renewals.items()):
        renew_owner(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_release, after_in_child=_in_child)
