"""Conversions between DataFrames and runs of messages, actions on receipt handles, and outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.rewrite import number_rows
from ledger.delta_log.spark_sessions import arrow_frame
from ledger.errors import LONGEST_TEXT, InvalidParameterValue
from ledger.rules.limits import Limits, check_visibility_timeout
from ledger.rules.outcomes import ERRORS
from ledger.rules.outcomes import error as error_of
from ledger.rules.visibility import Outcome, Verb
from ledger.store.delta.dataframes import columns
from ledger.store.delta.model import message_runs
from ledger.store.delta.model.message_runs import Runs
from ledger.store.delta.model.tables import BITS
from ledger.store.protocol import RUNS, Action, QueueRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def collect_runs(places: DataFrame) -> pa.Table:
    """Return places (lane, segment, seq) as RUNS."""
    parts = []
    for row in collect_bitmaps(places).to_pylist():
        first, last = message_runs.ones(row["bitmap"])
        start = row["bucket"] * columns.BITMAP
        parts.append((row["lane"], row["segment"], first + start, last + start))
    return make_runs_table(parts) if parts else RUNS.empty_table()


def collect_bitmaps(places: DataFrame, *keys: str) -> pa.Table:
    from pyspark.sql import functions as F

    bucket = F.expr(f"seq div {columns.BITMAP}").alias("bucket")
    bits = F.bitmap_construct_agg(F.bitmap_bit_position(F.expr("seq + 1"))).alias("bitmap")
    return places.groupBy(*keys, "lane", "segment", bucket).agg(bits).toArrow()


def convert_to_sets(runs: pa.Table) -> pa.Table:
    """Return runs, in any order, as rows of runs and sets, as in `visibility`."""
    others = [name for name in runs.column_names if name not in ("segment", "first_seq", "last_seq")]
    codes, some_row = number_rows([runs[name] for name in others], runs.num_rows)
    names = runs["segment"].unique()
    segment = pc.index_in(runs["segment"], names).to_numpy().astype(np.int64)
    sets = message_runs.make_set_rows(Runs.from_arrow(runs, segment, codes).in_order())
    table = runs.select(others).take(pa.array(some_row[sets.code]))
    table = table.append_column("segment", names.take(pa.array(sets.segment)))
    first = sets.first_seq
    return (
        table.append_column("first_seq", pa.array(first))
        .append_column("last_seq", pa.array(first + sets.lengths - 1))
        .append_column(BITS, sets.bits())
    )


def split_into_blocks(spark: SparkSession, runs: pa.Table, *others: str) -> DataFrame:
    """Return runs as sets, with a row for each block (`columns.BLOCKS`) that a set touches.

    Columns: segment, block, first_seq, last_seq, word and bits (see `columns.is_member`), and `others`.
    """
    from pyspark.sql import functions as F

    touched = arrow_frame(spark, convert_to_sets(runs)).selectExpr(
        "segment", "first_seq", "last_seq", BITS, *others, columns.BLOCKS
    )
    word, bits = F.expr(columns.WORD), F.expr(columns.BITS_OF_BLOCK)
    return touched.withColumns({"word": word, BITS: bits})


def make_runs_table(parts: Sequence[tuple[int, str, np.ndarray, np.ndarray]]) -> pa.Table:
    """Return parts (lane, segment, first ordinals, last ordinals) as RUNS."""
    part = pa.array(np.repeat(np.arange(len(parts)), [len(first) for _, _, first, _ in parts]))
    return pa.table(
        [
            pa.array([lane for lane, *_ in parts], pa.int32()).take(part),
            pa.array([name for _, name, *_ in parts], pa.string()).take(part),
            pa.array(np.concatenate([first for *_, first, _ in parts])),
            pa.array(np.concatenate([last for *_, last in parts])),
        ],
        schema=RUNS,
    )


#: Placeholders in the sentences of the rules.
HANDLE, TIMEOUT = "{receipt_handle}", "{timeout}"
TIMEOUTS = "visibility_timeout"


@dataclass(frozen=True)
class HandleFrame:
    """Distinct receipt handles with their actions, from one evaluation.

    `read` has a row for each handle and action. `actions` has the valid handles as runs.
    """

    read: DataFrame
    actions: list[Action]
    limits: Limits

    @classmethod
    def evaluated(cls, queue: QueueRecord, wishes: DataFrame, limits: Limits) -> HandleFrame:
        """Evaluate the handles once, into a checkpoint (see `evaluated_once`).

        Another evaluation may give other handles.
        """
        read = _read(queue, wishes, limits).localCheckpoint()
        return cls(read.distinct(), cls._actions(read), limits)

    @staticmethod
    def _actions(read: DataFrame) -> list[Action]:
        rows = collect_bitmaps(read.where("valid"), "verb", "timeout", "receipt_id").to_pylist()
        runs: dict[tuple[Verb, str, int], list[tuple[int, str, np.ndarray, np.ndarray]]] = {}
        for row in rows:
            verb = Verb.DELETE if row["verb"] == "delete" else Verb.CHANGE
            first, last = message_runs.ones(row["bitmap"])
            start = row["bucket"] * columns.BITMAP
            runs.setdefault((verb, row["receipt_id"], row["timeout"]), []).append(
                (row["lane"], row["segment"], first + start, last + start)
            )
        return [
            Action(verb, receipt, make_runs_table(parts), timeout) for (verb, receipt, timeout), parts in runs.items()
        ]

    def outcomes(self, answers: Sequence[pa.Table]) -> DataFrame:
        """Return a row for every handle and action: receipt_handle, action, outcome, error_code, error_message."""
        from pyspark.sql import functions as F

        spark = self.read.sparkSession
        parts = [
            answer.append_column("verb", pa.array(["delete" if action.verb is Verb.DELETE else "change"] * len(answer)))
            .append_column("timeout", pa.array([action.timeout] * len(answer), pa.int64()))
            .append_column("receipt_id", pa.array([action.receipt_id] * len(answer)))
            for action, answer in zip(self.actions, answers)
        ]
        answered = pa.concat_tables(parts) if parts else _no_outcomes()
        answered_blocks = split_into_blocks(spark, answered, "outcome", "verb", "timeout", "receipt_id").alias("found")
        read = self.read.withColumn("block", F.expr(columns.block("seq"))).alias("read")
        conditions = [F.col(f"read.{c}").eqNullSafe(F.col(f"found.{c}")) for c in ("verb", "timeout")]
        conditions += [F.col(f"read.{c}") == F.col(f"found.{c}") for c in ("receipt_id", "segment", "block")]
        inside = F.expr(columns.is_member("read.seq", "found."))
        joined = read.join(F.broadcast(answered_blocks), [*conditions, inside], "left")
        outcome = F.coalesce(
            F.when(F.col("read.refused"), F.lit(Outcome.BEYOND_CEILING.value)),
            F.col("found.outcome"),
            F.lit(Outcome.INVALID.value),
        )
        action = F.expr(
            "CASE WHEN read.verb = 'delete' THEN 'delete' WHEN read.timeout = 0 THEN 'release' ELSE 'extend' END"
        )
        code = message = F.lit(None).cast("string")
        for verb, failed in ERRORS:
            failure = error_of(verb, failed, HANDLE, TIMEOUT, self.limits.maximum_visibility_timeout)
            if failure is not None:
                name = "delete" if verb is Verb.DELETE else "change"
                is_this = (F.col("read.verb") == name) & (outcome == failed.value)
                code = F.when(is_this, failure.code).otherwise(code)
                message = F.when(is_this, failure.message).otherwise(message)
        message = F.when(F.col("read.refused"), _describe_bounds(self.limits)).otherwise(message)
        # The handle comes last: users write its text, which may contain {timeout}.
        for placeholder, value in (
            (TIMEOUT, F.col("read.timeout").cast("string")),
            (HANDLE, F.col("read.receipt_handle")),
        ):
            # As in `errors.show_value`.
            text = F.coalesce(value, F.lit("None"))
            cut = F.concat(F.substring(text, 1, LONGEST_TEXT - 3), F.lit("..."))
            text = F.when(F.length(text) > LONGEST_TEXT, cut).otherwise(text)
            message = F.replace(message, F.lit(placeholder), text)
        return joined.select(
            F.col("read.receipt_handle").alias("receipt_handle"),
            action.alias("action"),
            outcome.alias("outcome"),
            code.alias("error_code"),
            message.alias("error_message"),
        )


def _read(queue: QueueRecord, wishes: DataFrame, limits: Limits) -> DataFrame:
    """Return handles with their parts. A `valid` handle is acted on. A `refused` handle has a timeout that is null or
    out of range."""
    from pyspark.sql import functions as F

    maximum = limits.maximum_visibility_timeout
    bad_timeout = "timeout IS NULL OR timeout < 0" + ("" if maximum is None else f" OR timeout > {maximum}")
    is_handle = columns.is_valid_handle(F.col("receipt_handle"), F.col("parts"), queue.id)
    parts = {name: F.when(F.col("right"), column) for name, column in columns.handle_parts(F.col("parts")).items()}
    return (
        wishes.withColumn("parts", columns.split_handle(F.col("receipt_handle")))
        .withColumn("right", is_handle)
        .withColumns(parts)
        .drop("parts")
        .withColumn("refused", F.expr(f"right AND ({bad_timeout})"))
        .withColumn("valid", F.expr("right AND NOT refused"))
    )


def _describe_bounds(limits: Limits) -> str:
    try:
        check_visibility_timeout(TIMEOUT, limits)
    except InvalidParameterValue as error:
        return error.message
    raise AssertionError("a text is no timeout")


def make_handle_table(handles: list[str | None], timeout: Any) -> pa.Table:
    """Return handles with timeouts as a table. A timeout that is no whole number, or beyond 2**62, becomes null."""
    timeouts = timeout if isinstance(timeout, Sequence) else [timeout] * len(handles)
    seconds = [value if type(value) is int and abs(value) < 1 << 62 else None for value in timeouts]
    arrays = {"receipt_handle": pa.array(handles, pa.string()), TIMEOUTS: pa.array(seconds, pa.int64())}
    return pa.table(arrays)


def _no_outcomes() -> pa.Table:
    names = [("outcome", pa.string()), ("verb", pa.string()), ("timeout", pa.int64()), ("receipt_id", pa.string())]
    return pa.schema([*RUNS, *names]).empty_table()
