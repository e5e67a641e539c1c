"""Turns between the threads of one process: one verb at a time on one queue, in the order in which they came.

Verbs of one queue mostly conflict, and what loses has read and decided for nothing. So threads wait here, and race only
with other processes. Nothing relies on it for being right.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Hashable, Iterator


class Turns:
    """Fair locks by key, there only while somebody holds or awaits them."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        #: By key, who holds it and behind it who waits: each has a lock of its own, let go when its turn comes.
        self._queues: dict[Hashable, deque[threading.Lock]] = {}
        self._mine = threading.local()

    @contextlib.contextmanager
    def of(self, key: Hashable) -> Iterator[None]:
        """A thread's turn at a key. Who has a turn already waits for no other: so nobody waits in a circle."""
        if getattr(self._mine, "has", False):
            yield
            return
        me = threading.Lock()
        me.acquire()
        with self._guard:
            line = self._queues.setdefault(key, deque())
            line.append(me)
            if line[0] is me:
                me.release()
        try:
            # An error that ends the wait (KeyboardInterrupt) leaves the line as one that has had its turn does.
            me.acquire()
            self._mine.has = True
            yield
        finally:
            self._mine.has = False
            with self._guard:
                had_turn = line[0] is me
                line.remove(me)
                if not line:
                    del self._queues[key]
                elif had_turn:
                    line[0].release()
