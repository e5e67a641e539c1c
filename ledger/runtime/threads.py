"""Threads and jobs that an interrupt of the main thread does not block.

KeyboardInterrupt can come between any two instructions of the main thread, even within the Python code of `threading`
and `concurrent.futures`. After that a Condition can stay locked for ever. SimpleQueue and raw threads are C code, which
no interrupt divides.
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
    """Start a daemon thread. Raises RuntimeError if no thread can be started."""

    def begin() -> None:
        # Only the main thread gets KeyboardInterrupt, so none comes in the middle of these lines.
        try:
            threading.Thread(target=target, name=name, daemon=True).start()
        except RuntimeError:
            target()

    _thread.start_new_thread(begin, ())


class Job(Generic[Result]):
    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self._answers: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def run(self) -> None:
        try:
            self._answers.put((self._call(), None))
        except BaseException as error:
            self._answers.put((None, error))

    def outcome(self) -> tuple[Result | None, BaseException | None]:
        """Wait for the call's end. Can be called once."""
        return self._answers.get()

    def result(self) -> Result:
        """Wait for the call's end, and return its result or raise its error. Can be called once."""
        answer, error = self.outcome()
        if error is not None:
            raise error
        return answer  # type: ignore[return-value] # it is None where the call returned None


class Workers:
    """Up to `most` threads for calls. If all of them are busy, a call waits for one. No thread ends."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name, self._started = most, name, 0
        self._jobs: queue.SimpleQueue[Job[Any]] = queue.SimpleQueue()
        #: An item for each thread that waits.
        self._waiting: queue.SimpleQueue[None] = queue.SimpleQueue()

    def begin(self, call: Callable[[], Result]) -> Job[Result]:
        """Begin a call in a thread, or make it at once if no thread can be started or the interpreter ends."""
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
    """Call a function with each item, in up to `most` threads, and return the results in the items' order.

    After all calls have ended, raises the error of the first item that has one. An interrupt of the wait is raised at
    once: running calls continue, and no further call begins.
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
