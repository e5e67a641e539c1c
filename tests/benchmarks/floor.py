"""The floor: what it costs to append as many rows to a Delta table as were claimed, which nothing per message beats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from contestant import name_of
from deltalake import write_deltalake
from folders import remove
from timing import Patience, median_of, say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def floors(work: Path, spark: SparkSession, sizes: list[int], patience: Patience) -> dict[str, dict[str, Any]]:
    """By size, the time of one append of that many rows (id, receipt, deadline), through Spark and through delta-rs."""
    found: dict[str, dict[str, Any]] = {}
    for size in sizes:
        folder = work / f"floor-{size}"
        rows = spark.range(size).selectExpr("id", "'receipt' AS receipt", "current_timestamp() AS visible_at")
        by_spark = median_of(
            lambda rows=rows, folder=folder: rows.write.format("delta").mode("append").save(f"{folder}/spark"), patience
        )
        table = _rows(size)
        by_delta_rs = median_of(
            lambda table=table, folder=folder: write_deltalake(f"{folder}/delta-rs", table, mode="append"), patience
        )
        remove(folder)
        found[name_of(size)] = {"Spark": by_spark.as_json(), "delta-rs": by_delta_rs.as_json()}
        say(f"floor: appending {size:,} rows: Spark {by_spark.median:.3f} s, delta-rs {by_delta_rs.median:.3f} s")
    return found


def _rows(size: int) -> pa.Table:
    ids = pa.array(range(size), pa.int64())
    deadline = pc.cast(pa.repeat(1_700_000_000_000_000, size), pa.timestamp("us", "UTC"))
    return pa.table({"id": ids, "receipt": pa.repeat("receipt", size), "visible_at": deadline})
