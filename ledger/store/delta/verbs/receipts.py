"""The receipts ledger: who was granted what, and what became of it, filled from the commits of `visibility`."""

from __future__ import annotations

import json
import secrets
from datetime import datetime, timezone
from functools import partial
from typing import Any

import pyarrow as pa

from ledger.clock import milliseconds_of
from ledger.delta_log.protocol import Commit
from ledger.store.delta.commit.holdings import releasing
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.engine import Tables
from ledger.store.delta.model.tables import RECEIPTS, instant_column
from ledger.store.delta.model.where import Where

#: How the application ids of fills begin.
FILLS = "receipts/after/"


@releasing
def fill_receipts(tables: Tables, transactions: Transactions) -> int:
    """Appends what the commits since the last fill did, exactly once; returns how many entries.

    The transaction id names the version that was filled last: of two fills that start from the same one, Delta
    takes one, and the other starts again from there.
    """
    attempts = transactions.attempts("fill_receipts")
    for losses in attempts:
        with transactions.turn("receipts", "", losses):
            since = tables.version("receipts")
            # What is read between this look at the table and the commit is of one ledger, or the commit is refused.
            generation = tables.generation()
            filled, rows = unfilled(tables)
            if not rows.num_rows:
                return 0
            # The receipts keep for good what they tell: a power cut must not take it back.
            tables.make_durable("visibility", rows["version"][-1].as_py())
            at: int = rows["at"][-1].cast(pa.int64()).as_py() // 1_000
            metadata = transactions.metadata(secrets.token_hex(8), "fill_receipts", "", at, [])
            carried = [(f"{FILLS}{filled}", 1)]
            append = partial(tables.append, "receipts", rows, metadata, carried, generation=generation)
            if transactions.commit("receipts", metadata, since, append, attempts) is not None:
                return len(rows)
    raise attempts.outlasted()


def history(tables: Tables, queue: str | None, receipt_id: str | None = None) -> list[dict[str, Any]]:
    """What the commits did to a queue (its id; None: to any), to messages under one receipt or under any, oldest first,
    as rows of RECEIPTS with instants in milliseconds: what is filled, and from the log what is not yet. Writes nothing.
    The owner of what expired is who had received it; who has it now says the grant of the same version."""
    greatest = tables.greatest("receipts", "version")
    filled = -1 if greatest is None else greatest
    stored = tables.load("receipts", Where(queue)).rows.drop_columns(["day"])
    rows = [
        {
            **row,
            "at": milliseconds_of(row["at"]),
            "visible_at": row["visible_at"] and milliseconds_of(row["visible_at"]),
        }
        for row in stored.to_pylist()
        # What is filled meanwhile counts once.
        if row["version"] <= filled
    ]
    rows += [
        {name: row.get(name) for name in RECEIPTS.names if name != "day"}
        for row in _rows(tables.history("visibility", filled))
        if queue is None or row["queue"] == queue
    ]
    rows.sort(key=lambda row: int(row["version"]))
    _name_holders(rows)
    return [row for row in rows if receipt_id is None or row["receipt_id"] == receipt_id]


def _name_holders(rows: list[dict[str, Any]]) -> None:
    """Whose lease expired, by its last grant, in place of who made the commit that says so."""
    holders: dict[str, str] = {}
    for row in rows:
        if row["event"] in ("granted", "granted again"):
            holders[row["receipt_id"]] = row["owner"]
        elif row["event"] == "expired":
            row["owner"] = holders.get(row["receipt_id"])


def unfilled(tables: Tables) -> tuple[int, pa.Table]:
    """The version of `visibility` that was filled last (-1: none was), and the entries of the commits since."""
    greatest = tables.greatest("receipts", "version")
    filled = -1 if greatest is None else greatest
    return filled, _table(_rows(tables.history("visibility", filled)))


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
    for name in ("event", "reason", "receipt_id", "attempt_id"):
        # Of a newer release's events: what is no text is kept as its JSON.
        columns[name] = [one if one is None or isinstance(one, str) else json.dumps(one) for one in columns[name]]
    columns["day"] = [datetime.fromtimestamp(at / 1_000, timezone.utc).date() for at in columns["at"]]
    for name in ("at", "visible_at"):
        columns[name] = instant_column(columns[name])
    return pa.table({name: columns[name] for name in RECEIPTS.names}, schema=RECEIPTS)
