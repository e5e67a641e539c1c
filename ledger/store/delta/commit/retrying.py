"""Trying again what lost to other writers: how often, how long to wait in between, and what to say in the end.

`Tally` counts what the transactions of this process came to, for whoever watches it. Its counts only grow.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator

from ledger.errors import ContentionOutlastedRetries
from ledger.runtime.forks import renew_in_child


class Tally:
    """Commits that landed and that lost, by verb, and how many wishes of threads went together, by what they were for.
    Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renew_in_child(self, Tally._renew)
        self._commits: Counter[str] = Counter()
        self._conflicts: Counter[str] = Counter()
        self._groups: Counter[tuple[str, int]] = Counter()

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def committed(self, verb: str, *, landed: bool) -> None:
        """A commit of a verb landed, or lost to another writer, and is tried again."""
        with self._lock:
            (self._commits if landed else self._conflicts)[verb] += 1

    def together(self, purpose: str, count: int) -> None:
        """So many threads' wishes went together."""
        with self._lock:
            self._groups[purpose, count] += 1

    def commits(self) -> dict[str, int]:
        """How many commits landed, by verb."""
        with self._lock:
            return dict(self._commits)

    def conflicts(self) -> dict[str, int]:
        """How many commits lost to another writer, by verb; each was tried again, as long as there were attempts."""
        with self._lock:
            return dict(self._conflicts)

    def groups(self) -> dict[tuple[str, int], int]:
        """How often so many wishes went together, by what they were for: a table that they were committed to, or
        "reading"."""
        with self._lock:
            return dict(self._groups)


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
