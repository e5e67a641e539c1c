"""Turns between the threads of one process: one verb at a time on one queue, in the order in which they came.

Verbs of one queue mostly conflict, and what loses has read and decided for nothing. So threads wait here, and race only
with other processes. And while they wait, whoever has the turn may take what they want along with its own: one commit
for all of them. Nothing relies on turns for being right.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Hashable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar, cast

from ledger.runtime.forks import renew_in_child
from ledger.store.delta.commit.holdings import forget, note

Result = TypeVar("Result")


class PendingCall(Generic[Result]):
    """What a thread waits for its turn to do, if another one may do it along with its own: those of one `kind` go
    together. What came of it is said once, by whoever did it."""

    def __init__(self, kind: object) -> None:
        self.kind = kind
        self.done = False
        self._result: Result | None = None
        self._error: BaseException | None = None

    def granted(self, result: Result) -> None:
        """This came of it."""
        self._result, self.done = result, True

    def refused(self, error: BaseException) -> None:
        """This went wrong."""
        self._error, self.done = error, True

    def result(self) -> Result:
        """What came of it; raises what went wrong."""
        if self._error is not None:
            raise self._error
        return cast(Result, self._result)


class _Place:
    """One thread's place in the line at a key: a lock that is let go when its turn comes, or when its wish was taken
    along. `company`: the places whose wishes it takes along."""

    def __init__(self, key: Hashable, wish: PendingCall[Any] | None) -> None:
        self.key, self.wish, self.taken, self.lock = key, wish, False, threading.Lock()
        self.line, self.company = deque[_Place](), list[_Place]()
        self.lock.acquire()

    def let_go(self) -> None:
        """Ends the wait, if that has not been done."""
        with contextlib.suppress(RuntimeError):
            self.lock.release()


class Turns:
    """Fair locks by key, there only while somebody holds or awaits them."""

    def __init__(self) -> None:
        self._begin()
        renew_in_child(self, Turns._begin)

    def _begin(self) -> None:
        self._guard = threading.Lock()
        #: By key, who holds it and behind it who waits.
        self._queues: dict[Hashable, deque[_Place]] = {}
        self._mine = threading.local()

    @contextlib.contextmanager
    def of(self, key: Hashable) -> Iterator[None]:
        """A thread's turn at a key. Who has a turn already waits for no other: so nobody waits in a circle."""
        with self._turn(key, None, 0):
            yield

    @contextlib.contextmanager
    def together(self, key: Hashable, wish: PendingCall[Any], most: int) -> Iterator[list[Any]]:
        """As `of`, for this wish and up to `most` others that wait at the key and go with it: they are no more in the
        line, and wait until this turn ends. No wishes: it was this one that another thread's turn took along, which is
        over. What came of a wish the wishes know; what is not done may wait again."""
        with self._turn(key, wish, most) as wishes:
            yield wishes

    def waiting(self, key: Hashable) -> int:
        """How many threads await their turn at a key, beside the one that has it."""
        with self._guard:
            return max(0, len(self._queues.get(key, ())) - 1)

    @contextlib.contextmanager
    def _turn(self, key: Hashable, wish: PendingCall[Any] | None, most: int) -> Iterator[list[Any]]:
        if getattr(self._mine, "place", None) is not None:
            yield [wish]
            return
        me = _Place(key, wish)
        end = partial(self._end, me)
        # An error that ends the wait (KeyboardInterrupt) leaves the line as one that has had its turn does.
        note(end)
        try:
            with self._guard:
                me.line = self._queues.setdefault(key, me.line)
                me.line.append(me)
                if me.line[0] is me:
                    me.let_go()
            me.lock.acquire()
            if not me.taken:
                self._mine.place = me
                self._take_along(me, most)
            yield [] if me.taken else [wish, *(place.wish for place in me.company)]
        finally:
            end()
            forget(end)

    def _take_along(self, me: _Place, most: int) -> None:
        if me.wish is None or not most:
            return
        with self._guard:
            waiting = [one for one in me.line if one is not me and one.wish and one.wish.kind == me.wish.kind]
            for place in waiting[:most]:
                # In this order: whoever is of the company is let go, and leaves the line if it is still there.
                me.company.append(place)
                place.taken = True
                me.line.remove(place)

    def _end(self, me: _Place) -> None:
        """Leaves the line; each step may be done twice. Not before an interrupt's traceback is gone it may be done once
        more: by then the thread may have another turn, which stays."""
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
