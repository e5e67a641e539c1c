"""The operator that calls a function for each message, in the task's own process and others, without Spark."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ledger.airflow.operators import LedgerOperator
from ledger.errors import InvalidParameterValue

if TYPE_CHECKING:
    from airflow.sdk import Context

#: What a process ends with that SIGTERM ended.
TERMINATED = 143
#: What the operator gives to `Queue.consume` itself.
OWN = ("handler", "output", "attempt_id", "report", "bar")


class LedgerConsumeOperator(LedgerOperator):
    """Runs `Queue.consume`: calls `handler` for each message, writes its rows to `output_table`, and acknowledges.

    `options` are further keyword arguments of `Queue.consume`: concurrency, batch, processes, until, retry_after, ...
    A message for which the handler raises fails alone, and the task goes on; where everything raises alike, the task
    fails, and nothing counts as received. A retry of a task whose worker was killed has back first what that one held.
    SIGTERM (on_kill) ends it: what is done is written, the rest is given back uncounted. A relative `output_table`
    begins at the folder that the ledger's root lies in.
    Returns what a `Consumed` has, by name, and the `output_table`. Raises what `Queue.consume` does.
    """

    template_fields: Sequence[str] = (*LedgerOperator.template_fields, "output_table")

    def __init__(
        self,
        *,
        handler: Callable[[Any], Any],
        output_table: str | os.PathLike[str] | None = None,
        options: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        for name in options or {}:
            if name in OWN:
                raise InvalidParameterValue("options", name, "The operator gives this argument itself")
        self.handler, self.output_table, self.options = handler, output_table, options
        self._works = False

    def execute(self, context: Context) -> dict[str, Any]:
        """Consumes."""
        place = None if self.output_table is None else self.hook.place.output(self.output_table)
        self._works = True
        try:
            done = self.opened_queue().consume(
                self.handler,
                place,
                attempt_id=self.attempt_id,
                bar=False,
                report=self.log.info,
                **(self.options or {}),
            )
        finally:
            self._works = False
        return {**asdict(done), "output_table": place}

    def on_kill(self) -> None:
        """Airflow calls it where SIGTERM interrupted the work, and would let it go on then: this ends it."""
        if self._works and threading.current_thread() is threading.main_thread():
            raise SystemExit(TERMINATED)
