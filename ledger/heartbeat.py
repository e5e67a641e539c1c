"""The heartbeat that keeps a claim: a thread that extends it while its holder works."""

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
from ledger.runtime.forks import renew_in_child
from ledger.runtime.threads import start_thread

log = logging.getLogger("ledger.heartbeat")


class Beat(NamedTuple):
    """What one extension found: how many messages others got or ended, and whether the claim is at its ceiling."""

    lost: int
    at_ceiling: bool


class _Exit:
    """The `__exit__` of a heartbeat. The beats also stop when a `with` block ends without it.

    An interrupt (KeyboardInterrupt) can come at the first instruction of `__exit__`, so `__exit__` alone cannot promise
    to stop the thread. A `with` statement asks for `__exit__` before it enters, and holds the answer until the block is
    over, however the block ends. Nobody else holds the answer that it gets here. When that is gone, the beats stop.
    """

    @overload
    def __get__(self, heartbeat: None, owner: type) -> Callable[..., None]: ...
    @overload
    def __get__(self, heartbeat: Heartbeat, owner: type) -> Callable[..., None]: ...
    def __get__(self, heartbeat: Heartbeat | None, owner: type) -> Callable[..., None]:
        return Heartbeat.stop if heartbeat is None else heartbeat._exit()


class Heartbeat:
    """Extends a claim every `every` seconds while the `with` block runs, and stops with it.

    `lost` is true once nothing is held any more, whoever ended it: another receiver, or another holder of the same
    receipt; what its own body settled is not lost. `lost_messages` counts those that others got or ended; `check()`
    raises LeaseLost once all is lost, for use inside a long loop. Messages that its body gave a later deadline keep
    it. At the ceiling (V7) it extends a last time to the ceiling and stops: `at_ceiling` is true and the lease ends
    then. An error that is not a lost lease is kept in `error`, and the next beat tries again.
    """

    def __init__(
        self, receipt_id: str | None, extend: Callable[[int], Beat], visibility_timeout: int, every: float
    ) -> None:
        """Of the claim with this receipt (None: an empty one), which `extend` extends by so many seconds."""
        is_number = isinstance(every, (int, float)) and not isinstance(every, bool)
        if not is_number or not 0 < every < max(visibility_timeout, 1):
            raise InvalidParameterValue(
                "every",
                every,
                f"Must be a number > 0 and < the visibility timeout of {visibility_timeout} seconds",
                "Beat about three times per timeout.",
            )
        self._receipt_id, self._extend, self._timeout, self._every = receipt_id, extend, visibility_timeout, every
        # Not an Event: its code is Python, and an interrupt within it leaves its lock taken.
        self._stop: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._block: weakref.ref[Callable[..., None]] | None = None
        self._is_entered = False
        #: Its thread has it while it may beat.
        self._beating = threading.Lock()
        self.lost, self.at_ceiling, self.lost_messages, self.beats = False, False, 0, 0
        self.error: LedgerError | None = None
        renew_in_child(self, Heartbeat._renew)

    def _renew(self) -> None:
        """A forked child has no such thread: its parent's beats, or nobody does."""
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
            # Interrupted while the thread starts: the body is not run, and nobody else would stop it.
            self._stop.put(None)
            raise

    __exit__ = _Exit()

    def stop(self, *exception: object) -> None:
        """Stop the beats, as the end of the `with` block does, and wait for one that is under way."""
        self._stop.put(None)
        with self._beating:
            pass

    def _exit(self) -> Callable[..., None]:
        """Return what a `with` statement calls at its end: see `_Exit`."""
        if self._is_entered:
            return self.stop
        leave = partial(Heartbeat.stop, self)
        # Each answer has a stop of its own: one that was only looked at stops nothing.
        self._stop = queue.SimpleQueue()
        self._block = weakref.ref(leave, self._stop.put)
        return leave

    def check(self) -> None:
        """Raises LeaseLost when the claim is lost."""
        if self.lost:
            raise LeaseLost(f"The heartbeat found the claim {self._receipt_id} lost: stop, others have its messages")

    def _run(self) -> None:
        with self._beating:
            self._beat_until_stopped(self._stop)

    def _beat_until_stopped(self, stop: queue.SimpleQueue[object]) -> None:
        following = time.monotonic() + self._every
        while not _is_put(stop, following - time.monotonic()):
            following += self._every
            try:
                self._beat()
            except (LeaseLost, QueueDoesNotExist):
                # With its queue a claim is gone.
                self.lost = True
                log.warning("the claim %s is lost: others ended it or have its messages", self._receipt_id)
            except Exception as error:
                self.error = error if isinstance(error, LedgerError) else LedgerError(repr(error))
                log.warning(
                    "the claim %s was not extended, the next beat tries again: %s", self._receipt_id, self.error
                )
            if self.lost or self.at_ceiling:
                return

    def _beat(self) -> None:
        found = self._extend(self._timeout)
        if self.error is not None:
            log.info("the claim %s is extended again", self._receipt_id)
        if found.lost > self.lost_messages:
            log.warning("of the claim %s others ended or have %d messages", self._receipt_id, found.lost)
        if found.at_ceiling:
            log.warning("the claim %s is held as long as it may be, and ends in time (V7)", self._receipt_id)
        self.lost_messages = found.lost
        self.beats += 1
        self.error, self.at_ceiling = None, found.at_ceiling


def _is_put(signals: queue.SimpleQueue[object], seconds: float) -> bool:
    """Wait for a signal for so many seconds at most; return whether it came."""
    try:
        signals.get(timeout=max(0.0, seconds))
    except queue.Empty:
        return False
    return True
