"""Retries after lost commits: how often, with which pauses, and the final error."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator

from ledger.errors import ContentionOutlastedRetries
from ledger.runtime.forks import renew_in_child, waiting


class Tally:
    """Counts an open ledger's commits and turns, for monitoring. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renew_in_child(self, Tally._renew)
        self._commits: Counter[str] = Counter()
        self._conflicts: Counter[str] = Counter()
        self._groups: Counter[tuple[str, int]] = Counter()

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def committed(self, verb: str, *, landed: bool) -> None:
        with self._lock:
            (self._commits if landed else self._conflicts)[verb] += 1

    def together(self, purpose: str, count: int) -> None:
        """Count one turn in which the calls of `count` threads (one or more) went together."""
        with self._lock:
            self._groups[purpose, count] += 1

    def commits(self) -> dict[str, int]:
        with self._lock:
            return dict(self._commits)

    def conflicts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._conflicts)

    def groups(self) -> dict[tuple[str, int], int]:
        """Return how often each number of calls went together, by purpose: a table, or "reading"."""
        with self._lock:
            return dict(self._groups)


log = logging.getLogger("ledger.verbs")
retries = logging.getLogger("ledger.retries")
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.5
#: After this many losses, a warning: the queue may need more lanes.
LOST_OFTEN = 5


class Attempts:
    """The tries of one verb, at most `most`. Each gets the number of losses so far.

    Before each but the first there is a random pause, whose bound grows from `first_pause` to `longest_pause`
    (seconds).
    """

    def __init__(
        self, verb: str, most: int, first_pause: float = FIRST_PAUSE, longest_pause: float = LONGEST_PAUSE
    ) -> None:
        self._verb, self._most, self._pauses = verb, most, (first_pause, longest_pause)
        #: Monotonic seconds: when the first try and the current one began.
        self._started = self.began = time.monotonic()
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
        return time.monotonic() - self._started

    def outlasted(self) -> ContentionOutlastedRetries:
        """Log that all tries lost, and return the error."""
        retries.warning(
            "%s lost to other writers %d times in %.1f s and is given up", self._verb, self._most, self.seconds
        )
        return ContentionOutlastedRetries(self._verb, self._most, self.seconds)


def pause(losses: int, first: float, longest: float) -> None:
    """Wait for a random time, whose bound doubles with each loss, from `first` to `longest` seconds."""
    with waiting():
        time.sleep(random.uniform(0, min(longest, first * 2**losses)))
