"""What a commit says it did: the entries of the receipts ledger, carried in the commit's own metadata."""

from __future__ import annotations

from typing import Any

import numpy as np

from ledger.rules.state import Record
from ledger.store import Action
from ledger.store.delta.model.run_algebra import Runs
from ledger.store.delta.state.lane_records import Lanes

_APPLIED = {"delete": "deleted", "extend": "extended", "release": "released"}


class Events:
    """Collects the entries of one commit. Nothing is noted about no messages."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def add(self, event: str, record: Record, runs: Runs) -> None:
        """Notes that `event` happened to the messages of `runs`; receipt, attempt and deadline are the record's."""
        self._note(event, record, runs.count)

    def note(self, event: str, queue: str, messages: int) -> None:
        """Notes what happened to messages of a queue, which need not be the one that the commit is about."""
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
        """Notes what an action changed."""
        if len(changed):
            self.add(_APPLIED[action.name], lanes.record(changed.code[0]), changed)

    def expired(self, lanes: Lanes, taken: Runs) -> None:
        """Notes the receipts whose deadline had passed on messages that are now received again."""
        codes, which = np.unique(taken.code, return_inverse=True)
        messages = np.bincount(which, taken.lengths, len(codes))
        for code, count in zip(codes.tolist(), messages.tolist()):
            record = lanes.record(code)
            if record.receipt_id is not None and record.released_at is None:
                self._note("expired", record, int(count))
