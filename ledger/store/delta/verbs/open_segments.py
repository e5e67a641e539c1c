"""The open segments of one writer: what it appends to, and where each ends.

An append takes a segment out, and gives it back once its commit is known. So two threads never append to one segment,
and what nobody gave back (its commit failed, or the thread was interrupted) is never used again.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ledger.rules import message_id as ids
from ledger.rules.limits import MILLISECONDS
from ledger.runtime.forks import renew_in_child
from ledger.store.delta.engine import SegmentEnd

#: So many places (a queue, a lane) are known before those are let go of whose segments are appended to no more.
FEW_OPEN = 64


class OpenSegment(NamedTuple):
    """A segment: its queue's id, its lane, its name, the next ordinal, when it was opened (milliseconds), and how often
    it was appended to since its files were joined."""

    queue: str
    lane: int
    name: str
    following: int
    opened_at: int
    appends: int = 0

    @property
    def end(self) -> SegmentEnd:
        """Where it ends, as its writer knows it."""
        return SegmentEnd(self.queue, self.lane, self.name, self.following - 1 if self.following else None)

    def extended(self, count: int) -> OpenSegment:
        """The segment after an append of so many messages."""
        return self._replace(following=self.following + count, appends=self.appends + 1)


class OpenSegments:
    """Those that no append has taken out. Threads may share it: it needs no lock."""

    def __init__(self, open_seconds: float) -> None:
        """`open_seconds`: a segment is appended to no longer."""
        self._open_milliseconds = open_seconds * MILLISECONDS
        self._idle: dict[tuple[str, int], deque[OpenSegment]] = {}
        self._most = FEW_OPEN
        renew_in_child(self, OpenSegments._renew)

    def _renew(self) -> None:
        """The parent goes on with its segments, and a child begins others."""
        self._idle = {}

    def __len__(self) -> int:
        return sum(map(len, list(self._idle.values())))

    def take(self, queue: str, lane: int, now: int) -> OpenSegment:
        """A segment of a lane, which nobody else is given until it is given back: an idle one, else a new one."""
        idle = self._idle.get((queue, lane), ())
        while idle:
            try:
                known = idle.pop()
            except IndexError:
                # Another thread was first.
                break
            if self._is_open(known, now):
                return known
        return OpenSegment(queue, lane, ids.segment(ids.new_send_key(), 0, is_open=True), 0, now)

    def give_back(self, segment: OpenSegment, now: int) -> None:
        """Gives back a segment that was taken, as it is after its commit."""
        self._idle.setdefault((segment.queue, segment.lane), deque()).append(segment)
        if len(self._idle) > self._most:
            self._let_go(now)

    def _let_go(self, now: int) -> None:
        """Forgets what is appended to no more, as that of deleted queues. Next when there are twice as many as now. A
        segment that another thread gives back meanwhile may be forgotten, too."""
        kept = {key: [one for one in list(idle) if self._is_open(one, now)] for key, idle in list(self._idle.items())}
        self._idle = {key: deque(idle) for key, idle in kept.items() if idle}
        self._most = max(FEW_OPEN, 2 * len(self._idle))

    def _is_open(self, segment: OpenSegment, now: int) -> bool:
        return 0 <= now - segment.opened_at < self._open_milliseconds
