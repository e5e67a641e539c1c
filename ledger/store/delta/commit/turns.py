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
from typing import Any, Generic, TypeVar, cast

Result = TypeVar("Result")


class Wish(Generic[Result]):
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
    """One thread's place in a line: a lock that is let go when its turn comes, or when its wish was taken along."""

    def __init__(self, wish: Wish[Any] | None) -> None:
        self.wish, self.taken, self.lock = wish, False, threading.Lock()
        self.lock.acquire()

    def let_go(self) -> None:
        """Ends the wait, if that has not been done."""
        with contextlib.suppress(RuntimeError):
            self.lock.release()


class Turns:
    """Fair locks by key, there only while somebody holds or awaits them."""

    def __init__(self) -> None:
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
    def together(self, key: Hashable, wish: Wish[Any], most: int) -> Iterator[list[Any]]:
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
    def _turn(self, key: Hashable, wish: Wish[Any] | None, most: int) -> Iterator[list[Any]]:
        if getattr(self._mine, "has", False):
            yield [wish]
            return
        me, line, company = _Place(wish), deque[_Place](), list[_Place]()
        try:
            # An error that ends the wait (KeyboardInterrupt) leaves the line as one that has had its turn does.
            with self._guard:
                line = self._queues.setdefault(key, line)
                line.append(me)
                if line[0] is me:
                    me.let_go()
            me.lock.acquire()
            if not me.taken:
                self._mine.has = True
                self._take_along(line, me, most, company)
            yield [] if me.taken else [wish, *(place.wish for place in company)]
        finally:
            try:
                self._end(key, line, me, company)
            except BaseException:
                # Nobody is left waiting by an interrupt in here either: each step may be done twice.
                self._end(key, line, me, company)
                raise

    def _take_along(self, line: deque[_Place], me: _Place, most: int, company: list[_Place]) -> None:
        if me.wish is None or not most:
            return
        with self._guard:
            waiting = [place for place in line if place is not me and place.wish and place.wish.kind == me.wish.kind]
            for place in waiting[:most]:
                # In this order: whoever is of the company is let go, and leaves the line if it is still there.
                company.append(place)
                place.taken = True
                line.remove(place)

    def _end(self, key: Hashable, line: deque[_Place], me: _Place, company: list[_Place]) -> None:
        self._mine.has = False
        for place in company:
            place.let_go()
        with self._guard:
            if me in line:
                if line[0] is me and len(line) > 1:
                    line[1].let_go()
                line.remove(me)
            if not line and self._queues.get(key) is line:
                del self._queues[key]
