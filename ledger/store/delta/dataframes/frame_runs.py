"""Conversions between rows of a DataFrame and runs of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.rewrite import numbered
from ledger.delta_log.spark_sessions import arrow_frame
from ledger.store.delta.dataframes import columns
from ledger.store.delta.model import run_algebra, run_sets
from ledger.store.delta.model.run_algebra import Runs
from ledger.store.delta.model.tables import BITS
from ledger.store.protocol import RUNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def runs_of_bits(places: DataFrame) -> pa.Table:
    """Return places (lane, segment, seq) as RUNS."""
    parts = []
    for row in bitmaps(places).to_pylist():
        first, last = run_algebra.ones(row["bitmap"])
        start = row["bucket"] * columns.BITMAP
        parts.append((row["lane"], row["segment"], first + start, last + start))
    return runs_table(parts) if parts else RUNS.empty_table()


def bitmaps(places: DataFrame, *keys: str) -> pa.Table:
    from pyspark.sql import functions as F

    bucket = F.expr(f"seq div {columns.BITMAP}").alias("bucket")
    bits = F.bitmap_construct_agg(F.bitmap_bit_position(F.expr("seq + 1"))).alias("bitmap")
    return places.groupBy(*keys, "lane", "segment", bucket).agg(bits).toArrow()


def as_sets(runs: pa.Table) -> pa.Table:
    """Return runs, in any order, as rows of runs and sets, as in `visibility`."""
    others = [name for name in runs.column_names if name not in ("segment", "first_seq", "last_seq")]
    codes, some_row = numbered([runs[name] for name in others], runs.num_rows)
    names = runs["segment"].unique()
    segment = pc.index_in(runs["segment"], names).to_numpy().astype(np.int64)
    sets = run_sets.rows_of(Runs.from_arrow(runs, segment, codes).in_order())
    table = runs.select(others).take(pa.array(some_row[sets.code]))
    table = table.append_column("segment", names.take(pa.array(sets.segment)))
    first = sets.first_seq
    return (
        table.append_column("first_seq", pa.array(first))
        .append_column("last_seq", pa.array(first + sets.lengths - 1))
        .append_column(BITS, sets.bits())
    )


def in_blocks(spark: SparkSession, runs: pa.Table, *others: str) -> DataFrame:
    """Return runs as sets, with a row for each block (`columns.BLOCKS`) that one touches.

    Columns: segment, block, first_seq, last_seq, word and bits (see `columns.is_member`), and `others`.
    """
    from pyspark.sql import functions as F

    touched = arrow_frame(spark, as_sets(runs)).selectExpr(
        "segment", "first_seq", "last_seq", BITS, *others, columns.BLOCKS
    )
    word, bits = F.expr(columns.WORD), F.expr(columns.BITS_OF_BLOCK)
    return touched.withColumns({"word": word, BITS: bits})


def runs_table(parts: Sequence[tuple[int, str, np.ndarray, np.ndarray]]) -> pa.Table:
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
