"""The history of a queue's messages, from its receipts: message counts over time, and claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ledger.rules.limits import MILLISECONDS

#: By event, the changes in the numbers of stored, in-flight and deleted messages.
_CHANGES_BY_EVENT = {
    "granted": (-1, 1, 0),
    "released": (1, -1, 0),
    "deleted": (0, -1, 1),
    "arrived": (1, 0, 0),
    "moved": (-1, 0, 0),
    "restored": (1, 0, -1),
    "purged": (-1, 0, 1),
}


#: Releases of messages that stay hidden until a deadline.
_HIDING_EVENTS = ("postponed", "parked")


class Level(NamedTuple):
    """The messages in each state from the instant `at` on (seconds since the start)."""

    at: float
    stored: int
    in_flight: int
    deleted: int


@dataclass
class ClaimSpan:
    """One claim, with instants in seconds since the timeline's start.

    The claim ends once all of its messages are settled or hidden, or at its deadline if it ran out. Only a later
    receive of its messages shows that it ran out. `end` is None while no event shows the end. `taken_over` counts the
    messages of expired claims that the granting commit took over: the same for all claims of the commit.
    """

    owner: str
    receipt_id: str
    start: float
    messages: int
    end: float | None = None
    ran_out: bool = False
    taken_over: int = 0
    #: The latest known deadline.
    until: float = 0.0
    #: By deadline, the number of messages without a known outcome.
    left: dict[float, int] = field(default_factory=dict)
    #: By deadline of hidden messages, the instant since which they are hidden.
    hidden: dict[float, float] = field(default_factory=dict)


class Timeline:
    """The events of one queue, with instants as seconds since `start`.

    `events` are rows of the view `receipts`, with instants in milliseconds. `timeout` is the queue's visibility timeout
    in seconds. Older releases of ledger recorded parked messages as "extended": such an event counts as parked if it
    has a reason, or extends for longer than `timeout` and than the claim's own timeout.
    """

    def __init__(self, events: Iterable[Mapping[str, Any]], start: float, timeout: float) -> None:
        self.events: list[dict[str, Any]] = []
        timeouts: dict[str | None, float] = {}
        for event in sorted(events, key=lambda one: int(one["version"])):
            at, until = event["at"] / MILLISECONDS - start, event["visible_at"]
            until = None if until is None else until / MILLISECONDS - start
            if event["event"] == "granted":
                timeouts[event["receipt_id"]] = until - at
            longest = max(timeout, timeouts.get(event["receipt_id"], 0.0)) + 1
            beat = event["event"] == "extended" and until - at <= longest and event.get("reason") is None
            self.events.append({**event, "at": at, "visible_at": until, "is_beat": beat})

    def list_levels(self, sent: Sequence[tuple[float, int]], now: float | None = None) -> list[Level]:
        """Return the counts after each event. `sent` has the instant (seconds) and the number of messages of each send.

        No commit is made when a deadline passes. With `now`, all messages whose deadline has passed count as stored
        again. Without `now`, only those count that somebody received again, and hidden ones whose deadline is not after
        the last event.
        """
        changes: list[tuple[float, int, int, int]] = [(at, count, 0, 0) for at, count in sent]
        for event in self.events:
            if event["event"] in _CHANGES_BY_EVENT:
                changes.append((event["at"], *(step * event["messages"] for step in _CHANGES_BY_EVENT[event["event"]])))
            elif event["event"] == "expired" and event["receipt_id"] is not None:
                changes.append((event["visible_at"], event["messages"], -event["messages"], 0))
        last = now if now is not None else max((event["at"] for event in self.events), default=0.0)
        for hold in self.holds():
            for until, count in hold.left.items():
                if until <= last and (now is not None or until in hold.hidden):
                    changes.append((until, count, -count, 0))
        moments, level = [], (0, 0, 0)
        for at, *step in sorted(changes):
            level = (level[0] + step[0], level[1] + step[1], level[2] + step[2])
            moments.append(Level(at, *level))
        return moments

    def holds(self) -> list[ClaimSpan]:
        holds: dict[str, ClaimSpan] = {}
        expired_by_version: dict[int, int] = defaultdict(int)
        for event in self.events:
            if event["event"] == "expired":
                expired_by_version[event["version"]] += event["messages"]
        for event in self.events:
            receipt = event["receipt_id"]
            if event["event"] == "granted":
                until, messages = event["visible_at"], event["messages"]
                holds[receipt] = ClaimSpan(
                    event["owner"], receipt, event["at"], messages, taken_over=expired_by_version[event["version"]],
                    until=until, left={until: messages},
                )  # fmt: skip
            elif receipt in holds:
                _apply_event(holds[receipt], event)
        return list(holds.values())


def _apply_event(hold: ClaimSpan, event: Mapping[str, Any]) -> None:
    kind, until = event["event"], event["visible_at"]
    if kind == "expired":
        _take(hold, event["messages"], until)
        if until not in hold.hidden:
            # The deadline passed also for messages that nobody has received again.
            hold.end, hold.ran_out = max(hold.end or 0.0, until), True
        return
    if kind not in ("deleted", "released", "extended", "granted again", *_HIDING_EVENTS):
        return
    _take(hold, event["messages"])
    if kind in ("extended", "granted again", *_HIDING_EVENTS):
        hold.left[until] = hold.left.get(until, 0) + event["messages"]
        if kind in _HIDING_EVENTS or (kind == "extended" and not event["is_beat"]):
            hold.hidden.setdefault(until, event["at"])
    held = [deadline for deadline in hold.left if deadline not in hold.hidden]
    if held:
        hold.until = max(held)
    elif hold.end is None or event["owner"] == hold.owner:
        # Other owners' events, on messages that this claim had hidden, do not move its end.
        hold.end = max(hold.end or 0.0, event["at"])


def _take(hold: ClaimSpan, messages: int, first_deadline: float | None = None) -> None:
    """Remove messages from `hold.left`, because an event gave them an outcome or another deadline.

    Those with `first_deadline` go first, then held ones, then hidden ones, by their deadlines.
    """
    for deadline in sorted(hold.left, key=lambda one: (one != first_deadline, one in hold.hidden, one)):
        taken = min(messages, hold.left[deadline])
        messages -= taken
        hold.left[deadline] -= taken
        if not hold.left[deadline]:
            del hold.left[deadline]
