"""Whether the commits of several drivers are safe on a kind of storage, as a session is set up for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.errors import UnsafeStorage
from ledger.rules.storage import S3, log_store_setting, orders_commits
from ledger.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_safe(scheme: str, spark: SparkSession | None, settings: Settings) -> None:
    """Raises UnsafeStorage for s3 without a log store that several drivers can share."""
    if scheme not in S3 or settings.single_driver:
        return
    setting = log_store_setting(scheme)
    log_store = None if spark is None else spark.conf.get(setting, "")
    if not orders_commits(log_store or ""):
        raise UnsafeStorage(
            f"On {scheme}: two drivers can silently lose each other's commits. Set {setting} "
            "to io.delta.storage.S3DynamoDBLogStore (conf/spark-cluster.conf shows how), or say that only one driver "
            "ever writes: Settings(single_driver=True)"
        )
