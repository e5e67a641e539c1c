"""Long polls that hold no thread: receives that found nothing stand in a line for their queue, and are looked for.

A line is looked at when this endpoint has changed its queue, when the tables have moved on (other processes), and now
and then, as a visibility timeout may have run out. Of a line the first is looked for alone, as what has nothing for the
first has nothing for the others; while there is something, twice as many at a time, which share a commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable, Coroutine

from ledger.endpoint.actions import Result
from ledger.endpoint.actions.messages import Waiting
from ledger.endpoint.pool import Pool
from ledger.endpoint.refusals import Throttled
from ledger.errors import LedgerError

#: A line is looked at once in so many seconds though nothing is known to have changed.
AT_LEAST = 1.0
#: All lines together are looked at so often a second, unless their own queues change.
LOOKS_A_SECOND = 100
MOST_AT_A_TIME = 16


class _Poll:
    def __init__(self, waiting: Waiting) -> None:
        self.waiting = waiting
        self.answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        #: Set while nobody looks for it. A look that has begun may be granted messages, and is waited for.
        self.idle = asyncio.Event()
        self.idle.set()
        #: Nobody looks for it any more: what a look found then would be nobody's until its timeout.
        self.over = False


class _Line:
    def __init__(self) -> None:
        self.polls: deque[_Poll] = deque()
        self.changed = asyncio.Event()
        self.looked_at = 0.0
        #: When a look for one of them found nothing.
        self.empty_at = 0.0


class Polls:
    """All open long polls. Of one event loop; `changed` may be called from there only."""

    def __init__(self, pool: Pool, change_token: Callable[[], object], interval: float, most: int) -> None:
        self._pool, self._token, self._interval, self._most = pool, change_token, interval, most
        self._lines: dict[str, _Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self.open = 0

    async def wait(self, waiting: Waiting) -> Result:
        """What a poll is answered: messages as soon as there are some, or nothing in the end, or when the endpoint
        stops. Raises what its looks do, and RequestThrottled when too many are open. Cancelled, it is forgotten."""
        if self.open >= self._most:
            raise Throttled()
        poll = _Poll(waiting)
        line = self._lines.get(waiting.queue_id)
        if line is None:
            line = self._lines[waiting.queue_id] = _Line()
            # What was sent since its own first look nobody has been told of.
            line.changed.set()
            self._start(self._serve(waiting.queue_id, line))
        line.polls.append(poll)
        if self._watch is None or self._watch.done():
            self._watch = self._start(self._watched())
        self.open += 1
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait((poll.answer, ending), timeout=waiting.seconds, return_when=asyncio.FIRST_COMPLETED)
            poll.over = True
            await poll.idle.wait()
            if poll.answer.done():
                return poll.answer.result()
            # Of many that end at once the last looks would be a crowd; a look for another one is as good.
            looked = time.monotonic() - line.empty_at <= 2 * AT_LEAST
            return {} if looked or self._ending.is_set() else await self._last(waiting)
        finally:
            ending.cancel()
            poll.over = True
            self.open -= 1
            if poll in line.polls:
                line.polls.remove(poll)

    async def _last(self, waiting: Waiting) -> Result:
        try:
            return await self._pool.run(lambda: waiting.poll(last=True), waiting.queue_named) or {}
        except Throttled:
            return {}

    def changed(self, queue_id: str) -> None:
        """The endpoint has done something to a queue."""
        line = self._lines.get(queue_id)
        if line is not None:
            line.looked_at = 0.0
            line.changed.set()

    def stop(self) -> None:
        """Answers all of them."""
        self._ending.set()
        for line in self._lines.values():
            line.changed.set()

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, queue_id: str, line: _Line) -> None:
        """Looks for the polls of a line until there are none."""
        while line.polls and not self._ending.is_set():
            wait = max(AT_LEAST, len(self._lines) / LOOKS_A_SECOND)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(line.changed.wait(), wait)
            line.changed.clear()
            line.looked_at = time.monotonic()
            at_a_time = 1
            while line.polls and not self._ending.is_set() and await self._look(line, at_a_time):
                at_a_time = min(2 * at_a_time, MOST_AT_A_TIME)
        if self._lines.get(queue_id) is line:
            del self._lines[queue_id]

    async def _look(self, line: _Line, most: int) -> bool:
        """Looks for the first `most` of a line; whether all of them were answered."""
        some = [line.polls.popleft() for _ in range(min(most, len(line.polls)))]
        some = [poll for poll in some if not poll.over]
        for poll in some:
            poll.idle.clear()
        looks = [
            self._pool.run(functools.partial(poll.waiting.poll, last=False), poll.waiting.queue_named) for poll in some
        ]
        found = await asyncio.gather(*looks, return_exceptions=True)
        left = []
        for poll, one in zip(some, found):
            if one is None or isinstance(one, Throttled):
                left.append(poll)
                line.empty_at = line.empty_at if one is not None else line.looked_at
            elif isinstance(one, BaseException):
                poll.answer.set_exception(one)
                # It may be that nobody asks for it any more.
                poll.answer.exception()
            else:
                poll.answer.set_result(one)
            poll.idle.set()
        line.polls.extendleft(poll for poll in reversed(left) if not poll.over)
        return not left

    async def _watched(self) -> None:
        """Tells lines when the tables have moved on; each as often as all of them together may be looked at."""
        seen: object = None
        while self._lines and not self._ending.is_set():
            with contextlib.suppress(LedgerError):
                token = await self._pool.run(self._token)
                if token != seen:
                    pause = max(self._interval, len(self._lines) / LOOKS_A_SECOND)
                    lines, soon = list(self._lines.values()), time.monotonic() - pause
                    for line in lines:
                        if line.looked_at <= soon:
                            line.changed.set()
                    # Those that were looked at a moment ago hear of it the next time.
                    seen = None if any(line.looked_at > soon for line in lines) else token
            await asyncio.sleep(self._interval)
