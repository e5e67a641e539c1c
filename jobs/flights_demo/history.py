"""What happened, from the ledger's own history: every commit says what it did, and under which receipt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd


class Moment(NamedTuple):
    """How many messages were in each state from this second on."""

    at: float
    stored: int
    in_flight: int
    deleted: int


@dataclass
class Hold:
    """One claim: who held it from when to when, how it ended, and whose it had been."""

    owner: str
    receipt_id: str
    start: float
    messages: int
    end: float | None = None
    ran_out: bool = False
    taken_over: int = 0


class History:
    """The events of one queue (at, event, receipt_id, messages, visible_at, owner, version); seconds since `start`."""

    def __init__(self, events: pd.DataFrame, start: float, timeout: int) -> None:
        self._events = events.sort_values("version", kind="stable")
        # Spark hands out the session's UTC without saying so.
        seconds = {
            name: self._events[name].astype("datetime64[us]").astype("int64") / 1e6 - start
            for name in ("at", "visible_at")
        }
        self._events = self._events.assign(**seconds)
        # A heartbeat gives the timeout anew; a message that is parked is hidden for longer.
        self._beat = (self._events["event"] == "extended") & (seconds["visible_at"] - seconds["at"] <= timeout + 1)

    def moments(self, total: int) -> list[Moment]:
        """Counts after each event. A lease that runs out does so at its deadline, without any commit."""
        changes = [(0.0, total, 0, 0)]
        for row in self._events.itertuples():
            n = row.messages
            step = {"granted": (-n, n, 0), "released": (n, -n, 0), "deleted": (0, -n, n)}.get(row.event)
            if step:
                changes.append((row.at, *step))
            elif row.event == "expired":
                changes.append((row.visible_at, n, -n, 0))
        moments, now = [], (0, 0, 0)
        for at, *step in sorted(changes):
            now = tuple(a + b for a, b in zip(now, step))
            moments.append(Moment(at, *now))
        return moments

    def holds(self) -> list[Hold]:
        """Every claim, in the order they were granted."""
        holds: dict[str, Hold] = {}
        for row in self._events.itertuples():
            hold = holds.get(row.receipt_id)
            if row.event == "granted":
                expired = self._events[(self._events["version"] == row.version) & (self._events["event"] == "expired")]
                taken_over = int(expired["messages"].sum())
                holds[row.receipt_id] = Hold(row.owner, row.receipt_id, row.at, row.messages, taken_over=taken_over)
            elif hold is not None and row.owner == hold.owner and row.event in ("deleted", "released"):
                hold.end = max(hold.end or 0.0, row.at)
            elif hold is not None and row.event == "expired" and hold.end is None:
                hold.end, hold.ran_out = row.visible_at, True
            elif hold is not None and row.event == "extended" and not self._beat[row.Index] and hold.end is None:
                hold.end = row.at
        return list(holds.values())

    def taken_over(self, receipt_id: str) -> int:
        """How many messages of a claim ran out and were received by others."""
        mine = (self._events["receipt_id"] == receipt_id) & (self._events["event"] == "expired")
        return int(self._events.loc[mine, "messages"].sum())

    def by_worker(self, fates: dict[str, str]) -> list[dict[str, object]]:
        """What each worker did, a row each and one for all."""
        holds, rows = self.holds(), []
        for name, fate in fates.items():
            mine, events = [hold for hold in holds if hold.owner == name], self._events[self._events["owner"] == name]
            parked = events[(events["event"] == "extended") & ~self._beat[events.index]]
            rows.append(
                {
                    "worker": name,
                    "claims": len(mine),
                    "received": sum(hold.messages for hold in mine),
                    "taken over": sum(hold.taken_over for hold in mine),
                    "heartbeats": int(self._beat[events.index].sum()),
                    "deleted": _messages(events, "deleted"),
                    "released": _messages(events, "released"),
                    "parked": int(parked["messages"].sum()),
                    "end": fate,
                }
            )
        sums = {key: sum(row[key] for row in rows) for key in rows[0] if isinstance(rows[0][key], int)}
        return [*rows, {"worker": "all", **sums, "end": None}]


def _messages(events: pd.DataFrame, event: str) -> int:
    """How many messages an event happened to."""
    return int(events.loc[events["event"] == event, "messages"].sum())
