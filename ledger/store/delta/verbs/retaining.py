"""How long a ledger's past is kept: the settings for it become properties of the tables, which both engines go by."""

from __future__ import annotations

import re
import secrets
from functools import partial
from typing import NamedTuple

from ledger.clock import Clock
from ledger.settings import Settings, require_within
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.engine import Engine
from ledger.store.delta.model.tables import COMMIT_DAYS, FILE_DAYS, TABLES
from ledger.store.delta.verbs.tidying import retried

LOG_RETENTION, FILE_RETENTION = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
_INTERVAL = re.compile(r"(?:interval )?(\d+) (second|minute|hour|day|week)s?")
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}


class Kept(NamedTuple):
    """How long a table keeps commits, and files that it does not need any more, in seconds."""

    log_retention: int
    deleted_file_retention: int


def kept(engine: Engine, table: str) -> Kept:
    """As the table's properties say. Where they say nothing that is understood, readers go by Delta's defaults."""
    known = engine.layout(table).properties
    log, files = _seconds(known.get(LOG_RETENTION)), _seconds(known.get(FILE_RETENTION))
    day = _SECONDS["day"]
    return Kept(COMMIT_DAYS * day if log is None else log, FILE_DAYS * day if files is None else files)


def require_possible(engine: Engine, settings: Settings) -> None:
    """Raises InvalidParameterValue where the settings say one of the two, and a table, which has the other from before,
    would keep files for longer than commits."""
    log, files = settings.log_retention, settings.deleted_file_retention
    if (log is None) == (files is None):
        return
    for table in TABLES:
        before = kept(engine, table)
        require_within(
            before.log_retention if log is None else log,
            "deleted_file_retention",
            before.deleted_file_retention if files is None else files,
            f"The table {table} has one of the two from before: set both.",
        )


def retain(engine: Engine, transactions: Transactions, settings: Settings, table: str, clock: Clock) -> None:
    """Sets what is kept of a table's past, where the settings say so and the table does not: one commit, or none."""
    wanted = {LOG_RETENTION: settings.log_retention, FILE_RETENTION: settings.deleted_file_retention}
    known = engine.layout(table).properties
    new = {
        name: f"interval {seconds} seconds"
        for name, seconds in wanted.items()
        if seconds is not None and _seconds(known.get(name)) != seconds
    }
    if new:
        said = transactions.metadata(secrets.token_hex(8), "upkeep", "", clock(), [])
        metadata = {**said, "read": transactions.beside(table, engine.version(table))}
        retried(transactions, table, partial(engine.configure, table, new, metadata))


def _seconds(interval: str | None) -> int | None:
    """An interval of Delta's in seconds; None for one that has not the words that the ledger uses."""
    named = _INTERVAL.fullmatch(interval or "")
    return None if named is None else int(named[1]) * _SECONDS[named[2]]
