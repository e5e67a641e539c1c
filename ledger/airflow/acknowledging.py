"""Announcements of work that Airflow acknowledges, through Airflow's shared streams (Airflow 3.3).

A module of its own: older versions of Airflow lack the base class.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from ledger.airflow.conditions import event_of
from ledger.airflow.triggers import watch_counts
from ledger.results import Counts

if TYPE_CHECKING:
    from ledger.airflow.triggers import LedgerQueueTrigger


class AcknowledgedLooks(SharedStreamProducer):
    """Looks at a queue, for all triggers with the same arguments.

    After an announcement, no other follows until Airflow says whether the event was stored. If the event was lost, the
    next look announces the work that waits by then.
    """

    def __init__(self, trigger: LedgerQueueTrigger) -> None:
        self._trigger, self.announcements, self._open = trigger, trigger.announcements(), False

    async def open_stream(self) -> AsyncIterator[tuple[Any, Counts]]:
        """Yield announcements for ever, each with the event and the counts."""
        trigger = self._trigger
        async for counts in watch_counts(trigger.ledger_conn_id, trigger.ledger_queue, trigger.poll_interval):
            if not self._open and self.announcements.due(counts, time.monotonic()):
                self._open = True
                yield event_of(trigger.ledger_conn_id, trigger.ledger_queue, counts), counts

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Note each announcement whose event was stored."""
        for item in batch:
            self._open = False
            if item.outcome.is_clean:
                self.announcements.note_announced(item.broker_payload, time.monotonic())
