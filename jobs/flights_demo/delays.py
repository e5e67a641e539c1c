"""The work of jobs/flights.py: turns a claim's messages into delays.

`process` runs as the function of `jobs/work.py`, with `--reason reason`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.flights_demo.data import ON_TIME_MINUTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHT = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT, "
    "arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, "
    "distance INT, "
    "hour INT, minute INT, time_hour STRING"
)
REASON = """CASE
    WHEN carrier IS NULL THEN 'the message is no flight'
    WHEN dep_time IS NULL THEN 'cancelled: it never departed'
    WHEN arr_time IS NULL THEN 'departed, but no arrival is recorded'
    ELSE 'landed elsewhere or late beyond record: no arrival delay'
END"""


def process(messages: DataFrame) -> DataFrame:
    """Return a row for each flight, with its delays. If a flight has no arrival delay, its row says the reason."""
    from pyspark.sql import functions as F

    flights = messages.select("message_id", F.from_json("body", FLIGHT).alias("flight")).select(
        "message_id", "flight.*"
    )
    return flights.select(
        "message_id",
        "time_hour",
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
        "distance",
        "dep_delay",
        "arr_delay",
        (F.col("arr_delay") < ON_TIME_MINUTES).alias("on_time"),
        (F.col("dep_delay") - F.col("arr_delay")).alias("minutes_made_up"),
        F.round(F.col("distance") / F.col("air_time") * 60).cast("int").alias("miles_per_hour"),
        F.when(F.col("arr_delay").isNull(), F.expr(REASON)).alias("reason"),
    )


def summarise(spark: SparkSession, delays: str, summary: str) -> None:
    """Write figures of delays by carrier and route, from the rows of all workers."""
    from pyspark.sql import functions as F

    rows = spark.read.format("delta").load(delays)
    rows.groupBy("carrier", "origin", "dest").agg(
        F.count("*").alias("flights"),
        F.round(F.avg("arr_delay"), 2).alias("mean_arrival_delay"),
        F.max("arr_delay").alias("max_arrival_delay"),
        F.round(F.avg(F.col("on_time").cast("int")), 4).alias("on_time_share"),
    ).orderBy("carrier", "origin", "dest").coalesce(1).write.format("delta").save(summary)
