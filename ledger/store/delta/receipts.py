"""The receipts ledger: who was granted what, and what became of it, filled from the commits of `visibility`."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from ledger.errors import ContentionOutlastedRetries
from ledger.store.delta.engine import Commit, Conflict, Engine
from ledger.store.delta.lanes import instants
from ledger.store.delta.tables import RECEIPTS
from ledger.store.delta.transaction import Transactions, pause

ATTEMPTS = 20


def fill_receipts(engine: Engine, transactions: Transactions) -> int:
    """Appends what the commits since the last fill did, exactly once; answers how many entries.

    The transaction id names the version that was filled last: of two fills that start from the same one, Delta
    takes one, and the other starts again from there.
    """
    for losses in range(ATTEMPTS):
        with transactions.turn("receipts"):
            filled = engine.greatest("receipts", "version")
            filled = -1 if filled is None else filled
            rows = _rows(engine.history("visibility", filled))
            if not rows:
                return 0
            try:
                table = _table(rows)
                engine.append("receipts", table, {"verb": "fill_receipts"}, (f"receipts/after/{filled}", 1))
                return table.num_rows
            except Conflict:
                pass
        pause(losses)
    raise ContentionOutlastedRetries("fill_receipts", ATTEMPTS, 0.0)


def _rows(commits: list[Commit]) -> list[dict[str, Any]]:
    return [
        {
            "queue": commit.metadata["queue"],
            **event,
            "version": commit.version,
            "at": commit.metadata["at"],
            "owner": commit.metadata["owner"],
        }
        for commit in commits
        for event in commit.metadata.get("events", ())
    ]


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in RECEIPTS.names if name != "day"}
    columns["day"] = [datetime.fromtimestamp(at / 1_000, timezone.utc).date() for at in columns["at"]]
    for name in ("at", "visible_at"):
        columns[name] = instants(columns[name])
    return pa.table({name: columns[name] for name in RECEIPTS.names}, schema=RECEIPTS)
