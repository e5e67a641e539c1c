"""Which messages of a queue a receive may take, and which lanes and runs of them it takes. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ledger.rules.attributes import is_fifo
from ledger.rules.state import Status
from ledger.store.delta.model.run_algebra import Ordered
from ledger.store.delta.state.fifo_groups import Groups
from ledger.store.delta.state.snapshot import Classified, Loaded
from ledger.store.delta.state.statuses import INDEX


def receivable(loaded: Loaded, classified: Classified, groups: Groups, most: int | None = None) -> Ordered:
    """Runs with the codes of what is recorded, in the order of receiving. On FIFO queues what `rules.fifo` lets be
    received and in its order, a message a run, whatever lanes they are in; else all that is visible, the oldest sent
    first. With `most`, where there are many groups it may be that of only so many messages, and what is dead."""
    if is_fifo(loaded.queue.attributes):
        return groups.receivable(loaded, classified, most)
    visible = classified.pieces.where(classified.state == INDEX[Status.VISIBLE])
    order = np.empty(len(visible), dtype=np.int64)
    order[np.lexsort((visible.first, classified.files.sent_at[visible.query]))] = np.arange(len(visible))
    return Ordered(visible.first, visible.last, visible.code, order)


#: Every so many losses, half as many lanes are tried.
LOSSES_TO_HALVE = 2


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
    return max(1, lanes >> (losses // LOSSES_TO_HALVE))


def first_in_order(runs: Ordered, maximum: int | None) -> Ordered:
    """The first messages in the order, at most `maximum`: the last run is cut, at its end. Sorted by place."""
    return Deal(runs).take(maximum)


class Deal:
    """Deals messages out in the order of their runs, to one claim after the other.

    `shift`: on FIFO queues, where a run is a message and the numbers of a group share what is above so many bits. What
    a claim leaves of a group that it has begun is nobody's: no more of it is returned while any of it is in flight.
    """

    def __init__(self, runs: Ordered, shift: int | None = None) -> None:
        self._shift = shift
        #: What comes later, and what comes next, sorted: all up to the number `_reached` that is not dealt out.
        self._later = runs
        self._reached = -1
        self._next = runs.where(np.empty(0, dtype=np.int64))

    def take(self, maximum: int | None) -> Ordered:
        """The next messages, at most `maximum`: the last run is cut, at its end. Sorted by place."""
        self._reach(maximum)
        taken, self._next = _cut(self._next, maximum)
        if self._shift is not None and len(taken):
            group = int(taken.order.max()) >> self._shift
            self._reached = max(self._reached, ((group + 1) << self._shift) - 1)
            self._next = self._next.where(self._next.order >> self._shift != group)
        return taken.where(np.argsort(taken.first, kind="stable"))

    def _reach(self, maximum: int | None) -> None:
        """Brings so many messages from what comes later to what comes next, or all."""
        missing = None if maximum is None else maximum - self._next.count
        if missing is not None and missing <= 0:
            return
        if self._reached >= 0:
            # Not the first claim: some more, so that the following ones need not look through all of it again.
            self._later = self._later.where(self._later.order > self._reached)
            missing = None if missing is None else 4 * missing + len(self._next)
        some = self._later
        if missing is not None and missing < len(some):
            # No run is empty: so many are enough. To find them costs a tenth of putting all in order.
            some = some.where(some.order <= np.partition(some.order, missing - 1)[missing - 1])
        if len(some):
            self._reached = max(self._reached, int(some.order.max()))
            if maximum is not None:
                some = some.where(np.argsort(some.order, kind="stable"))
            self._next = Ordered.concatenated([self._next, some])


def _cut(runs: Ordered, maximum: int | None) -> tuple[Ordered, Ordered]:
    """The first messages, at most `maximum`, and the rest."""
    through = np.cumsum(runs.lengths)
    if maximum is None or not len(runs) or through[-1] <= maximum:
        return runs, runs.where(np.empty(0, dtype=np.int64))
    whole = int(np.searchsorted(through, maximum, "right"))
    begun = maximum - (int(through[whole - 1]) if whole else 0)
    taken, left = runs.where(slice(whole + bool(begun))), runs.where(slice(whole, None))
    if begun:
        # Slices are the same memory: what is cut is copied.
        taken, left = replace(taken, last=taken.last.copy()), replace(left, first=left.first.copy())
        taken.last[-1] = left.first[0] + begun - 1
        left.first[0] += begun
    return taken, left
