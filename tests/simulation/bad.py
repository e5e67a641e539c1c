"""Histories made by hand: commits that no verb would make, on a world that is well, for the judge to catch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from ledger.store.delta.model.tables import HEAD, TABLES
from tests.simulation.calls import Actor, Call
from tests.simulation.judge import violations
from tests.simulation.log import File, Table, split
from tests.simulation.programs import generate
from tests.simulation.run import Run

Row = dict[str, Any]


def instant(milliseconds: int) -> datetime:
    """As rows have it."""
    return datetime.fromtimestamp(milliseconds / 1_000, timezone.utc)


class Bad:
    """A world in which nobody does anything but the test."""

    def __init__(self, world: str) -> None:
        self.run = Run(generate(f"by hand@{world}"))
        self.now = self.run.scheduler.now
        self._points = 0
        #: Since which point whoever commits did not sleep.
        self.looked = 0

    def violations(self) -> list[str]:
        """What the judge says."""
        return violations(self.run)

    def call(self, verb: str, queue: str = "", answer: Any = None, error: str | None = None, **about: Any) -> Call:
        """A call that ended."""
        call = Call("client 0", verb, queue, 0, about, 1, answer, error)
        self.run.calls.append(call)
        return call

    def queue(self, name: str) -> str:
        """The id of a queue."""
        return next(row["queue"] for row in self.rows("queues") if row["name"] == name)

    def rows(self, table: str, **columns: Any) -> list[Row]:
        """Rows of a table that have these values; head rows left out."""
        state = self.run.storage.tables[table].changes[-1].state
        found = [row for files in state.values() for file in files for row in file.rows.to_pylist()]
        found = [row for row in found if row.get("segment") != HEAD]
        return [row for row in found if all(row[name] == value for name, value in columns.items())]

    def visibility(
        self, verb: str, change: Callable[[list[Row]], list[Row]], call: Call | None = None, at: int | None = None
    ) -> None:
        """A commit that makes of all rows of `visibility` what `change` makes of them."""
        metadata = {"verb": verb, "at": self.now if at is None else at}
        self.commit("visibility", lambda rows: change(rows), metadata, call)

    def commit(
        self, table: str, change: Callable[[list[Row]], list[Row]], metadata: Row, call: Call | None = None
    ) -> None:
        """A commit that makes of all rows of a table what `change` makes of them."""
        known = self.run.storage.tables[table]
        removed = [(partition, file) for partition, files in known.changes[-1].state.items() for file in files]
        rows = [dict(row) for _, file in removed for row in file.rows.to_pylist()]
        schema = TABLES[table].schema
        made = pa.Table.from_pylist(change(rows), schema=schema)
        added = [(partition, File(part)) for partition, part in split(made, known.partitions)]
        self._commit(known, removed, added, metadata, call)

    def output(self, location: str, write: str, version: int, messages: list[str], call: Call | None = None) -> None:
        """A commit to an output table."""
        known = self.run.storage.outputs.setdefault(location, Table(pa.schema([("message_id", pa.string())])))
        added = [((), File(pa.table({"message_id": messages})))] if messages else []
        self._commit(known, [], added, {}, call, (f"ledger/{write}", version))

    def _commit(
        self, table: Table, removed: Any, added: Any, metadata: Row, call: Call | None, transaction: Any = None
    ):
        self._points += 1
        table.commit(
            table.version,
            removed,
            added,
            metadata=metadata,
            timestamp=self.now,
            reads=None,
            blind_appends_matter=True,
            transactions=[] if transaction is None else [transaction],
            actor=Actor(call, self._points, self.now, self.now, looked=self.looked),
        )
