"""Triggers: one for deferred tasks, and one that updates an asset with its events."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.connection import get_async_connection
from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

from ledger.airflow.conditions import Announcements, Condition, event_of
from ledger.airflow.hook import DEFAULT_CONNECTION, place_of
from ledger.errors import InvalidParameterValue, StorageFailed
from ledger.results import Counts

if TYPE_CHECKING:
    from airflow.triggers.shared_stream import SharedStreamProducer

log = logging.getLogger("ledger.airflow")
MOST_FAILURES = 20


async def watch_counts(ledger_conn_id: str, ledger_queue: str, poll_interval: float) -> AsyncIterator[Counts]:
    """Yield the counts of a queue again and again, with a pause of `poll_interval` seconds.

    Raises StorageFailed after MOST_FAILURES storage failures in a row, QueueDoesNotExist, and what opening the ledger
    raises.
    """
    connection = await get_async_connection(ledger_conn_id)
    place = place_of(ledger_conn_id, connection.host, connection.extra)
    ledger = await asyncio.to_thread(partial(place.open, read_only=True))
    failures = 0
    while True:
        try:
            counts = await asyncio.to_thread(lambda: ledger.queue(ledger_queue).counts())
        except StorageFailed as error:
            failures += 1
            if failures >= MOST_FAILURES:
                raise
            log.warning("could not look at the queue %s (%d times in a row): %s", ledger_queue, failures, error)
        else:
            failures = 0
            yield counts
        await asyncio.sleep(poll_interval)


def require_seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise InvalidParameterValue(name, value, "Must be a number of seconds above 0")
    return value


POLL_INTERVAL_SECONDS = 10.0
AGAIN_AFTER_SECONDS = 1_800.0


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
        poll_interval: float = POLL_INTERVAL_SECONDS,
    ) -> None:
        super().__init__()
        self.ledger_queue, self.ledger_conn_id = ledger_queue, ledger_conn_id
        self.condition = Condition(at_least, oldest_older_than)
        self.poll_interval = require_seconds("poll_interval", poll_interval)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.LedgerTrigger", {
            "ledger_queue": self.ledger_queue,
            "ledger_conn_id": self.ledger_conn_id,
            "at_least": self.condition.at_least,
            "oldest_older_than": self.condition.oldest_older_than,
            "poll_interval": self.poll_interval,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        async for counts in watch_counts(self.ledger_conn_id, self.ledger_queue, self.poll_interval):
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
        poll_interval: float = POLL_INTERVAL_SECONDS,
        again_after: float = AGAIN_AFTER_SECONDS,
    ) -> None:
        super().__init__()
        self.ledger_queue, self.ledger_conn_id = ledger_queue, ledger_conn_id
        self.at_least, self.oldest_older_than = at_least, oldest_older_than
        self.poll_interval, self.again_after = require_seconds("poll_interval", poll_interval), again_after
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
        async for counts in watch_counts(self.ledger_conn_id, self.ledger_queue, self.poll_interval):
            if announcements.due(counts, time.monotonic()):
                yield TriggerEvent(event_of(self.ledger_conn_id, self.ledger_queue, counts))
                announcements.note_announced(counts, time.monotonic())

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
