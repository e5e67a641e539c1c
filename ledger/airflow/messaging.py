"""The scheme `ledger` of Airflow's common message queue: MessageQueueTrigger(scheme="ledger", ledger_queue=...)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider

from ledger.airflow.triggers import LedgerQueueTrigger

if TYPE_CHECKING:
    from airflow.triggers.base import BaseEventTrigger


class LedgerMessageQueueProvider(BaseMessageQueueProvider):
    """Provides queues of a ledger to MessageQueueTrigger, which passes its other arguments to LedgerQueueTrigger."""

    scheme = "ledger"

    def trigger_class(self) -> type[BaseEventTrigger]:
        return LedgerQueueTrigger
