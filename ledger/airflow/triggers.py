"""Triggers: one that a deferred task waits for, and one whose events are the updates of an asset."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Hashable
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

from ledger.airflow.conditions import Announcements, Condition, event_of
from ledger.airflow.hook import DEFAULT_CONNECTION
from ledger.airflow.watching import looks_at, seconds

if TYPE_CHECKING:
    from airflow.triggers.shared_stream import SharedStreamProducer

POLL_INTERVAL = 10.0
AGAIN_AFTER = 1_800.0


class LedgerTrigger(BaseTrigger):
    """Fires once there is work: see `Condition`. Its event has ledger_conn_id, ledger_queue, visible and age_of_oldest.

    It keeps nothing but its arguments, so a triggerer that is started again goes on with it as if nothing had happened.
    Raises InvalidParameterValue.
    """

    def __init__(
        self,
        ledger_queue: str,
        ledger_conn_id: str = DEFAULT_CONNECTION,
        at_least: int | None = None,
        oldest_older_than: float | None = None,
        poll_interval: float = POLL_INTERVAL,
    ) -> None:
        super().__init__()
        self.ledger_queue, self.ledger_conn_id = ledger_queue, ledger_conn_id
        self.condition = Condition(at_least, oldest_older_than)
        self.poll_interval = seconds("poll_interval", poll_interval)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Where the class is, and the arguments that make this trigger again: texts and numbers."""
        return f"{__name__}.LedgerTrigger", {
            "ledger_queue": self.ledger_queue,
            "ledger_conn_id": self.ledger_conn_id,
            "at_least": self.condition.at_least,
            "oldest_older_than": self.condition.oldest_older_than,
            "poll_interval": self.poll_interval,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event, when there is work."""
        async for counts in looks_at(self.ledger_conn_id, self.ledger_queue, self.poll_interval):
            if self.condition.holds(counts):
                yield TriggerEvent(event_of(self.ledger_conn_id, self.ledger_queue, counts))
                return


class LedgerQueueTrigger(BaseEventTrigger):
    """Fires whenever there comes to be work, for an AssetWatcher: one event for new work, and no flood while it waits
    or is being done (see `Announcements`; `again_after` is a reminder, in seconds, of work that nobody began).

    Triggers with the same arguments share one look at the queue. Where Airflow can acknowledge (3.3), an event counts
    as announced once it is stored, and is announced again if it was not; else once it is handed over. What was
    announced is kept by the triggerer's process alone: a new one announces waiting work once more. So a run may find
    that there is nothing left to do, and never the other way.
    """

    def __init__(
        self,
        ledger_queue: str,
        ledger_conn_id: str = DEFAULT_CONNECTION,
        at_least: int | None = None,
        oldest_older_than: float | None = None,
        poll_interval: float = POLL_INTERVAL,
        again_after: float = AGAIN_AFTER,
    ) -> None:
        super().__init__()
        self.ledger_queue, self.ledger_conn_id = ledger_queue, ledger_conn_id
        self.at_least, self.oldest_older_than = at_least, oldest_older_than
        self.poll_interval, self.again_after = seconds("poll_interval", poll_interval), again_after
        self.announcements()

    def announcements(self) -> Announcements:
        """When to announce, of which nothing is announced yet. Raises InvalidParameterValue."""
        return Announcements(Condition(self.at_least, self.oldest_older_than), self.again_after)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Where the class is, and the arguments that make this trigger again: texts and numbers."""
        return f"{__name__}.LedgerQueueTrigger", {
            "ledger_queue": self.ledger_queue,
            "ledger_conn_id": self.ledger_conn_id,
            "at_least": self.at_least,
            "oldest_older_than": self.oldest_older_than,
            "poll_interval": self.poll_interval,
            "again_after": self.again_after,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """An event for new work, for ever; for an Airflow that cannot acknowledge."""
        announcements = self.announcements()
        async for counts in looks_at(self.ledger_conn_id, self.ledger_queue, self.poll_interval):
            if announcements.due(counts, time.monotonic()):
                yield TriggerEvent(event_of(self.ledger_conn_id, self.ledger_queue, counts))
                announcements.announced(counts, time.monotonic())

    def shared_stream_key(self) -> Hashable | None:
        """What triggers share that look at the same queue for the same; None where Airflow cannot acknowledge."""
        try:
            from airflow.triggers.shared_stream import SharedStreamProducer  # noqa: F401
        except ImportError:
            return None
        path, arguments = self.serialize()
        return path, *sorted(arguments.items())

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """What looks at the queue for all triggers with these arguments, and is told which events were stored."""
        from ledger.airflow.acknowledging import AcknowledgedLooks

        return AcknowledgedLooks(cls(**kwargs))

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Each announcement is an event."""
        async for event in shared_stream:
            yield TriggerEvent(event)
