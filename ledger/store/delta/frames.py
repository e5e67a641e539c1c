"""What moves rows: a claim's messages as a DataFrame, and DataFrames of receipt handles turned into actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ledger.errors import InvalidParameterValue
from ledger.rules.limits import Limits
from ledger.rules.visibility import ERRORS, Outcome, Verb
from ledger.store import GRANTED_RUNS, RUNS, Action, Grant, QueueRecord
from ledger.store.delta import axis, columns
from ledger.store.delta.bulk_send import BulkSender, Sent  # noqa: F401 - part of this module's answers
from ledger.store.delta.engine import Where, tuple_of
from ledger.store.delta.spark_engine import arrow_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.store.delta.store import DeltaStore

#: Up to so many segments are named in a query; beyond that their lanes are.
SEGMENTS_BY_NAME = 1_000
MESSAGE_COLUMNS = (
    "message_id",
    "body",
    "message_attributes",
    "message_group_id",
    "message_deduplication_id",
    "sequence_number",
    "sent_at",
    "first_received_at",
    "receive_count",
    "receipt_handle",
)


class Frames:
    """The DataFrame side of a store, on the user's own session."""

    def __init__(self, spark: SparkSession, store: DeltaStore, locations: Mapping[str, str]) -> None:
        self._spark, self._store, self._locations = spark, store, locations
        self.send = BulkSender(spark, store, locations).send

    def messages(self, queue: QueueRecord, grant: Grant | None) -> DataFrame:
        """The messages of a grant with MESSAGE_COLUMNS; only their segments are read."""
        from pyspark.sql import functions as F

        runs = GRANTED_RUNS.empty_table() if grant is None else grant.runs
        messages = self._spark.read.format("delta").load(self._locations["messages"]).where(self._homes(runs).sql())
        held = in_blocks(arrow_frame(self._spark, runs), "lane AS held_lane", "first_received_at", "receive_count")
        receipt = F.lit(grant.receipt_id if grant else None).cast("string")
        handle = columns.receipt_handle(F.lit(queue.id), F.col("held_lane"), F.col("segment"), F.col("seq"), receipt)
        return (
            messages.withColumn("block", F.expr(columns.block("seq")))
            .join(F.broadcast(held), ["segment", "block"], "inner")
            .where("seq BETWEEN first_seq AND last_seq")
            .withColumn("message_id", columns.message_id(F.col("segment"), F.col("seq")))
            .withColumn("first_received_at", F.expr("timestamp_millis(first_received_at)"))
            .withColumn("receipt_handle", handle)
            .select(*MESSAGE_COLUMNS)
        )

    def _homes(self, runs: pa.Table) -> Where:
        """Where the messages of runs lie: by segment, or when those are too many by the queues they were sent to."""
        where = None
        for queue, segments in self._store.stocks.newest().homes(runs["segment"].unique().to_pylist()).items():
            named = tuple_of(segments) if len(segments) <= SEGMENTS_BY_NAME else None
            where = Where(queue, None, named, also=where)
        return (where or Where(None, (-1,))).bounded()

    def chosen(self, queue: QueueRecord, where: str, now: int) -> pa.Table:
        """The messages of a queue that a SQL predicate on the view `messages` names, as RUNS."""
        from pyspark.sql import functions as F

        from ledger.store.delta.views import view_statement

        tables = {table: f"delta.`{path}`" for table, path in self._locations.items()}
        rows = self._spark.sql(view_statement("messages", tables, columns.instant_literal(now)))
        named = rows.where(F.col("queue") == queue.name).where(where)
        return runs_of_bits(named.select("lane", "segment", "seq"))

    def of(self, table: pa.Table) -> DataFrame:
        """An Arrow table as a DataFrame."""
        return arrow_frame(self._spark, table)

    def wishes(self, queue: QueueRecord, parts: Sequence[tuple[Verb, Any, Any]], limits: Limits) -> HandleFrame:
        """What receipt handles ask for: (verb, DataFrame, Arrow table or list of them, timeout or column of timeouts)
        each. They are evaluated here, once."""
        from functools import reduce

        frames = [self._asked(verb, handles, timeout) for verb, handles, timeout in parts]
        return HandleFrame.evaluated(queue, reduce(lambda left, right: left.unionByName(right), frames), limits)

    def _asked(self, verb: Verb, handles: Any, timeout: Any) -> DataFrame:
        from pyspark.sql import functions as F

        if isinstance(handles, list):
            handles = pa.table({"receipt_handle": pa.array(handles, pa.string())})
        frame = self.of(handles) if isinstance(handles, pa.Table) else handles
        require_column(frame, "receipt_handle", "string")
        if isinstance(timeout, str):
            require_column(frame, timeout, "tinyint", "smallint", "int", "bigint")
            seconds = F.col(f"`{timeout}`").cast("bigint")
        else:
            seconds = F.lit(timeout).cast("bigint")
        action = "delete" if verb is Verb.DELETE else "change"
        return frame.select("receipt_handle", F.lit(action).alias("verb"), seconds.alias("timeout"))


@dataclass(frozen=True)
class HandleFrame:
    """Distinct receipt handles, what to do through each, and after the store acted: a row with the outcome for each.

    `read`: the handles taken apart, as they were when they were looked at; `actions`: the same as runs.
    """

    read: DataFrame
    actions: list[Action]

    @classmethod
    def evaluated(cls, queue: QueueRecord, asked: DataFrame, limits: Limits) -> HandleFrame:
        """Looks at the handles once: a frame that changes (drawn by chance, or joined with what is in flight) is asked
        no second time for the outcomes. A checkpoint, and not Spark's cache: that would serve an equal plan's rows of
        before, and take from users what they cached themselves."""
        read = _read(queue, asked, limits).localCheckpoint()
        return cls(read.distinct(), cls._actions(read))

    @staticmethod
    def _actions(read: DataFrame) -> list[Action]:
        """The wishes as runs. The driver gets a bit per message, whatever the number of handles."""
        bitmaps = _bitmaps(read.where("valid"), "verb", "timeout", "receipt_id")
        runs: dict[tuple[Verb, str, int], list[tuple[int, str, np.ndarray, np.ndarray]]] = {}
        for row in bitmaps.to_pylist():
            verb = Verb.DELETE if row["verb"] == "delete" else Verb.CHANGE
            first, last = axis.ones(row["bitmap"])
            start = row["bucket"] * columns.BITMAP
            runs.setdefault((verb, row["receipt_id"], row["timeout"]), []).append(
                (row["lane"], row["segment"], first + start, last + start)
            )
        return [Action(verb, receipt, _table(parts), timeout) for (verb, receipt, timeout), parts in runs.items()]

    def outcomes(self, answers: Sequence[pa.Table]) -> DataFrame:
        """A row (receipt_handle, action, outcome, error_code) for every distinct handle and action."""
        from pyspark.sql import functions as F

        spark = self.read.sparkSession
        parts = [
            answer.append_column("verb", pa.array(["delete" if action.verb is Verb.DELETE else "change"] * len(answer)))
            .append_column("timeout", pa.array([action.timeout] * len(answer), pa.int64()))
            .append_column("receipt_id", pa.array([action.receipt_id] * len(answer)))
            for action, answer in zip(self.actions, answers)
        ]
        known = pa.concat_tables(parts) if parts else _no_outcomes()
        found = in_blocks(arrow_frame(spark, known), "outcome", "verb", "timeout", "receipt_id").alias("found")
        read = self.read.withColumn("block", F.expr(columns.block("seq"))).alias("read")
        same = [F.col(f"read.{c}").eqNullSafe(F.col(f"found.{c}")) for c in ("verb", "timeout")]
        same += [F.col(f"read.{c}") == F.col(f"found.{c}") for c in ("receipt_id", "segment", "block")]
        inside = F.col("read.seq").between(F.col("found.first_seq"), F.col("found.last_seq"))
        joined = read.join(F.broadcast(found), [*same, inside], "left")
        outcome = F.coalesce(
            F.when(F.col("read.refused"), F.lit(Outcome.BEYOND_CEILING.value)),
            F.col("found.outcome"),
            F.lit(Outcome.INVALID.value),
        )
        action = F.expr(
            "CASE WHEN read.verb = 'delete' THEN 'delete' WHEN read.timeout = 0 THEN 'release' ELSE 'extend' END"
        )
        error = F.lit(None).cast("string")
        for (verb, failed), kind in ERRORS.items():
            name = "delete" if verb is Verb.DELETE else "change"
            error = F.when((F.col("read.verb") == name) & (outcome == failed.value), kind.code).otherwise(error)
        return joined.select(
            F.col("read.receipt_handle").alias("receipt_handle"),
            action.alias("action"),
            outcome.alias("outcome"),
            error.alias("error_code"),
        )


def _read(queue: QueueRecord, asked: DataFrame, limits: Limits) -> DataFrame:
    """Handles taken apart. `valid`: to be acted on; `refused`: its timeout is null or out of range."""
    from pyspark.sql import functions as F

    most = limits.maximum_visibility_timeout
    bad_timeout = "timeout IS NULL OR timeout < 0" + ("" if most is None else f" OR timeout > {most}")
    right = columns.handle_is_valid(F.col("receipt_handle"), queue.id)
    part = {
        name: F.when(F.col("right"), column) for name, column in columns.handle_parts(F.col("receipt_handle")).items()
    }
    return (
        asked.withColumn("right", right)
        .withColumns(part)
        .withColumn("refused", F.expr(f"right AND ({bad_timeout})"))
        .withColumn("valid", F.expr("right AND NOT refused"))
    )


def runs_of_bits(places: DataFrame) -> pa.Table:
    """Places (lane, segment, seq) as RUNS. The driver gets a bit per message."""
    parts = []
    for row in _bitmaps(places).to_pylist():
        first, last = axis.ones(row["bitmap"])
        start = row["bucket"] * columns.BITMAP
        parts.append((row["lane"], row["segment"], first + start, last + start))
    return _table(parts) if parts else RUNS.empty_table()


def _bitmaps(places: DataFrame, *keys: str) -> pa.Table:
    from pyspark.sql import functions as F

    bucket = F.expr(f"seq div {columns.BITMAP}").alias("bucket")
    bits = F.bitmap_construct_agg(F.bitmap_bit_position(F.expr("seq + 1"))).alias("bitmap")
    return places.groupBy(*keys, "lane", "segment", bucket).agg(bits).toArrow()


def in_blocks(runs: DataFrame, *others: str) -> DataFrame:
    """Runs spread over the blocks that they touch: segment, block, first_seq, last_seq and the other columns."""
    first, last = columns.block("first_seq"), columns.block("last_seq")
    return runs.selectExpr("segment", "first_seq", "last_seq", *others, f"explode(sequence({first}, {last})) AS block")


def require_column(frame: DataFrame, name: str, *types: str) -> None:
    """Raises InvalidParameterValue when the DataFrame has no such column, or one of another type."""
    kinds = dict(frame.dtypes)
    if name not in kinds:
        raise InvalidParameterValue(
            "column",
            name,
            f"The DataFrame has no such column; it has {', '.join(kinds)}",
            "Rename or name another one.",
        )
    if kinds[name] not in types:
        raise InvalidParameterValue("column", name, f"It is {kinds[name]} and must be {' or '.join(types)}", "Cast it.")


def _table(parts: Sequence[tuple[int, str, np.ndarray, np.ndarray]]) -> pa.Table:
    lengths = [len(first) for _, _, first, _ in parts]
    return pa.table(
        [
            pa.array(np.repeat([lane for lane, *_ in parts], lengths), pa.int32()),
            pa.array(np.repeat(np.array([name for _, name, *_ in parts], dtype=object), lengths), pa.string()),
            pa.array(np.concatenate([first for *_, first, _ in parts])),
            pa.array(np.concatenate([last for *_, last in parts])),
        ],
        schema=RUNS,
    )


def _no_outcomes() -> pa.Table:
    names = [("outcome", pa.string()), ("verb", pa.string()), ("timeout", pa.int64()), ("receipt_id", pa.string())]
    return pa.schema([*RUNS, *names]).empty_table()
