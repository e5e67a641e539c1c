"""The newest commits, of all processes, as a measure of the load: paths, conflicts, beats.

A beat is a commit that shows that the holder of a claim is alive.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ledger.delta_log.paths import DIRECT, STATEMENT
from ledger.delta_log.protocol import Commit
from ledger.rules.limits import MILLISECONDS
from ledger.rules.upkeep import COMMITS_DUE
from ledger.runtime.forks import renew_in_child
from ledger.store.delta.commit_metadata import losses_in, verb_of
from ledger.store.delta.engine import Tables

WATCHED = ("messages", "visibility")
MOST_COMMITS = COMMITS_DUE
RATE_SECONDS = 3_600
BEATS = ("granted", "granted again", "extended")


@dataclass(frozen=True)
class RecentCommits:
    """The commits of `messages` and `visibility` within the last `seconds`.

    The period is the last hour, or shorter if the newest 2,000 commits of a table do not reach back so far.

    Attributes:
        commits: The number of these commits, without those that name no verb.
        conflicts: How often these commits lost to other writers before they landed.
        merges: By path ("direct", "statement"), the number of commits among the newest 2,000 of `visibility`.
    """

    commits: int
    conflicts: int
    seconds: float
    merges: Mapping[str, int]

    @property
    def conflicts_a_minute(self) -> float:
        return self.conflicts * 60 / self.seconds


class _SeenCommit(NamedTuple):
    """The kept facts about a commit. `verb` is empty for other programs' commits, and for the one that made the
    table."""

    verb: str
    at: int
    path: str
    losses: int
    beats: tuple[str, ...]


class CommitWatch:
    """Follows the logs of one ledger. Threads share the object."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = threading.Lock()
        renew_in_child(self, CommitWatch._renew)
        self._forget(tables.generation())

    def follow(self) -> None:
        """Read the commits since the last call, at first the newest MOST_COMMITS of each table.

        Raises StorageFailed and LedgerDamaged.
        """
        with self._lock:
            generation = self._tables.generation()
            if generation != self._generation:
                self._forget(generation)
            for table in WATCHED:
                newest = self._tables.version(table)
                since = self._last.get(table, max(-1, newest - MOST_COMMITS))
                commits = self._tables.history(table, since) if newest > since else []
                self._seen[table].extend(map(_seen, commits))
                self._last[table] = max([since, *(commit.version for commit in commits)])

    def recent(self, now: int) -> RecentCommits:
        """Return the values of the last hour before `now` (milliseconds), as of the last `follow`."""
        with self._lock:
            full = [seen[0].at for seen in self._seen.values() if len(seen) == MOST_COMMITS]
            # A commit by a clock ahead bounds nothing.
            since = max([now - RATE_SECONDS * MILLISECONDS, *(at for at in full if at < now)])
            lately = [one for seen in self._seen.values() for one in seen if one.verb and one.at >= since]
            paths = Counter(one.path for one in self._seen["visibility"])
        seconds = max(1.0, (now - since) / MILLISECONDS)
        merges = {path: paths[path] for path in (DIRECT, STATEMENT)}
        return RecentCommits(len(lately), sum(one.losses for one in lately), seconds, merges)

    def last_beat(self, receipt_id: str) -> int | None:
        """Return when a kept commit last granted or extended a claim."""
        with self._lock:
            return max((one.at for one in self._seen["visibility"] if receipt_id in one.beats), default=None)

    def _forget(self, generation: int) -> None:
        self._generation = generation
        self._last: dict[str, int] = {}
        self._seen: dict[str, deque[_SeenCommit]] = {table: deque(maxlen=MOST_COMMITS) for table in WATCHED}

    def _renew(self) -> None:
        """Start anew in a forked child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        self._forget(self._generation)


def _seen(commit: Commit) -> _SeenCommit:
    metadata = commit.metadata
    beats = tuple(str(one.get("receipt_id")) for one in metadata.get("events", ()) if one.get("event") in BEATS)
    return _SeenCommit(
        verb_of(metadata), int(metadata.get("at", commit.timestamp)), commit.path, losses_in(metadata), beats
    )
