"""Messages that wait in memory until their group may have a call again. No thread waits with them."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from ledger.message import Message


class AsideMessages:
    """Messages that are put aside, each until an instant of a clock that only goes on. Threads share it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._lock, self._numbers = now, threading.Lock(), itertools.count()
        self._waiting: list[tuple[float, int, Any, Message]] = []
        self._of_group: Counter[str | None] = Counter()
        #: By message id, since when a message is put aside, again and again.
        self._since: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, claim: Any, message: Message, seconds: float) -> None:
        """Put a message of a claim aside for so many seconds."""
        with self._lock:
            now = self._now()
            self._since.setdefault(message.message_id, now)
            heapq.heappush(self._waiting, (now + seconds, next(self._numbers), claim, message))
            self._of_group[message.message_group_id] += 1

    def take_due(self) -> list[tuple[Any, Message]]:
        """Return the messages that are to be asked for again, the first one first; they are put aside no more."""
        due = []
        with self._lock:
            while self._waiting and self._waiting[0][0] <= self._now():
                _, _, claim, message = heapq.heappop(self._waiting)
                self._of_group[message.message_group_id] -= 1
                due.append((claim, message))
        return due

    def seconds_to_next(self) -> float | None:
        """Return in how many seconds a message is due; None where none is put aside."""
        with self._lock:
            return max(self._waiting[0][0] - self._now(), 0) if self._waiting else None

    def waited(self, message: Message) -> float:
        """Return for how many seconds a message has been put aside, since the first time."""
        with self._lock:
            since = self._since.get(message.message_id)
            return 0 if since is None else self._now() - since

    def count(self, group: str | None) -> int:
        """Return how many messages of a group are put aside."""
        with self._lock:
            return self._of_group[group]

    def forget(self, message: Message) -> None:
        """Forget since when a message was put aside: it has its call, or is given back."""
        with self._lock:
            self._since.pop(message.message_id, None)

    def remove(self, claim: Any = None) -> list[Message]:
        """Forget the messages of a claim, or without one all; return them."""
        with self._lock:
            removed = [one for one in self._waiting if claim is None or one[2] is claim]
            self._waiting = [one for one in self._waiting if claim is not None and one[2] is not claim]
            heapq.heapify(self._waiting)
            for _, _, _, message in removed:
                self._of_group[message.message_group_id] -= 1
                self._since.pop(message.message_id, None)
        return [message for _, _, _, message in removed]
