"""Timing of single calls: warm first, then the median, within a budget that is stated when it is exceeded."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class OverBudget(Exception):
    """A call was stopped because it took longer than the budget of a cell."""


@dataclass
class Cell:
    """The times of one call in seconds; `over` is the budget that it exceeded, `note` why there is no figure.

    `cpu` has the seconds of processor time, where they were counted.
    """

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    over: float | None = None
    note: str = ""

    @property
    def median(self) -> float | None:
        """The median, None without a figure."""
        return statistics.median(self.seconds) if self.seconds else None

    def as_json(self) -> dict[str, Any]:
        """What a report needs of it."""
        known = {"median": self.median, "seconds": [round(s, 5) for s in self.seconds]}
        known |= {"cpu": statistics.median(self.cpu)} if self.cpu else {}
        return known | ({"over": self.over} if self.over else {}) | ({"note": self.note} if self.note else {})


@dataclass(frozen=True)
class Patience:
    """How long a call may take, and how often it is repeated for its median; `only` has the keys of what is measured,
    if that is not everything."""

    budget: float = 120.0
    fast: int = 7
    slow: int = 3
    quick: bool = False
    only: tuple[str, ...] = ()

    def wants(self, key: str) -> bool:
        """Whether this is measured."""
        return not self.only or key in self.only

    def repeats(self, warm: float) -> int:
        """How many more times to run what took `warm` seconds when it was run to warm up; 0: that run counts."""
        if warm < 3:
            return 5 if self.quick else self.fast
        if warm < 20:
            return 1 if self.quick else self.slow
        return 0


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds, what `call` answered)."""
    start = time.perf_counter()
    answer = call()
    return time.perf_counter() - start, answer


def median_of(
    call: Callable[[], Any],
    patience: Patience,
    before: Callable[[], Any] | None = None,
    cpu: Callable[[], float] | None = None,
) -> Cell:
    """Warm up, then time `call` as often as `patience` says; `before` runs before each, untimed. `cpu` counts
    processor time."""
    cell = Cell()

    def once() -> float:
        if before is not None:
            before()
        began = cpu() if cpu else 0.0
        seconds = timed(call)[0]
        if cpu:
            cell.cpu.append(cpu() - began)
        return seconds

    try:
        warm = once()
        cell.seconds = [once() for _ in range(patience.repeats(warm))] or [warm]
        cell.cpu = cell.cpu[-len(cell.seconds) :]
    except OverBudget:
        cell.over = patience.budget
    return cell


def say(message: str) -> None:
    """Progress, on stderr."""
    print(f"[{time.strftime('%H:%M:%S')}] {message}", file=sys.stderr, flush=True)
