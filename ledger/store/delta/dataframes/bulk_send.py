"""Sending a DataFrame: every task writes segments of its own, nothing is shuffled, one commit."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ledger.clock import Clock
from ledger.errors import InvalidParameterValue
from ledger.rules import fifo, instants
from ledger.rules import message_id as ids
from ledger.rules.attempts import Attempt, content_of_rows
from ledger.rules.attributes import is_fifo
from ledger.rules.limits import DEDUPLICATION_INTERVAL, MILLISECONDS
from ledger.rules.message_attributes import SENDER
from ledger.rules.message_fields import STORED
from ledger.store import QueueRecord
from ledger.store.delta.dataframes import columns
from ledger.store.delta.dataframes.bulk_rows import checked, fingerprint, message_columns, refusal
from ledger.store.delta.engines.protocol import Where
from ledger.store.delta.model.tables import MESSAGES
from ledger.store.delta.state.send_attempts import sent_before

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ledger.store.delta.verbs.store import DeltaStore

#: monotonically_increasing_id counts the rows of a task from 0 in its lower bits, the task in those above.
TASK_SHIFT = 33
TOO_MANY_SEGMENTS = "ledger: a send has too many segments"


@dataclass(frozen=True)
class Sent:
    """What a bulk send stored: how many messages, in which segments."""

    count: int
    segments: tuple[str, ...]
    _messages: DataFrame

    def ids(self) -> DataFrame:
        """A row per message: message_id (string), body (string)."""
        from pyspark.sql import functions as F

        return self._messages.select(columns.message_id(F.col("segment"), F.col("seq")).alias("message_id"), "body")


class BulkSender:
    """Writes DataFrames into sealed segments: never appended to again, by construction."""

    def __init__(self, spark: SparkSession, store: DeltaStore, locations: Mapping[str, str]) -> None:
        self._spark, self._store, self._path = spark, store, locations["messages"]

    def send(
        self, queue: QueueRecord, frame: DataFrame, body: str | None, clock: Clock, attempt_id: str | None
    ) -> Sent:
        """Sends every row; see Queue.send."""
        rows = frame.select(
            *(column.alias(name) for name, column in message_columns(frame, queue.attributes, body).items())
        )
        if is_fifo(queue.attributes):
            return self._send_in_order(queue, rows, clock)
        if attempt_id is not None:
            return self._send_once(queue, rows, clock, attempt_id)
        key = ids.new_send_key()
        with self._store.transactions.spark_turn("messages"):
            self._write(queue, self._placed(queue, rows, key), key, clock(), None)
        return self._sent(queue, key)

    def _send_once(self, queue: QueueRecord, rows: DataFrame, clock: Clock, attempt_id: str) -> Sent:
        """Under an attempt id: the rows are counted and hashed before, so that any other send is told from a retry."""
        try:
            ((count, hashes),) = rows.agg(*fingerprint()).collect()
        except Exception as error:
            raise refusal(error, queue.attributes) or error from None
        attempt = Attempt(attempt_id, queue.id, content_of_rows(queue.id, count, int(hashes or 0)))
        placed, tries = self._placed(queue, rows, attempt.key), self._store.transactions.attempts("send")
        for _ in tries:
            with self._store.transactions.spark_turn("messages"):
                before = sent_before(self._store.engine, attempt)
                # Where another process was first Delta leaves this one out; what that one sent is looked at again.
                if before or not count or self._write(queue, placed, attempt.key, clock(), attempt.transaction):
                    # Some of them may be finished and dropped by now.
                    return replace(self._sent(queue, before or attempt.key), count=count)
        raise tries.outlasted()

    def _placed(self, queue: QueueRecord, rows: DataFrame, key: str) -> DataFrame:
        """The rows with lane, ordinal of their segment, and seq."""
        from pyspark.sql import functions as F

        lanes, per_segment = int(queue.attributes["Lanes"]), self._store.settings.messages_per_segment
        tasks = max(1, min(self._spark.sparkContext.defaultParallelism, 4_096))
        position = F.shiftrightunsigned(F.col("place"), TASK_SHIFT)
        row = F.col("place").bitwiseAND(F.lit((1 << TASK_SHIFT) - 1))
        ordinal = F.floor(row / F.lit(per_segment)).cast("bigint") * F.lit(tasks) + position
        return (
            rows.coalesce(tasks)
            .select("*", F.monotonically_increasing_id().alias("place"))
            .withColumn("ordinal", ordinal)
            .withColumn("lane", ((F.col("ordinal") + F.lit(int(key[:6], 16))) % F.lit(lanes)).cast("int"))
            .withColumn("seq", row % F.lit(per_segment))
        )

    def _send_in_order(self, queue: QueueRecord, rows: DataFrame, clock: Clock) -> Sent:
        """As `Sender` does for a few: duplicates are left out, and a send that did not see the one before it does not
        commit. Bodies are shuffled once, to their groups' lanes."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        lanes, settings, engine = int(queue.attributes["Lanes"]), self._store.settings, self._store.engine
        scope = F.col("message_group_id") if queue.attributes["DeduplicationScope"] == "messageGroup" else F.lit("")
        keyed = rows.select("*", scope.alias("scope"), F.monotonically_increasing_id().alias("place"))
        same = Window.partitionBy("scope", "message_deduplication_id").orderBy("place")
        in_lane = Window.partitionBy("lane").orderBy("place")
        first = keyed.withColumn("copy", F.row_number().over(same)).where("copy = 1")
        attempts = self._store.transactions.attempts("send")
        for _ in attempts:
            key = ids.new_send_key()
            with self._store.transactions.spark_turn("messages"):
                count = engine.transaction_version("messages", fifo.sends(queue.id)) or 0
                at = instants.not_before(
                    clock(), self._store.listings.newest().last_sent(queue.id), settings.maximum_clock_skew
                )
                known = self._remembered(queue, at).select(scope.alias("scope"), "message_deduplication_id")
                fresh = first.join(known, ["scope", "message_deduplication_id"], "left_anti")
                lane = (F.crc32(F.col("message_group_id").cast("binary")) % F.lit(lanes)).cast("int")
                placed = (
                    fresh.withColumn("lane", lane)
                    .withColumn("seq", F.row_number().over(in_lane).cast("bigint") - 1)
                    .withColumn("ordinal", F.col("lane").cast("bigint"))
                )
                number = _sequence_number(count + 1, F.col("seq") * F.lit(lanes) + F.col("lane"), lanes)
                if self._write(queue, placed, key, at, (fifo.sends(queue.id), count + 1), number):
                    return self._sent(queue, key)
        raise attempts.outlasted()

    def _remembered(self, queue: QueueRecord, now: int) -> DataFrame:
        """Twin of rules.fifo.is_duplicate: the messages of a queue that make a send with the same id a
        duplicate. A send or a purge that they miss has counted up, so that theirs does not commit."""
        purged = self._store.engine.transaction_version("messages", fifo.purges(queue.id)) or 0
        there = self._spark.read.format("delta").load(self._path).where(Where(queue.id).sql())
        there = there.where(f"sequence_number >= {fifo.first_remembered(purged)}")
        return there.where(f"sent_at > timestamp_millis({now - DEDUPLICATION_INTERVAL * MILLISECONDS})")

    def _write(
        self,
        queue: QueueRecord,
        placed: DataFrame,
        key: str,
        now: int,
        transaction: tuple[str, int] | None,
        sequence_number: Column | None = None,
    ) -> bool:
        """One append of rows that have lane, ordinal and seq; False when another writer was first."""
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import from_arrow_type

        from ledger.store.delta.engines.spark_committing import CONFLICTS

        # Beyond the bound names would run into those of other sends.
        name = F.when(F.col("ordinal") < ids.ORDINAL_BOUND, columns.segment_of_send(key, F.col("ordinal"))).otherwise(
            F.raise_error(F.lit(TOO_MANY_SEGMENTS)).cast("string")
        )
        values = {
            "queue": F.lit(queue.id),
            "segment": name,
            "sent_at": F.expr(columns.instant_literal(now)),
            "available_at": F.expr(f"timestamp_millis({now} + delay_seconds * 1000)"),
        }
        if sequence_number is not None:
            values["sequence_number"] = sequence_number
        sender = self._store.sender_id
        if sender is not None:
            own = F.coalesce("message_attributes", F.expr("map()").cast(placed.schema["message_attributes"].dataType))
            fields = F.struct(
                F.lit("String").alias("data_type"),
                F.lit(sender).alias("string_value"),
                F.lit(None).cast("binary").alias("binary_value"),
            )
            values["message_attributes"] = F.map_concat(own, F.create_map(F.lit(SENDER), fields))
        names = {field.column: field.name for field in STORED}
        for field in MESSAGES:
            if field.name not in values:
                name = names.get(field.name, field.name)
                there = name in placed.columns
                values[field.name] = F.col(name) if there else F.lit(None).cast(from_arrow_type(field.type))
        rows = placed.select(*(values[field.name].alias(field.name) for field in MESSAGES))
        transactions, operation = self._store.transactions, secrets.token_hex(8)
        since = self._store.engine.version("messages")
        writer = (
            rows.write.format("delta")
            .mode("append")
            .option("userMetadata", json.dumps(transactions.metadata(operation, "send", queue.id, now, [])))
            .option("maxRecordsPerFile", str(self._store.settings.messages_per_file))
        )
        if transaction is not None:
            writer = writer.option("txnAppId", transaction[0]).option("txnVersion", str(transaction[1]))
        try:
            writer.save(self._path)
        except CONFLICTS:
            # A blind append meets no other writer; one with a transaction may, and looks whether it landed.
            if transaction is None:
                raise
        except Exception as error:
            if TOO_MANY_SEGMENTS in str(error):
                raise InvalidParameterValue(
                    "messages_per_segment",
                    self._store.settings.messages_per_segment,
                    f"The send would have more than {ids.ORDINAL_BOUND} segments",
                    "Nothing was sent. Raise the setting, or repartition the DataFrame evenly.",
                ) from None
            raise refusal(error, queue.attributes) or error from None
        return transactions.landed("messages", operation, since) is not None

    def _sent(self, queue: QueueRecord, key: str) -> Sent:
        first, last = ids.segment(key, 0), ids.segment(key, ids.ORDINAL_BOUND - 1)
        count, segments = self._store.listings.newest().sent(first, last)
        there = self._spark.read.format("delta").load(self._path).where(Where(queue.id).sql())
        # By the range of their names: a predicate that named each would grow with the send.
        return Sent(count, segments, there.where(f"segment BETWEEN '{first}' AND '{last}'"))


def _sequence_number(send: int, ordinal: Column, lanes: int) -> Column:
    """Twin of rules.fifo.sequence_number; beyond the bound the numbers would run into the next send's."""
    from pyspark.sql import functions as F

    most = (1 << fifo.ORDINAL_BITS) // lanes
    return checked(
        F.lit(fifo.sequence_number(send, 0)) + ordinal,
        ordinal < F.lit(1 << fifo.ORDINAL_BITS),
        "MessageGroupId",
        f"One send takes at most {most:,} messages of groups that share a lane. Send the DataFrame in parts",
        "bigint",
    )
