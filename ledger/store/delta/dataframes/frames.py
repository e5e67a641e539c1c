"""The DataFrame side of a store: claims and receipt handles as DataFrames.

Reads compare columns with literals, so that Spark can skip files and row groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.spark_sessions import arrow_frame
from ledger.delta_log.statements import literal
from ledger.errors import InvalidParameterValue
from ledger.rules.limits import Limits
from ledger.rules.visibility import Verb
from ledger.store.delta.by_spark import named_jobs
from ledger.store.delta.dataframes import columns
from ledger.store.delta.dataframes.bulk_send import BulkSender
from ledger.store.delta.dataframes.evaluation import require_readable
from ledger.store.delta.dataframes.handle_frames import (
    TIMEOUTS,
    HandleFrame,
    collect_runs,
    make_handle_table,
    split_into_blocks,
)
from ledger.store.delta.model.tables import MOST_ALTERNATIVES, MOST_NAMED, Where, sort_distinct
from ledger.store.protocol import GRANTED_RUNS, RUNS, Grant, QueueRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.store.delta.verbs.store import DeltaStore

#: A read names this many segments at most, in MOST_ALTERNATIVES queues. Beyond MOST_READS, one read covers all queues.
SEGMENTS_BY_NAME = MOST_NAMED - MOST_ALTERNATIVES
MOST_READS = 20
#: Spark compares each row that it reads with all ranges of a read.
MOST_RANGES = 20


def plan_reads(runs: pa.Table, homes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return SQL predicates on `messages`. Each message of the runs matches exactly one. Other messages may match, too.

    `homes` has, by queue, the segments that were sent to it.
    """
    reads: list[list[tuple[str, Sequence[str]]]] = []
    room = 0
    for queue, segments in homes.items():
        for start in range(0, len(segments), SEGMENTS_BY_NAME):
            named = segments[start : start + SEGMENTS_BY_NAME]
            if len(named) > room or len(reads[-1]) == MOST_ALTERNATIVES:
                reads.append([])
                room = SEGMENTS_BY_NAME
            reads[-1].append((queue, named))
            room -= len(named)
    if len(reads) > MOST_READS:
        return [_build_where([(queue, None) for queue in homes]).shorten().sql()]
    return [f"{_build_where(read).sql()} AND ({_ranges(_filter_runs(runs, read))})" for read in reads] or [
        Where(None, (-1,)).sql()
    ]


def _build_where(named: Sequence[tuple[str, Sequence[str] | None]]) -> Where:
    where = None
    for queue, segments in named:
        where = Where(queue, None, None if segments is None else sort_distinct(segments), also=where)
    assert where is not None
    return where


def _filter_runs(runs: pa.Table, read: Sequence[tuple[str, Sequence[str]]]) -> pa.Table:
    return runs.filter(pc.is_in(runs["segment"], pa.array([name for _, segments in read for name in segments])))


def _ranges(runs: pa.Table) -> str:
    """Return, as SQL, at most MOST_RANGES ranges of `seq` that cover disjoint runs.

    The widest gaps separate ranges. A range may cover parts of several segments with `seq` near each other.
    """
    names = runs["segment"].unique()
    segment = pc.index_in(runs["segment"], names).to_numpy()
    first, last = runs["first_seq"].to_numpy(), runs["last_seq"].to_numpy()
    order = np.lexsort((first, segment))
    segment, first, last = segment[order], first[order], last[order]
    # An infinite gap always cuts two segments apart.
    gap = np.where(segment[1:] == segment[:-1], first[1:] - last[:-1] - 1, np.iinfo(np.int64).max)
    widest = np.argsort(-gap, kind="stable")[: max(MOST_RANGES, len(names)) - 1]
    ends_of_parts = np.sort(widest[gap[widest] > 0])
    begins, ends = np.append(0, ends_of_parts + 1), np.append(ends_of_parts, len(first) - 1)
    near = np.lexsort((last[ends], first[begins]))
    parts = []
    for group in np.array_split(near, min(MOST_RANGES, len(near))):
        segments = ", ".join(literal(names[n].as_py()) for n in np.unique(segment[begins[group]]).tolist())
        lowest, highest = first[begins[group]].min(), last[ends[group]].max()
        parts.append(f"(segment IN ({segments}) AND seq BETWEEN {lowest} AND {highest})")
    return " OR ".join(parts)


#: Spark's errors about a statement or its values, by the class of their SQLSTATE.
AGAINST_SQL = re.compile(r"(\[[A-Z0-9_.]+\] .*?)\s+SQLSTATE: (?:0A|21|22|42|P0)", re.DOTALL)


class Frames:
    def __init__(self, spark: SparkSession, store: DeltaStore, locations: Mapping[str, str]) -> None:
        self._spark, self._store, self._locations = spark, store, locations
        self.send = BulkSender(spark, store, locations).send
        self.named_jobs = partial(named_jobs, spark)

    @property
    def session(self) -> SparkSession:
        return self._spark

    def messages(self, queue: QueueRecord, grant: Grant | None) -> DataFrame:
        """Return the messages of a grant as the DataFrame of `Claim.dataframe`.

        Raises LedgerDamaged if a message has no row any more.
        """
        from pyspark.sql import functions as F

        if grant is not None:
            self._store.require_messages(queue, grant, grant.runs)
        runs = GRANTED_RUNS.empty_table() if grant is None else grant.runs
        messages = self._read_stored(runs)
        runs = runs.select([*RUNS.names, "first_received_at", "receive_count"])
        held = split_into_blocks(self._spark, runs, "lane AS held_lane", "first_received_at", "receive_count")
        receipt = F.lit(grant.receipt_id if grant else None).cast("string")
        handle = columns.receipt_handle(F.lit(queue.id), F.col("held_lane"), F.col("segment"), F.col("seq"), receipt)
        return (
            messages.withColumn("block", F.expr(columns.block("seq")))
            .join(F.broadcast(held), ["segment", "block"], "inner")
            .where(columns.is_member("seq"))
            .select(
                columns.message_id(F.col("segment"), F.col("seq")).alias("message_id"),
                *(F.expr(column) for column in columns.SHOWN_COLUMNS),
                F.expr("timestamp_millis(first_received_at) AS first_received_at"),
                "receive_count",
                handle.alias("receipt_handle"),
            )
        )

    def require_readable(self, queue: QueueRecord, grant: Grant, session: SparkSession) -> None:
        def rows(strict: SparkSession) -> DataFrame:
            return Frames(strict, self._store, self._locations).messages(queue, grant)

        require_readable(session, rows, self._store.engine, f"reading the claim {grant.receipt_id}")

    def _read_stored(self, runs: pa.Table) -> DataFrame:
        """Return the rows of `messages` that the runs name, and perhaps others."""
        homes = self._store.listings.newest().homes(runs["segment"].unique().to_pylist())
        messages = self._spark.read.format("delta").load(self._locations["messages"])
        return reduce(lambda one, other: one.union(other), map(messages.where, plan_reads(runs, homes)))

    def select_messages(self, queue: QueueRecord, where: str, now: int) -> pa.Table:
        """Return, as RUNS, the messages of a queue that match an SQL predicate on the view `messages`.

        Raises InvalidParameterValue if the text is no such predicate, or fails on a message.
        """
        from ledger.store.delta.views.statements import view_statement

        tables = {table: f"delta.`{path}`" for table, path in self._locations.items()}
        # From the id, but not the name, Spark infers which partitions of other tables it need not read.
        tables["queues"] = f"(SELECT * FROM {tables['queues']} WHERE queue = '{queue.id}')"
        statement = view_statement("messages", tables, columns.instant_literal(now))

        def rows(session: SparkSession) -> DataFrame:
            return session.sql(statement)

        # `rows` lacks the predicate, as only the user's session has the user's functions.
        require_readable(self._spark, rows, self._store.engine, "redrive")
        rows_of_queue = rows(self._spark)
        with _predicate(where, rows_of_queue.columns):
            matching = rows_of_queue.where(where)
            return collect_runs(matching.select("lane", "segment", "seq"))

    def of(self, table: pa.Table) -> DataFrame:
        """Return a user's Arrow table as a DataFrame. A column of the type null becomes a column of texts."""
        empty = [name for name in table.column_names if pa.types.is_null(table.schema.field(name).type)]
        typed = {name: table[name].cast(pa.string()) if name in empty else table[name] for name in table.column_names}
        try:
            return arrow_frame(self._spark, pa.table(typed))
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise self._find_refused_column(typed) or error from None

    def _find_refused_column(self, columns: Mapping[str, pa.ChunkedArray]) -> InvalidParameterValue | None:
        for name, column in columns.items():
            try:
                arrow_frame(self._spark, pa.table({name: column}))
            except (TypeError, ValueError, pa.ArrowException):
                bound = f"It is {column.type}, with values that Spark cannot take"
                fix = "Cast it to string, or to a type that Spark has, such as int64, double or decimal128."
                return InvalidParameterValue("column", name, bound, fix)
        return None

    def evaluate_wishes(
        self, queue: QueueRecord, parts: Sequence[tuple[Verb, Any, Any]], limits: Limits
    ) -> HandleFrame:
        """Evaluate receipt handles once, and return them with their actions.

        Each of the `parts` has a verb, the handles (a DataFrame, an Arrow table or a list), and timeouts (one, or a
        column).
        """
        frames = [self._read_wishes(verb, handles, timeout) for verb, handles, timeout in parts]
        return HandleFrame.evaluated(queue, reduce(lambda left, right: left.unionByName(right), frames), limits)

    def _read_wishes(self, verb: Verb, handles: Any, timeout: Any) -> DataFrame:
        from pyspark.sql import functions as F

        if isinstance(handles, list):
            handles, timeout = make_handle_table(handles, timeout), TIMEOUTS
        frame = self.of(handles) if isinstance(handles, pa.Table) else handles
        require_column(frame, "receipt_handle", "string")
        if isinstance(timeout, str):
            require_column(frame, timeout, "tinyint", "smallint", "int", "bigint")
            seconds = F.col(columns.quote_column(timeout)).cast("bigint")
        else:
            seconds = F.lit(timeout).cast("bigint")
        action = "delete" if verb is Verb.DELETE else "change"
        return frame.select("receipt_handle", F.lit(action).alias("verb"), seconds.alias("timeout"))


@contextmanager
def _predicate(where: str, names: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Errors of the parser, the analysis and a row have this form.
        match = AGAINST_SQL.search(str(error))
        if match is None:
            raise
        bound = " ".join(match[1].split()).rstrip(".")[:400]
        fix = f"The predicate is SQL, on the columns of the view messages: {', '.join(names)}. Nothing was moved."
        raise InvalidParameterValue("where", where, bound, fix) from error


def require_column(frame: DataFrame, name: str, *types: str) -> None:
    """Raise InvalidParameterValue if the DataFrame lacks the column, or has it with another type."""
    kinds = dict(frame.dtypes)
    if name not in kinds:
        raise InvalidParameterValue(
            "column",
            name,
            f"The DataFrame has no such column; it has {', '.join(kinds)}",
            "Rename a column, or name another one.",
        )
    if kinds[name] not in types:
        raise InvalidParameterValue("column", name, f"It is {kinds[name]} and must be {' or '.join(types)}", "Cast it.")
