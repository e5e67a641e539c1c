"""The journal of a commit: its entries for the table `receipts`, which the commit's metadata carries."""

from __future__ import annotations

from typing import Any

import numpy as np

from ledger.rules.state import Record
from ledger.store.delta.model.run_algebra import Runs, distinct_codes
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.protocol import Action

#: The most records with an expired receipt that one claim or move names, so that a commit stays small.
MOST_EXPIRED = 100


class Events:
    """Collects the entries of one commit. Events about no messages are not noted."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def add(self, event: str, record: Record, runs: Runs) -> None:
        """Note an event with the receipt, attempt and deadline of `record`."""
        self._note(event, record, runs.count)

    def note(self, event: str, queue: str, messages: int) -> None:
        """Note an event of any queue's messages."""
        if messages:
            self.entries.append({"event": event, "queue": queue, "messages": messages})

    def _note(self, event: str, record: Record, messages: int) -> None:
        if messages:
            self.entries.append(
                {
                    "event": event,
                    "receipt_id": record.receipt_id,
                    "attempt_id": record.attempt_id,
                    "messages": messages,
                    "visible_at": record.visible_at,
                }
            )

    def applied(self, action: Action, lanes: Lanes, changed: Runs) -> None:
        """Note what an action changed, with the facts of its first message."""
        if len(changed):
            self.add(action.event, lanes.record(changed.code[0]), changed)
            if action.reason is not None:
                self.entries[-1]["reason"] = action.reason
            if not action.counted:
                self.entries[-1]["counted"] = False

    def expired(self, lanes: Lanes, taken: Runs) -> None:
        """Note, by record, the receipts that expired on messages that are now received again or moved.

        The records beyond MOST_EXPIRED, those with the fewest messages, share one entry.
        """
        codes_taken = distinct_codes(taken.code)
        lanes.records.read(codes_taken)
        if not any(is_unreleased(lanes.record(code)) for code in codes_taken):
            return
        codes, inverse = np.unique(taken.code, return_inverse=True)
        messages = np.bincount(inverse, taken.lengths, len(codes)).astype(np.int64)
        over = lanes.per_code(codes, is_unreleased, bool)
        codes, messages = codes[over], messages[over]
        by_size = np.argsort(-messages, kind="stable")
        for place in np.sort(by_size[:MOST_EXPIRED]).tolist():
            self._note("expired", lanes.record(int(codes[place])), int(messages[place]))
        self.note("expired", lanes.queue, int(messages[by_size[MOST_EXPIRED:]].sum()))


def is_unreleased(record: Record) -> bool:
    """Return whether a hold ends only at its deadline."""
    return record.receipt_id is not None and record.released_at is None
