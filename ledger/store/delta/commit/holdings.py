"""The turns and file locks that each thread holds at the moment.

A KeyboardInterrupt may come within the code that gives a lock back, where `finally` does not help. So a thread notes
each lock or turn before taking it. If an error ends a `releasing` function, it gives back what its thread still has
noted. To give back twice does no harm.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

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
    """Make a function that an error ends give back the locks and turns that its thread took within it."""

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
