"""The progress of long work: shown to a person who watches, otherwise logged."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ledger.errors import InvalidParameterValue

LINE_EVERY_SECONDS = 10.0


def is_interactive() -> bool:
    """Return whether a person types this process's commands: in a notebook, IPython, or Python's own prompt."""
    return hasattr(sys, "ps1")


def choose_report(chosen: Callable[[str], None] | None, log: Callable[[str], None]) -> Callable[[str], None]:
    """Return `chosen`, or by default a function that prints in an interactive process, and `log` elsewhere."""
    return chosen or (_say if is_interactive() else log)


class Meter:
    """Shows the progress of work as a bar, or as lines. If a bar cannot be drawn, the work continues.

    Args:
        what: The name of the counted things, in the plural.
        show: True for a bar, False for lines. None means a bar if `rich` is installed, and stderr is a terminal or the
            process is a notebook's.

    Raises:
        InvalidParameterValue: `show` is True and `rich` is not installed, or `show` is not True, False or None.
    """

    def __init__(self, what: str, total: int | None, say: Callable[[str], None], *, show: bool | None = None) -> None:
        if not isinstance(show, (bool, type(None))):
            raise InvalidParameterValue("bar", show, "Must be True, False or None")
        self._what, self._total, self._say = what, total, say
        self._begun = self._said = time.monotonic()
        self._bar = _make_bar(what, total) if show or (show is None and _can_show_bar()) else None
        if show and self._bar is None:
            raise InvalidParameterValue("bar", show, "A bar needs rich", "pip install 'ledger-queue[progress]'.")

    def __enter__(self) -> Meter:
        self._begun = self._said = time.monotonic()
        if self._bar is not None:
            with suppress(OSError):
                self._bar[0].start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar[0].stop()

    def update(self, done: int, failed: int = 0, cost: float = 0) -> None:
        now = time.monotonic()
        if self._bar is not None:
            bar, task = self._bar
            total = None if self._total is None else max(self._total, done)
            rate = done / max(now - self._begun, 0.001)
            with suppress(OSError):
                bar.update(
                    task, completed=done, total=total, beside=f"{rate:,.1f} a second{_format_beside(failed, cost)}"
                )
        elif now - self._said >= LINE_EVERY_SECONDS:
            self._said = now
            self._say(format_line(self._what, done, failed, self._total, now - self._begun, cost))


def format_line(what: str, done: int, failed: int, total: int | None, seconds: float, cost: float) -> str:
    rate = done / max(seconds, 0.001)
    of = f" of {total:,}" if total is not None and total >= done else ""
    left = f", {_format_duration((total - done) / rate)} left" if of and rate and total is not None else ""
    return f"{done:,}{of} {what} done{_format_beside(failed, cost)}, {rate:,.1f} a second{left}"


def _format_beside(failed: int, cost: float) -> str:
    return (f", {failed:,} failed" if failed else "") + (f", cost {cost:,.10g}" if cost else "")


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _can_show_bar() -> bool:
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


def _make_bar(what: str, total: int | None) -> tuple[Any, Any] | None:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    beside = TextColumn("{task.fields[beside]}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), beside)
    bar = Progress(*columns, console=Console(stderr=True))
    return bar, bar.add_task(what, total=total, beside="")


def _say(step: str) -> None:
    print(step, flush=True)
