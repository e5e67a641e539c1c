"""A Spark session with Delta Lake: an existing session, or one that is started on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.runtime.cache import RuntimeSetupError
from ledger.runtime.jars import cached_s3_jars, delta_packages, jars_of, s3_packages
from ledger.runtime.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = Path(__file__).with_name("log4j2.properties").resolve()

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"

# Every session needs these settings, wherever it runs. They can still be set after a session has started.
REQUIRED_LATER = {
    # With one time zone, every reader sees a deadline as the same time. If the zone is not UTC, Delta rebuilds the
    # state of a small table at each commit.
    "spark.sql.session.timeZone": "UTC",
    # For values bound to SQL text. With Spark's default, Delta's parser does not pass them on (delta-io/delta#7640):
    # even `SELECT :value` fails with UNBOUND_SQL_PARAMETER.
    "spark.sql.legacy.parameterSubstitution.constantsOnly": "true",
}

# Every session also needs these settings. They must be set before the session starts.
REQUIRED = {
    **REQUIRED_LATER,
    # For Delta's SQL (MERGE, OPTIMIZE, VACUUM, ...).
    "spark.sql.extensions": DELTA_EXTENSION,
    # For Delta's tables in delta.`path` and CREATE TABLE.
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

# The settings on one machine, for work of any size. conf/spark-local.conf has the same settings, and lets Spark fetch
# Delta's jars.
LOCAL_DEFAULTS = {
    **REQUIRED,
    # Spark uses all cores of this machine, and no cluster.
    "spark.master": "local[*]",
    # With the default of 1 GB, a send of millions of rows spills to disk.
    "spark.driver.memory": "2g",
    # Java's time zone is used wherever the session's is not.
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    # The driver needs no host name that resolves, and accepts no connection from other machines.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The UI needs a port for each session, and slows the start. `spark.ui.enabled=true` turns it on.
    "spark.ui.enabled": "false",
    # Progress bars mix with what a job prints.
    "spark.ui.showConsoleProgress": "false",
    # The ledger's tables have few files. Delta's default of 50 tasks for a table's state slows each MERGE.
    "spark.databricks.delta.snapshotPartitions": "2",
    # A shuffle of one machine needs no more tasks. Adaptive execution merges partitions that are too small.
    "spark.sql.shuffle.partitions": "8",
    # Makes toPandas and createDataFrame move columns, not rows.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

# For tests and tiny tables, where starting a task takes longer than its work. Plans differ from the plans that users
# get, so some tests must also run with LOCAL_DEFAULTS.
SMALL = {
    # Spark uses one task to read a table's state, and one for a shuffle.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    # Compiling a plan takes longer than interpreting it over ten rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # With ten rows, adaptive execution improves no plan.
    "spark.sql.adaptive.enabled": "false",
}
#: Java's options with SMALL. The first turns off Java's second compiler, which pays only in processes that run for
#: minutes. The second chooses the simplest garbage collector.
SMALL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def spark_session(
    app_name: str = "ledger", *, conf: Mapping[str, str] | None = None, small: bool = False, s3: bool = False
) -> SparkSession:
    """Return the existing Spark session, or start one on this machine.

    A session that this call starts gets LOCAL_DEFAULTS, then SMALL if `small`, then `conf`: later settings replace
    earlier ones. This process's environment gets the variables of `submit_environment`. With `s3` the session can read
    and write S3, and the jars for that are fetched once.

    A session that spark-submit, a notebook server, a cluster or this process started before is used as it is. Only
    REQUIRED_LATER and `conf` are set on it. For S3, such a session needs the lines of conf/spark-s3.conf.

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
            jars_of(s3_packages())
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
    """Return all settings that a session on this machine starts with, among them the class path of Delta's jars.

    If the cache has the jars of S3, they are on the class path, too. Raises RuntimeSetupError if Delta's jars cannot be
    fetched.
    """
    settings = {**LOCAL_DEFAULTS, **(SMALL if small else {})}
    settings["spark.driver.extraJavaOptions"] += f" -Dlog4j2.configurationFile={_QUIET.as_uri()}"
    settings["spark.driver.extraJavaOptions"] += f" {SMALL_JAVA}" if small else ""
    jars = [*jars_of(delta_packages()), *cached_s3_jars()]
    settings["spark.driver.extraClassPath"] = os.pathsep.join(map(str, jars))
    return settings


def submit_arguments(*, small: bool = False) -> list[str]:
    """Return the arguments that give `spark-submit` the same settings as `spark_session` without `conf`.

    These arguments come before the script. The process also needs `submit_environment()`. Raises RuntimeSetupError if
    the jars cannot be fetched.
    """
    settings = local_settings(small=small)
    return [argument for name, value in settings.items() for argument in ("--conf", f"{name}={value}")]


def submit_command(script: str | Path, *arguments: str, small: bool = False) -> list[str]:
    """Return the whole command that runs `script` under pyspark's own spark-submit on this machine.

    Start it with `env=submit_environment()`. Raises RuntimeSetupError if pyspark is missing or the jars cannot be
    fetched.
    """
    return [str(_spark_home() / "bin" / "spark-submit"), *submit_arguments(small=small), str(script), *arguments]


def submit_environment() -> dict[str, str]:
    """Return this process's environment, and what Spark needs: Java, Spark's home, this Python, the loopback address.

    Variables by which the new process would connect to this process's JVM are left out. Raises RuntimeSetupError if
    there is no Java, or no pyspark.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY_")}
    return {
        **inherited,
        # Spark's driver and workers run this very Python, unless the environment names another.
        **{name: inherited.get(name, sys.executable) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")},
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(_spark_home()),
        "SPARK_LOCAL_IP": inherited.get("SPARK_LOCAL_IP", "127.0.0.1"),
    }


def _is_started() -> bool:
    """Return whether Spark was started by spark-submit, by a Connect server, or earlier by this process."""
    if any(os.environ.get(name) for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")):
        return True
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def _silence_query_context() -> None:
    """Keep pyspark from printing each SQL error, which it also raises, as JSON with stack traces."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel("CRITICAL")


def _spark_home() -> Path:
    try:
        import pyspark
    except ModuleNotFoundError as error:
        raise RuntimeSetupError(f"package {error.name} is missing: pip install 'ledger-queue[spark]'") from error
    return Path(pyspark.__file__).parent
