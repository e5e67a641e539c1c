"""The sensor: a task that waits for work in a queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseSensorOperator, PokeReturnValue

from ledger.airflow.conditions import Condition, event_of
from ledger.airflow.hook import DEFAULT_CONNECTION, LedgerHook
from ledger.airflow.triggers import LedgerTrigger
from ledger.ledger import Ledger

if TYPE_CHECKING:
    from airflow.sdk import Context


class LedgerSensor(BaseSensorOperator):
    """Waits until the queue has `at_least` visible messages, or its oldest one is older than `oldest_older_than`
    (seconds or a timedelta); with neither, until there is a message. Nothing is received.

    With `deferrable` (default: the setting operators.default_deferrable) the triggerer waits, and no worker; else it
    pokes every `poke_interval` seconds. Returns ledger_conn_id, ledger_queue, visible and age_of_oldest. Raises
    InvalidParameterValue, and as its task what opening the ledger raises, and QueueDoesNotExist.
    """

    template_fields: Sequence[str] = ("ledger_conn_id", "ledger_queue")

    def __init__(
        self,
        *,
        ledger_queue: str,
        ledger_conn_id: str = DEFAULT_CONNECTION,
        at_least: int | None = None,
        oldest_older_than: float | timedelta | None = None,
        deferrable: bool | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.ledger_queue = ledger_queue
        self.ledger_conn_id = ledger_conn_id
        age = oldest_older_than.total_seconds() if isinstance(oldest_older_than, timedelta) else oldest_older_than
        self.condition = Condition(at_least, age)
        default = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = default if deferrable is None else deferrable

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger, opened to be looked at, once for all pokes of a process."""
        return LedgerHook(self.ledger_conn_id).place.open(read_only=True)

    def execute(self, context: Context) -> Any:
        """Waits, here or in the triggerer; returns what there is."""
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context)
        if found.is_done:
            return found.xcom_value
        trigger = LedgerTrigger(
            self.ledger_queue,
            self.ledger_conn_id,
            self.condition.at_least,
            self.condition.oldest_older_than,
            float(self.poke_interval),
        )
        self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=self.timeout))
        raise AssertionError("a task that is deferred does not go on")

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """The triggerer has found work: this is it."""
        return event

    def poke(self, context: Context) -> PokeReturnValue:
        """Whether there is work, and how much."""
        counts = self.ledger.queue(self.ledger_queue).counts()
        return PokeReturnValue(self.condition.holds(counts), event_of(self.ledger_conn_id, self.ledger_queue, counts))
