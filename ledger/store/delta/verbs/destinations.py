"""The queues that a verb's messages may move to, and their lanes, loaded with the queue's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ledger.clock import Clock
from ledger.rules import redrive
from ledger.store.delta.state.open_tables import OpenTables
from ledger.store.delta.state.snapshot import Loaded
from ledger.store.delta.verbs.queues import Queues
from ledger.store.protocol import QueueRecord


def dead_letter_queues(queues: Queues, queue: QueueRecord) -> list[QueueRecord]:
    """The queue that the redrive policy names, if it can take dead letters: that may be another one by now than the one
    that the policy was set for. Else none."""
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
    """The lanes of a queue and of those that its messages may move to, which `others` looks up: `Loaded.targets`.

    All of them were there once the lanes had been read: where one was deleted in between, they are looked up again. A
    message that moved to a queue that is gone would be in none. Raises QueueDoesNotExist for the queue itself.
    """
    while True:
        asked = others()
        loaded = opened.load(queue, clock, others=asked)
        loaded.read["queues"], there = queues.require(queue, asked)
        if there:
            return loaded
