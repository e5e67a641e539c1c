"""Conditions of the sensor and the triggers, and the rule for repeated announcements. No I/O.

A watcher (an Airflow trigger that updates an asset) announces work by an event, which starts a run of a DAG. So a
watcher fires one event when work appears, and none while that work is being done. The watcher only reads a queue's
counts: a run that never starts hides no message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledger.errors import InvalidParameterValue
from ledger.results import Counts


@dataclass(frozen=True)
class Condition:
    """A condition on the counts of a queue.

    The condition holds if at least `at_least` messages are visible. It also holds if a message is visible, and the
    queue's oldest message (which may be in flight) is older than `oldest_older_than` seconds. If neither argument is
    given, one visible message is enough.
    """

    at_least: int | None = None
    oldest_older_than: float | None = None

    def __post_init__(self) -> None:
        if self.at_least is not None and (type(self.at_least) is not int or self.at_least < 1):
            raise InvalidParameterValue("at_least", self.at_least, "Must be a number of messages, 1 or more")
        age = self.oldest_older_than
        if age is not None and (isinstance(age, bool) or not isinstance(age, (int, float)) or not age >= 0):
            raise InvalidParameterValue("oldest_older_than", age, "Must be a number of seconds, 0 or more")

    def holds(self, counts: Counts) -> bool:
        if not counts.visible:
            return False
        if self.at_least is None and self.oldest_older_than is None:
            return True
        old = self.oldest_older_than is not None and (counts.age_of_oldest or 0.0) > self.oldest_older_than
        return old or (self.at_least is not None and counts.visible >= self.at_least)


class Announcements:
    """Decides when to announce work, and remembers the last announcement.

    While the condition holds, announced work is announced again when

    - a look since the announcement found that the condition did not hold;
    - nothing is in flight, and the numbers of messages in flight, deleted and moved differ;
    - nothing is in flight, and `again_after` seconds have passed: the announced run may have failed to start.

    Upkeep that removes messages changes the same numbers. So there may be an event too many, but none is missed.
    """

    def __init__(self, condition: Condition, again_after: float) -> None:
        if isinstance(again_after, bool) or not isinstance(again_after, (int, float)) or not again_after > 0:
            raise InvalidParameterValue("again_after", again_after, "Must be a number of seconds above 0")
        self.condition, self.again_after = condition, again_after
        self._announced: tuple[tuple[int, ...], float] | None = None

    def due(self, counts: Counts, now: float) -> bool:
        """Return whether to announce work now. `now` is in seconds of any clock."""
        if not self.condition.holds(counts):
            self._announced = None
            return False
        if self._announced is None:
            return True
        receivers, since = self._announced
        return not counts.in_flight and (receivers != _settling_counts(counts) or now - since >= self.again_after)

    def note_announced(self, counts: Counts, now: float) -> None:
        self._announced = _settling_counts(counts), now


def event_of(ledger_conn_id: str, ledger_queue: str, counts: Counts) -> dict[str, Any]:
    return {
        "ledger_conn_id": ledger_conn_id,
        "ledger_queue": ledger_queue,
        "visible": counts.visible,
        "age_of_oldest": counts.age_of_oldest,
    }


def _settling_counts(counts: Counts) -> tuple[int, ...]:
    return counts.in_flight, counts.deleted, counts.moved
