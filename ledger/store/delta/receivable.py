"""Which messages of a queue a receive may take, as runs with a place in the order each."""

from __future__ import annotations

import numpy as np

from ledger.rules.attributes import is_fifo
from ledger.rules.state import Status
from ledger.store import QueueRecord
from ledger.store.delta.axis import Pieces, Runs
from ledger.store.delta.deciding import Loaded
from ledger.store.delta.existing import INDEX
from ledger.store.delta.groups import Groups
from ledger.store.delta.stock import Stock


def receivable(
    queue: QueueRecord, loaded: Loaded, stock: Stock, pieces: Pieces, state: np.ndarray, groups: Groups
) -> tuple[Runs, np.ndarray]:
    """(runs with the codes of what is recorded, their order: smaller first). On FIFO queues each group's free prefix,
    in order (F2); else all that is visible, the oldest sent first."""
    if is_fifo(queue.attributes):
        return groups.receivable(queue, loaded, stock, pieces, state)
    at = np.flatnonzero(state == INDEX[Status.VISIBLE])
    order = np.empty(len(at), dtype=np.int64)
    order[np.lexsort((pieces.first[at], stock.sent_at[pieces.query[at]]))] = np.arange(len(at))
    return Runs(pieces.first[at], pieces.last[at], pieces.code[at]), order
