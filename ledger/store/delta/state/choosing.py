"""The choice of the messages, lanes and runs that a receive takes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ledger.rules.attributes import is_fifo
from ledger.rules.visibility import Status
from ledger.store.delta.model.message_runs import Ordered
from ledger.store.delta.state.fifo_groups import Groups
from ledger.store.delta.state.listing import INDEX
from ledger.store.delta.state.snapshot import Classified, Loaded


def find_receivable(loaded: Loaded, classified: Classified, groups: Groups, most: int | None = None) -> Ordered:
    """Return the runs that a receive may take, with the codes of their records, ranked in the order of receiving.

    For a FIFO queue, each run is a message that `rules.fifo` allows. With `most`, groups may be left out, but neither
    the first `most` messages nor dead letters. For other queues, the rank follows the runs' `sent_at` (see `FileRuns`).
    """
    if is_fifo(loaded.queue.attributes):
        return groups.find_receivable(loaded, classified, most)
    visible = classified.pieces.where(classified.state == INDEX[Status.VISIBLE])
    order = np.empty(len(visible), dtype=np.int64)
    order[np.lexsort((visible.first, classified.files.sent_at[visible.query]))] = np.arange(len(visible))
    return Ordered(visible.first, visible.last, visible.code, order)


LOSSES_TO_HALVE = 2


def choose_lanes(available: Mapping[int, int], maximum: int | None, losses: int) -> list[int]:
    """Choose as few lanes as the claim needs: a random lane that can fill the claim, else the fullest lanes.

    A commit to many lanes conflicts with every commit to one of them, so each LOSSES_TO_HALVE losses halve the lanes to
    try. `maximum` None: the claim may have all messages.
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
    """Choose all lanes of a FIFO queue, because its order does not follow lanes.

    After losses, choose fewer at random: otherwise a receiver without file locks could lose for ever.
    """
    chosen, most = list(lanes), _most(len(lanes), losses)
    if most < len(chosen):
        random.shuffle(chosen)
    return sorted(chosen[:most])


def _most(lanes: int, losses: int) -> int:
    return max(1, lanes >> (losses // LOSSES_TO_HALVE))


def take_first(runs: Ordered, maximum: int | None) -> Ordered:
    return Deal(runs).take(maximum)


class Deal:
    """Deals messages out by their order numbers, to one claim after the other.

    With `shift` (FIFO queues), each run is a message, and order numbers of a group share the bits from `shift` on. If a
    claim takes part of a group, no later claim gets the rest.
    """

    def __init__(self, runs: Ordered, shift: int | None = None) -> None:
        self._shift = shift
        #: The unsorted runs, at least all with order numbers above `_reached`. `_next` has the earlier runs.
        self._later = runs
        self._reached = -1
        self._next = runs.where(np.empty(0, dtype=np.int64))

    def take(self, maximum: int | None) -> Ordered:
        """Return the next messages, at most `maximum`, sorted by place. The last run may be cut short."""
        self._reach(maximum)
        taken, self._next = _cut(self._next, maximum)
        if self._shift is not None and len(taken):
            group = int(taken.order.max()) >> self._shift
            self._reached = max(self._reached, ((group + 1) << self._shift) - 1)
            self._next = self._next.where(self._next.order >> self._shift != group)
        return taken.where(np.argsort(taken.first, kind="stable"))

    def _reach(self, maximum: int | None) -> None:
        """Move to `_next` the later runs that it lacks for `maximum` messages."""
        missing = None if maximum is None else maximum - self._next.count
        if missing is not None and missing <= 0:
            return
        if self._reached >= 0:
            self._later = self._later.where(self._later.order > self._reached)
            missing = None if missing is None else 4 * missing + len(self._next)
        nearest = self._later
        if missing is not None and missing < len(nearest):
            # A partition is faster than sorting all runs.
            nearest = nearest.where(nearest.order <= np.partition(nearest.order, missing - 1)[missing - 1])
        if len(nearest):
            self._reached = max(self._reached, int(nearest.order.max()))
            if maximum is not None:
                nearest = nearest.where(np.argsort(nearest.order, kind="stable"))
            self._next = Ordered.concatenate([self._next, nearest])


def _cut(runs: Ordered, maximum: int | None) -> tuple[Ordered, Ordered]:
    through = np.cumsum(runs.lengths)
    if maximum is None or not len(runs) or through[-1] <= maximum:
        return runs, runs.where(np.empty(0, dtype=np.int64))
    whole = int(np.searchsorted(through, maximum, "right"))
    begun = maximum - (int(through[whole - 1]) if whole else 0)
    taken, remaining = runs.where(slice(whole + bool(begun))), runs.where(slice(whole, None))
    if begun:
        # Slices share memory with `runs`.
        taken, remaining = replace(taken, last=taken.last.copy()), replace(remaining, first=remaining.first.copy())
        taken.last[-1] = remaining.first[0] + begun - 1
        remaining.first[0] += begun
    return taken, remaining
