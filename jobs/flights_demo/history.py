"""The events of the run, from the ledger's own history of commits and receipts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ledger.notebook.timeline import Level, Timeline


class History(Timeline):
    """The events of one queue. Times are seconds since `start`."""

    def __init__(self, events: Iterable[Mapping[str, Any]], start: float, timeout: int, total: int) -> None:
        super().__init__(events, start, timeout)
        self._total = total

    def all_moments(self) -> list[Level]:
        """Return the counts of messages after each event, beginning with the send."""
        return self.list_levels([(0.0, self._total)])

    def taken_over(self, receipt_id: str) -> int:
        """Return how many messages of a claim expired and were received by others."""
        return _messages((event for event in self.events if event["receipt_id"] == receipt_id), "expired")

    def by_worker(self, fates: dict[str, str]) -> list[dict[str, object]]:
        """Return what each worker did: a row for each worker, and one with the sums."""
        holds, rows = self.holds(), []
        for name, fate in fates.items():
            holds_of_worker = [hold for hold in holds if hold.owner == name]
            events = [event for event in self.events if event["owner"] == name]
            rows.append(
                {
                    "worker": name,
                    "claims": len(holds_of_worker),
                    "received": sum(hold.messages for hold in holds_of_worker),
                    "taken over": sum(hold.taken_over for hold in holds_of_worker),
                    "heartbeats": sum(event["is_beat"] for event in events),
                    "deleted": _messages(events, "deleted"),
                    "released": _messages(events, "released"),
                    "parked": _messages(events, "parked"),
                    "end": fate,
                }
            )
        sums = {key: sum(row[key] for row in rows) for key in rows[0] if isinstance(rows[0][key], int)}
        return [*rows, {"worker": "all", **sums, "end": None}]


def _messages(events: Iterable[Mapping[str, Any]], event: str) -> int:
    """Return the number of messages of all events of this name."""
    return sum(row["messages"] for row in events if row["event"] == event)
