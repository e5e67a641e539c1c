"""The endpoint's thread pool, with a line of waiting calls for each queue.

Free threads take calls from the lines in rotation. If there are several threads, the calls of one queue leave an eighth
of the threads (rounded down, but at least one thread) to other queues. If too many calls wait or run, the queue
with the most calls, among those with waiting calls, loses its newest waiting call.

A call costs one asyncio future (`run_in_executor` would also make a concurrent one). Calls that end while the event
loop is busy wake the loop once for all of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

from ledger.endpoint.wire import Throttled

Call = TypeVar("Call")


class Lines(Generic[Call]):
    """The calls that wait for one of `threads` threads, and the number of calls that have begun (`begun`).

    A begun call has one of the threads, or the next one that is free is for it.
    """

    def __init__(self, threads: int, backlog: int) -> None:
        self._threads, self._most = threads, threads + backlog
        self._most_of_a_queue = threads - max(1, threads // 8) if threads > 1 else 1
        #: The lines, by queue. A line whose call begins moves to the end. No line is empty.
        self._lines: OrderedDict[str, deque[Call]] = OrderedDict()
        self._begun_of: Counter[str] = Counter()
        self.begun = self.waiting = 0

    @property
    def open(self) -> int:
        return self.begun + self.waiting

    def add(self, queue: str, call: Call) -> Call | None:
        """Add a waiting call. If too many calls are then open, remove a call, perhaps the new one, and return it."""
        self._lines.setdefault(queue, deque()).append(call)
        self.waiting += 1
        if self.open <= self._most:
            return None
        fullest = max(self._lines, key=lambda name: (self._calls_of(name), name == queue))
        return self._take_out(fullest, self._lines[fullest].pop())

    def begin_next(self) -> tuple[str, Call] | None:
        """Let a waiting call begin. Return its queue and the call, or None."""
        if self.begun >= self._threads:
            return None
        for queue, line in self._lines.items():
            if self._begun_of[queue] < self._most_of_a_queue:
                self._lines.move_to_end(queue)
                self._begun_of[queue] += 1
                self.begun += 1
                return queue, self._take_out(queue, line.popleft())
        return None

    def end(self, queue: str) -> None:
        self.begun -= 1
        self._begun_of[queue] -= 1
        if not self._begun_of[queue]:
            del self._begun_of[queue]

    def _calls_of(self, queue: str) -> int:
        return self._begun_of[queue] + len(self._lines[queue])

    def _take_out(self, queue: str, call: Call) -> Call:
        self.waiting -= 1
        if not self._lines[queue]:
            del self._lines[queue]
        return call


Result = TypeVar("Result")
_Call: TypeAlias = "tuple[Callable[[], Any], asyncio.Future[Any]]"
#: The line of requests without a valid QueueUrl, and of the endpoint's own calls.
NO_QUEUE = ""


class Pool:
    """At most `threads` worker threads for the calls of one event loop. Made inside this loop."""

    def __init__(self, threads: int, backlog: int) -> None:
        self._threads, self._is_closing = threads, False
        self._loop = asyncio.get_running_loop()
        #: Guards the lines. Only `waiting` and `busy` read them without the lock.
        self._lock, self._lines = threading.Lock(), Lines[_Call](threads, backlog)
        #: Begun calls that no worker has taken yet, each with its queue. None ends the worker that takes it.
        self._begun: SimpleQueue[tuple[str, _Call] | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._ended = deque[tuple["asyncio.Future[Any]", Any, "BaseException | None"]]()
        self._is_woken = False

    @property
    def waiting(self) -> int:
        return self._lines.waiting

    @property
    def busy(self) -> int:
        return self._lines.begun

    async def run(self, call: Callable[[], Result], queue: str = NO_QUEUE) -> Result:
        """Run a call about a queue in a thread. Return what the call returns, or raise what it raises.

        Raises Throttled if the pool refuses the call, at once or while it waits. Any other call runs to its end, even
        if nobody awaits it any more.
        """
        future: asyncio.Future[Result] = self._loop.create_future()
        with self._lock:
            refused = self._lines.add(queue, (call, future))
            self._begin_calls()
            is_short = len(self._workers) < min(self._lines.begun, self._threads)
        if refused is not None and not refused[1].done():
            refused[1].set_exception(Throttled())
        if is_short:
            self._start_worker()
        try:
            return await future
        finally:
            # A refused call's error refers to this frame, and the future to the error: the cycle would keep the
            # request.
            del call, future, refused

    def close(self) -> None:
        """Wait until all accepted calls have ended, then end the threads."""
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
            self._pass_result(future, result, failure)
            # Free the call's objects before the next call comes.
            del begun_call, call, future, result, failure

    def _pass_result(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._ended.append((future, result, error))
        if not self._is_woken:
            self._is_woken = True
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._set_results)

    def _set_results(self) -> None:
        # Reset the flag first: a call that ends later must wake the loop again.
        self._is_woken = False
        while self._ended:
            future, result, error = self._ended.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
