"""What tests look at, without changing anything."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from ledger import Queue


def look(queue: Queue, message_ids: Iterable[str]) -> tuple:
    """All that users can see of a queue and some of its messages."""
    return queue.counts(), [queue.peek(message_id) for message_id in message_ids]


@contextlib.contextmanager
def changing_nothing(queue: Queue, message_ids: Iterable[str] = ()) -> Iterator[None]:
    """Fails when anything one can see is another after the block."""
    before = look(queue, message_ids)
    yield
    assert look(queue, message_ids) == before


def statuses(queue: Queue, message_ids: Iterable[str]) -> list[str]:
    """The state of each message, as text."""
    return [queue.peek(message_id).status.value for message_id in message_ids]


def seconds_until(claim_or_message, clock) -> float:
    """How far away the deadline is."""
    deadline = getattr(claim_or_message, "deadline", None) or claim_or_message.visible_at
    return deadline.timestamp() - clock() / 1_000
