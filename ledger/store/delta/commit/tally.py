"""What the transactions of this process came to: counts that only grow, for whoever watches it."""

from __future__ import annotations

import threading
from collections import Counter

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
