"""How long a ledger's past is kept: the settings for it become properties of the tables, which both engines go by."""

from __future__ import annotations

import secrets
from functools import partial

from ledger.clock import Clock
from ledger.delta_log.spec import FILE_RETENTION, LOG_RETENTION, Kept, interval_seconds, kept_by
from ledger.settings import Settings, require_within
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.engine import Engine
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.verbs.tidying import retried


def kept(engine: Engine, table: str) -> Kept:
    """As the table's properties say. Where they say nothing that is understood, readers go by Delta's defaults."""
    return kept_by(engine.layout(table).properties)


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
        if seconds is not None and interval_seconds(known.get(name)) != seconds
    }
    if new:
        said = transactions.metadata(secrets.token_hex(8), "upkeep", "", clock(), [])
        metadata = {**said, "read": transactions.beside(table, engine.version(table))}
        retried(transactions, table, partial(engine.configure, table, new, metadata))
