"""A fixed number of threads that do what requests ask for.

More would not be faster: those that wait for one queue share a commit (ledger/store/delta/verbs/sharing.py), and each
thread that ever ran keeps its own readers of the tables. What finds too many others before it is refused at once.

It does what an executor of concurrent.futures does, for less: a call has one future, of the event loop. Calls that end
while the event loop is busy wake it once for all of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from ledger.endpoint.refusals import Throttled

Result = TypeVar("Result")
_Call = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Pool:
    """`threads` workers, and at most `backlog` calls that wait for one. `waiting` is how many do, `busy` how many are
    being done. Made in the event loop that it is for."""

    def __init__(self, threads: int, backlog: int) -> None:
        self._threads, self._most, self._running = threads, threads + backlog, 0
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._ended = deque[tuple["asyncio.Future[Any]", Any, "BaseException | None"]]()
        #: The event loop will look at what has ended.
        self._is_woken = False

    @property
    def waiting(self) -> int:
        """How many calls wait for a thread."""
        return max(0, self._running - self._threads)

    @property
    def busy(self) -> int:
        """How many calls are being done."""
        return min(self._running, self._threads)

    async def run(self, call: Callable[[], Result]) -> Result:
        """Return what a call returns, or raise what it raises; Throttled when too many wait. A call that was taken is
        done to its end, whoever still waits for it."""
        if self._running >= self._most:
            raise Throttled()
        self._running += 1
        if self._running > len(self._workers) and len(self._workers) < self._threads:
            self._start_worker()
        future: asyncio.Future[Result] = self._loop.create_future()
        self._calls.put((call, future))
        return await future

    def close(self) -> None:
        """Wait for what was begun."""
        for _ in self._workers:
            self._calls.put(None)
        for worker in self._workers:
            worker.join()

    def _start_worker(self) -> None:
        name = f"ledger-endpoint_{len(self._workers)}"
        worker = threading.Thread(target=self._work, name=name, daemon=True)
        worker.start()
        self._workers.append(worker)

    def _work(self) -> None:
        while (one := self._calls.get()) is not None:
            call, future = one
            try:
                self._tell(future, call(), None)
            except BaseException as error:
                self._tell(future, None, error)
            # Nothing of a call is kept until the next one.
            del one, call, future

    def _tell(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        """Tell the event loop, from a worker. Nobody is told once the loop has ended."""
        self._ended.append((future, result, error))
        if not self._is_woken:
            self._is_woken = True
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        # First, so that whoever ends from here on wakes the loop again.
        self._is_woken = False
        while self._ended:
            future, result, error = self._ended.popleft()
            self._running -= 1
            if future.done():
                # Whoever asked has gone away.
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
