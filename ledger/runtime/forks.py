"""Forked processes: what a child makes anew, and what it cannot use.

A child has its parent's memory, but none of its threads. A lock that another thread held stays locked there for ever,
and what was half done stays so. So objects that threads share say how they begin anew in a child, before anything runs
there. delta-rs, obstore and a Spark session have threads or connections of their own, which do not come along: a child
of a process that has used one of them cannot use it, and is told so at once.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from ledger.errors import ForkedProcess

Owner = TypeVar("Owner")
#: How objects begin anew.
_renewals: weakref.WeakKeyDictionary[Any, Callable[[Any], object]] = weakref.WeakKeyDictionary()
#: Which process has used a library first: this one, or one that it was forked from.
_users: dict[str, int] = {}
#: How delta-rs and obstore begin to say that they do not run here: as a panic, which is no Exception.
_PANIC = "Forked process detected"


def renew_in_child(owner: Owner, renew: Callable[[Owner], object]) -> None:
    """Calls `renew` with an object in every child that is forked while it lives."""
    _renewals[owner] = renew


def require_own(library: str) -> None:
    """Notes that this process uses a library. Raises ForkedProcess where a process did before this one was forked from
    it."""
    if _users.setdefault(library, os.getpid()) != os.getpid():
        raise ForkedProcess(library)


def is_inherited(library: str) -> bool:
    """Whether `require_own` raises."""
    return _users.get(library, os.getpid()) != os.getpid()


def is_panic(error: BaseException) -> bool:
    """Whether delta-rs or obstore says that a process was forked after others of its parent's code had used them."""
    return not isinstance(error, Exception) and str(error).startswith(_PANIC)


def _renew() -> None:
    for owner, renew in list(_renewals.items()):
        renew(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
