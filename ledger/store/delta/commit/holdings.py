"""What each thread holds at the moment: its turns and its file locks.

An interrupt (KeyboardInterrupt) comes between any two instructions, also within the code that gives a lock back, where
no `finally` helps. So a thread notes what it is about to hold before it takes it. A function that is `releasing` gives
back whatever was noted since it began and is still held when an error ends it. To give back twice does nothing.
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
    """Notes how the calling thread gives back what it takes next."""
    _noted.releases.append(release)


def forget(release: Callable[[], object]) -> None:
    """Forgets what was noted, and is given back now."""
    if release in _noted.releases:
        _noted.releases.remove(release)


def releasing(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Makes a function give back what its thread has taken within it, when any error ends it."""

    @functools.wraps(function)
    def called(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        before = len(_noted.releases)
        try:
            return function(*arguments, **keywords)
        except BaseException:
            # The newest first: a file's lock before the turn that it was taken in.
            while len(_noted.releases) > before:
                _noted.releases[-1]()
                _noted.releases.pop()
            raise

    return called
