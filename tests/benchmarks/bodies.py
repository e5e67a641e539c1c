"""The messages that everybody is sent: about 100 bytes each, which do not compress away."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SQL = (
    "concat('message ', lpad(cast(id as {text}), 12, '0'), ' ', md5(cast(id as {text})), "
    "md5(cast(-id as {text})), ' benchmark')"
)


def bodies(spark: SparkSession, messages: int) -> DataFrame:
    """`messages` rows: id (from 1) and body."""
    return spark.range(1, messages + 1).selectExpr("id", f"{SQL.format(text='string')} AS body")


def number_of(body: str) -> str:
    """The SQL expression that reads a message's number back from the column `body`."""
    return f"cast(substring({body}, 9, 12) as bigint)"
