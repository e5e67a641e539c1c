"""A bulk send where Spark commits: one append to `messages`."""

from __future__ import annotations

import json
import logging
import secrets
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ledger.clock import Clock
from ledger.delta_log.history import is_gap
from ledger.store import QueueRecord
from ledger.store.delta.dataframes.placed_rows import Placed, refused, rows_of_a_file

if TYPE_CHECKING:
    from ledger.store.delta.verbs.store import DeltaStore

log = logging.getLogger("ledger.verbs")


class SparkAppend:
    """Writes rows and commits them, all through Spark."""

    def __init__(self, store: DeltaStore) -> None:
        self._store, self._transactions = store, store.transactions

    def turn(self, queue: QueueRecord, losses: int) -> AbstractContextManager[None]:
        """A context in which a send may decide and write."""
        turn: AbstractContextManager[None] = self._transactions.spark_turn("messages")
        return turn

    def write(self, placed: Placed, transaction: tuple[str, int] | None, losses: int, clock: Clock) -> bool:
        """One append; False when it lost: to another send under the transaction, or to a change of the table."""
        from ledger.delta_log.by_spark import CONFLICTS

        operation, since = secrets.token_hex(8), self._store.engine.version("messages")
        metadata = self._transactions.metadata(operation, "send", placed.queue.id, placed.at, [])
        writer = (
            placed.messages()
            .write.format("delta")
            .mode("append")
            .option("userMetadata", json.dumps(metadata))
            .option("maxRecordsPerFile", str(rows_of_a_file(self._store.settings)))
        )
        if transaction is not None:
            writer = writer.option("txnAppId", transaction[0]).option("txnVersion", str(transaction[1]))
        try:
            writer.save(self._store.engine.place("messages"))
        except CONFLICTS:
            log.info("a send lost to another writer; whether it landed is looked for in the log")
        except Exception as error:
            if not is_gap(error):
                raise refused(error, placed.queue, self._store.settings) or error from None
        return self._transactions.landed("messages", operation, since) is not None
