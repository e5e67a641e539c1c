"""The heartbeat that keeps a claim: a thread that extends it while its holder works."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from ledger.errors import InvalidParameterValue, LeaseLost, LedgerError
from ledger.forks import renew_in_child

log = logging.getLogger("ledger.heartbeat")


class Beat(NamedTuple):
    """What one extension found: how many messages others got or ended, and whether the claim is at its ceiling."""

    lost: int
    at_ceiling: bool


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
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ledger-heartbeat", daemon=True)
        self.lost, self.at_ceiling, self.lost_messages, self.beats = False, False, 0, 0
        self.error: LedgerError | None = None
        renew_in_child(self, Heartbeat._renew)

    def _renew(self) -> None:
        """A forked child has no such thread: its parent's beats, or nobody does."""
        self._stop = threading.Event()

    def __repr__(self) -> str:
        how = "lost" if self.lost else "at its ceiling" if self.at_ceiling else f"every {self._every:g} s"
        return f"Heartbeat(of {self._receipt_id}, {how}, {self.beats} beats)"

    def __enter__(self) -> Heartbeat:
        try:
            if self._receipt_id is not None:
                self._thread.start()
            return self
        except BaseException:
            # Interrupted while the thread starts: the body is not run, and nobody else would stop it.
            self._stop.set()
            raise

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Raises LeaseLost when the claim is lost."""
        if self.lost:
            raise LeaseLost(f"The heartbeat found the claim {self._receipt_id} lost: stop, others have its messages")

    def _run(self) -> None:
        following = time.monotonic() + self._every
        while not self._stop.wait(max(0.0, following - time.monotonic())):
            following += self._every
            try:
                self._beat()
            except LeaseLost:
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
