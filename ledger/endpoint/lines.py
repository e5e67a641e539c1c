"""Whose call has the next thread: calls wait in a line for each queue, and the lines have their turns one by one.

All threads but an eighth may be one queue's. So while many calls to a hot queue wait for its next commit, calls to
other queues find a thread, and no line in front of them but their own. Where too many calls wait, the last one of the
queue with the most calls gives way.

There is no thread and no lock in here: whoever shares an object takes care of that.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Generic, TypeVar

Call = TypeVar("Call")


class Lines(Generic[Call]):
    """Calls that wait for one of `threads`, at most `backlog` beside those that have one. `begun`: how many have."""

    def __init__(self, threads: int, backlog: int) -> None:
        self._threads, self._most = threads, threads + backlog
        self._most_of_a_queue = threads - max(1, threads // 8) if threads > 1 else 1
        #: The line whose turn is next comes first. None is empty.
        self._lines: OrderedDict[str, deque[Call]] = OrderedDict()
        self._begun_of: Counter[str] = Counter()
        self.begun = self.waiting = 0

    @property
    def open(self) -> int:
        """How many calls wait or have a thread."""
        return self.begun + self.waiting

    def add(self, queue: str, call: Call) -> Call | None:
        """Let a call wait. Return the call that gives way where too many wait, perhaps this one; it waits no more."""
        self._lines.setdefault(queue, deque()).append(call)
        self.waiting += 1
        if self.open <= self._most:
            return None
        # Of several queues with as many calls, the one of the newest call.
        fullest = max(self._lines, key=lambda name: (self._calls_of(name), name == queue))
        return self._taken(fullest, self._lines[fullest].pop())

    def begin_next(self) -> tuple[str, Call] | None:
        """Return the call that gets a thread now, and its queue; None: no thread is free for any that waits."""
        if self.begun >= self._threads:
            return None
        for queue, line in self._lines.items():
            if self._begun_of[queue] < self._most_of_a_queue:
                self._lines.move_to_end(queue)
                self._begun_of[queue] += 1
                self.begun += 1
                return queue, self._taken(queue, line.popleft())
        return None

    def end(self, queue: str) -> None:
        """Take back the thread of a call to a queue."""
        self.begun -= 1
        self._begun_of[queue] -= 1
        if not self._begun_of[queue]:
            del self._begun_of[queue]

    def _calls_of(self, queue: str) -> int:
        return self._begun_of[queue] + len(self._lines[queue])

    def _taken(self, queue: str, call: Call) -> Call:
        self.waiting -= 1
        if not self._lines[queue]:
            del self._lines[queue]
        return call
