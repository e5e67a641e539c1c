"""The table `receipts`: which owners were granted messages, and what happened to these messages."""

from __future__ import annotations

import json
import secrets
from datetime import datetime, timezone
from functools import partial
from typing import Any

import pyarrow as pa

from ledger.clock import milliseconds_of
from ledger.delta_log.protocol import Commit
from ledger.store.delta.commit.locks import releasing
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.engine import Tables
from ledger.store.delta.model.tables import RECEIPTS, Where, instant_column

FILLS = "receipts/after/"


@releasing
def fill_receipts(tables: Tables, transactions: Transactions) -> int:
    """Copy the events of the commits of `visibility` since the last fill, exactly once. Return the number of entries.

    The transaction id names the last version that `receipts` has. Of two fills after the same version, Delta accepts
    one.
    """
    attempts = transactions.attempts("fill_receipts")
    for losses in attempts:
        with transactions.turn("receipts", "", losses):
            since = tables.version("receipts")
            # If the ledger is replaced after this line, the commit is refused.
            generation = tables.generation()
            filled, rows = find_unfilled(tables)
            if not rows.num_rows:
                return 0
            # `receipts` keeps these events for good, so a power cut must not take their commits back.
            tables.make_durable("visibility", rows["version"][-1].as_py())
            at: int = rows["at"][-1].cast(pa.int64()).as_py() // 1_000
            metadata = transactions.metadata(secrets.token_hex(8), "fill_receipts", "", at, [])
            carried = [(f"{FILLS}{filled}", 1)]
            append = partial(tables.append, "receipts", rows, metadata, carried, generation=generation)
            if transactions.commit("receipts", metadata, since, append, attempts) is not None:
                return len(rows)
    raise attempts.give_up()


def read_events(tables: Tables, queue: str | None, receipt_id: str | None = None) -> list[dict[str, Any]]:
    """Return the events of the commits, oldest first, as rows of RECEIPTS with instants in milliseconds.

    The rows come from `receipts`, and for commits that are not copied yet from the log of `visibility`. The owner of an
    event "expired" is the process that had received the messages (None: not known).
    """
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
        # Rows that were filled meanwhile come from the log below, too.
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
    holders: dict[str, str] = {}
    for row in rows:
        if row["event"] in ("granted", "granted again"):
            holders[row["receipt_id"]] = row["owner"]
        elif row["event"] == "expired":
            row["owner"] = holders.get(row["receipt_id"])


def find_unfilled(tables: Tables) -> tuple[int, pa.Table]:
    """Return the last version of `visibility` with entries in `receipts` (-1: none), and the entries of later
    commits."""
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
        # A newer release's events may have values that are no text.
        columns[name] = [one if one is None or isinstance(one, str) else json.dumps(one) for one in columns[name]]
    columns["day"] = [datetime.fromtimestamp(at / 1_000, timezone.utc).date() for at in columns["at"]]
    for name in ("at", "visible_at"):
        columns[name] = instant_column(columns[name])
    return pa.table({name: columns[name] for name in RECEIPTS.names}, schema=RECEIPTS)
