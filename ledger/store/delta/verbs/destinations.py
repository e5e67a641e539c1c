"""The queues that the messages of a verb may move to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ledger.clock import Clock
from ledger.rules import redrive
from ledger.store.delta.state.open_tables import OpenTables
from ledger.store.delta.state.snapshot import Loaded
from ledger.store.delta.verbs.queues import Queues
from ledger.store.protocol import QueueRecord


def dead_letter_queues(queues: Queues, queue: QueueRecord) -> list[QueueRecord]:
    """Return the queue that the redrive policy names, if it can take these dead letters, else nothing."""
    policy = redrive.policy_of(queue.attributes)
    named = [record for record in queues.all() if record.name == policy.target] if policy else []
    return [record for record in named if redrive.broken_bound(queue, record) is None]


def load_with_destinations(
    opened: OpenTables,
    queues: Queues,
    queue: QueueRecord,
    clock: Clock,
    others: Callable[[], Sequence[QueueRecord]],
) -> Loaded:
    """Load the lanes of a queue and of the `others` that its messages may move to (`Loaded.targets`).

    `others` is called again if one of them was deleted before the lanes were read. Raises QueueDoesNotExist.
    """
    while True:
        targets = others()
        loaded = opened.load(queue, clock, others=targets)
        loaded.read["queues"], all_exist = queues.require(queue, targets)
        if all_exist:
            return loaded
