"""Which lanes and which runs a receive takes. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np


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


def oldest_up_to(
    sent_at: np.ndarray, first: np.ndarray, last: np.ndarray, maximum: int | None
) -> tuple[np.ndarray, ...]:
    """(which runs, first, last): the oldest sent first, the last one cut so that they hold at most `maximum`."""
    order = np.lexsort((first, sent_at))
    first, last = first[order], last[order]
    if maximum is None:
        return order, first, last
    through = np.cumsum(last - first + 1)
    count = min(int(np.searchsorted(through, maximum)) + 1, len(order))
    first, last = first[:count], last[:count].copy()
    if count:
        last[-1] -= max(0, int(through[count - 1]) - maximum)
    return order[:count], first, last
