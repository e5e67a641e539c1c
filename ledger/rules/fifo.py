"""The order of FIFO queues (F1, F2, F4): who may be received next, and which lane a group is in."""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

from ledger.rules.limits import DEDUPLICATION_INTERVAL, MILLISECONDS
from ledger.rules.state import GONE, Status

Message = TypeVar("Message", bound=Hashable)
#: A send's ordinal takes this many bits of a sequence number; the count of sends has the bits above.
ORDINAL_BITS = 32


def receivable(messages: Iterable[tuple[Message, str, Status]]) -> Iterator[Message]:
    """Of (message, group, status) in sequence order, those that a receive may take, in that order.

    S1: "When you receive a message with a message group ID, no more messages for the same message group ID are
    returned unless you delete the message or it becomes visible." A member that is not visible holds back what follows.
    Recorded (fifo_group_visibility_extends_with_change_message_visibility): it does not hold back what comes before it.
    F4: one that is gone, deleted or expired, is no member any more.
    """
    held = set()
    for message, group, status in messages:
        if status is Status.VISIBLE:
            if group not in held:
                yield message
        elif status not in GONE:
            held.add(group)


def lane(group: str, lanes: int) -> int:
    """The lane that a group's messages are in: groups on different lanes never wait for each other."""
    return zlib.crc32(group.encode()) % lanes


def sequence_number(send: int, ordinal: int) -> int:
    """F2's order as a number: by the count of sends to the queue, then by the order within the send."""
    return (send << ORDINAL_BITS) | ordinal


def is_duplicate(sent_at: int, now: int) -> bool:
    """F1: whether a message that was sent then still makes a send with the same deduplication id a duplicate.

    S2: "any messages sent with the same deduplication ID are accepted successfully but aren't delivered during the
    5-minute deduplication interval"."""
    return now - sent_at < DEDUPLICATION_INTERVAL * MILLISECONDS
