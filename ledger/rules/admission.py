"""How many messages a receive may take under the quota on messages in flight (Q2, Q3)."""

from __future__ import annotations

from ledger.errors import OverLimit
from ledger.rules.limits import Limits


def admit(asked: int | None, in_flight: int, limits: Limits, *, fifo: bool) -> int | None:
    """`asked`, or as many as the quota leaves; None is without bound. Raises OverLimit at the quota.

    S1: "If you reach this limit, Amazon SQS returns the OverLimit error message"; for FIFO queues "Amazon SQS returns
    no error messages": there, 0.
    """
    most = limits.maximum_in_flight
    if most is None:
        return asked
    left = max(0, most - in_flight)
    if not left and not fifo:
        raise OverLimit(
            "The maximum number of in flight messages is reached.",
            f"{in_flight} messages are in flight, and the queue's limit is {most}: delete or release some of them, or "
            "make a queue with Limits=UNBOUNDED.",
        )
    return left if asked is None else min(asked, left)
