"""The bound on the messages of a queue (MaximumMessages).

Two sends at once cannot exceed the bound together. Sends to a standard queue with a bound are counted in the log, as
sends to any FIFO queue are. A counted send reads the count of sends, then counts the queue's messages, and commits only
as the next send of the count. The bound does not apply to moves, because a dead letter must have a queue to go to. The
bound does not apply to restores, either.
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
    """The checks of a queue's bound that sends make."""

    opened: OpenTables

    def next_send(self, queue: QueueRecord) -> tuple[str, int] | None:
        """Return the transaction that a send to a standard queue must commit with (None: the queue has no bound).

        Call this method before the send reads anything else that the send decides on.
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
