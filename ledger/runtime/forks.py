"""Forked processes: what a child makes anew, and what it cannot use.

A child has its parent's memory, but only the thread that forked. In the child, a lock that another thread held stays
locked for ever. Objects that threads share therefore register a function, which renews them in a child directly after
the fork.

delta-rs, obstore and a Spark session have threads and connections that do not work in a child. If a process has used
one of these libraries, its child gets ForkedProcess from `require_own`, instead of a call that hangs or panics.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from ledger.errors import ForkedProcess

Owner = TypeVar("Owner")
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


def _renew() -> None:
    for owner, renew in list(_renewals.items()):
        renew(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
