"""Runs of messages and rows of a DataFrame: rows as runs, by a bit a message, and runs to join with rows, by blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ledger.store import RUNS
from ledger.store.delta.dataframes import columns
from ledger.store.delta.model import run_algebra

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def runs_of_bits(places: DataFrame) -> pa.Table:
    """Places (lane, segment, seq) as RUNS. The driver gets a bit per message."""
    parts = []
    for row in bitmaps(places).to_pylist():
        first, last = run_algebra.ones(row["bitmap"])
        start = row["bucket"] * columns.BITMAP
        parts.append((row["lane"], row["segment"], first + start, last + start))
    return runs_table(parts) if parts else RUNS.empty_table()


def bitmaps(places: DataFrame, *keys: str) -> pa.Table:
    """A row for each bucket of each lane, segment and combination of `keys`, with the places in it as bits."""
    from pyspark.sql import functions as F

    bucket = F.expr(f"seq div {columns.BITMAP}").alias("bucket")
    bits = F.bitmap_construct_agg(F.bitmap_bit_position(F.expr("seq + 1"))).alias("bitmap")
    return places.groupBy(*keys, "lane", "segment", bucket).agg(bits).toArrow()


def in_blocks(runs: DataFrame, *others: str) -> DataFrame:
    """Runs spread over the blocks that they touch: segment, block, first_seq, last_seq and the other columns."""
    first, last = columns.block("first_seq"), columns.block("last_seq")
    return runs.selectExpr("segment", "first_seq", "last_seq", *others, f"explode(sequence({first}, {last})) AS block")


def runs_table(parts: Sequence[tuple[int, str, np.ndarray, np.ndarray]]) -> pa.Table:
    """(lane, segment, first ordinals, last ordinals) as RUNS."""
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
