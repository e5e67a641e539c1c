"""The order of FIFO queues, and the lanes of groups: the rules F1, F2 and F4 of docs/reference/rules.md."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from ledger.rules.limits import DEDUPLICATION_INTERVAL, MILLISECONDS
from ledger.rules.state import GONE, Record, Status

Message = TypeVar("Message")
#: The low bits of a sequence number have the message's number in its send. The bits above them have the count of sends.
ORDINAL_BITS = 32


class Member(NamedTuple):
    """A message of a FIFO queue, gone or not, with the facts that decide its order. Instants are in milliseconds."""

    message: Any
    group: str
    status: Status
    #: When the message came, or its delay passed, whichever is later.
    since: int
    #: When the last hold of the message ended or will end: see the function `hold_ended`.
    hold_ended: int | None = None


def receivable(members: Iterable[Member], now: int) -> list[Any]:
    """Return the messages that a receive may take, in the order of the receive. `members` are in sequence order.

    S1: "When you receive a message with a message group ID, no more messages for the same message group ID are returned
    unless you delete the message or it becomes visible." A member that is not visible holds back the members of its
    group after it. It does not hold back the members before it, as a recorded answer of SQS shows (the scenario
    fifo_group_visibility_extends_with_change_message_visibility). F4: a member that is gone (deleted, moved or expired)
    holds back no member.

    F2, as SQS was recorded: groups come in the order in which they became receivable, and each group's messages come
    before those of the next group. A group became receivable when its first visible message came, or when the last hold
    of any of its messages ended, gone messages included. The later of the two instants counts. If a message of one
    group arrives in the millisecond in which a hold of another group ends, the group of that message comes first.
    Between groups with equal instants, the place of their first messages decides. The holds of messages that upkeep
    dropped are not known.
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
    groups = sorted(free, key=lambda group: place_of_group(free[group][0].since, ended.get(group)))
    return [member.message for group in groups for member in free[group]]


def place_of_group(since: int, ended: int | None) -> tuple[int, bool]:
    """Return a group's place among the groups; the smallest place comes first.

    `since` is the first visible message's `Member.since`. `ended` is when the last hold of the group ended (None: no
    hold has ended).
    """
    return (since, False) if ended is None or ended < since else (ended, True)


def hold_ended(record: Record, expires_at: int) -> int | None:
    """Return when the last hold of a message ended or will end; None if nobody held the message in this queue.

    A hold ends at its deadline, by a delete, or when the message expires, whichever comes first. A restore, and a
    release without a delay, set the deadline to their own instant (but see `mark` in `visibility.change`). A lock is a
    hold, too.
    """
    if record.visible_at is None:
        return None
    ends = min(record.visible_at, expires_at)
    return ends if record.deleted_at is None else min(ends, record.deleted_at)


def drained(messages: Iterable[Message], group_of: Callable[[Message], str | None]) -> list[Message]:
    """Return the messages group by group, in the order of the groups' first messages.

    A claim has this order if the order of its receive is not known.
    """
    groups: dict[str | None, list[Message]] = {}
    for message in messages:
        groups.setdefault(group_of(message), []).append(message)
    return [message for group in groups.values() for message in group]


def lane(group: str, lanes: int) -> int:
    """Return the lane of a group's messages: all messages of a group are in one lane."""
    return zlib.crc32(group.encode()) % lanes


def sequence_number(send: int, ordinal: int) -> int:
    """Return a message's SequenceNumber, by which messages sort in the order of F2.

    `send` is the count of sends to the queue, and `ordinal` the message's number in the send.
    """
    return (send << ORDINAL_BITS) | ordinal


def sends(queue: str) -> str:
    """Return the application id that counts the sends to a queue."""
    return f"fifo/{queue}"


def purges(queue: str) -> str:
    """Return the application id under which a queue's last purge notes how many sends came before it."""
    return f"purged/{queue}"


#: How many repairs of a queue's clock are remembered.
REPAIRS = 8


def clock_repairs(queue: str, slot: int = 0) -> str:
    """Return the application id under which a repair of a queue's clock notes how many sends came before the repair.

    The instants of these sends may be in the future. Each of the last REPAIRS repairs has a slot.
    """
    return f"clock/{queue}/{slot}" if slot else f"clock/{queue}"


def repaired_at(queue: str, slot: int = 0) -> str:
    """Return the application id under which a repair of a queue's clock notes an instant.

    Of the sends before the repair (see `clock_repairs`), only those up to this instant count when the last send is
    looked for.
    """
    return f"clock-at/{queue}/{slot}" if slot else f"clock-at/{queue}"


def first_remembered(purged: int) -> int:
    """Return the lowest sequence number after the first `purged` sends, whose deduplication ids are forgotten (M3)."""
    return sequence_number(purged + 1, 0)


def is_duplicate(sent_at: int, now: int) -> bool:
    """Return whether a send is a duplicate of a message with the same deduplication id that was sent at `sent_at` (F1).

    S2: "any messages sent with the same deduplication ID are accepted successfully but aren't delivered during the
    5-minute deduplication interval".
    """
    return now - sent_at < DEDUPLICATION_INTERVAL * MILLISECONDS
