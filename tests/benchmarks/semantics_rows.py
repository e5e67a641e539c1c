"""What the second benchmark measures: its sizes, its operations with their titles, and how a call is timed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from timing import Patience, median_of, say

#: Of the messages a send repeats, one in so many; and a message is dead after so many receives.
REPEATED, RECEIVES = 10, 3
#: The same predicates for both: SQL on the column `body`, whose characters 9 to 20 are the message's number.
EVERY_OTHER = " OR ".join(f"body LIKE 'message ___________{digit} %'" for digit in "02468")


@dataclass(frozen=True)
class Scale:
    """How many messages: of a receive and a send, their groups, two backlogs, and the dead letters."""

    batch: int = 100_000
    groups: int = 10_000
    small: int = 200_000
    large: int = 1_000_000

    def divided(self, by: int) -> Scale:
        """The same, smaller."""
        return Scale(self.batch // by, self.groups // by, self.small // by, self.large // by)

    @property
    def first_half(self) -> str:
        """The predicate that holds for the older half of the dead letters. Named prefixes are what LIKE can say."""
        return f"body <= 'message {self.large // 2:012d}~'"

    @property
    def fifo(self) -> dict[str, str]:
        """The operations on FIFO queues, by key."""
        batch, groups, small, large = (f"{n:,}" for n in (self.batch, self.groups, self.small, self.large))
        return {
            "send": f"send {batch} in {groups} groups, to an empty queue",
            "send repeats": f"send {batch}, one in {REPEATED} a duplicate, {large} sent a minute ago",
            "receive small": f"receive {batch} of {groups} groups, backlog {small}",
            "receive large": f"receive {batch} of {groups} groups, backlog {large}",
            "receive 8 lanes": f"the same, in 8 lanes (the default; else 1): {batch} of as few groups as hold them",
            "receive half held": f"the same, every other group in flight: {batch} of {self.groups // 2:,} groups",
            "receive after send": "the same, the first receive after another send",
        }

    @property
    def dead(self) -> dict[str, str]:
        """The operations on dead letters, by key."""
        large, half = f"{self.large:,}", f"{self.large // 2:,}"
        return {
            "bury": f"dead-letter move of {large} received {RECEIVES} times",
            "redrive": f"redrive of {large}",
            "redrive half": f"redrive of {half}, by a predicate: the older half",
            "redrive every other": f"redrive of {half}, by a predicate: body LIKE, every other message",
        }


COMMIT = "a commit to a Delta table takes its time, whatever its size"
#: Why the ledger may take longer, by operation; the report says it where it does.
WHY = {
    "send": "a send is a Spark job that shuffles the bodies twice (by deduplication id, by lane) and one Delta commit",
    "send repeats": "the duplicates are found by reading and shuffling the ids of the last five minutes; an index is "
    "asked only for those of the send",
    "receive small": COMMIT,
    "receive large": COMMIT,
    "receive 8 lanes": COMMIT,
    "receive half held": COMMIT,
    "receive after send": "the groups of the whole backlog are read again once `messages` has a new version",
    "bury": COMMIT,
    "redrive": COMMIT,
    "redrive half": "the predicate is a Spark scan of all bodies",
    "redrive every other": "the predicate is a Spark scan of all bodies, of which every other one is told apart",
}


def measured(
    who: str,
    title: str,
    call: Callable[[], Any],
    patience: Patience,
    before: Callable[[], Any] | None = None,
    cpu: Callable[[], float] | None = None,
) -> dict[str, Any]:
    """The times of a call as JSON, with the machine's load before them; `before` runs before each, untimed. `cpu`
    counts the processor time of the contestant's processes."""
    load = round(os.getloadavg()[0], 2)
    cell = median_of(call, patience, before, cpu)
    took = f"> {cell.over:.0f} s" if cell.median is None else f"{cell.median:.3f} s"
    known = cell.as_json() | {"load": load}
    used = f", {known['cpu']:.3f} s of CPU" if "cpu" in known else ""
    say(f"{who}: {title}: {took}{used} (load before {load})")
    return known


def expect(what: str, found: int, wanted: int) -> None:
    """Raises AssertionError when a contestant did something else than what is compared."""
    if found != wanted:
        raise AssertionError(f"{what}: {found:,} instead of {wanted:,}")
