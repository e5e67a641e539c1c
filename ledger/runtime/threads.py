"""Threads and jobs that an interrupt of the main thread does not block.

KeyboardInterrupt can come between any two instructions of the main thread, even within the Python code of `threading`
and `concurrent.futures`. After that a Condition can stay locked for ever. This module therefore uses SimpleQueue, and
starts raw threads. Both are C code, which no interrupt divides.
"""

from __future__ import annotations

import _thread
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def start_thread(target: Callable[[], object], name: str) -> None:
    """Start a daemon thread with a name. Raises RuntimeError if no thread can be started."""

    def begin() -> None:
        # Only the main thread gets KeyboardInterrupt, so none comes in the middle of these lines.
        try:
            threading.Thread(target=target, name=name, daemon=True).start()
        except RuntimeError:
            # No second thread can be started, so the raw thread that runs these lines calls `target`.
            target()

    _thread.start_new_thread(begin, ())


class Job(Generic[Result]):
    """A call that one thread makes, and whose result another thread gets."""

    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self._answers: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def run(self) -> None:
        """Make the call, in the thread that calls `run`."""
        try:
            self._answers.put((self._call(), None))
        except BaseException as error:
            self._answers.put((None, error))

    def outcome(self) -> tuple[Result | None, BaseException | None]:
        """Wait for the call's end, and return its result and its error. Can be called once."""
        return self._answers.get()

    def result(self) -> Result:
        """Wait for the call's end, and return its result or raise its error. Can be called once."""
        answer, error = self.outcome()
        if error is not None:
            raise error
        return answer  # type: ignore[return-value] # it is None where the call returned None


class Workers:
    """Up to `most` threads for calls. If all of them are busy, a call waits for one.

    If no thread waits when a call begins, and there are fewer than `most`, one more is started. No thread ends.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name, self._started = most, name, 0
        self._jobs: queue.SimpleQueue[Job[Any]] = queue.SimpleQueue()
        #: An item for each thread that waits.
        self._waiting: queue.SimpleQueue[None] = queue.SimpleQueue()

    def begin(self, call: Callable[[], Result]) -> Job[Result]:
        """Begin a call in one of the threads.

        If there is no thread and none can be started, or while the interpreter ends, make the call in this thread.
        """
        job = Job(call)
        if sys.is_finalizing() or not self._has_thread():
            job.run()
        else:
            self._jobs.put(job)
        return job

    def _has_thread(self) -> bool:
        try:
            self._waiting.get_nowait()
        except queue.Empty:
            if self._started < self._most:
                try:
                    start_thread(self._work, self._name)
                except RuntimeError:
                    return self._started > 0
                self._started += 1
        return True

    def _work(self) -> None:
        while True:
            self._jobs.get().run()
            self._waiting.put(None)


def map_at_once(function: Callable[[Item], Result], items: Iterable[Item], most: int) -> list[Result]:
    """Call a function with each item, in up to `most` threads at once, and return the results in the items' order.

    A single item needs no thread. After all calls have ended, raises the error of the first item that has one. If an
    interrupt comes while the calling thread waits, the interrupt is raised at once. Running calls continue, and no
    further call begins.
    """
    jobs = [Job(partial(function, item)) for item in items]
    if len(jobs) == 1:
        jobs[0].run()
        return [jobs[0].result()]
    waiting: queue.SimpleQueue[Job[Result]] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)

    def work() -> None:
        while (job := _next(waiting)) is not None:
            job.run()

    try:
        for number in range(min(most, len(jobs))):
            try:
                start_thread(work, "ledger-files")
            except RuntimeError:
                # The interpreter ends, or the machine starts no more threads.
                if not number:
                    work()
                break
        outcomes = [job.outcome() for job in jobs]
    except BaseException:
        while _next(waiting) is not None:
            pass
        raise
    for _, error in outcomes:
        if error is not None:
            raise error
    return [answer for answer, _ in outcomes]  # type: ignore[misc] # None where the function returned None


def _next(jobs: queue.SimpleQueue[Job[Result]]) -> Job[Result] | None:
    try:
        return jobs.get_nowait()
    except queue.Empty:
        return None
