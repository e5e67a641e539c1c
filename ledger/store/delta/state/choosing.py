"""Which lanes and which runs a receive takes. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from ledger.store.delta.model import run_algebra
from ledger.store.delta.model.run_algebra import Runs

#: Runs with their order: first, last, code, order.
Columns = tuple[np.ndarray, ...]


def choose_lanes(available: Mapping[int, int], maximum: int | None, losses: int) -> list[int]:
    """As few lanes as the claim needs: one that can fill it, at random, else the fullest ones.

    A transaction over many lanes conflicts with everybody, so every second loss halves how many are tried.
    """
    lanes = [lane for lane, messages in available.items() if messages]
    random.shuffle(lanes)
    if maximum is not None:
        for lane in lanes:
            if available[lane] >= maximum:
                return [lane]
    lanes.sort(key=lambda lane: -available[lane])
    chosen: list[int] = []
    for lane in lanes[: _most(len(lanes), losses)]:
        chosen.append(lane)
        if maximum is not None and sum(available[c] for c in chosen) >= maximum:
            break
    return sorted(chosen)


def choose_lanes_in_order(lanes: Sequence[int], losses: int) -> list[int]:
    """All lanes, as the order of a FIFO queue knows none. But all receivers want what is first in it, and where nothing
    makes them wait for each other one could lose for ever: every second loss halves how many are tried, whichever."""
    chosen, most = list(lanes), _most(len(lanes), losses)
    if most < len(chosen):
        random.shuffle(chosen)
    return sorted(chosen[:most])


def _most(lanes: int, losses: int) -> int:
    return max(1, lanes >> (losses // 2))


def first_in_order(runs: Runs, order: np.ndarray, maximum: int | None) -> Runs:
    """The first messages in `order`, at most `maximum`: the last run is cut, at its end. Sorted by place."""
    return Deal(runs, order).take(maximum)[0]


class Deal:
    """Deals messages out by `order`, a number for each run, smaller first, to one claim after the other.

    `shift`: on FIFO queues, where a run is a message and the numbers of a group share what is above so many bits. What
    a claim leaves of a group that it has begun is nobody's: no more of it is returned while any of it is in flight.
    """

    def __init__(self, runs: Runs, order: np.ndarray, shift: int | None = None) -> None:
        self._shift = shift
        #: What comes later, and what comes next, sorted: all up to the number `_reached` that is not dealt out.
        self._later: Columns = (*runs, order)
        self._reached = -1
        self._next: Columns = tuple(column[:0] for column in self._later)

    def take(self, maximum: int | None) -> tuple[Runs, np.ndarray]:
        """The next messages, at most `maximum`, and the number of each run: the last one is cut, at its end. Sorted by
        place."""
        self._reach(maximum)
        taken, self._next = _cut(self._next, maximum)
        *runs, order = taken
        if self._shift is not None and len(order):
            group = int(order.max()) >> self._shift
            self._reached = max(self._reached, ((group + 1) << self._shift) - 1)
            self._next = _where(self._next, self._next[-1] >> self._shift != group)
        sort = np.argsort(runs[0], kind="stable")
        return Runs(*(column[sort] for column in runs)), order[sort]

    def _reach(self, maximum: int | None) -> None:
        """Brings so many messages from what comes later to what comes next, or all."""
        first, last, *_ = self._next
        missing = None if maximum is None else maximum - int(run_algebra.lengths(first, last).sum())
        if missing is not None and missing <= 0:
            return
        if self._reached >= 0:
            # Not the first claim: some more, so that the following ones need not look through all of it again.
            self._later = _where(self._later, self._later[-1] > self._reached)
            missing = None if missing is None else 4 * missing + len(first)
        some = self._later
        order = some[-1]
        if missing is not None and missing < len(order):
            # No run is empty: so many are enough. To find them costs a tenth of putting all in order.
            some = _where(some, order <= np.partition(order, missing - 1)[missing - 1])
        if len(some[-1]):
            self._reached = max(self._reached, int(some[-1].max()))
            if maximum is not None:
                some = _where(some, np.argsort(some[-1], kind="stable"))
            self._next = tuple(np.concatenate(both) for both in zip(self._next, some))


def _cut(columns: Columns, maximum: int | None) -> tuple[Columns, Columns]:
    """The first messages of (first, last, code, order), at most `maximum`, and the rest."""
    first, last, *_ = columns
    through = np.cumsum(run_algebra.lengths(first, last))
    if maximum is None or not len(through) or through[-1] <= maximum:
        return columns, tuple(column[:0] for column in columns)
    count = int(np.searchsorted(through, maximum))
    begun = maximum - (int(through[count - 1]) if count else 0)
    taken, left = (tuple(column[part].copy() for column in columns) for part in (slice(count + 1), slice(count, None)))
    taken[1][-1] = left[0][0] + begun - 1
    left[0][0] += begun
    if not begun:
        taken = tuple(column[:-1] for column in taken)
    return taken, left if left[0][0] <= left[1][0] else tuple(column[1:] for column in left)


def _where(columns: Columns, chosen: np.ndarray) -> Columns:
    return tuple(column[chosen] for column in columns)
