"""How long a ledger's past is kept: the settings for it become properties of the tables, which both engines go by."""

from __future__ import annotations

import re
import secrets
from functools import partial

from ledger.clock import Clock
from ledger.settings import Settings
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.engines.protocol import Engine
from ledger.store.delta.verbs.tidying import retried

_INTERVAL = re.compile(r"(?:interval )?(\d+) (second|minute|hour|day|week)s?")
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}


def retain(engine: Engine, transactions: Transactions, settings: Settings, table: str, clock: Clock) -> None:
    """Sets what is kept of a table's past, where it is not what the settings say: one commit, or none."""
    wanted = {
        "delta.logRetentionDuration": settings.log_retention,
        "delta.deletedFileRetentionDuration": settings.deleted_file_retention,
    }
    known = engine.layout(table).properties
    new = {
        name: f"interval {seconds} seconds" for name, seconds in wanted.items() if _seconds(known.get(name)) != seconds
    }
    if new:
        metadata = transactions.metadata(secrets.token_hex(8), "upkeep", "", clock(), [])
        retried(transactions, table, partial(engine.configure, table, new, metadata))


def _seconds(interval: str | None) -> int | None:
    """An interval of Delta's in seconds; None for one that has not the words that the ledger uses."""
    named = _INTERVAL.fullmatch(interval or "")
    return None if named is None else int(named[1]) * _SECONDS[named[2]]
