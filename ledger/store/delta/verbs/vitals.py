"""Vital signs of a ledger: values that grow with its load, and signs that something hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ledger.clock import Clock
from ledger.delta_log.failures import translating_errors
from ledger.delta_log.storage import table_files
from ledger.errors import ClocksDisagree
from ledger.rules.limits import MILLISECONDS
from ledger.settings import Settings
from ledger.store.delta.engine import Engine
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.model.where import Where
from ledger.store.delta.state.listing import Listings
from ledger.store.delta.state.snapshot import load_all
from ledger.store.delta.verbs.commit_watch import CommitWatch, RecentCommits
from ledger.store.delta.verbs.disk_use import DiskUse, free_bytes, measure_files
from ledger.store.protocol import QueueRecord


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
            self.disk_use(),
            unjoined,
            self._oldest_claim(rows, names, now),
            self._oldest_message(rows, queues, clock),
            self._watch.recent(now),
        )

    def disk_use(self) -> DiskUse:
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
        beat = self._watch.last_beat(receipt_id)
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
