"""The open segments of one writer, and the last ordinal of each.

An append takes a segment out, and gives it back once its commit's outcome is known. Two threads therefore never append
to one segment at once. A segment is not given back after an error, or if another writer has extended it.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ledger.rules import message_id as ids
from ledger.rules.limits import MILLISECONDS
from ledger.runtime.forks import renew_in_child
from ledger.store.delta.engine import SegmentEnd

#: Up to so many places (queue and lane), those without open segments are kept.
FEW_OPEN = 64


class OpenSegment(NamedTuple):
    """A segment of a queue's lane.

    `following` is the ordinal of its next message. `opened_at` is in milliseconds. `appends` counts the appends since
    its files were joined.
    """

    queue: str
    lane: int
    name: str
    following: int
    opened_at: int
    appends: int = 0

    @property
    def end(self) -> SegmentEnd:
        return SegmentEnd(self.queue, self.lane, self.name, self.following - 1 if self.following else None)

    def extended(self, count: int) -> OpenSegment:
        return self._replace(following=self.following + count, appends=self.appends + 1)


class OpenSegments:
    """The segments that no append has taken out. Threads may share this object: it needs no lock."""

    def __init__(self, open_seconds: float) -> None:
        self._open_milliseconds = open_seconds * MILLISECONDS
        self._idle: dict[tuple[str, int], deque[OpenSegment]] = {}
        self._most = FEW_OPEN
        renew_in_child(self, OpenSegments._renew)

    def _renew(self) -> None:
        """Start anew in a forked child, because its parent goes on with these segments."""
        self._idle = {}

    def __len__(self) -> int:
        return sum(map(len, list(self._idle.values())))

    def take(self, queue: str, lane: int, now: int) -> OpenSegment:
        """Return a segment of a lane, idle or new. No other append gets the segment until it is given back."""
        idle = self._idle.get((queue, lane), ())
        while idle:
            try:
                segment = idle.pop()
            except IndexError:
                # Another thread was first.
                break
            if self._is_open(segment, now):
                return segment
        return OpenSegment(queue, lane, ids.segment(ids.new_send_key(), 0, is_open=True), 0, now)

    def give_back(self, segment: OpenSegment, now: int) -> None:
        """Give back a segment, in its state after the commit, or before a commit that lost."""
        self._idle.setdefault((segment.queue, segment.lane), deque()).append(segment)
        if len(self._idle) > self._most:
            self._let_go(now)

    def _let_go(self, now: int) -> None:
        kept = {key: [one for one in list(idle) if self._is_open(one, now)] for key, idle in list(self._idle.items())}
        self._idle = {key: deque(idle) for key, idle in kept.items() if idle}
        self._most = max(FEW_OPEN, 2 * len(self._idle))

    def _is_open(self, segment: OpenSegment, now: int) -> bool:
        return 0 <= now - segment.opened_at < self._open_milliseconds
