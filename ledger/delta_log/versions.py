"""The versions of the engines that were run: installers are told the same, and tests/versions runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake

from ledger.errors import UnsupportedVersion
from ledger.rules.version_numbers import version_numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: By a package, the first version that works, and the first that was not run. Before 1.6.6 delta-rs fails on
#: what upkeep deletes and on the views, 1.2 on nearly everything.
KNOWN = {"deltalake": ((1, 6, 6), (1, 7)), "pyspark": ((4, 0), (4, 3))}


def require_known(package: str, version: str) -> None:
    """Raises UnsupportedVersion for a version of a package that was not run."""
    first, end = KNOWN[package]
    if not first <= version_numbers(version) < end:
        raise UnsupportedVersion(
            f"This is {package} {version}, and the ledger was run with {package} {_dotted(first)} up to, and without, "
            f"{_dotted(end)}. "
            "`pip install ledger-queue` brings a delta-rs that was, and 'ledger-queue[spark]' such a Spark, too"
        )


def require_engines(spark: SparkSession | None) -> None:
    """Raises UnsupportedVersion for a delta-rs, or for the Spark behind a session, that was not run."""
    require_known("deltalake", deltalake.__version__)
    if spark is not None:
        require_known("pyspark", spark.version)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
