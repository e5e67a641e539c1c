"""A fixed number of threads that run calls, and the lines in which calls wait.

More threads would not be faster: calls that wait for one queue share a commit, and each thread keeps its own readers of
the tables.

Calls wait in a line for each queue, and the lines take turns (`Lines`, which has no thread and no lock: the pool locks
it). One queue may have all threads but an eighth. So while many calls wait for the next commit of a hot queue, calls to
other queues find a thread. If too many calls wait, the pool refuses the newest call of the queue with the most calls.

The pool replaces an executor of concurrent.futures at less cost: a call has one future, of the event loop. Calls that
end while the event loop is busy wake it once for all of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

from ledger.endpoint.refusals import Throttled

Call = TypeVar("Call")


class Lines(Generic[Call]):
    """Calls that wait for one of `threads`; at most `backlog` wait. `begun` calls have a thread."""

    def __init__(self, threads: int, backlog: int) -> None:
        self._threads, self._most = threads, threads + backlog
        self._most_of_a_queue = threads - max(1, threads // 8) if threads > 1 else 1
        #: The line whose turn is next comes first. No line is empty.
        self._lines: OrderedDict[str, deque[Call]] = OrderedDict()
        self._begun_of: Counter[str] = Counter()
        self.begun = self.waiting = 0

    @property
    def open(self) -> int:
        """How many calls wait or have a thread."""
        return self.begun + self.waiting

    def add(self, queue: str, call: Call) -> Call | None:
        """Let a call wait. If too many calls wait, remove and return one, perhaps this call; else return None."""
        self._lines.setdefault(queue, deque()).append(call)
        self.waiting += 1
        if self.open <= self._most:
            return None
        # If several queues have as many calls, choose the one of the newest call.
        fullest = max(self._lines, key=lambda name: (self._calls_of(name), name == queue))
        return self._taken(fullest, self._lines[fullest].pop())

    def begin_next(self) -> tuple[str, Call] | None:
        """Return the call that gets a thread now, and its queue; None if no thread is free for a waiting call."""
        if self.begun >= self._threads:
            return None
        for queue, line in self._lines.items():
            if self._begun_of[queue] < self._most_of_a_queue:
                self._lines.move_to_end(queue)
                self._begun_of[queue] += 1
                self.begun += 1
                return queue, self._taken(queue, line.popleft())
        return None

    def end(self, queue: str) -> None:
        """Take back the thread of a call to a queue."""
        self.begun -= 1
        self._begun_of[queue] -= 1
        if not self._begun_of[queue]:
            del self._begun_of[queue]

    def _calls_of(self, queue: str) -> int:
        return self._begun_of[queue] + len(self._lines[queue])

    def _taken(self, queue: str, call: Call) -> Call:
        self.waiting -= 1
        if not self._lines[queue]:
            del self._lines[queue]
        return call


Result = TypeVar("Result")
_Call: TypeAlias = "tuple[Callable[[], Any], asyncio.Future[Any]]"
#: The line of calls that are about no queue, or about several.
NO_QUEUE = ""


class Pool:
    """`threads` workers, and at most `backlog` calls that wait for one. `waiting` counts waiting calls, `busy` running
    ones. Must be made in its event loop."""

    def __init__(self, threads: int, backlog: int) -> None:
        self._threads, self._is_closing = threads, False
        self._loop = asyncio.get_running_loop()
        #: Guarded by the lock.
        self._lock, self._lines = threading.Lock(), Lines[_Call](threads, backlog)
        #: Calls that have a thread, each with its queue. None ends a worker.
        self._begun: SimpleQueue[tuple[str, _Call] | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._ended = deque[tuple["asyncio.Future[Any]", Any, "BaseException | None"]]()
        #: Whether the event loop will look at the calls that ended.
        self._is_woken = False

    @property
    def waiting(self) -> int:
        """How many calls wait for a thread."""
        return self._lines.waiting

    @property
    def busy(self) -> int:
        """How many calls are being done."""
        return self._lines.begun

    async def run(self, call: Callable[[], Result], queue: str = NO_QUEUE) -> Result:
        """Return what a call returns, or raise what it raises; Throttled if too many wait. A call that is not refused
        runs to its end, even if nobody awaits it any more. `queue`: the name of the queue that the call is about."""
        future: asyncio.Future[Result] = self._loop.create_future()
        with self._lock:
            refused = self._lines.add(queue, (call, future))
            self._begin_calls()
            is_short = len(self._workers) < min(self._lines.begun, self._threads)
        if refused is not None and not refused[1].done():
            refused[1].set_exception(Throttled())
        if is_short:
            self._start_worker()
        return await future

    def close(self) -> None:
        """Wait for all accepted calls."""
        with self._lock:
            self._is_closing = True
            self._end_workers_when_idle()
        for worker in self._workers:
            worker.join()

    def _begin_calls(self) -> None:
        while (begun_call := self._lines.begin_next()) is not None:
            self._begun.put(begun_call)

    def _end_workers_when_idle(self) -> None:
        if self._is_closing and not self._lines.open:
            for _ in self._workers:
                self._begun.put(None)

    def _start_worker(self) -> None:
        name = f"ledger-endpoint_{len(self._workers)}"
        worker = threading.Thread(target=self._work, name=name, daemon=True)
        worker.start()
        self._workers.append(worker)

    def _work(self) -> None:
        while (begun_call := self._begun.get()) is not None:
            queue, (call, future) = begun_call
            result, failure = None, None
            try:
                result = call()
            except BaseException as error:
                failure = error
            with self._lock:
                self._lines.end(queue)
                self._begin_calls()
                self._end_workers_when_idle()
            self._tell(future, result, failure)
            # Free the call's objects before the next call comes.
            del begun_call, call, future, result, failure

    def _tell(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        """Pass a call's end from a worker to the event loop; discard it once the loop has ended."""
        self._ended.append((future, result, error))
        if not self._is_woken:
            self._is_woken = True
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        # Reset the flag first: a call that ends from here on must wake the loop again.
        self._is_woken = False
        while self._ended:
            future, result, error = self._ended.popleft()
            if future.done():
                # The caller has gone.
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
