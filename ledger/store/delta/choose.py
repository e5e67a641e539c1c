"""Which lanes and which runs a receive takes. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from ledger.store.delta.axis import Runs


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


def first_in_order(runs: Runs, order: np.ndarray, maximum: int | None) -> tuple[Runs, np.ndarray]:
    """The first messages in `order`, at most `maximum`: the last run is cut, at its end. Sorted by place, and the order
    of each."""
    first, last, code = runs
    if maximum is not None:
        if 0 < maximum < len(order):
            # No run is empty: so many are enough. To find them costs a tenth of putting all in order.
            some = np.flatnonzero(order <= np.partition(order, maximum - 1)[maximum - 1])
            first, last, code, order = first[some], last[some], code[some], order[some]
        sort = np.argsort(order, kind="stable")
        through = np.cumsum(last[sort] - first[sort] + 1)
        count = min(int(np.searchsorted(through, maximum)) + 1, len(first)) if maximum else 0
        sort = sort[:count]
        first, last, code, order = first[sort], last[sort], code[sort], order[sort]
        if count:
            last[-1] -= max(0, int(through[count - 1]) - maximum)
    sort = np.argsort(first, kind="stable")
    return Runs(first[sort], last[sort], code[sort]), order[sort]
