"""How long work tells how far it is: to whoever sits in front of it, and to the log where nobody does."""

from __future__ import annotations

import sys
from collections.abc import Callable


def is_interactive() -> bool:
    """Whether somebody types what this process does: a notebook, IPython, or Python's own prompt."""
    return hasattr(sys, "ps1")


def report(given: Callable[[str], None] | None, log: Callable[[str], None]) -> Callable[[str], None]:
    """What is `given`; without it steps are printed where this process is interactive, and logged elsewhere."""
    return given or (_say if is_interactive() else log)


def _say(step: str) -> None:
    print(step, flush=True)
