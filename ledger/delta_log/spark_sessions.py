"""A user's Spark session: its checks, the settings of the ledger's sessions, frames and tables, S3 options."""

from __future__ import annotations

import logging
import re
import secrets
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import deltalake
import pyarrow as pa

from ledger.delta_log.protocol import TableSpec
from ledger.delta_log.statements import literal
from ledger.errors import InvalidParameterValue, UnsafeStorage, UnsupportedVersion
from ledger.rules.location import FILE
from ledger.rules.text import parse_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IDEMPOTENT_WRITES = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")
#: Settings of the ledger's own sessions.
EVERY_TRANSACTION = {
    # In UTC, a deadline is the same moment to every reader, and Delta need not rebuild a table's state at each commit.
    "spark.sql.session.timeZone": "UTC",
    # A read must return all rows, or fail.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # By default VACUUM would start up to 10,000 tasks to list a few folders.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}
SMALL_TRANSACTIONS = {
    # One task to read a table's state, one for a shuffle: a MERGE takes 1.4 s instead of 4.2 s (measured).
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    # Compiling a plan takes longer than running it over a few rows: 0.9 s instead of 1.4 s (measured).
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
#: The most tasks of a bulk send: each begins segments of its own.
MOST_TASKS = 4_096


def has_jvm(spark: SparkSession) -> bool:
    """Return False for Spark Connect."""
    from pyspark.sql import SparkSession

    return isinstance(spark, SparkSession)


def require_jvm(spark: SparkSession) -> None:
    if not has_jvm(spark):
        raise InvalidParameterValue(
            "spark",
            "a session of Spark Connect",
            "Spark commits only through a JVM that this process can call",
            'Where delta-rs commits, leave out engine="spark"; else take a session that spark-submit started.',
        )


def parallelism(spark: SparkSession) -> int:
    if has_jvm(spark):
        return min(max(1, int(spark.sparkContext.defaultParallelism)), MOST_TASKS)
    from pyspark.sql import functions as F

    return spark.range(MOST_TASKS).select(F.spark_partition_id()).distinct().count()


def require_executors_here(root: str, spark: SparkSession) -> None:
    """Raise UnsafeStorage for a local path if executors of the session run on other machines, which have other disks.

    Executors that have not started yet are not checked.
    """
    if not has_jvm(spark) or str(spark.sparkContext.master).startswith("local"):
        return
    executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    elsewhere = find_other_hosts({executor.host() for executor in executors})
    if elsewhere:
        raise UnsafeStorage(
            f"{root} is a path of this machine, and the session has executors on {', '.join(elsewhere)}, which would "
            "write to disks of their own. Take a place that all of them see (s3://, abfss://, gs://, hdfs://). If it "
            "is a mount that all of them share, file locks may fail there between machines: say that only one driver "
            "ever writes, Settings(single_driver=True)"
        )


def find_other_hosts(hosts: Iterable[str]) -> list[str]:
    """Return the hosts that are not this machine: this process can bind to none of their addresses."""
    return sorted(host for host in hosts if not _is_here(host))


def _is_here(host: str) -> bool:
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as opened:
                opened.bind(address)
                return True
    except OSError:
        pass
    return False


def arrow_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return a DataFrame of an Arrow table. PySpark 4.2 loses rows after an empty chunk, so chunks are combined."""
    return spark.createDataFrame(rows.combine_chunks())


@contextmanager
def temporary_view(spark: SparkSession, rows: pa.Table) -> Iterator[str]:
    name = f"ledger_edits_{secrets.token_hex(4)}"
    arrow_frame(spark, rows).createOrReplaceTempView(name)
    try:
        yield name
    finally:
        spark.catalog.dropTempView(name)


def jvm_of(spark: SparkSession) -> Any:
    return spark._jvm


def create_table(spark: SparkSession, name: str, spec: TableSpec, scheme: str = FILE) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    layout = spec.layout(scheme)
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in from_arrow_schema(spec.schema))
    partitions = f"PARTITIONED BY ({', '.join(spec.partitions)})" if spec.partitions else ""
    properties = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in layout.properties.items())
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING delta {partitions} "
        f"COMMENT {literal(layout.description or '')} TBLPROPERTIES ({properties})"
    )


#: By package, the first version that the ledger was run with, and the first later version that it was not. Before
#: 1.6.6 delta-rs fails on upkeep's deletes and on the views.
KNOWN = {"deltalake": ((1, 6, 6), (1, 7)), "pyspark": ((4, 0), (4, 3))}


def require_known(package: str, version: str) -> None:
    first, end = KNOWN[package]
    if not first <= parse_version(version) < end:
        raise UnsupportedVersion(
            f"This is {package} {version}, and the ledger was run with {package} {_format_version(first)} and later, "
            f"below {_format_version(end)}. "
            "`pip install ledger-queue` installs a known delta-rs, and 'ledger-queue[spark]' also a known Spark"
        )


def require_engines(spark: SparkSession | None) -> None:
    require_known("deltalake", deltalake.__version__)
    if spark is not None:
        require_known("pyspark", spark.version)


def _format_version(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


SECRETS = {
    "access.key": "aws_access_key_id",
    "secret.key": "aws_secret_access_key",
    "session.token": "aws_session_token",
}
#: delta-rs knows Amazon's own endpoints by their region.
_AMAZON = re.compile(r"(?:https?://)?s3(?:[.-](?P<region>[a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?/?")


def require_s3a(spark: SparkSession) -> None:
    if _settings(spark).getClassByNameOrNull("org.apache.hadoop.fs.s3a.S3AFileSystem") is None:
        raise InvalidParameterValue(
            "spark",
            spark.sparkContext.appName,
            "This session was started without the jars that read and write S3",
            "ledger.runtime.session starts one: spark_session(s3=True). On a cluster: the lines of conf/spark-s3.conf.",
        )


def storage_options_of(spark: SparkSession, bucket: str) -> dict[str, str]:
    """Return the storage_options of a bucket that follow from the session's settings.

    If credentials come from a provider instead, delta-rs has to find them by itself.
    """
    settings = _settings(spark)

    def of_bucket(name: str) -> str | None:
        value: str | None = settings.getTrimmed(f"fs.s3a.bucket.{bucket}.{name}") or settings.getTrimmed(
            f"fs.s3a.{name}"
        )
        return value

    def secret(name: str) -> str:
        characters = settings.getPassword(f"fs.s3a.bucket.{bucket}.{name}") or settings.getPassword(f"fs.s3a.{name}")
        return "".join(characters) if characters is not None else ""

    options = {option: value for name, option in SECRETS.items() if (value := secret(name))}
    region, endpoint = of_bucket("endpoint.region"), of_bucket("endpoint")
    amazon = _AMAZON.fullmatch(endpoint or "s3.amazonaws.com")
    region = region or (amazon["region"] if amazon else None)
    if region:
        options["aws_region"] = region
    if endpoint and not amazon:
        encrypted = of_bucket("connection.ssl.enabled") != "false"
        in_path = of_bucket("path.style.access") == "true" or _is_address(endpoint)
        options.update(_options_of_server(endpoint, bucket, encrypted=encrypted, in_path=in_path))
    return options


def _is_address(endpoint: str) -> bool:
    """Return whether an endpoint's host is an IP address: then Spark's client, too, puts the bucket into the path."""
    try:
        ip_address(urlsplit(f"//{endpoint.rpartition('://')[2]}").hostname or "")
    except ValueError:
        return False
    return True


def _settings(spark: SparkSession) -> Any:
    return spark._jsparkSession.sessionState().newHadoopConf()


def _options_of_server(endpoint: str, bucket: str, *, encrypted: bool, in_path: bool) -> dict[str, str]:
    scheme, _, host = endpoint.rpartition("://")
    scheme = scheme or ("https" if encrypted else "http")
    # With virtual-hosted style, delta-rs takes the endpoint as the bucket's own address.
    options = {"aws_endpoint": f"{scheme}://{host if in_path else f'{bucket}.{host}'}"}
    if not in_path:
        options["aws_virtual_hosted_style_request"] = "true"
    if scheme == "http":
        options["aws_allow_http"] = "true"
    return options


log = logging.getLogger("ledger.catalog")
FIX = "start sessions with a metastore, by the lines of conf/spark-hive.conf"


def is_in_memory_only(spark: SparkSession, schema: str) -> bool:
    is_session_catalog = "." not in schema and spark.catalog.currentCatalog() == "spark_catalog"
    return is_session_catalog and spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory"


def warn_if_forgotten(spark: SparkSession, schema: str, content: str) -> None:
    """Log a warning if `content`, which is made in a schema, will vanish with the session."""
    if is_in_memory_only(spark, schema):
        log.warning(
            "The catalog is in this session's memory: %s, in %s, will be gone with it; %s", content, schema, FIX
        )
