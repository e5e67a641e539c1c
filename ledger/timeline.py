"""What became of a queue's messages over time, from the events of its receipts: levels, and who held what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ledger.rules.limits import MILLISECONDS

#: What an event does to the messages that are stored, in flight, and acknowledged, for each of its own.
_STEPS = {
    "granted": (-1, 1, 0),
    "released": (1, -1, 0),
    "deleted": (0, -1, 1),
    "arrived": (1, 0, 0),
    "moved": (-1, 0, 0),
    "restored": (1, 0, -1),
    "purged": (-1, 0, 1),
}


class Moment(NamedTuple):
    """How many messages were in each state from this second on."""

    at: float
    stored: int
    in_flight: int
    deleted: int


@dataclass
class Hold:
    """One claim: who held it from when to when, how it ended, and whose it had been. `end` is None while it goes on."""

    owner: str
    receipt_id: str
    start: float
    messages: int
    end: float | None = None
    ran_out: bool = False
    taken_over: int = 0
    #: Until when it is held, as far as is known.
    until: float = 0.0


class Timeline:
    """The events of one queue, rows of the view `receipts` with instants in milliseconds, as seconds since `start`.
    `timeout` is the visibility timeout: what is extended for longer than a heartbeat would is parked."""

    def __init__(self, events: Iterable[Mapping[str, Any]], start: float, timeout: float) -> None:
        self.events: list[dict[str, Any]] = []
        for event in sorted(events, key=lambda one: int(one["version"])):
            at, until = event["at"] / MILLISECONDS - start, event["visible_at"]
            until = None if until is None else until / MILLISECONDS - start
            beat = event["event"] == "extended" and until - at <= timeout + 1
            self.events.append({**event, "at": at, "visible_at": until, "is_beat": beat})

    def moments(self, sent: Sequence[tuple[float, int]], now: float | None = None) -> list[Moment]:
        """Counts after each event; `sent` says how many messages came when. A lease that runs out does so at its
        deadline, without any commit; with `now`, also one whose messages nobody has received again by then."""
        changes: list[tuple[float, int, int, int]] = [(at, count, 0, 0) for at, count in sent]
        for event in self.events:
            if event["event"] in _STEPS:
                changes.append((event["at"], *(step * event["messages"] for step in _STEPS[event["event"]])))
            elif event["event"] == "expired" and event["receipt_id"] is not None:
                changes.append((event["visible_at"], event["messages"], -event["messages"], 0))
        if now is not None:
            left = self._left()
            over = [
                hold for hold in self.holds() if hold.end is None and hold.until <= now and left[hold.receipt_id] > 0
            ]
            changes += [(hold.until, left[hold.receipt_id], -left[hold.receipt_id], 0) for hold in over]
        moments, level = [], (0, 0, 0)
        for at, *step in sorted(changes):
            level = (level[0] + step[0], level[1] + step[1], level[2] + step[2])
            moments.append(Moment(at, *level))
        return moments

    def holds(self) -> list[Hold]:
        """Every claim, in the order they were granted."""
        holds: dict[str, Hold] = {}
        over: dict[int, int] = defaultdict(int)
        for event in self.events:
            if event["event"] == "expired":
                over[event["version"]] += event["messages"]
        for event in self.events:
            receipt, kind, at = event["receipt_id"], event["event"], event["at"]
            hold = holds.get(receipt)
            if kind == "granted":
                holds[receipt] = Hold(
                    event["owner"], receipt, at, event["messages"], taken_over=over[event["version"]],
                    until=event["visible_at"],
                )  # fmt: skip
            elif hold is None:
                continue
            elif kind in ("deleted", "released") and event["owner"] == hold.owner:
                hold.end = max(hold.end or 0.0, at)
            elif kind == "expired" and hold.end is None:
                hold.end, hold.ran_out = event["visible_at"], True
            elif kind in ("extended", "granted again"):
                hold.until = max(hold.until, event["visible_at"])
                if kind == "extended" and not event["is_beat"] and hold.end is None:
                    hold.end = at
        return list(holds.values())

    def _left(self) -> dict[str, int]:
        """By receipt: how many messages of its claim nothing is known to have become of."""
        left: dict[str, int] = defaultdict(int)
        for event in self.events:
            step = {"granted": 1, "deleted": -1, "released": -1, "expired": -1}.get(event["event"], 0)
            left[event["receipt_id"]] += step * event["messages"]
        return left
