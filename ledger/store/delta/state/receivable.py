"""Which messages of a queue a receive may take, as runs with a place in the order each."""

from __future__ import annotations

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
