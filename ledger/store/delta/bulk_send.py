"""Sending a DataFrame: every task writes segments of its own, nothing is shuffled, one commit."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ledger.errors import InvalidParameterValue
from ledger.rules import message_id as ids
from ledger.store import QueueRecord
from ledger.store.delta import columns
from ledger.store.delta.engine import Where
from ledger.store.delta.tables import MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ledger.store.delta.store import DeltaStore

#: monotonically_increasing_id counts the rows of a task from 0 in its lower bits, the task in those above.
TASK_SHIFT = 33
REFUSED = "ledger: a message body is refused"
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
        self, queue: QueueRecord, frame: DataFrame, body: str | None, most: int, now: int, attempt_id: str | None
    ) -> Sent:
        """Sends every row; see Queue.send."""
        text = _body(frame, body)
        key = ids.new_send_key() if attempt_id is None else ids.send_key("send", queue.id, attempt_id)
        transactions = self._store.transactions
        metadata = transactions.metadata(secrets.token_hex(8), "send", queue.id, now, [])
        writer = (
            self._rows(queue, frame, text, key, most, now)
            .write.format("delta")
            .mode("append")
            .option("userMetadata", json.dumps(metadata))
            .option("maxRecordsPerFile", str(self._store.settings.messages_per_file))
        )
        if attempt_id is not None:
            # Delta commits a transaction of this application and version once, however often it is tried.
            writer = writer.option("txnAppId", f"send/{queue.id}/{attempt_id}").option("txnVersion", "1")
        with transactions.spark_turn("messages"):
            try:
                writer.save(self._path)
            except Exception as error:
                if REFUSED in str(error):
                    raise InvalidParameterValue(
                        "MessageBody",
                        body or "body",
                        f"A row's body is null, empty or over {most} bytes (MaximumMessageSize)",
                        "Nothing was sent. Filter such rows, or raise the queue's MaximumMessageSize.",
                    ) from None
                if TOO_MANY_SEGMENTS in str(error):
                    raise InvalidParameterValue(
                        "messages_per_segment",
                        self._store.settings.messages_per_segment,
                        f"The send would have more than {ids.ORDINAL_BOUND} segments",
                        "Nothing was sent. Raise the setting, or repartition the DataFrame evenly.",
                    ) from None
                raise
        return self._sent(queue, key)

    def _rows(self, queue: QueueRecord, frame: DataFrame, text: Column, key: str, most: int, now: int) -> DataFrame:
        from pyspark.sql import functions as F

        lanes, per_segment = int(queue.attributes["Lanes"]), self._store.settings.messages_per_segment
        tasks = max(1, min(self._spark.sparkContext.defaultParallelism, 4_096))
        position = F.shiftrightunsigned(F.col("place"), TASK_SHIFT)
        row = F.col("place").bitwiseAND(F.lit((1 << TASK_SHIFT) - 1))
        ordinal = F.floor(row / F.lit(per_segment)).cast("bigint") * F.lit(tasks) + position
        size = F.octet_length("body")
        checked = F.when((size >= 1) & (size <= most), F.col("body")).otherwise(
            F.raise_error(F.lit(REFUSED)).cast("string")
        )
        # Beyond the bound names would run into those of other sends.
        name = F.when(F.col("ordinal") < ids.ORDINAL_BOUND, columns.segment_of_send(key, F.col("ordinal"))).otherwise(
            F.raise_error(F.lit(TOO_MANY_SEGMENTS)).cast("string")
        )
        values = {
            "queue": F.lit(queue.id),
            "lane": ((F.col("ordinal") + F.lit(int(key[:6], 16))) % F.lit(lanes)).cast("int"),
            "segment": name,
            "seq": row % F.lit(per_segment),
            "sent_at": F.expr(columns.instant_literal(now)),
            "available_at": F.expr(columns.instant_literal(now)),
            "body": checked,
        }
        from pyspark.sql.pandas.types import from_arrow_type

        return (
            frame.select(text.alias("body"))
            .coalesce(tasks)
            .select("body", F.monotonically_increasing_id().alias("place"))
            .withColumn("ordinal", ordinal)
            .select(*(values.get(f.name, F.lit(None).cast(from_arrow_type(f.type))).alias(f.name) for f in MESSAGES))
        )

    def _sent(self, queue: QueueRecord, key: str) -> Sent:
        stock = self._store.stocks.of(queue.id)
        names = np.array(stock.segment.to_pylist(), dtype=object)
        first, last = ids.segment(key, 0), ids.segment(key, ids.ORDINAL_BOUND - 1)
        mine = np.array([first <= name <= last for name in names], dtype=bool)
        count = int((stock.last_seq[mine] - stock.first_seq[mine] + 1).sum()) if len(names) else 0
        segments = tuple(sorted(set(names[mine].tolist()))) if len(names) else ()
        where = Where(queue.id, None, segments or ("",))
        return Sent(count, segments, self._spark.read.format("delta").load(self._path).where(where.sql()))


def _body(frame: DataFrame, body: str | None) -> Column:
    """The column of bodies: the one named, `body`, or the whole row as JSON."""
    from pyspark.sql import functions as F

    kinds = dict(frame.dtypes)
    if body is None and "body" not in kinds:
        if not kinds:
            raise InvalidParameterValue("column", "body", "The DataFrame has no columns")
        return F.to_json(F.struct("*"))
    name = body or "body"
    if name not in kinds:
        raise InvalidParameterValue(
            "column",
            name,
            f"The DataFrame has no such column; it has {', '.join(kinds)}",
            "Name another one with body=.",
        )
    if kinds[name] != "string":
        raise InvalidParameterValue(
            "column",
            name,
            f"It is {kinds[name]} and must be string",
            "Cast it, or drop the column to send rows as JSON.",
        )
    return F.col(f"`{name}`")
