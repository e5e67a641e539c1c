"""The exceptions by which a handler decides about its message: RetryLater and Reject."""

from __future__ import annotations

import math
from datetime import datetime

from ledger.errors import InvalidParameterValue


class RetryLater(Exception):
    """A handler of `Queue.consume` raises this if the message is not to blame: a rate limit, an outage.

    The message is given back, and hidden until its time comes. Unless `counted`, this receive does not count: it brings
    the message no nearer to its queue's maxReceiveCount.

    Args:
        seconds: how long the message stays hidden, from the moment of the raise.
        until: in place of `seconds` an instant, a datetime with a time zone.
        group: True closes the message's own group until then, a text the message group of that name. The consumer,
            with all its processes, calls no handler for messages of a closed group, and gives them back alike. Other
            consumers do not know of the closing.
        counted: True counts the receive.
        reason: what the view `receipts` says of the message.

    Raises:
        InvalidParameterValue: for an invalid time, for both times, or for none of them.
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
        """Return how many seconds from `now` (seconds since 1970) the message stays hidden; 0 or more."""
        if self.until is None:
            return self.seconds or 0
        return max(0.0, self.until.timestamp() - now)


class Reject(Exception):
    """A handler of `Queue.consume` raises this for a message that no retry can help.

    The message goes to the queue's dead-letter queue now, however seldom it was received, with `reason` in the view
    `dead_letters`. A queue without a RedrivePolicy parks it: hides it for the `park` seconds of `Queue.consume`.

    Raises:
        InvalidParameterValue: for a reason that is not a text, or is blank.
    """

    def __init__(self, reason: str) -> None:
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidParameterValue("reason", reason, "Must be a text that says why", "Give str(error), say.")
        self.reason = reason
        super().__init__(reason)
