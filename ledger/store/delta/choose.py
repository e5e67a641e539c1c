"""Which lanes and which runs a receive takes. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from ledger.store.delta.axis import Runs


def choose_lanes(available: Mapping[int, int], maximum: int | None, losses: int) -> list[int]:
    """As few lanes as the claim needs: one that can fill it, at random, else the fullest ones.

    A transaction over many lanes conflicts with everybody, so every second loss halves how many are tried.
    """
    lanes = [lane for lane, messages in available.items() if messages]
    random.shuffle(lanes)
    most = max(1, len(lanes) >> (losses // 2))
    if maximum is not None:
        for lane in lanes:
            if available[lane] >= maximum:
                return [lane]
    lanes.sort(key=lambda lane: -available[lane])
    chosen: list[int] = []
    for lane in lanes[:most]:
        chosen.append(lane)
        if maximum is not None and sum(available[c] for c in chosen) >= maximum:
            break
    return sorted(chosen)


def first_in_order(runs: Runs, order: np.ndarray, maximum: int | None) -> Runs:
    """The first messages in `order`, at most `maximum`: the last run is cut, at its end. Sorted by place."""
    sort = np.argsort(order, kind="stable")
    first, last, code = (column[sort] for column in runs)
    if maximum is not None:
        through = np.cumsum(last - first + 1)
        count = min(int(np.searchsorted(through, maximum)) + 1, len(first)) if maximum else 0
        first, last, code = first[:count], last[:count].copy(), code[:count]
        if count:
            last[-1] -= max(0, int(through[count - 1]) - maximum)
    sort = np.argsort(first, kind="stable")
    return Runs(first[sort], last[sort], code[sort])
