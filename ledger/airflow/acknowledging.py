"""Announcements of work that count once Airflow has stored them: its shared streams with acknowledgement (3.3)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from ledger.airflow.conditions import event_of
from ledger.airflow.watching import looks_at
from ledger.results import Counts

if TYPE_CHECKING:
    from ledger.airflow.triggers import LedgerQueueTrigger


class AcknowledgedLooks(SharedStreamProducer):
    """Looks at the queue of a trigger for all that share it.

    Nothing is announced while it is open whether the last announcement was stored; if it was not, the next look
    announces the work that is there by then. `announcements`: what was, for tests.
    """

    def __init__(self, trigger: LedgerQueueTrigger) -> None:
        self._trigger, self.announcements, self._open = trigger, trigger.announcements(), False

    async def open_stream(self) -> AsyncIterator[tuple[Any, Counts]]:
        """The announcements, each with the counts that it is about, for ever."""
        trigger = self._trigger
        async for counts in looks_at(trigger.ledger_conn_id, trigger.ledger_queue, trigger.poll_interval):
            if not self._open and self.announcements.due(counts, time.monotonic()):
                self._open = True
                yield event_of(trigger.ledger_conn_id, trigger.ledger_queue, counts), counts

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Every trigger has taken the announcement, and its event is stored; or something failed."""
        for item in batch:
            self._open = False
            if item.outcome.is_clean:
                self.announcements.announced(item.broker_payload, time.monotonic())
