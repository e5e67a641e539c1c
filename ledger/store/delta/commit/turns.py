"""Turns between a process's threads: one thread at a time works on a key, mostly a table and a queue.

Turns go by arrival. A thread may carry out the calls of waiting threads, too, in one commit. Turns only save work:
correctness does not rely on them.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Hashable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar, cast

from ledger.runtime.forks import renew_in_child, waiting
from ledger.store.delta.commit.holdings import forget, note

Result = TypeVar("Result")


class PendingCall(Generic[Result]):
    """A call that waits for its turn, and that another thread may carry out along with its own.

    Calls of one `kind` go together, as many as their `size` allows.
    """

    def __init__(self, kind: object, size: int = 0) -> None:
        self.kind, self.size = kind, size
        self.done = False
        self._result: Result | None = None
        self._error: BaseException | None = None

    def granted(self, result: Result) -> None:
        self._result, self.done = result, True

    def refused(self, error: BaseException) -> None:
        self._error, self.done = error, True

    def result(self) -> Result:
        if self._error is not None:
            raise self._error
        return cast(Result, self._result)


class _Place:
    """One thread's place in the line at a key. Its `lock` is released when its wait ends.

    `taken`: another thread takes the `call` along. `company`: the places whose calls this thread takes along.
    """

    def __init__(self, key: Hashable, call: PendingCall[Any] | None) -> None:
        self.key, self.call, self.taken, self.lock = key, call, False, threading.Lock()
        self.line, self.company = deque[_Place](), list[_Place]()
        self.lock.acquire()

    def let_go(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.lock.release()


class Turns:
    """Fair locks by key. A lock exists only while a thread holds or awaits it."""

    def __init__(self) -> None:
        self._begin()
        renew_in_child(self, Turns._begin)

    def _begin(self) -> None:
        self._guard = threading.Lock()
        #: First the thread that has the turn, then those that wait.
        self._queues: dict[Hashable, deque[_Place]] = {}
        self._mine = threading.local()

    @contextlib.contextmanager
    def of(self, key: Hashable) -> Iterator[None]:
        """Take the thread's turn at a key. A thread that has a turn, at any key, never waits: threads wait in no
        circle."""
        with self._turn(key, None, 0):
            yield

    @contextlib.contextmanager
    def together(self, key: Hashable, call: PendingCall[Any], most: int, most_size: int = 0) -> Iterator[list[Any]]:
        """Take a turn for this call and for up to `most` waiting calls of its kind, and yield them.

        Their sizes are together at most `most_size`, unless this call alone has more. Their threads wait until this
        turn ends. An empty list: another thread took this call along, and its turn is over. If the call is not `done`,
        it may wait again. A thread that has a turn already gets only its own call.
        """
        with self._turn(key, call, most, most_size) as calls:
            yield calls

    def waiting(self, key: Hashable) -> int:
        """Return how many threads await their turn, without those whose calls were taken along."""
        with self._guard:
            return max(0, len(self._queues.get(key, ())) - 1)

    @contextlib.contextmanager
    def _turn(self, key: Hashable, call: PendingCall[Any] | None, most: int, most_size: int = 0) -> Iterator[list[Any]]:
        if getattr(self._mine, "place", None) is not None:
            yield [call]
            return
        me = _Place(key, call)
        end = partial(self._end, me)
        # Noted first: a KeyboardInterrupt may end the wait.
        note(end)
        try:
            with self._guard:
                me.line = self._queues.setdefault(key, me.line)
                me.line.append(me)
                if me.line[0] is me:
                    me.let_go()
            with waiting():
                me.lock.acquire()
            if not me.taken:
                self._mine.place = me
                self._take_along(me, most, most_size)
            yield [] if me.taken else [call, *(place.call for place in me.company)]
        finally:
            end()
            forget(end)

    def _take_along(self, me: _Place, most: int, most_size: int) -> None:
        if me.call is None or not most:
            return
        size = me.call.size
        with self._guard:
            waiting = [
                (place, place.call.size)
                for place in me.line
                if place is not me and place.call and place.call.kind == me.call.kind
            ]
            for place, more in waiting[:most]:
                size += more
                if size > most_size:
                    # No smaller call overtakes it.
                    break
                # From here on, `_end` ends the wait of this place, also after an interrupt.
                me.company.append(place)
                place.taken = True
                me.line.remove(place)

    def _end(self, me: _Place) -> None:
        """Leave the line, and end the waits of the company. Each step may run twice.

        At a second run the thread may have another turn, which must stay.
        """
        if getattr(self._mine, "place", None) is me:
            self._mine.place = None
        for place in me.company:
            place.let_go()
        with self._guard:
            line = me.line
            if me in line:
                if line[0] is me and len(line) > 1:
                    line[1].let_go()
                line.remove(me)
            if not line and self._queues.get(me.key) is line:
                del self._queues[me.key]
