"""Trying again what lost to other writers: how often, how long to wait in between, and what to say in the end."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator

from ledger.errors import ContentionOutlastedRetries

log = logging.getLogger("ledger.verbs")
retries = logging.getLogger("ledger.retries")
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.5
#: Who lost so often gets a line in the log: the queue may want more lanes.
LOST_OFTEN = 5


class Attempts:
    """The tries of one verb: each is given how often it has lost so far, and there is a pause after each loss, of a
    random length that grows from `first_pause` to `longest_pause` (seconds)."""

    def __init__(
        self, verb: str, most: int, first_pause: float = FIRST_PAUSE, longest_pause: float = LONGEST_PAUSE
    ) -> None:
        self._verb, self._most, self._pauses = verb, most, (first_pause, longest_pause)
        self._started = self.began = time.monotonic()
        #: How often it has lost, and when the try that runs began (monotonic seconds).
        self.losses = 0

    def __iter__(self) -> Iterator[int]:
        for losses in range(self._most):
            self.losses = losses
            if losses:
                retries.debug("%s lost to another writer and is tried again, attempt %d", self._verb, losses + 1)
                pause(losses - 1, *self._pauses)
            if losses == LOST_OFTEN:
                log.warning("%s has lost to other writers %d times in %.1f s", self._verb, losses, self.seconds)
            self.began = time.monotonic()
            yield losses

    @property
    def seconds(self) -> float:
        """How long it has been tried."""
        return time.monotonic() - self._started

    def outlasted(self) -> ContentionOutlastedRetries:
        """What to raise when all were lost."""
        retries.warning(
            "%s lost to other writers %d times in %.1f s and is given up", self._verb, self._most, self.seconds
        )
        return ContentionOutlastedRetries(self._verb, self._most, self.seconds)


def pause(losses: int, first: float, longest: float) -> None:
    """Waits a random moment that grows with the losses, from at most `first` to at most `longest` seconds."""
    time.sleep(random.uniform(0, min(longest, first * 2**losses)))
