"""The parts of an open ledger that every verb gets: tables, files, transactions, shared state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.clock import Clock
from ledger.errors import ClocksDisagree
from ledger.settings import Settings
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.engine import MessageFiles, Tables
from ledger.store.delta.state.listing import Listings
from ledger.store.delta.state.send_history import LaneTimes
from ledger.store.delta.state.snapshot import Loaded, load
from ledger.store.protocol import QueueRecord


@dataclass(frozen=True)
class OpenTables:
    """The shared parts of an open ledger. `tables` and `files` are one engine under two protocols."""

    tables: Tables
    files: MessageFiles
    transactions: Transactions
    settings: Settings
    listings: Listings
    times: LaneTimes

    def load(
        self,
        queue: QueueRecord,
        clock: Clock | None,
        lanes: tuple[int, ...] | None = None,
        others: Sequence[QueueRecord] = (),
        receipt_id: str | None = None,
    ) -> Loaded:
        """Load lanes (see `snapshot.load`). If clocks disagree, make the next send look at the lanes again."""
        try:
            return load(self.tables, self.settings, queue, clock, lanes, others, receipt_id)
        except ClocksDisagree:
            self.times.forget(queue.id)
            raise
