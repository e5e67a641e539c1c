"""Bulk sends where Spark commits: one append to `messages`."""

from __future__ import annotations

import json
import logging
import secrets
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ledger.clock import Clock
from ledger.delta_log.history import is_gap
from ledger.delta_log.spark_sessions import IDEMPOTENT_WRITES
from ledger.errors import InvalidParameterValue
from ledger.rules import message_id as ids
from ledger.store.delta.commit.transactions import after_commit
from ledger.store.delta.dataframes.placed_rows import Placed, explain_send_failure, rows_of_a_file
from ledger.store.delta.verbs.sending import bounds_of
from ledger.store.protocol import QueueRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.store.delta.verbs.store import DeltaStore

log = logging.getLogger("ledger.verbs")


class SparkAppend:
    #: Spark's write is also its commit.
    compares_rows = False

    def __init__(self, store: DeltaStore, spark: SparkSession) -> None:
        self._store, self._transactions, self._spark = store, store.transactions, spark

    @staticmethod
    def require_takes(queue: QueueRecord) -> None:
        """Raise InvalidParameterValue for a queue with MaximumMessages or MaximumStoredBytes.

        Rows and bytes are known only after Spark's commit.
        """
        bounds = " and ".join(bounds_of(queue))
        if bounds:
            bound = f"Where Spark commits, {queue.name} takes no DataFrames: its {bounds} could not be kept"
            fix = "Send lists or Arrow tables through a ledger without Spark, or open it with engine='delta-rs'."
            raise InvalidParameterValue("messages", queue.name, bound, f"{fix} Nothing was sent.")

    @staticmethod
    def takes_unplaced(frame: DataFrame) -> bool:
        """Return False: Spark commits only files that its own writer wrote."""
        return False

    def turn(self, queue: QueueRecord, losses: int) -> AbstractContextManager[None]:
        turn: AbstractContextManager[None] = self._transactions.spark_turn("messages")
        return turn

    def write(self, placed: Placed, transaction: tuple[str, int] | None, losses: int, clock: Clock) -> bool:
        """Write and commit the rows with one append. Return False if the append lost.

        It may lose to another send under the transaction id, to a change of the table, or to a new ledger in its place.
        Raises QueueDoesNotExist.
        """
        from ledger.delta_log.spark_commits import CONFLICTS

        engine = self._store.engine
        operation, since = secrets.token_hex(8), engine.version("messages")
        generation = engine.generation()
        self._store.require_queue(placed.queue)
        metadata = self._transactions.metadata(operation, "send", placed.queue.id, placed.at, [], losses)
        writer = (
            placed.messages()
            .write.format("delta")
            .mode("append")
            .option("userMetadata", json.dumps(metadata))
            .option("maxRecordsPerFile", str(rows_of_a_file(self._store.settings)))
        )
        if transaction is None and any(self._spark.conf.get(name, None) for name in IDEMPOTENT_WRITES):
            # With these settings, Delta would take this send for a repetition of the session's last write.
            transaction = f"send/{operation}", 1
        if transaction is not None:
            writer = writer.option("txnAppId", transaction[0]).option("txnVersion", str(transaction[1]))
        failed: Exception | None = None
        try:
            writer.save(engine.place("messages"))
        except CONFLICTS:
            log.info("Spark reported a conflict for a send; the log is searched for its commit")
        except Exception as error:
            failed = error
        with after_commit("send"):
            landed, is_same = self._transactions.landed("messages", operation, since), self._is_same(generation)
            is_sent = landed is not None and (is_same or self._has_rows(placed))
        if failed is not None and landed is not None:
            log.warning("Spark reported an error after it had committed a send: %s", failed)
        elif failed is not None and is_same and not is_gap(failed):
            raise (
                explain_send_failure(failed, placed.queue, self._store.settings, engine.place("messages")) or failed
            ) from None
        return is_sent

    def _is_same(self, generation: int) -> bool:
        """Return whether the ledger is still the one in which the send began.

        Otherwise Spark's commit may lie in the new ledger's log, under a number that nobody reads.
        """
        self._store.engine.version("messages")
        return self._store.engine.generation() == generation

    def _has_rows(self, placed: Placed) -> bool:
        first, last = ids.segment(placed.key, 0), ids.segment(placed.key, ids.ORDINAL_BOUND - 1)
        is_there = self._store.listings.newest().sent(first, last)[0] > 0
        if not is_there:
            log.warning("the ledger was replaced while Spark wrote a send, which is repeated in the new one")
        return is_there
