"""The exceptions by which a handler decides about its message: RetryLater and Reject."""

from __future__ import annotations

import math
from datetime import datetime

from ledger.errors import InvalidParameterValue


class RetryLater(Exception):
    """A handler of `Queue.consume` raises this if the message is not to blame: a rate limit, an outage.

    The message is given back, and hidden until the given time, but no longer than its receipt may hold it.

    Args:
        seconds: How many seconds the message stays hidden, from the commit that gives it back.
        until: In place of `seconds`: a datetime with a time zone.
        group: True closes the message's own group, and a text closes the group of that name: for `seconds` from the
            raise, or until `until`. The consumer begins no call for messages of a closed group, and gives them back
            uncounted, hidden until the group opens. The consumer's other processes do the same a moment later. For
            other consumers the group stays open.
        counted: Whether the receive counts toward the queue's maxReceiveCount.
        reason: The reason that the view `receipts` shows for the message.

    Raises:
        InvalidParameterValue: The time or the group is invalid, or both `seconds` and `until` are given, or neither.
    """

    def __init__(
        self,
        seconds: float | None = None,
        *,
        until: datetime | None = None,
        group: str | bool | None = None,
        counted: bool = False,
        reason: str | None = None,
    ) -> None:
        if (seconds is None) == (until is None):
            raise InvalidParameterValue("RetryLater", seconds, "Give seconds, or until: one of them")
        if seconds is not None and (
            isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf
        ):
            raise InvalidParameterValue("seconds", seconds, "Must be a number >= 0")
        if until is not None and (not isinstance(until, datetime) or until.tzinfo is None):
            raise InvalidParameterValue("until", until, "Must be a datetime with a time zone")
        if not isinstance(group, (str, bool, type(None))):
            raise InvalidParameterValue("group", type(group).__name__, "Must be True, or the name of a message group")
        self.seconds, self.until, self.group, self.counted = seconds, until, group or None, counted
        self.reason = reason or "the handler asks for a retry later"
        super().__init__(self.reason)

    def seconds_from(self, now: float) -> float:
        """Return how many seconds from `now` (seconds since 1970) the message stays hidden."""
        if self.until is None:
            return self.seconds or 0
        return max(0.0, self.until.timestamp() - now)


class Reject(Exception):
    """A handler of `Queue.consume` raises this for a message that no retry can help.

    The message moves to the queue's dead-letter queue, however few times it was received. The view `dead_letters` shows
    the `reason`. Without a dead-letter queue, the message is parked: hidden for the `park` seconds of `Queue.consume`.

    Raises:
        InvalidParameterValue: The reason is blank or is no text.
    """

    def __init__(self, reason: str) -> None:
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidParameterValue("reason", reason, "Must be a text that says why", "Give str(error), say.")
        self.reason = reason
        super().__init__(reason)
