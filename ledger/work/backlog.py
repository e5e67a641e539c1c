"""The messages of a consumer that wait for a call of its handler.

On a FIFO queue a message is handed out only if no running call has a message of its group. After a message is given
back, its group is a given-back group: the waiting messages of the group are given back as well, and so are those that
are yet to be read for the same claim.

If the limit of a message's group (see `group_limits`) refuses a call now, and will soon allow it, the message is put
aside.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.message import Message


class AsideMessages:
    """Messages that are put aside, each until an instant of a monotonic clock. Thread-safe."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._lock, self._numbers = now, threading.Lock(), itertools.count()
        self._waiting: list[tuple[float, int, Any, Message]] = []
        self._of_group: Counter[str | None] = Counter()
        #: By message id, when the message was first put aside.
        self._since: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, claim: Any, message: Message, seconds: float) -> None:
        with self._lock:
            now = self._now()
            self._since.setdefault(message.message_id, now)
            heapq.heappush(self._waiting, (now + seconds, next(self._numbers), claim, message))
            self._of_group[message.message_group_id] += 1

    def take_due(self) -> list[tuple[Any, Message]]:
        due = []
        with self._lock:
            while self._waiting and self._waiting[0][0] <= self._now():
                _, _, claim, message = heapq.heappop(self._waiting)
                self._of_group[message.message_group_id] -= 1
                due.append((claim, message))
        return due

    def seconds_to_next(self) -> float | None:
        with self._lock:
            return max(self._waiting[0][0] - self._now(), 0) if self._waiting else None

    def seconds_aside(self, message: Message) -> float:
        """Return the seconds since a message was first put aside; 0 if never."""
        with self._lock:
            since = self._since.get(message.message_id)
            return 0 if since is None else self._now() - since

    def count(self, group: str | None) -> int:
        with self._lock:
            return self._of_group[group]

    def forget(self, message: Message) -> None:
        with self._lock:
            self._since.pop(message.message_id, None)

    def remove(self, claim: Any = None) -> list[Message]:
        """Remove and return the messages of a claim; without a claim, all."""
        with self._lock:
            removed = [one for one in self._waiting if claim is None or one[2] is claim]
            self._waiting = [one for one in self._waiting if claim is not None and one[2] is not claim]
            heapq.heapify(self._waiting)
            for _, _, _, message in removed:
                self._of_group[message.message_group_id] -= 1
                self._since.pop(message.message_id, None)
        return [message for _, _, _, message in removed]


@dataclass(frozen=True)
class HandlerCall:
    """Messages of one claim (a ClaimInHand) that are handed out together."""

    claim: Any
    messages: list[Message]


class Backlog:
    """Messages that wait for a handler. Thread-safe.

    The backlog calls `wake` when an added message or an ended call may make a message ready, and at the close. An event
    loop sets this function.
    """

    def __init__(self, batch: int | None, *, in_order: bool) -> None:
        self._batch, self._in_order = batch or 1, in_order
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[tuple[Any, Message]] = deque()
        #: On a FIFO queue: `_groups` has the waiting messages by group, `_busy` the groups of running calls, and
        #: `_ready` the groups of `_groups` that are not busy.
        self._ready: deque[str] = deque()
        self._groups: dict[str, deque[tuple[Any, Message]]] = {}
        self._busy: set[str] = set()
        #: On a FIFO queue, if `aside` has a message of a group, `_asleep` has the group's other waiting messages.
        self.aside = AsideMessages()
        self._asleep: dict[str, deque[tuple[Any, Message]]] = {}
        #: By claim, the given-back groups.
        self._given_back: dict[Any, set[str]] = {}
        self._is_closed = False
        #: How many calls run, and of how many calls, these among them, the consumer has no outcome yet.
        self.calls = self.unreported = 0
        self.wake: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        with self._lock:
            return len(self._waiting) + sum(map(len, self._groups.values()))

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def add(self, claim: Any, messages: Iterable[Message]) -> list[Message]:
        """Add messages of a claim. Return those of given-back groups, which are not added."""
        behind: list[Message] = []
        with self._changed:
            given_back = self._given_back.get(claim, ())
            for message in messages:
                if not self._in_order:
                    self._waiting.append((claim, message))
                    continue
                group = message.message_group_id or ""
                if group in given_back:
                    behind.append(message)
                    continue
                if group in self._asleep:
                    self._asleep[group].append((claim, message))
                    continue
                if group not in self._groups:
                    self._groups[group] = deque()
                    if group not in self._busy:
                        self._ready.append(group)
                self._groups[group].append((claim, message))
            self._changed.notify_all()
        self.wake()
        return behind

    def forget(self, claim: Any) -> None:
        """Forget the given-back groups of a claim of which no more messages will come."""
        with self._lock:
            self._given_back.pop(claim, None)

    def take(self) -> HandlerCall | None:
        """Return messages for the next call, if any are ready.

        The caller calls `finish` after the call, and `report` once the consumer has the outcome.
        """
        with self._lock:
            return self._take()

    def wait_and_take(self) -> HandlerCall | None:
        """Wait for messages; return None once the backlog is closed."""
        with self._changed:
            while True:
                call = self._take()
                if call is not None or self._is_closed:
                    return call
                self._changed.wait(self.aside.seconds_to_next())

    def finish(
        self, call: HandlerCall, given_back: Collection[str] = (), aside: Sequence[tuple[Message, float]] = ()
    ) -> list[tuple[Any, Message]]:
        """Note that a call has ended. Of the groups in `given_back`, return the messages that wait, and those in the
        argument `aside`.

        Args:
            aside: Messages of the call to hand out again, each after its seconds. On a FIFO queue, messages of one
                group all wait for the seconds of the first, and go before the other messages of the group.
        """
        with self._changed:
            self.calls -= 1
            if not self._in_order:
                for message, seconds in aside:
                    self.aside.add(call.claim, message, seconds)
                self._changed.notify_all()
                return []
            dropped: list[tuple[Any, Message]] = []
            by_group = dict[str, list[tuple[Message, float]]]()
            for message, seconds in aside:
                by_group.setdefault(message.message_group_id or "", []).append((message, seconds))
            if given_back:
                self._given_back.setdefault(call.claim, set()).update(given_back)
            for group in given_back:
                dropped += [(call.claim, message) for message, _ in by_group.pop(group, ())]
                dropped += self._groups.pop(group, ())
            for group, messages in by_group.items():
                self._busy.discard(group)
                waiting = self._groups.pop(group, deque())
                waiting.extendleft((call.claim, message) for message, _ in reversed(messages[1:]))
                self._asleep[group] = waiting
                self.aside.add(call.claim, *messages[0])
            for group in {message.message_group_id or "" for message in call.messages} - set(self._asleep):
                self._busy.discard(group)
                if self._groups.get(group):
                    self._ready.append(group)
                else:
                    self._groups.pop(group, None)
            self._changed.notify_all()
        self.wake()
        return dropped

    def report(self) -> None:
        """Note that the consumer has the outcome of a finished call."""
        with self._lock:
            self.unreported -= 1

    def shuffle(self) -> None:
        """Shuffle the waiting messages; on a FIFO queue only the order of the ready groups."""
        with self._lock:
            random.shuffle(self._waiting)
            random.shuffle(self._ready)

    def remove(self, claim: Any = None) -> int:
        """Remove the messages of a claim (None: of all claims), also those put aside. Return how many."""
        with self._lock:
            put_aside = self.aside.remove(claim)
            for group in {message.message_group_id or "" for message in put_aside} & set(self._asleep):
                # The group waited for the removed message.
                self._groups[group] = self._asleep.pop(group)
                self._ready.append(group)
            removed = len(put_aside)
            for group, messages in self._asleep.items():
                remaining = deque(one for one in messages if one[0] is not claim)
                removed += len(messages) - len(remaining)
                self._asleep[group] = remaining
            kept = deque(one for one in self._waiting if claim is not None and one[0] is not claim)
            removed += len(self._waiting) - len(kept)
            self._waiting = kept
            for group, messages in list(self._groups.items()):
                remaining = deque(one for one in messages if claim is not None and one[0] is not claim)
                removed += len(messages) - len(remaining)
                self._groups[group] = remaining
                if not remaining:
                    del self._groups[group]
                    if group not in self._busy:
                        self._ready.remove(group)
            return removed

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.wake()

    def _take(self) -> HandlerCall | None:
        if self._is_closed:
            return None
        self._wake_due()
        call = self._take_in_order() if self._in_order else self._take_first()
        if call is not None:
            self.calls += 1
            self.unreported += 1
        return call

    def _wake_due(self) -> None:
        for entry in reversed(self.aside.take_due()):
            if not self._in_order:
                self._waiting.appendleft(entry)
                continue
            group = entry[1].message_group_id or ""
            self._groups[group] = self._asleep.pop(group)
            self._groups[group].appendleft(entry)
            self._ready.append(group)

    def _take_first(self) -> HandlerCall | None:
        if not self._waiting:
            return None
        claim, message = self._waiting.popleft()
        call = HandlerCall(claim, [message])
        while len(call.messages) < self._batch and self._waiting and self._waiting[0][0] is claim:
            call.messages.append(self._waiting.popleft()[1])
        return call

    def _take_in_order(self) -> HandlerCall | None:
        if not self._ready:
            return None
        claim, call = self._groups[self._ready[0]][0][0], None
        for _ in range(len(self._ready)):
            group = self._ready.popleft()
            waiting = self._groups[group]
            if waiting[0][0] is not claim:
                self._ready.append(group)
                continue
            call = call or HandlerCall(claim, [])
            self._busy.add(group)
            while waiting and waiting[0][0] is claim and len(call.messages) < self._batch:
                call.messages.append(waiting.popleft()[1])
            if not waiting:
                del self._groups[group]
            if len(call.messages) == self._batch:
                break
        return call
