"""The `queues` table: create, look up, change and remove queues."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from ledger.errors import QueueDoesNotExist
from ledger.store import QueueRecord
from ledger.store.delta.engine import EXPECTED_REVISION, OPERATION, Engine, Where
from ledger.store.delta.lanes import instants
from ledger.store.delta.tables import QUEUES
from ledger.store.delta.transaction import Plan, Transactions

EDITS = pa.schema([*QUEUES, (OPERATION, pa.string()), (EXPECTED_REVISION, pa.int64())])


class Queues:
    """The queues of a ledger; what was read is kept until the table's version moves on."""

    def __init__(self, engine: Engine, transactions: Transactions) -> None:
        self._engine, self._transactions = engine, transactions
        self._kept: tuple[int, dict[str, QueueRecord]] | None = None

    def create(self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], now: int) -> QueueRecord:
        """The queue of this name, made if there is none."""

        def decide(losses: int) -> Plan[QueueRecord]:
            snapshot = self._engine.load("queues", Where())
            known = _records(snapshot.rows).get(name)
            if known is not None:
                return Plan(snapshot, Where(), EDITS.empty_table(), [], lambda version: known, now)
            made = QueueRecord(f"{name}-{secrets.token_hex(4)}", name, dict(attributes), dict(tags), now, now)
            return Plan(snapshot, Where(), _edit("insert", made, None), [], lambda version: made, now)

        return self._transactions.run("create_queue", "queues", name, decide)

    def get(self, name: str) -> QueueRecord:
        """The queue of this name; raises QueueDoesNotExist."""
        known = self._all()
        if name not in known:
            raise QueueDoesNotExist(name, known)
        return known[name]

    def all(self) -> list[QueueRecord]:
        """All queues, by name."""
        known = self._all()
        return [known[name] for name in sorted(known)]

    def change(self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], now: int) -> QueueRecord:
        """Replaces attributes and tags."""

        def decide(losses: int) -> Plan[QueueRecord]:
            snapshot = self._engine.load("queues", Where())
            known = _required(name, _records(snapshot.rows))
            new = replace(
                known, attributes=dict(attributes), tags=dict(tags), modified_at=now, revision=known.revision + 1
            )
            return Plan(snapshot, Where(), _edit("update", new, known.revision), [], lambda version: new, now)

        return self._transactions.run("set_attributes", "queues", name, decide)

    def delete(self, name: str) -> None:
        """Removes the queue's row: from then on its messages belong to no queue, and upkeep drops them."""

        def decide(losses: int) -> Plan[None]:
            snapshot = self._engine.load("queues", Where())
            known = _required(name, _records(snapshot.rows))
            return Plan(snapshot, Where(), _edit("delete", known, known.revision), [], lambda version: None, 0)

        self._transactions.run("delete_queue", "queues", name, decide)

    def _all(self) -> dict[str, QueueRecord]:
        kept = self._kept
        if kept is None or kept[0] != self._engine.version("queues"):
            snapshot = self._engine.load("queues", Where())
            kept = self._kept = snapshot.version, _records(snapshot.rows)
        return kept[1]


def _records(rows: pa.Table) -> dict[str, QueueRecord]:
    return {
        row["name"]: QueueRecord(
            row["queue"],
            row["name"],
            dict(row["attributes"]),
            dict(row["tags"] or []),
            _milliseconds(row["created_at"]),
            _milliseconds(row["modified_at"]),
            row["revision"],
        )
        for row in rows.to_pylist()
    }


def _edit(operation: str, record: QueueRecord, expected: int | None) -> pa.Table:
    row = [
        [record.id],
        [record.name],
        [list(record.attributes.items())],
        [list(record.tags.items())],
        instants([record.created_at]),
        instants([record.modified_at]),
        [record.revision],
        [operation],
        [expected],
    ]
    return pa.table(row, schema=EDITS)


def _required(name: str, known: Mapping[str, QueueRecord]) -> QueueRecord:
    if name not in known:
        raise QueueDoesNotExist(name, known)
    return known[name]


def _milliseconds(instant: object) -> int:
    return round(instant.timestamp() * 1_000)
