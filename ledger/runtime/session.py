"""A Spark session with Delta Lake, existing or started on this machine, and the same settings for spark-submit."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.runtime.cache import RuntimeSetupError
from ledger.runtime.jars import delta_packages, find_cached_s3_jars, find_or_fetch_jars, s3_packages
from ledger.runtime.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = Path(__file__).with_name("log4j2.properties").resolve()

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"

# For every session. These settings can be set after its start.
REQUIRED_LATER = {
    # With one zone, every reader sees a deadline as the same time. If the zone is not UTC, Delta rebuilds a small
    # table's state at each commit.
    "spark.sql.session.timeZone": "UTC",
    # With Spark's default, Delta's parser does not pass on values that are bound to SQL text (delta-io/delta#7640).
    "spark.sql.legacy.parameterSubstitution.constantsOnly": "true",
}

# For every session. These settings must be set before its start.
REQUIRED = {
    **REQUIRED_LATER,
    # For MERGE, OPTIMIZE and VACUUM.
    "spark.sql.extensions": DELTA_EXTENSION,
    # For delta.`path` and CREATE TABLE.
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

# For work of any size on one machine. conf/spark-local.conf has the same settings.
LOCAL_DEFAULTS = {
    **REQUIRED,
    "spark.master": "local[*]",
    # With the default of 1 GB, a send of millions of rows spills to disk.
    "spark.driver.memory": "2g",
    # Java's time zone counts where the session's does not.
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    # The driver needs no host name that resolves, and accepts no connection from other machines.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The UI needs a port for each session, and slows the start.
    "spark.ui.enabled": "false",
    # Progress bars mix with what a job prints.
    "spark.ui.showConsoleProgress": "false",
    # The ledger's tables have few files. Delta's default of 50 tasks slows each MERGE.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "8",
    # Makes toPandas and createDataFrame move columns, not rows.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

# For tests and tiny tables. Users get other plans, so some tests must also run with LOCAL_DEFAULTS.
SMALL = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    # Compiling a plan takes longer than interpreting it over ten rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
#: No second compiler, which pays only in processes that run for minutes, and the simplest garbage collector.
SMALL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def spark_session(
    app_name: str = "ledger", *, conf: Mapping[str, str] | None = None, small: bool = False, s3: bool = False
) -> SparkSession:
    """Return the existing Spark session, or start one on this machine.

    A new session gets LOCAL_DEFAULTS, then SMALL if `small`, then `conf`, and this process's environment gets
    `submit_environment`. With `s3`, it also gets the jars for S3, which are fetched once. An existing session gets only
    REQUIRED_LATER and `conf`. For S3 it must have been started with the lines of conf/spark-s3.conf.

    Raises RuntimeSetupError if a package, Java or the jars are missing, or if the existing session has no Delta Lake.
    """
    try:
        import delta.exceptions  # noqa: F401 - before the first query: it gives Delta's errors their Python classes
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise RuntimeSetupError(f"package {error.name} is missing: pip install 'ledger-queue[spark]'") from error

    builder = SparkSession.builder.appName(app_name)
    if not _is_started():
        _silence_query_context()
        os.environ.update(submit_environment())
        if s3:
            find_or_fetch_jars(s3_packages())
        settings = {**local_settings(small=small), **(conf or {})}
    else:
        settings = {**REQUIRED_LATER, **(conf or {})}
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if DELTA_EXTENSION not in (session.conf.get("spark.sql.extensions", "") or ""):
        raise RuntimeSetupError(
            f"this Spark session was started without Delta Lake (spark.sql.extensions lacks {DELTA_EXTENSION}): "
            "start it with `--properties-file conf/spark-local.conf` or the lines of conf/spark-cluster.conf"
        )
    return session


def local_settings(*, small: bool = False) -> dict[str, str]:
    """Return all settings that a session on this machine starts with, among them the class path of the cached jars.

    Raises RuntimeSetupError if Delta's jars cannot be fetched.
    """
    settings = {**LOCAL_DEFAULTS, **(SMALL if small else {})}
    settings["spark.driver.extraJavaOptions"] += f" -Dlog4j2.configurationFile={_QUIET.as_uri()}"
    settings["spark.driver.extraJavaOptions"] += f" {SMALL_JAVA}" if small else ""
    jars = [*find_or_fetch_jars(delta_packages()), *find_cached_s3_jars()]
    settings["spark.driver.extraClassPath"] = os.pathsep.join(map(str, jars))
    return settings


def submit_arguments(*, small: bool = False) -> list[str]:
    """Return the arguments that give `spark-submit` the settings of `spark_session`.

    The process needs `submit_environment`, too. Raises RuntimeSetupError if the jars cannot be fetched.
    """
    settings = local_settings(small=small)
    return [argument for name, value in settings.items() for argument in ("--conf", f"{name}={value}")]


def submit_command(script: str | Path, *arguments: str, small: bool = False) -> list[str]:
    """Return the command that runs `script` under pyspark's own spark-submit, for a process with `submit_environment`.

    Raises RuntimeSetupError if pyspark is missing or the jars cannot be fetched.
    """
    return [str(_find_spark_home() / "bin" / "spark-submit"), *submit_arguments(small=small), str(script), *arguments]


def submit_environment() -> dict[str, str]:
    """Return this process's environment with what Spark needs, without the variables of this process's own JVM.

    Raises RuntimeSetupError if there is no Java, or no pyspark.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY_")}
    return {
        **inherited,
        **{name: inherited.get(name, sys.executable) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")},
        "JAVA_HOME": str(find_java_home()),
        "SPARK_HOME": str(_find_spark_home()),
        "SPARK_LOCAL_IP": inherited.get("SPARK_LOCAL_IP", "127.0.0.1"),
    }


def _is_started() -> bool:
    if any(os.environ.get(name) for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")):
        return True
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def _silence_query_context() -> None:
    """Keep pyspark from printing each SQL error, which it also raises, as JSON with stack traces."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel("CRITICAL")


def _find_spark_home() -> Path:
    try:
        import pyspark
    except ModuleNotFoundError as error:
        raise RuntimeSetupError(f"package {error.name} is missing: pip install 'ledger-queue[spark]'") from error
    return Path(pyspark.__file__).parent
