"""Vital signs of a ledger: values that grow with its load, disk use, and the newest commits.

A beat is a commit that grants or extends a claim: its holder was alive.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ledger.clock import Clock
from ledger.delta_log.failures import translating_errors
from ledger.delta_log.protocol import Commit
from ledger.delta_log.statements import DIRECT, STATEMENT
from ledger.delta_log.storage import LOG, StoredFile, table_files
from ledger.errors import ClocksDisagree
from ledger.rules.limits import MILLISECONDS
from ledger.rules.location import recorded
from ledger.rules.upkeep import COMMITS_DUE
from ledger.runtime.threads import renew_in_child
from ledger.settings import Settings
from ledger.store.delta.engine import Engine, Tables, losses_in, verb_of
from ledger.store.delta.model.tables import TABLES, Where
from ledger.store.delta.state.listing import Listings
from ledger.store.delta.state.snapshot import load_all
from ledger.store.protocol import QueueRecord

DAY_SECONDS, HOUR_SECONDS = 86_400.0, 3_600.0


@dataclass(frozen=True)
class DiskUse:
    """The room that a ledger's tables take, including logs and past versions.

    Attributes:
        written_a_day: The bytes of files that were written within `measured_seconds` and still exist, scaled to a day.
        measured_seconds: A day, or the oldest file's age if that is less, but at least an hour.
        free: The bytes that this user may still write on the disk (None: the tables are on an object store).
    """

    files: int
    bytes: int
    log_files: int
    log_bytes: int
    written_a_day: int
    measured_seconds: float
    free: int | None

    @property
    def days_left(self) -> float | None:
        """The days until the disk is full if nothing is removed (None: nothing was written, or `free` is not known)."""
        return None if self.free is None or not self.written_a_day else self.free / self.written_a_day


def measure_files(files: Iterable[StoredFile], now: float, free: int | None) -> DiskUse:
    count, total, logs, of_logs, lately, oldest = 0, 0, 0, 0, 0, now
    for path, size, at in files:
        count, total, oldest = count + 1, total + size, min(oldest, at)
        lately += size if at > now - DAY_SECONDS else 0
        if path.startswith(LOG):
            logs, of_logs = logs + 1, of_logs + size
    measured = min(DAY_SECONDS, max(HOUR_SECONDS, now - oldest))
    return DiskUse(count, total, logs, of_logs, round(lately * DAY_SECONDS / measured), measured, free)


def free_bytes(place: str) -> int | None:
    """Return the bytes that this user may still write at the place of a table (None: not a local path). Raises
    OSError."""
    location = recorded(place)
    if not location.is_local:
        return None
    disk = os.statvfs(location.text)
    return disk.f_bavail * disk.f_frsize


WATCHED = ("messages", "visibility")
MOST_COMMITS = COMMITS_DUE
RATE_SECONDS = 3_600
BEATS = ("granted", "granted again", "extended")


@dataclass(frozen=True)
class RecentCommits:
    """The commits of `messages` and `visibility` within the last `seconds`.

    The period is the last hour, or less if the newest 2,000 commits of a table do not reach back an hour.

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
    """Follows the logs of `messages` and `visibility`. Threads share the object."""

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
                self._seen[table].extend(map(_summarize_commit, commits))
                self._last[table] = max([since, *(commit.version for commit in commits)])

    def recent(self, now: int) -> RecentCommits:
        """Return the values of the last hour before `now` (milliseconds), as of the last `follow`."""
        with self._lock:
            full = [seen[0].at for seen in self._seen.values() if len(seen) == MOST_COMMITS]
            # A commit with a future instant does not bound the period.
            since = max([now - RATE_SECONDS * MILLISECONDS, *(at for at in full if at < now)])
            lately = [one for seen in self._seen.values() for one in seen if one.verb and one.at >= since]
            paths = Counter(one.path for one in self._seen["visibility"])
        seconds = max(1.0, (now - since) / MILLISECONDS)
        merges = {path: paths[path] for path in (DIRECT, STATEMENT)}
        return RecentCommits(len(lately), sum(one.losses for one in lately), seconds, merges)

    def find_last_beat(self, receipt_id: str) -> int | None:
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


def _summarize_commit(commit: Commit) -> _SeenCommit:
    metadata = commit.metadata
    beats = tuple(str(one.get("receipt_id")) for one in metadata.get("events", ()) if one.get("event") in BEATS)
    return _SeenCommit(
        verb_of(metadata), int(metadata.get("at", commit.timestamp)), commit.path, losses_in(metadata), beats
    )


@dataclass(frozen=True)
class OldestClaim:
    """The claim with messages in flight that has been held for the longest time.

    Attributes:
        age: Seconds since the claim was granted, or granted again under its attempt id.
        beat_age: Seconds since the claim was granted or extended last (None: not within the newest 2,000 commits to
            `visibility`).
    """

    queue: str
    receipt_id: str
    age: float
    beat_age: float | None


@dataclass(frozen=True)
class OldestMessage:
    """The oldest message that is not deleted, expired or moved. `age` is in seconds."""

    queue: str
    age: float


@dataclass(frozen=True)
class Vitals:
    """The vital signs at one moment.

    Attributes:
        disk: The room that the tables take.
        unjoined_receipts: The number of receipts whose deleted messages can still be restored.
        oldest_claim: The claim that has been held for the longest time (None: no message is in flight).
        oldest_message: The oldest message (None: there is no message, or the clocks disagree).
        recent: The values that the newest commits show.
    """

    disk: DiskUse
    unjoined_receipts: int
    oldest_claim: OldestClaim | None
    oldest_message: OldestMessage | None
    recent: RecentCommits


class VitalSigns:
    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        queues: Callable[[], Sequence[QueueRecord]],
        listings: Listings,
        storage_options: Mapping[str, str] | None,
    ) -> None:
        self._engine, self._settings, self._queues = engine, settings, queues
        self._listings, self._options = listings, storage_options
        self._watch = CommitWatch(engine)

    def measure(self, clock: Clock) -> Vitals:
        """Return the vital signs.

        Raises StorageFailed, LedgerDamaged, and TableAltered for a table that no verb can use.
        """
        self._watch.follow()
        rows, queues = self._engine.load("visibility", Where()).rows, self._queues()
        now = clock()
        names = {queue.id: queue.name for queue in queues}
        is_deleted, has_receipt = pc.is_valid(rows["deleted_at"]), pc.is_valid(rows["receipt_id"])
        unjoined = pc.count_distinct(rows["receipt_id"].filter(pc.and_(is_deleted, has_receipt))).as_py()
        return Vitals(
            self.measure_disk_use(),
            unjoined,
            self._oldest_claim(rows, names, now),
            self._oldest_message(rows, queues, clock),
            self._watch.recent(now),
        )

    def measure_disk_use(self) -> DiskUse:
        """Return the room that the tables take. On an object store, each 1,000 files take a request."""
        places = {table: self._engine.place(table) for table in TABLES}
        with translating_errors(places["messages"]):
            stored = [table_files(place, self._options) for place in places.values()]
            free = free_bytes(places["messages"])
            return measure_files((file for files in stored for file in files.files()), time.time(), free)

    def _oldest_claim(self, rows: pa.Table, names: Mapping[str, str], now: int) -> OldestClaim | None:
        held = pc.and_(pc.is_valid(rows["receipt_id"]), pc.is_in(rows["queue"], pa.array(names, pa.string())))
        for ended in ("deleted_at", "moved_to", "released_at"):
            held = pc.and_(held, pc.is_null(rows[ended]))
        held = pc.and_(held, pc.fill_null(pc.greater(rows["visible_at"].cast(pa.int64()), now * 1_000), False))
        claims = rows.select(["queue", "receipt_id", "received_at"]).filter(held)
        if not claims.num_rows:
            return None
        first = claims["received_at"].cast(pa.int64()).to_numpy().argmin()
        queue, receipt_id = claims["queue"][first].as_py(), claims["receipt_id"][first].as_py()
        received_at = claims["received_at"].cast(pa.int64())[first].as_py() // 1_000
        beat = self._watch.find_last_beat(receipt_id)
        age = None if beat is None else _seconds(now - beat)
        return OldestClaim(names[queue], receipt_id, _seconds(now - received_at), age)

    def _oldest_message(self, rows: pa.Table, queues: Sequence[QueueRecord], clock: Clock) -> OldestMessage | None:
        active_queues = {*rows["queue"].unique().to_pylist(), *self._listings.newest().queues()}
        try:
            _, now, loaded = load_all(
                self._engine, self._settings, [queue for queue in queues if queue.id in active_queues], clock
            )
        except ClocksDisagree:
            return None
        oldest = {name: one.classify(self._listings).oldest_sent_at() for name, one in loaded.items()}
        ages = [(sent_at, name) for name, sent_at in oldest.items() if sent_at is not None]
        if not ages:
            return None
        sent_at, name = min(ages)
        return OldestMessage(name, _seconds(now - sent_at))


def _seconds(milliseconds: int) -> float:
    return max(0, milliseconds) / MILLISECONDS
