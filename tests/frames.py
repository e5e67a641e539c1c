"""DataFrames compared with chispa: columns, types and rows, in whatever order the rows come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chispa import assert_df_equality

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def assert_rows(frame: DataFrame, schema: str, rows: Sequence[Sequence[Any]]) -> None:
    """Hold a DataFrame to these rows of these columns (`a bigint, b string`)."""
    expected = frame.sparkSession.createDataFrame([tuple(row) for row in rows], schema)
    assert_df_equality(frame, expected, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)
