"""The most messages that a queue may have, decided in a send's commit.

So no two sends can exceed the bound together. A standard queue's sends are blind appends, which do not see each other.
Sends to a queue with a bound are counted in the log, as sends to a FIFO queue are. A send reads the count, then counts
the queue's messages, and commits only as the next send of the count. Deletes meanwhile only make room. The bound does
not apply to moves: a dead letter has to go somewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ledger.clock import Clock
from ledger.rules import admission
from ledger.rules.attributes import limits_of
from ledger.store.delta.state.open_tables import OpenTables
from ledger.store.delta.state.statuses import GONE_STATES
from ledger.store.protocol import QueueRecord


def is_bounded(queue: QueueRecord) -> bool:
    """Tell whether the queue has a bound on its messages."""
    return limits_of(queue.attributes).maximum_messages is not None


@dataclass(frozen=True)
class Quotas:
    """What sends ask about a queue's bound."""

    opened: OpenTables

    def next_send(self, queue: QueueRecord) -> tuple[str, int] | None:
        """Return the transaction under which a send must be committed, as known now; None: the queue has no bound.

        Call this before everything else that the send decides on.
        """
        if not is_bounded(queue):
            return None
        application = admission.counted_sends(queue.id)
        return application, (self.opened.tables.transaction_version("messages", application) or 0) + 1

    def require_room(self, queue: QueueRecord, more: int, clock: Clock) -> None:
        """Raise OverLimit if the queue has no room for `more` messages."""
        if not is_bounded(queue):
            return
        _, _, pieces, state = self.opened.load(queue, clock).classify(self.opened.listings)
        message_count = pieces.where(~np.isin(state, GONE_STATES)).count
        admission.require_room(queue.name, message_count, more, limits_of(queue.attributes))
