"""The seam for writes of a claim's output to a Delta table beside the ledger, see `rules.output_doubts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa

from ledger.clock import Clock
from ledger.rules.output_columns import ColumnsAsked
from ledger.store.queue_record import QueueRecord


class ArrowOutputs(Protocol):
    """Writes Arrow tables to Delta tables that are none of the ledger's, without Spark."""

    def prepare_output(
        self, location: str, rows: pa.Table, asked: ColumnsAsked, alone: Callable[[], AbstractContextManager[Any]]
    ) -> pa.Table:
        """Return the rows with the columns of such a table, to be appended.

        Make the table, empty, where there is none, and widen its columns where that is asked, `alone` meanwhile. Raises
        OutputNotWritten for rows that do not fit, before it makes or changes anything."""

    def append_output(
        self,
        location: str,
        rows: pa.Table,
        application: str,
        version: int,
        metadata: Mapping[str, Any],
        asked: ColumnsAsked,
    ) -> None:
        """Append rows, under a transaction of which no version was committed yet.

        The columns that the table lacks are added by the same commit, or by one right before it. The rows are fitted to
        the very version of the table that the commit stands on. Raises whatever goes wrong."""


class OutputWrites(Protocol):
    """What a store does about writes: it records when one is begun and how it ended, and asks the output table in
    between. `runs` are RUNS: the messages that are written."""

    @property
    def owner(self) -> str:
        """Who writes."""

    def require_allowed(self, location: str) -> None:
        """Raises InvalidParameterValue for a place that is, or lies in, one of the ledger's own tables."""

    def require_safe(self, location: str, why: str) -> None:
        """Raises UnsafeStorage where Spark's commits could be written over, or write over others; `why`: what makes
        Spark commit there."""

    def publishing(self, location: str) -> Any:
        """What publishes files at a place; None where Spark has to commit. Raises UnsafeStorage for a store that lets
        one commit be put over another."""

    def writes_arrow(self) -> bool:
        """Whether Arrow tables are written without Spark."""

    def is_new_here(self, location: str) -> bool:
        """True once for each place."""

    def without_spark(self) -> ArrowOutputs:
        """What writes Arrow tables. Raises InvalidParameterValue when this ledger writes DataFrames alone."""

    def table_id(self, location: str) -> str:
        """The id of a table that is about to be written to. Raises OutputUnreadable."""

    def require_held(self, queue: QueueRecord, receipt_id: str, runs: pa.Table, clock: Clock) -> None:
        """Raises LeaseLost when the receipt does not hold one of these messages, as far as the queue alone tells:
        before a table is made for their rows."""

    def begin(
        self, queue: QueueRecord, receipt_id: str, runs: pa.Table, table: str, table_id: str, clock: Clock
    ) -> str | None:
        """Records that messages are about to be written; returns the write's id. None: an earlier call has written them
        all. Raises LeaseLost when the receipt does not hold one of them, or an earlier call wrote only some of them,
        InvalidParameterValue when it wrote them to another table: then nothing is to be written."""

    def is_fenced(self, location: str, identifier: str) -> bool:
        """Whether somebody saw to it that a write never gets in. Raises OutputUnreadable."""

    def written_or_fenced(self, location: str, identifier: str) -> bool:
        """Whether a write is in. If not, this commits to the table: the write is fenced off, and never will be in.
        Waits for others that write to the table now, as long as it takes. Raises OutputUnreadable."""

    def finish(
        self, queue: QueueRecord, runs: pa.Table, identifier: str, clock: Clock, beside: Sequence[Any] = ()
    ) -> int:
        """Deletes what was written, unless whoever took the messages over has recorded that already, and applies the
        actions `beside`, on other messages, in the same commit; returns of how many messages they changed something.

        Raises LeaseLost, and changes nothing, where no record of these messages knows of the write: the ledger was
        replaced meanwhile, or they were restored."""

    def undo(self, queue: QueueRecord, runs: pa.Table, identifier: str, clock: Clock) -> None:
        """Records that a write is fenced off: its messages are held, or received again, as if it had not begun."""

    def require_writable(self) -> None:
        """Raises LedgerIsReadOnly where nothing may be written."""

    def step(self, name: str) -> None:
        """Tells whoever listens that a write has come so far."""
