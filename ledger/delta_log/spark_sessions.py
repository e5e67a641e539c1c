"""What a user's session is: where its JVM is, where its executors are, how many tasks it has at once."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ledger.errors import InvalidParameterValue, UnsafeStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The engine's sessions; the user's keeps its own settings.
EVERY_TRANSACTION = {
    # A deadline means the same moment to every reader, and Delta need not rebuild a table's state at each commit.
    "spark.sql.session.timeZone": "UTC",
    # A verb decides on all rows, or fails.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # VACUUM would start as many tasks to list a handful of folders: 10,000 by default.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}
#: Beside them, for the usual transaction: a few rows.
SMALL_TRANSACTIONS = {
    # One task to read a table's state, one for a shuffle: measured 4.2 s to 1.4 s a MERGE.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    # Compiling and adapting a plan takes longer than running it over a few rows: 1.4 s to 0.9 s.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
#: No more tasks than these write a send: each begins segments of its own.
MOST_TASKS = 4_096


def has_jvm(spark: SparkSession) -> bool:
    """Whether this process has the JVM of a session; that of Spark Connect is somewhere else."""
    from pyspark.sql import SparkSession

    return isinstance(spark, SparkSession)


def require_jvm(spark: SparkSession) -> None:
    """Raises InvalidParameterValue for a session through which nothing can be committed."""
    if not has_jvm(spark):
        raise InvalidParameterValue(
            "spark",
            "a session of Spark Connect",
            "Spark commits through a JVM of this process's own, which it has none of",
            'Where delta-rs commits, leave out engine="spark"; else take a session that spark-submit started.',
        )


def parallelism(spark: SparkSession) -> int:
    """How many tasks a session runs at once, which Spark Connect only shows by how it parts what is made of nothing."""
    if has_jvm(spark):
        return min(max(1, int(spark.sparkContext.defaultParallelism)), MOST_TASKS)
    from pyspark.sql import functions as F

    return spark.range(MOST_TASKS).select(F.spark_partition_id()).distinct().count()


def require_executors_here(root: str, spark: SparkSession) -> None:
    """Raises UnsafeStorage for a path of this machine when the session has executors on others: what they write there
    is not here. Of those that are not started yet nobody knows."""
    if not has_jvm(spark) or str(spark.sparkContext.master).startswith("local"):
        return
    known = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    elsewhere = elsewhere_of({executor.host() for executor in known})
    if elsewhere:
        raise UnsafeStorage(
            f"{root} is a path of this machine, and the session has executors on {', '.join(elsewhere)}, which would "
            "write to disks of their own. Take a place that all of them see (s3://, abfss://, gs://, hdfs://). If it "
            "is a mount that all of them share, file locks need not work there between machines: say that only one "
            "driver ever writes, Settings(single_driver=True)"
        )


def elsewhere_of(hosts: Iterable[str]) -> list[str]:
    """Those of some hosts that are not this machine: whose address nothing here can listen at."""
    return sorted(host for host in hosts if not _is_here(host))


def _is_here(host: str) -> bool:
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as one:
                one.bind(address)
                return True
    except OSError:
        pass
    return False
