"""Long polls: receives that found nothing wait in lines, and hold no thread.

Each queue that has polls has a line. A look tries to receive for the first polls of a line, in threads of the pool. The
endpoint looks when it has changed the queue, and when the tables have new commits. It also looks about once a second
(with more than 100 lines, less often), because a visibility timeout or a delay may be over.

The first look after a wake is for one poll. While each look answers all its polls, the next look is for twice as many,
up to MOST_POLLS_AT_A_TIME.
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
from ledger.endpoint.wire import Throttled
from ledger.errors import LedgerError

#: After so many seconds a line without a known change has a look (later, if there are many lines).
LONGEST_PAUSE_SECONDS = 1.0
#: New commits wake at most this many lines a second, and the passing of time wakes as many.
LOOKS_A_SECOND = 100
MOST_POLLS_AT_A_TIME = 16


class _Poll:
    def __init__(self, waiting: Waiting) -> None:
        self.waiting = waiting
        self.answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        #: Set while no look runs for this poll. A poll ends only then, because a look may receive messages.
        self.idle = asyncio.Event()
        self.idle.set()
        #: True once nobody would get the messages of a later look.
        self.over = False


class _Line:
    def __init__(self) -> None:
        self.polls: deque[_Poll] = deque()
        self.changed = asyncio.Event()
        #: When the line was woken last, in monotonic seconds. 0: `_wake_after_commits` may wake it at once.
        self.looked_at = 0.0
        #: The `looked_at` of the last look that found nothing for one of its polls.
        self.empty_at = 0.0


class Polls:
    """All open long polls of one event loop, whose thread alone calls the methods."""

    def __init__(self, pool: Pool, change_token: Callable[[], object], interval: float, most: int) -> None:
        self._pool, self._token, self._interval, self._most = pool, change_token, interval, most
        self._lines: dict[str, _Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self.open = 0

    async def wait(self, waiting: Waiting) -> Result:
        """Return the answer of the first look that finds messages, or {} when the wait or the endpoint ends.

        Raises what a look raises, but Throttled only if too many polls are open.
        """
        if self.open >= self._most:
            raise Throttled()
        poll = _Poll(waiting)
        line = self._lines.get(waiting.queue_id)
        if line is None:
            line = self._lines[waiting.queue_id] = _Line()
            # A change since the receive found nothing had no line to wake, so look at once.
            line.changed.set()
            self._start(self._serve(waiting.queue_id, line))
        line.polls.append(poll)
        if self._watch is None or self._watch.done():
            self._watch = self._start(self._wake_after_commits())
        self.open += 1
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait((poll.answer, ending), timeout=waiting.seconds, return_when=asyncio.FIRST_COMPLETED)
            poll.over = True
            await poll.idle.wait()
            if poll.answer.done():
                return poll.answer.result()
            # Many polls may end at once, so a recent empty look replaces the poll's last look.
            was_empty = time.monotonic() - line.empty_at <= 2 * LONGEST_PAUSE_SECONDS
            return {} if was_empty or self._ending.is_set() else await self._look_last(waiting)
        finally:
            ending.cancel()
            poll.over = True
            self.open -= 1
            if poll in line.polls:
                line.polls.remove(poll)

    async def _look_last(self, waiting: Waiting) -> Result:
        try:
            return await self._pool.run(lambda: waiting.poll(last=True), waiting.queue_named) or {}
        except Throttled:
            return {}

    def changed(self, queue_id: str) -> None:
        line = self._lines.get(queue_id)
        if line is not None:
            line.looked_at = 0.0
            line.changed.set()

    def stop(self) -> None:
        self._ending.set()
        for line in self._lines.values():
            line.changed.set()

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, queue_id: str, line: _Line) -> None:
        while line.polls and not self._ending.is_set():
            wait = max(LONGEST_PAUSE_SECONDS, len(self._lines) / LOOKS_A_SECOND)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(line.changed.wait(), wait)
            line.changed.clear()
            line.looked_at = time.monotonic()
            at_a_time = 1
            while line.polls and not self._ending.is_set() and await self._look(line, at_a_time):
                at_a_time = min(2 * at_a_time, MOST_POLLS_AT_A_TIME)
        if self._lines.get(queue_id) is line:
            del self._lines[queue_id]

    async def _look(self, line: _Line, most: int) -> bool:
        """Look for the first `most` polls of a line. Return whether each got an answer or an error."""
        polls = [line.polls.popleft() for _ in range(min(most, len(line.polls)))]
        polls = [poll for poll in polls if not poll.over]
        for poll in polls:
            poll.idle.clear()
        looks = [
            self._pool.run(functools.partial(poll.waiting.poll, last=False), poll.waiting.queue_named) for poll in polls
        ]
        answers = await asyncio.gather(*looks, return_exceptions=True)
        unanswered = []
        for poll, answer in zip(polls, answers):
            if answer is None or isinstance(answer, Throttled):
                unanswered.append(poll)
                line.empty_at = line.empty_at if answer is not None else line.looked_at
            elif isinstance(answer, BaseException):
                poll.answer.set_exception(answer)
                # asyncio logs an exception that nobody reads, such as that of a poll that has ended.
                poll.answer.exception()
            else:
                poll.answer.set_result(answer)
            poll.idle.set()
        line.polls.extendleft(poll for poll in reversed(unanswered) if not poll.over)
        return not unanswered

    async def _wake_after_commits(self) -> None:
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
                    # A later pass wakes lines that had a look a moment ago.
                    seen = None if any(line.looked_at > soon for line in lines) else token
            await asyncio.sleep(self._interval)
