"""Messages that wait for a handler: handed out to threads, or to an event loop, a call's worth at a time.

On a FIFO queue a message is handed out only when no other message of its group is with a handler, so each group is
handled in order, one message (or one batch) at a time. If a message is given back, the messages of its group that
come after it are given back, too, also those that are read of its claim later.

A message whose group may have no call yet waits in memory (`AsideMessages`). No thread waits with it.
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


@dataclass(frozen=True)
class HandlerCall:
    """Messages of one claim that a handler is called with. `claim` is whatever the consumer knows the claim by."""

    claim: Any
    messages: list[Message]


class Backlog:
    """Messages that wait for a handler. Threads share it. `wake` is called whenever there may be more to take."""

    def __init__(self, batch: int | None, *, in_order: bool) -> None:
        self._batch, self._in_order = batch or 1, in_order
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[tuple[Any, Message]] = deque()
        #: Of a FIFO queue: the groups that nobody works on, and the messages of all groups.
        self._ready: deque[str] = deque()
        self._groups: dict[str, deque[tuple[Any, Message]]] = {}
        self._busy: set[str] = set()
        #: What its group's limit refuses for a moment. On a FIFO queue its group is none of the ready ones meanwhile.
        self.aside = AsideMessages()
        self._asleep: dict[str, deque[tuple[Any, Message]]] = {}
        #: By claim, the groups of which a message was given back.
        self._given_back: dict[Any, set[str]] = {}
        self._is_closed = False
        self.calls = 0
        self.wake: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        with self._lock:
            return len(self._waiting) + sum(map(len, self._groups.values()))

    @property
    def is_closed(self) -> bool:
        """Whether nothing will ever be handed out again."""
        return self._is_closed

    def add(self, claim: Any, messages: Iterable[Message]) -> list[Message]:
        """Add messages of a claim, in their order; return those that stand behind one that was given back."""
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
        """Forget a claim of which nothing comes any more."""
        with self._lock:
            self._given_back.pop(claim, None)

    def take(self) -> HandlerCall | None:
        """Return messages for the next call, which `finish` is to be told of; None where there are none now."""
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
        """Note that a call has ended. Of the groups that were `given_back` return, and forget, all that waits.

        Messages of the call that are put `aside` come again, each after so many seconds; those of a FIFO group together
        and before all others of it.
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

    def shuffle(self) -> None:
        """Put what waits into an order of chance; the messages of a FIFO group keep theirs."""
        with self._lock:
            random.shuffle(self._waiting)
            random.shuffle(self._ready)

    def remove(self, claim: Any = None) -> int:
        """Forget what waits of a claim, or without one all that waits; return how many messages that are."""
        with self._lock:
            put_aside = self.aside.remove(claim)
            for group in {message.message_group_id or "" for message in put_aside} & set(self._asleep):
                # The first message of it goes, and the others need not wait for that one's turn.
                self._groups[group] = self._asleep.pop(group)
                self._ready.append(group)
            removed = len(put_aside)
            for group, messages in self._asleep.items():
                left = deque(one for one in messages if one[0] is not claim)
                removed += len(messages) - len(left)
                self._asleep[group] = left
            kept = deque(one for one in self._waiting if claim is not None and one[0] is not claim)
            removed += len(self._waiting) - len(kept)
            self._waiting = kept
            for group, messages in list(self._groups.items()):
                left = deque(one for one in messages if claim is not None and one[0] is not claim)
                removed += len(messages) - len(left)
                self._groups[group] = left
                if not left:
                    del self._groups[group]
                    if group not in self._busy:
                        self._ready.remove(group)
            return removed

    def close(self) -> None:
        """Hand out nothing any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.wake()

    def _take(self) -> HandlerCall | None:
        if self._is_closed:
            return None
        self._wake_due()
        call = self._take_in_order() if self._in_order else self._take_first()
        self.calls += call is not None
        return call

    def _wake_due(self) -> None:
        """Let messages be taken, before all others, that were put aside until now."""
        for one in reversed(self.aside.take_due()):
            if not self._in_order:
                self._waiting.appendleft(one)
                continue
            group = one[1].message_group_id or ""
            self._groups[group] = self._asleep.pop(group)
            self._groups[group].appendleft(one)
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
