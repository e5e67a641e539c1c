"""The order of FIFO queues (F1, F2, F4): who may be received next, and which lane a group is in."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from ledger.rules.limits import DEDUPLICATION_INTERVAL, MILLISECONDS
from ledger.rules.state import GONE, Record, Status

Message = TypeVar("Message")
#: A send's ordinal takes this many bits of a sequence number; the count of sends has the bits above.
ORDINAL_BITS = 32


class Member(NamedTuple):
    """A message of a FIFO queue, gone or not, as its order asks for it. Instants in milliseconds."""

    message: Any
    group: str
    status: Status
    #: When it came, or its delay passed, whichever is later.
    since: int
    #: See `hold_ended`.
    hold_ended: int | None = None


def receivable(members: Iterable[Member], now: int) -> list[Any]:
    """Of the members of a queue in sequence order, those that a receive may take, in the order in which it takes them.

    S1: "When you receive a message with a message group ID, no more messages for the same message group ID are
    returned unless you delete the message or it becomes visible." A member that is not visible holds back what follows.
    Recorded (fifo_group_visibility_extends_with_change_message_visibility): it does not hold back what comes before it.
    F4: one that is gone, deleted or expired, is no member any more.

    F2, recorded: groups in the order in which they became receivable, each drained before the next. A group became so
    when its first message came, or when the last hold of any of its messages ended (gone ones too): so one that was
    served stands behind those that were not. Within one millisecond a hold's end is the later; then the place of the
    groups' first messages decides. All this is derived: of what upkeep dropped, long gone, no hold is known any more.
    """
    hidden: set[str] = set()
    free: dict[str, list[Member]] = {}
    ended: dict[str, int] = {}
    for member in members:
        group = member.group
        if member.hold_ended is not None and member.hold_ended <= now:
            ended[group] = max(member.hold_ended, ended.get(group, 0))
        if member.status is Status.VISIBLE:
            if group not in hidden:
                free.setdefault(group, []).append(member)
        elif member.status not in GONE:
            hidden.add(group)
    groups = sorted(free, key=lambda group: turn(free[group][0].since, ended.get(group)))
    return [member.message for group in groups for member in free[group]]


def turn(since: int, ended: int | None) -> tuple[int, bool]:
    """A group's place among the others, smaller first: of the instant since when its first message could be received,
    and that at which the last hold of the group ended (None: there was none)."""
    return (since, False) if ended is None or ended < since else (ended, True)


def hold_ended(record: Record, expires_at: int) -> int | None:
    """When the last hold of a message ended or is to end: by its deadline, which a release and a restore set to their
    own instant, by a delete, or as the message expired. A lock is a hold too. None: nobody held it in this queue."""
    if record.visible_at is None:
        return None
    ends = min(record.visible_at, expires_at)
    return ends if record.deleted_at is None else min(ends, record.deleted_at)


def drained(messages: Iterable[Message], group_of: Callable[[Message], str | None]) -> list[Message]:
    """Messages in order, each group before the next, in the order of the groups' first ones: how a claim is read of
    which nobody knows any more in which order it was granted."""
    groups: dict[str | None, list[Message]] = {}
    for message in messages:
        groups.setdefault(group_of(message), []).append(message)
    return [message for group in groups.values() for message in group]


def lane(group: str, lanes: int) -> int:
    """The lane that a group's messages are in: groups on different lanes never wait for each other."""
    return zlib.crc32(group.encode()) % lanes


def sequence_number(send: int, ordinal: int) -> int:
    """F2's order as a number: by the count of sends to the queue, then by the order within the send."""
    return (send << ORDINAL_BITS) | ordinal


def sends(queue: str) -> str:
    """The application id under which the sends to a queue are counted."""
    return f"fifo/{queue}"


def purges(queue: str) -> str:
    """The application id under which a queue's last purge notes how many sends were before it."""
    return f"purged/{queue}"


#: So many repairs of a queue's clock are remembered.
REPAIRS = 8


def clock_repairs(queue: str, slot: int = 0) -> str:
    """The application id under which a repair of a queue's clock notes how many sends were before it: the instants of
    those sends that were ahead say nothing of what time it is. Each of the last REPAIRS has a slot."""
    return f"clock/{queue}/{slot}" if slot else f"clock/{queue}"


def repaired_at(queue: str, slot: int = 0) -> str:
    """The application id under which that repair notes the instant at which those sends arrived, as it sees it."""
    return f"clock-at/{queue}/{slot}" if slot else f"clock-at/{queue}"


def first_remembered(purged: int) -> int:
    """M3: the lowest sequence number of a send behind the first `purged` ones, which a purge has forgotten."""
    return sequence_number(purged + 1, 0)


def is_duplicate(sent_at: int, now: int) -> bool:
    """F1: whether a message that was sent then still makes a send with the same deduplication id a duplicate.

    S2: "any messages sent with the same deduplication ID are accepted successfully but aren't delivered during the
    5-minute deduplication interval"."""
    return now - sent_at < DEDUPLICATION_INTERVAL * MILLISECONDS
