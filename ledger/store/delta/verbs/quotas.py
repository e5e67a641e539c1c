"""The bounds on the messages of a queue (MaximumMessages) and on the bytes that they take (MaximumStoredBytes).

Two sends at once cannot exceed a bound together. A send to a bounded queue reads the count of sends in the log, then
counts the queue's messages, and commits only as the next send of the count. Moves and restores are not bounded: a dead
letter must have a queue to go to.

The bytes of stored messages are those of their data files (compressed Parquet). A send of a DataFrame counts its own
files. All other sends count their messages as SQS measures them, and can pass the bound by what Parquet adds to small
files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ledger.clock import Clock
from ledger.rules import admission
from ledger.rules.attributes import limits_of
from ledger.rules.message import Entry, size_of_message
from ledger.store.delta.state.open_tables import OpenTables
from ledger.store.protocol import QueueRecord


def is_bounded(queue: QueueRecord) -> bool:
    return bool(bounds_of(queue))


def bounds_of(queue: QueueRecord) -> list[str]:
    return [name for name in ("MaximumMessages", "MaximumStoredBytes") if int(queue.attributes.get(name, 0))]


def size_of_messages(entries: Iterable[Entry]) -> Callable[[], int]:
    return lambda: sum(map(size_of_message, entries))


@dataclass(frozen=True)
class Quotas:
    opened: OpenTables

    def next_send(self, queue: QueueRecord) -> tuple[str, int] | None:
        """Return the transaction that a send to a bounded standard queue must commit with, else None.

        Call this method before the send reads anything else that the send decides on.
        """
        if not is_bounded(queue):
            return None
        application = admission.counted_sends(queue.id)
        return application, (self.opened.tables.transaction_version("messages", application) or 0) + 1

    def require_room(self, queue: QueueRecord, more: int, size: Callable[[], int], clock: Clock) -> None:
        """Raise OverLimit if the queue has no room for `more` messages, or for their bytes.

        `size` returns these bytes. It is called only for a queue with MaximumStoredBytes.
        """
        if not is_bounded(queue):
            return
        bounds, classified = limits_of(queue.attributes), self.opened.load(queue, clock).classify(self.opened.listings)
        admission.require_room(queue.name, classified.stored_messages(), more, bounds)
        if bounds.maximum_stored_bytes is not None:
            admission.require_bytes(queue.name, classified.stored_bytes(), size(), bounds)
