"""The quota on messages in flight (Q2 and Q3 of docs/reference/rules.md), and the bounds on stored messages."""

from __future__ import annotations

from ledger.errors import OverLimit
from ledger.rules.limits import Limits

NOTHING_SENT = "Nothing was sent. "


def admit(requested: int | None, in_flight: int, limits: Limits, *, fifo: bool) -> int | None:
    """Return how many messages a receive may get within the quota. None means all.

    Without room, a standard queue raises OverLimit ("If you reach this limit, Amazon SQS returns the OverLimit error
    message"). A FIFO queue returns 0 ("Amazon SQS returns no error messages").
    """
    most = limits.maximum_in_flight
    if most is None:
        return requested
    room = max(0, most - in_flight)
    if not room and not fifo:
        raise OverLimit(
            "The maximum number of in flight messages is reached.",
            f"{in_flight} messages are in flight, and the queue's limit is {most}: delete or release some of them, or "
            "make a queue with Limits=UNBOUNDED.",
        )
    return room if requested is None else min(requested, room)


def require_room(queue: str, stored: int, added: int, limits: Limits) -> None:
    """Raise OverLimit if `added` messages would pass the queue's MaximumMessages.

    `stored` counts the queue's messages without deleted, expired and moved ones.
    """
    found = f"The queue {queue} has {stored:,} messages"
    _require_within("MaximumMessages", limits.maximum_messages, stored, added, found, "of them")


def require_bytes(queue: str, stored: int, added: int, limits: Limits) -> None:
    found = f"The messages of the queue {queue} take {stored:,} bytes"
    _require_within("MaximumStoredBytes", limits.maximum_stored_bytes, stored, added, found, "bytes")


def _require_within(name: str, most: int | None, stored: int, added: int, found: str, unit: str) -> None:
    # A repeated send adds nothing, and gets its earlier answer, however full the queue is.
    if most is None or not added or stored + added <= most:
        return
    room = max(0, most - stored)
    fits = f"send at most {room:,} {unit}" if room else "wait until some are done"
    raise OverLimit(
        f"{found}, and {added:,} more would pass its {name} of {most:,}.",
        f"{NOTHING_SENT}Receive and delete messages, {fits}, or raise the queue's {name} (0: no bound).",
    )


def counted_sends(queue: str) -> str:
    """Return the application id that counts the sends to a queue with such a bound.

    Of two sends at once only one can commit, so they cannot pass a bound together.
    """
    return f"quota/{queue}"
