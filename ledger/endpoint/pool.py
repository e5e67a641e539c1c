"""A fixed number of threads that do what requests ask for.

More would not be faster: those that wait for one queue share a commit (ledger/store/delta/verbs/sharing.py), and each
thread that ever ran keeps its own readers of the tables. What finds too many others before it is refused at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ledger.endpoint.refusals import Throttled

Result = TypeVar("Result")


class Pool:
    """`threads` workers, and at most `backlog` calls that wait for one. `waiting` is how many do, `busy` how many are
    being done."""

    def __init__(self, threads: int, backlog: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="ledger-endpoint")
        self._threads, self._most, self._running = threads, threads + backlog, 0

    @property
    def waiting(self) -> int:
        """How many calls wait for a thread."""
        return max(0, self._running - self._threads)

    @property
    def busy(self) -> int:
        """How many calls are being done."""
        return min(self._running, self._threads)

    async def run(self, call: Callable[[], Result]) -> Result:
        """What a call returns, or raises; Throttled when too many wait. One that has begun is done to its end, whoever
        still waits for it."""
        if self._running >= self._most:
            raise Throttled()
        self._running += 1
        future = asyncio.get_running_loop().run_in_executor(self._executor, call)
        future.add_done_callback(self._ended)
        return await asyncio.shield(future)

    def _ended(self, future: asyncio.Future[Result]) -> None:
        self._running -= 1
        if not future.cancelled():
            future.exception()

    def close(self) -> None:
        """Waits for what was begun."""
        self._executor.shutdown(wait=True)
