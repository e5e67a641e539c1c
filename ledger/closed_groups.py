"""The message groups that a handler has closed for a while: no handler is called for their messages until then."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ledger.clock import Clock
from ledger.message import Message
from ledger.rules.limits import MILLISECONDS
from ledger.verdicts import RetryLater

#: What is said of a message that is given back because its group is closed.
CLOSED = "its group is closed until later"


class ClosedGroups:
    """Closed groups, each until an instant. Threads share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._until: dict[str, int] = {}
        #: Called with a group and an instant (milliseconds) when a handler of this process has closed it.
        self.on_close: Callable[[str, int], None] = lambda group, until: None

    def close(self, group: str, until: int) -> None:
        """Close a group until an instant (milliseconds); a later instant that is known already stays."""
        with self._lock:
            self._until[group] = max(until, self._until.get(group, 0))

    def close_for(self, message: Message, later: RetryLater) -> None:
        """Close the group that a handler's RetryLater names, if it names one."""
        group = message.message_group_id if later.group is True else later.group
        if isinstance(group, str):
            now = self._clock()
            until = now + round(later.seconds_from(now / MILLISECONDS) * MILLISECONDS)
            self.close(group, until)
            self.on_close(group, until)

    def retry_of(self, message: Message) -> RetryLater | None:
        """Return how a message is given back whose group is closed now; None where it is not."""
        if not self._until or message.message_group_id is None:
            return None
        with self._lock:
            left = self._until.get(message.message_group_id, 0) - self._clock()
            if left <= 0:
                self._until.pop(message.message_group_id, None)
                return None
        return RetryLater(left / MILLISECONDS, reason=CLOSED)
