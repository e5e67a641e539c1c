"""The history of a queue's messages, from the events of its receipts: levels and claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ledger.rules.limits import MILLISECONDS

#: By event, how each of its messages changes the numbers of messages stored, in flight, and acknowledged.
_STEPS = {
    "granted": (-1, 1, 0),
    "released": (1, -1, 0),
    "deleted": (0, -1, 1),
    "arrived": (1, 0, 0),
    "moved": (-1, 0, 0),
    "restored": (1, 0, -1),
    "purged": (-1, 0, 1),
}


#: Events by which a holder gives messages back that stay hidden until a deadline.
_HIDDEN = ("postponed", "parked")


class Level(NamedTuple):
    """How many messages were in each state from this second on."""

    at: float
    stored: int
    in_flight: int
    deleted: int


@dataclass
class ClaimSpan:
    """One claim: who held it from when to when, how it ended, and how much of it others had held before.

    `end` is None while some of it is held. The claim ends once all of its messages are settled, or at its deadline.
    """

    owner: str
    receipt_id: str
    start: float
    messages: int
    end: float | None = None
    ran_out: bool = False
    taken_over: int = 0
    #: Until when the claim is held, as far as is known.
    until: float = 0.0
    #: By deadline, how many of the messages have no known outcome.
    left: dict[float, int] = field(default_factory=dict)
    #: By the deadline of messages that are hidden, and not worked on: since when they are hidden.
    hidden: dict[float, float] = field(default_factory=dict)


class Timeline:
    """The events of one queue, with instants as seconds since `start`.

    `events` are rows of the view `receipts`, with instants in milliseconds. `timeout` is the visibility timeout.
    Earlier releases noted parked messages as extended, for a reason or for longer than a heartbeat extends.
    """

    def __init__(self, events: Iterable[Mapping[str, Any]], start: float, timeout: float) -> None:
        self.events: list[dict[str, Any]] = []
        for event in sorted(events, key=lambda one: int(one["version"])):
            at, until = event["at"] / MILLISECONDS - start, event["visible_at"]
            until = None if until is None else until / MILLISECONDS - start
            beat = event["event"] == "extended" and until - at <= timeout + 1 and event.get("reason") is None
            self.events.append({**event, "at": at, "visible_at": until, "is_beat": beat})

    def moments(self, sent: Sequence[tuple[float, int]], now: float | None = None) -> list[Level]:
        """Return the counts after each event. `sent` says how many messages came when.

        A lease runs out at its deadline, without any commit, and so do hidden messages. With `now`, leases run out even
        if nobody has received their messages again by then.
        """
        changes: list[tuple[float, int, int, int]] = [(at, count, 0, 0) for at, count in sent]
        for event in self.events:
            if event["event"] in _STEPS:
                changes.append((event["at"], *(step * event["messages"] for step in _STEPS[event["event"]])))
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
        """Return every claim, in the order in which they were granted."""
        holds: dict[str, ClaimSpan] = {}
        over: dict[int, int] = defaultdict(int)
        for event in self.events:
            if event["event"] == "expired":
                over[event["version"]] += event["messages"]
        for event in self.events:
            receipt = event["receipt_id"]
            if event["event"] == "granted":
                until, messages = event["visible_at"], event["messages"]
                holds[receipt] = ClaimSpan(
                    event["owner"], receipt, event["at"], messages, taken_over=over[event["version"]],
                    until=until, left={until: messages},
                )  # fmt: skip
            elif receipt in holds:
                _goes_on(holds[receipt], event)
        return list(holds.values())


def _goes_on(hold: ClaimSpan, event: Mapping[str, Any]) -> None:
    """Apply an event after the grant to a hold."""
    kind, until = event["event"], event["visible_at"]
    if kind == "expired":
        _take(hold, event["messages"], until)
        if until not in hold.hidden:
            # The deadline passed for all messages that had it, also for those that nobody has received again yet.
            hold.end, hold.ran_out = max(hold.end or 0.0, until), True
        return
    if kind not in ("deleted", "released", "extended", "granted again", *_HIDDEN):
        return
    _take(hold, event["messages"])
    if kind in ("extended", "granted again", *_HIDDEN):
        hold.left[until] = hold.left.get(until, 0) + event["messages"]
        if kind in _HIDDEN or (kind == "extended" and not event["is_beat"]):
            hold.hidden.setdefault(until, event["at"])
    held = [deadline for deadline in hold.left if deadline not in hold.hidden]
    if held:
        hold.until = max(held)
    elif hold.end is None or event["owner"] == hold.owner:
        # Others' later events on messages that this claim had parked do not move its end.
        hold.end = max(hold.end or 0.0, event["at"])


def _take(hold: ClaimSpan, messages: int, of: float | None = None) -> None:
    """Take messages out of `hold.left`, because they have another outcome or another deadline.

    Take those of the deadline `of` first, then those that are worked on, then hidden ones; of these the earliest first.
    """
    for deadline in sorted(hold.left, key=lambda one: (one != of, one in hold.hidden, one)):
        taken = min(messages, hold.left[deadline])
        messages -= taken
        hold.left[deadline] -= taken
        if not hold.left[deadline]:
            del hold.left[deadline]
