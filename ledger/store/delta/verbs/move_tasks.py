"""The `tasks` table: one row for each message move task."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION
from ledger.rules import move_task
from ledger.rules.move_task import MoveTask
from ledger.store.delta.commit.transactions import Plan, Transactions
from ledger.store.delta.engine import Tables
from ledger.store.delta.model.tables import TASKS, instant_column
from ledger.store.delta.model.where import Where

EDITS = pa.schema([*TASKS, (OPERATION, pa.string()), (EXPECTED_REVISION, pa.int64())])


class Tasks:
    def __init__(self, tables: Tables, transactions: Transactions) -> None:
        self._tables, self._transactions = tables, transactions

    def all(self) -> list[MoveTask]:
        return _tasks(self._tables.load("tasks", Where()).rows)

    def put(self, task: MoveTask) -> bool:
        """Store a task (see Store.put_task).

        With Spark's MERGE, only a commit to the same row makes this call decide again. That is enough: two tasks that
        start at once have the same id (`move_task.new_task`).
        """

        def decide(losses: int) -> Plan[bool]:
            snapshot = self._tables.load("tasks", Where())
            tasks = _tasks(snapshot.rows)
            if not move_task.follows(task, tasks):
                return Plan(snapshot, Where(), EDITS.empty_table(), [], lambda version: False, task.updated_at)
            expected = task.revision - 1 or None
            row: dict[str, Any] = {name: [value] for name, value in zip(MoveTask._fields, task)}
            row |= {name: instant_column(row[name]) for name in ("started_at", "updated_at")}
            row |= {OPERATION: ["update" if expected else "insert"], EXPECTED_REVISION: [expected]}
            edits = pa.table([row[name] for name in EDITS.names], schema=EDITS)
            return Plan(snapshot, Where(), edits, [], lambda version: True, task.updated_at)

        return self._transactions.run("move_task", "tasks", task.source, decide)


def _tasks(rows: pa.Table) -> list[MoveTask]:
    tasks = []
    for row in rows.to_pylist():
        row |= {name: round(row[name].timestamp() * 1_000) for name in ("started_at", "updated_at")}
        tasks.append(MoveTask(**row))
    return tasks
