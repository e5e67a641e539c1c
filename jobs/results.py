"""Appending rows to a Delta table once, however often it is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ATTEMPTS = 20


def append_once(rows: DataFrame, table: str, application: str, version: int) -> None:
    """Appends rows to a table as `claim.write` names them; done again under the same name and version it does nothing
    (Delta's transaction id). The rows may be computed anew for each try."""
    from ledger.rules.storage import for_spark
    from ledger.store.delta.commit.file_locks import table_lock
    from ledger.store.delta.commit.retrying import Attempts
    from ledger.store.delta.dataframes.output_target import make_with_spark, place_of
    from ledger.store.delta.engines.spark_committing import CONFLICTS

    path = make_with_spark(table, place_of(table, rows.sparkSession), rows).text
    write = rows.write.format("delta").mode("append").option("txnAppId", application).option("txnVersion", version)
    attempts = Attempts(f"the append to {table}", ATTEMPTS, first_pause=0.2, longest_pause=5.0)
    for _ in attempts:
        try:
            # On a local path Spark's commits are not safe between processes; elsewhere this is no lock at all.
            with table_lock(path).exclusive():
                write.save(for_spark(path))
                return
        except CONFLICTS:
            continue
    raise attempts.outlasted()
