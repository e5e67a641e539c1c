"""The order of FIFO queues, and the lanes of groups: the rules F1, F2 and F4 of docs/reference/rules.md."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from ledger.rules.limits import DEDUPLICATION_INTERVAL, MILLISECONDS
from ledger.rules.visibility import GONE, Record, Status

Message = TypeVar("Message")
#: A sequence number has the count of sends, and in these low bits the message's number in its send.
ORDINAL_BITS = 32


class Member(NamedTuple):
    """A message of a FIFO queue, with the facts that decide its order. Instants are in milliseconds."""

    message: Any
    group: str
    status: Status
    #: When the message came, or its delay passed, whichever is later.
    since: int
    hold_ended: int | None = None


def select_receivable(members: Iterable[Member], now: int) -> list[Any]:
    """Return the messages that a receive may take, in the receive's order. `members` are in sequence order.

    S1: "When you receive a message with a message group ID, no more messages for the same message group ID are returned
    unless you delete the message or it becomes visible." A hidden member holds back only the later members of its group
    (recorded: fifo_group_visibility_extends_with_change_message_visibility). F4: a gone member holds back no other.

    F2, recorded: groups come whole, in the order in which they became receivable. A group became receivable when its
    first visible message came or when its last hold ended, whichever was later. Holds of gone messages count, unless
    upkeep dropped them. At equal instants, a group whose message came precedes a group whose hold ended. Then the place
    of the first visible message decides.
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
    """Return a group's sort key among the groups.

    `since` is the first visible message's `Member.since`, and `ended` the end of the group's last hold.
    """
    return (since, False) if ended is None or ended < since else (ended, True)


def hold_ended(record: Record, expires_at: int) -> int | None:
    """Return when the last hold or lock of a message ended or will end; None if there was none.

    The end is the deadline, the delete or the expiry, whichever comes first.
    """
    if record.visible_at is None:
        return None
    ends = min(record.visible_at, expires_at)
    return ends if record.deleted_at is None else min(ends, record.deleted_at)


def order_by_group(messages: Iterable[Message], group_of: Callable[[Message], str | None]) -> list[Message]:
    """Return the messages group by group, for a claim whose receive's order is not known."""
    groups: dict[str | None, list[Message]] = {}
    for message in messages:
        groups.setdefault(group_of(message), []).append(message)
    return [message for group in groups.values() for message in group]


def lane(group: str, lanes: int) -> int:
    return zlib.crc32(group.encode()) % lanes


def sequence_number(send: int, ordinal: int) -> int:
    return (send << ORDINAL_BITS) | ordinal


def sends_application(queue: str) -> str:
    """Return the application id that counts the sends to a queue."""
    return f"fifo/{queue}"


def purges_application(queue: str) -> str:
    """Return the application id under which a purge notes how many sends came before it."""
    return f"purged/{queue}"


REPAIRS = 8


def clock_repairs_application(queue: str, slot: int = 0) -> str:
    """Return the application id under which a clock's repair notes how many sends came before the repair.

    The instants of these sends may be in the future. Each of the last REPAIRS repairs has a slot.
    """
    return f"clock/{queue}/{slot}" if slot else f"clock/{queue}"


def repair_time_application(queue: str, slot: int = 0) -> str:
    """Return the application id under which a clock's repair notes an instant.

    Sends before the repair with a later instant do not count when the last send is looked for.
    """
    return f"clock-at/{queue}/{slot}" if slot else f"clock-at/{queue}"


def first_remembered(purged: int) -> int:
    """Return the lowest sequence number whose deduplication id a purge did not forget (M3)."""
    return sequence_number(purged + 1, 0)


def is_duplicate(sent_at: int, now: int) -> bool:
    """Return whether a send repeats a deduplication id that was sent at `sent_at` (F1).

    S2: "any messages sent with the same deduplication ID are accepted successfully but aren't delivered during the
    5-minute deduplication interval".
    """
    return now - sent_at < DEDUPLICATION_INTERVAL * MILLISECONDS
