"""The heartbeat: a thread that extends a claim while its holder works."""

from __future__ import annotations

import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, overload

from ledger.errors import InvalidParameterValue, LeaseLost, LedgerError, QueueDoesNotExist
from ledger.runtime.threads import renew_in_child, start_thread

log = logging.getLogger("ledger.heartbeat")


class Beat(NamedTuple):
    """The result of one extension: how many messages are lost, and whether the claim is at its ceiling."""

    lost: int
    at_ceiling: bool


class _Exit:
    """The `__exit__` of a heartbeat. The beats also stop when a `with` block ends without calling it.

    An interrupt (KeyboardInterrupt) can come at the first instruction of `__exit__`. A `with` statement gets the method
    from this descriptor before it enters, and keeps it until the block ends. Nothing else keeps the method, so the
    beats stop when Python frees it.
    """

    @overload
    def __get__(self, heartbeat: None, owner: type) -> Callable[..., None]: ...
    @overload
    def __get__(self, heartbeat: Heartbeat, owner: type) -> Callable[..., None]: ...
    def __get__(self, heartbeat: Heartbeat | None, owner: type) -> Callable[..., None]:
        return Heartbeat.stop if heartbeat is None else heartbeat._exit()


class Heartbeat:
    """Extends a claim every `every` seconds while the `with` block runs.

    Messages that the block gave a later deadline keep that deadline.

    - `lost`: True once a beat found that the claim holds no message any more, or that its queue is gone. Messages that
      the block itself settled are not lost.
    - `lost_messages`: how many messages ran out, or others got or settled, as the last beat found.
    - `beats`: how many beats extended the claim.
    - `at_ceiling`: True once the heartbeat extended the claim a last time, to the latest deadline that the queue's
      MaximumVisibilityTimeout allows.
    - `error`: the error of the last beat, other than a lost lease, or None. The next beat tries again.
    """

    def __init__(
        self, receipt_id: str | None, extend: Callable[[int], Beat], visibility_timeout: int, every: float
    ) -> None:
        """`extend` sets the claim's deadline to so many seconds from now, but keeps later deadlines."""
        is_number = isinstance(every, (int, float)) and not isinstance(every, bool)
        if not is_number or not 0 < every < max(visibility_timeout, 1):
            raise InvalidParameterValue(
                "every",
                every,
                f"Must be a number > 0 and < the visibility timeout of {visibility_timeout} seconds",
                "Beat about three times per timeout.",
            )
        self._receipt_id, self._extend, self._timeout, self._every = receipt_id, extend, visibility_timeout, every
        # An interrupt inside the Python code of threading.Event can leave its lock taken.
        self._stop: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._block: weakref.ref[Callable[..., None]] | None = None
        self._is_entered = False
        self._beating = threading.Lock()
        self.lost, self.at_ceiling, self.lost_messages, self.beats = False, False, 0, 0
        self.error: LedgerError | None = None
        renew_in_child(self, Heartbeat._renew)

    def _renew(self) -> None:
        """Renew the locks in a forked child. Only the parent extends the claim."""
        self._stop, self._beating = queue.SimpleQueue(), threading.Lock()

    def __repr__(self) -> str:
        how = "lost" if self.lost else "at its ceiling" if self.at_ceiling else f"every {self._every:g} s"
        return f"Heartbeat(of {self._receipt_id}, {how}, {self.beats} beats)"

    def __enter__(self) -> Heartbeat:
        self._is_entered = True
        try:
            if self._receipt_id is not None:
                start_thread(self._run, "ledger-heartbeat")
            return self
        except BaseException:
            # After an interrupt nothing else would stop the thread.
            self._stop.put(None)
            raise

    __exit__ = _Exit()

    def stop(self, *exception: object) -> None:
        """Stop the beats, and wait until a running beat has ended."""
        self._stop.put(None)
        with self._beating:
            pass

    def _exit(self) -> Callable[..., None]:
        if self._is_entered:
            return self.stop
        leave = partial(Heartbeat.stop, self)
        # A lookup outside a `with` statement must stop nothing, so each method has its own stop signal.
        self._stop = queue.SimpleQueue()
        self._block = weakref.ref(leave, self._stop.put)
        return leave

    def check(self) -> None:
        """Raise LeaseLost if a beat found the claim lost. Call it inside a long loop."""
        if self.lost:
            raise LeaseLost(f"The heartbeat found the claim {self._receipt_id} lost: stop, others have its messages")

    def _run(self) -> None:
        with self._beating:
            self._beat_until_stopped(self._stop)

    def _beat_until_stopped(self, stop: queue.SimpleQueue[object]) -> None:
        following = time.monotonic() + self._every
        while not _has_signal_within(stop, following - time.monotonic()):
            following += self._every
            try:
                self._beat()
            except (LeaseLost, QueueDoesNotExist):
                self.lost = True
                log.warning(
                    "the claim %s is lost: it ran out, others ended it or have its messages, or its queue is gone",
                    self._receipt_id,
                )
            except Exception as error:
                self.error = error if isinstance(error, LedgerError) else LedgerError(repr(error))
                log.warning(
                    "the claim %s was not extended, the next beat tries again: %s", self._receipt_id, self.error
                )
            if self.lost or self.at_ceiling:
                return

    def _beat(self) -> None:
        beat = self._extend(self._timeout)
        if self.error is not None:
            log.info("the claim %s is extended again", self._receipt_id)
        if beat.lost > self.lost_messages:
            log.warning(
                "of the claim %s %d messages ran out, or others ended or have them", self._receipt_id, beat.lost
            )
        if beat.at_ceiling:
            log.warning("the claim %s is extended to its ceiling, and no further", self._receipt_id)
        self.lost_messages = beat.lost
        self.beats += 1
        self.error, self.at_ceiling = None, beat.at_ceiling


def _has_signal_within(signals: queue.SimpleQueue[object], seconds: float) -> bool:
    try:
        signals.get(timeout=max(0.0, seconds))
    except queue.Empty:
        return False
    return True
