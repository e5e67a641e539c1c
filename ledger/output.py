"""Writing a claim's output to a Delta table and acknowledging it, as one: see `rules.output` for why that holds."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledger.errors import InvalidParameterValue, LeaseLost, SparkIsNeeded
from ledger.rules import output
from ledger.store.delta.locks import NoLock, table_lock

if TYPE_CHECKING:
    from ledger.queue import Queue


def write_output(queue: Queue, receipt_id: str, runs: pa.Table, rows: Any, table: str) -> None:
    """Writes `rows` to `table` and deletes the messages of `runs`. See Claim.write."""
    outputs, record = queue._outputs(), queue._record()
    writer = _SparkWriter(rows) if hasattr(rows, "sparkSession") else _ArrowWriter(outputs, rows)
    location = writer.prepare(table)
    identifier = outputs.begin(record, receipt_id, runs, location, queue._clock)
    if identifier is None:
        return
    outputs.step("begun")
    metadata = {"queue": record.name, "receipt_id": receipt_id, "write_id": identifier, "owner": outputs.owner}
    application = output.application(identifier)
    writer.write(location, application, metadata)
    outputs.step("written")
    if not outputs.written(location, identifier):
        raise LeaseLost(
            f"The claim {receipt_id} was lost before its output was written: others receive the messages, and nothing "
            "of this write is in the table. Receive again; keep a claim with a longer timeout or a heartbeat"
        )
    outputs.finish(record, receipt_id, runs, identifier, queue._clock)


class _SparkWriter:
    """Writes a DataFrame."""

    def __init__(self, rows: Any) -> None:
        self._rows, self._spark = rows, rows.sparkSession

    def prepare(self, table: str) -> str:
        """Where the table lies; makes it, empty, when there is none: only a table can tell who wrote to it."""
        path = _path(table)
        target = f"delta.`{path}`" if path else table
        if path:
            from delta import DeltaTable

            from ledger.store.delta.spark_engine import CONFLICTS

            # Two that begin at once both find no table: one makes it, and the other finds it made.
            with contextlib.suppress(*CONFLICTS), table_lock(path).exclusive():
                if not DeltaTable.isDeltaTable(self._spark, path):
                    self._rows.limit(0).write.format("delta").mode("ignore").save(path)
        elif not self._spark.catalog.tableExists(table):
            self._rows.limit(0).write.format("delta").mode("ignore").saveAsTable(table)
        location = self._spark.sql(f"DESCRIBE DETAIL {target}").select("location").first()[0]
        return location.removeprefix("file://").removeprefix("file:")

    def write(self, location: str, application: str, metadata: dict[str, Any]) -> None:
        """One append under the transaction; Delta leaves it out when another version of it was committed."""
        from ledger.store.delta.spark_engine import CONFLICTS

        lock, rows = table_lock(location), self._rows
        if not isinstance(lock, NoLock):
            # On a local path the commit has the table alone: the work is done before, so that it is short.
            rows = rows.persist()
            rows.count()
        try:
            # Another version of the transaction was committed, which the caller sees; or nothing: it may try again.
            with contextlib.suppress(*CONFLICTS), lock.exclusive():
                writer = rows.write.format("delta").mode("append").option("userMetadata", json.dumps(metadata))
                writer.option("txnAppId", application).option("txnVersion", output.WRITTEN).save(location)
        finally:
            if rows is not self._rows:
                rows.unpersist()


class _ArrowWriter:
    """Writes an Arrow table, through delta-rs, without a JVM."""

    def __init__(self, outputs: Any, rows: Any) -> None:
        if not isinstance(rows, pa.Table):
            raise InvalidParameterValue("rows", type(rows).__name__, "Must be a DataFrame or a pyarrow.Table")
        self._outputs, self._rows = outputs, rows

    def prepare(self, table: str) -> str:
        """Where the table lies; makes it, empty, when there is none."""
        path = _path(table)
        if path is None:
            raise SparkIsNeeded(f"{table} is a table of a catalog: write a DataFrame, or name a path")
        with table_lock(path).exclusive():
            self._outputs.without_spark().create_output(path, self._rows.schema)
        return path

    def write(self, location: str, application: str, metadata: dict[str, Any]) -> None:
        """One append under the transaction."""
        from ledger.store.delta.engine import Conflict

        # A conflict: as with Spark.
        with contextlib.suppress(Conflict), table_lock(location).exclusive():
            engine = self._outputs.without_spark()
            engine.append_output(location, self._rows, application, output.WRITTEN, metadata)


def _path(table: str) -> str | None:
    """The path in `table`, absolute when it is local; None for the name of a table in a catalog."""
    if not isinstance(table, str) or not table:
        raise InvalidParameterValue("table", table, "Must be a path, a URI, or the name of a table in Spark's catalog")
    if "://" in table:
        return table.removeprefix("file://") if table.startswith("file:///") else table
    return str(Path(table).absolute()) if "/" in table or "." not in table else None
