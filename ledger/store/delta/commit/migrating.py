"""A ledger that an earlier release wrote is brought to the formats of this one, when it is opened."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from functools import partial

from ledger.clock import Clock
from ledger.delta_log.protocol import Engine
from ledger.errors import StorageFailed
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.model.formats import is_older
from ledger.store.delta.model.tables import TABLES

log = logging.getLogger("ledger.opening")


def migrate(engine: Engine, transactions: Transactions, older: Sequence[str], clock: Clock) -> None:
    """Gives the `older` tables the columns and properties of this release's format, its number among them, and says
    which releases may use it from now on: one commit a table, whoever else opens the ledger at the same time. What
    others commit meanwhile meets a conflict, and is tried again.

    A table that cannot be written to stays as it is, with a warning: this release works with every format so far. What
    a row would say in a column that the table lacks is said in another way (`Lanes` writes no sets then).
    """
    for table in older:
        try:
            _migrate(engine, transactions, table, clock)
        except StorageFailed as error:
            log.warning("The table %s stays in the format that an earlier release gave it: %s", table, error)


def _migrate(engine: Engine, transactions: Transactions, name: str, clock: Clock) -> None:
    operation, attempts = secrets.token_hex(8), transactions.attempts("migrate")
    for losses in attempts:
        # What another process has done meanwhile is not done again.
        if not is_older(TABLES[name], engine.layout(name)):
            return
        with transactions.turn(name, "", losses):
            since = engine.version(name)
            metadata = transactions.metadata(operation, "migrate", "", clock(), [])
            configure = partial(engine.configure, name, TABLES[name].properties, metadata)
            if transactions.commit(name, metadata, since, configure, attempts) is not None:
                log.info("The table %s has format %d now", name, TABLES[name].format)
                return
    raise attempts.outlasted()
