"""When there is work: what a sensor and the triggers wait for, and when a watcher says so again. Pure.

A watcher's event makes a run of a DAG, so it is edge-triggered: one event when there comes to be work, and none while
that work waits, is being done, or is done. What it looks at are a queue's counts, and nothing is received: a run that
never starts costs no message a receive, and no message waits for a timeout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledger.errors import InvalidParameterValue
from ledger.results import Counts


@dataclass(frozen=True)
class Condition:
    """There is something to receive, and `at_least` messages of it, or the queue's oldest one is older than
    `oldest_older_than` seconds: a batch is large enough, or has waited long enough. With neither, one message will do.

    The oldest one is that of `Counts`: it may be in flight. Raises InvalidParameterValue.
    """

    at_least: int | None = None
    oldest_older_than: float | None = None

    def __post_init__(self) -> None:
        if self.at_least is not None and (type(self.at_least) is not int or self.at_least < 1):
            raise InvalidParameterValue("at_least", self.at_least, "Must be a number of messages from 1 on")
        age = self.oldest_older_than
        if age is not None and (isinstance(age, bool) or not isinstance(age, (int, float)) or not age >= 0):
            raise InvalidParameterValue("oldest_older_than", age, "Must be a number of seconds from 0 on")

    def holds(self, counts: Counts) -> bool:
        """Whether a queue with these counts has the work that is waited for."""
        if not counts.visible:
            return False
        if self.at_least is None and self.oldest_older_than is None:
            return True
        old = self.oldest_older_than is not None and (counts.age_of_oldest or 0.0) > self.oldest_older_than
        return old or (self.at_least is not None and counts.visible >= self.at_least)


class Announcements:
    """When there is work to announce, and whether it was announced before.

    Work that was announced is announced again when
    - there was none in between;
    - somebody has received of the queue since, or ended what was received, and nothing is in flight any more: what is
      left, nobody is at;
    - `again_after` seconds have passed, and nothing is in flight: whoever was to do it may have failed to begin.
    While anything is in flight its holder is expected to go on. What receivers end and what upkeep removes of that look
    alike: an upkeep beside waiting work may cost one event too many, and never one too few.
    """

    def __init__(self, condition: Condition, again_after: float) -> None:
        if isinstance(again_after, bool) or not isinstance(again_after, (int, float)) or not again_after > 0:
            raise InvalidParameterValue("again_after", again_after, "Must be a number of seconds above 0")
        self.condition, self.again_after = condition, again_after
        self._announced: tuple[tuple[int, ...], float] | None = None

    def due(self, counts: Counts, now: float) -> bool:
        """Whether to announce now, in seconds of any clock, that a queue with these counts has work."""
        if not self.condition.holds(counts):
            self._announced = None
            return False
        if self._announced is None:
            return True
        receivers, since = self._announced
        return not counts.in_flight and (receivers != _receivers(counts) or now - since >= self.again_after)

    def announced(self, counts: Counts, now: float) -> None:
        """The work of these counts was announced, and the event will not be lost."""
        self._announced = _receivers(counts), now


def event_of(ledger_conn_id: str, ledger_queue: str, counts: Counts) -> dict[str, Any]:
    """What an event says, and an XCom: where there is work, how much, and how old. No body."""
    return {
        "ledger_conn_id": ledger_conn_id,
        "ledger_queue": ledger_queue,
        "visible": counts.visible,
        "age_of_oldest": counts.age_of_oldest,
    }


def _receivers(counts: Counts) -> tuple[int, ...]:
    """What changes when somebody receives, or ends what was received."""
    return counts.in_flight, counts.deleted, counts.moved
