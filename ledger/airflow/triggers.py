"""Triggers: one for deferred tasks, and one that updates an asset with its events."""

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

#: In seconds.
POLL_INTERVAL = 10.0
AGAIN_AFTER = 1_800.0


class LedgerTrigger(BaseTrigger):
    """Fires once, when the condition on a queue holds (see `Condition`).

    The event has ledger_conn_id, ledger_queue, visible and age_of_oldest. Wrong arguments raise InvalidParameterValue.
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
        return f"{__name__}.LedgerTrigger", {
            "ledger_queue": self.ledger_queue,
            "ledger_conn_id": self.ledger_conn_id,
            "at_least": self.condition.at_least,
            "oldest_older_than": self.condition.oldest_older_than,
            "poll_interval": self.poll_interval,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        async for counts in looks_at(self.ledger_conn_id, self.ledger_queue, self.poll_interval):
            if self.condition.holds(counts):
                yield TriggerEvent(event_of(self.ledger_conn_id, self.ledger_queue, counts))
                return


class LedgerQueueTrigger(BaseEventTrigger):
    """Fires when new work appears in a queue, for an AssetWatcher.

    New work causes one event, and no further one while the work is being done. If nothing is in flight, the event is
    repeated after `again_after` seconds, or sooner (see `Announcements`).

    With Airflow 3.3 (which can acknowledge events), triggers with the same arguments share one look at the queue. The
    work of an event that Airflow did not store is announced again. With an earlier Airflow, an event counts as
    announced once it is handed over. A new process of the triggerer announces waiting work once more. A run may
    therefore find nothing to do.
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
        return Announcements(Condition(self.at_least, self.oldest_older_than), self.again_after)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.LedgerQueueTrigger", {
            "ledger_queue": self.ledger_queue,
            "ledger_conn_id": self.ledger_conn_id,
            "at_least": self.at_least,
            "oldest_older_than": self.oldest_older_than,
            "poll_interval": self.poll_interval,
            "again_after": self.again_after,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield events for ever. Only an Airflow that cannot acknowledge calls this method."""
        announcements = self.announcements()
        async for counts in looks_at(self.ledger_conn_id, self.ledger_queue, self.poll_interval):
            if announcements.due(counts, time.monotonic()):
                yield TriggerEvent(event_of(self.ledger_conn_id, self.ledger_queue, counts))
                announcements.announced(counts, time.monotonic())

    def shared_stream_key(self) -> Hashable | None:
        """Return a key that equal triggers share, or None if Airflow cannot acknowledge."""
        try:
            from airflow.triggers.shared_stream import SharedStreamProducer  # noqa: F401
        except ImportError:
            return None
        path, arguments = self.serialize()
        return path, *sorted(arguments.items())

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        from ledger.airflow.acknowledging import AcknowledgedLooks

        return AcknowledgedLooks(cls(**kwargs))

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        async for event in shared_stream:
            yield TriggerEvent(event)
