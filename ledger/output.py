"""Writing a claim's output to a Delta table and acknowledging it, as one. Why that holds: see `rules.output_doubts`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ledger.access import Access
from ledger.errors import InvalidParameterValue, LeaseLost, OutputNotWritten
from ledger.output_messages import messages_of
from ledger.rules import output_doubts
from ledger.rules.location import Location
from ledger.rules.storage import for_spark
from ledger.store import Grant, OutputWrites, QueueRecord, count_messages
from ledger.store.delta.commit.file_locks import table_lock
from ledger.store.delta.dataframes.evaluated import evaluated_once
from ledger.store.delta.dataframes.named_messages import Named, named_by_column, named_by_values
from ledger.store.delta.dataframes.output_target import different_columns, make_with_spark, not_written, place_of
from ledger.store.delta.engines.protocol import reason
from ledger.tabular import arrow_table, is_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ledger.clock import Clock

#: In what the libraries say of a write whose columns are not the table's.
OTHER_COLUMNS = ("DELTA_METADATA_MISMATCH", "DELTA_FAILED_TO_MERGE_FIELDS", "SchemaMismatch", "Cast error")


def write_output(
    access: Access,
    grant: Grant,
    rows: Any,
    table: object,
    messages: Any,
    ending: Callable[[pa.Table], contextlib.AbstractContextManager[Any]],
) -> int:
    """Writes `rows` to `table` and deletes the messages that they are about; returns how many. See Claim.write.

    `ending`: around what ends these messages (RUNS).
    """
    outputs, record = access.store.outputs, access.record()
    writer = _SparkWriter(rows, table) if is_spark(rows) else _ArrowWriter(outputs, rows, table)
    if writer.place is not None:
        # Before anything is made.
        outputs.require_allowed(writer.place.text)
    with writer.evaluated():
        runs = messages_of(record, grant, writer, messages)
        if runs.num_rows:
            location = writer.make().text
            # A table that the catalog had not: only now it has a place.
            outputs.require_allowed(location)
            with not_written(table):
                table_id = outputs.table_id(location)
            with ending(runs):
                _write(outputs, record, grant.receipt_id, writer, runs, location, table_id, access.clock)
    return count_messages(runs)


def _write(
    outputs: OutputWrites,
    record: QueueRecord,
    receipt_id: str,
    writer: Writer,
    runs: pa.Table,
    location: str,
    table_id: str,
    clock: Clock,
) -> None:
    identifier = outputs.begin(record, receipt_id, runs, location, table_id, clock)
    if identifier is None:
        return
    outputs.step("begun")
    said = {"queue": record.name, "receipt_id": receipt_id, "write_id": identifier, "owner": outputs.owner}
    failure = _failure(writer, location, identifier, said)
    outputs.step("written")
    # Whatever the writer was told, the table knows: an error may hide a commit that landed.
    fenced = outputs.is_fenced(location, identifier)
    if outputs.written_or_fenced(location, identifier):
        outputs.finish(record, runs, identifier, clock)
        return
    outputs.undo(record, runs, identifier, clock)
    if failure is not None and not fenced:
        raise OutputNotWritten(location, reason(failure) + _mismatch(writer, location, failure)) from failure
    raise LeaseLost(
        f"The claim {receipt_id} was lost before its output was written: others receive the messages, or another "
        "call of write took the place of this one, and nothing of this write is in the table. Receive again; keep a "
        "claim with a longer timeout or a heartbeat"
    )


def _failure(writer: Writer, location: str, identifier: str, metadata: Mapping[str, Any]) -> Exception | None:
    """Writes; returns what went wrong."""
    try:
        # On a local path the commit has the table alone; the rows were computed before, so that it is short.
        with table_lock(location).exclusive():
            writer.write(location, output_doubts.application(identifier), metadata)
    except Exception as error:
        return error
    return None


def _mismatch(writer: Writer, location: str, failure: Exception) -> str:
    """Where the table has other columns than the rows, when that is what went wrong: the libraries do not name them."""
    if not any(said in reason(failure) for said in OTHER_COLUMNS):
        return ""
    with contextlib.suppress(Exception):
        return different_columns(writer.columns, writer.columns_there(location), needs_all=writer.needs_all)
    return ""


class _SparkWriter:
    """Writes a DataFrame."""

    #: What the rows lack is null in the table.
    needs_all = False

    def __init__(self, rows: DataFrame, table: object) -> None:
        self._rows, self._table, self._spark = rows, table, rows.sparkSession
        self.place = place_of(table, self._spark)

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the rows and their types."""
        return dict(self._rows.dtypes)

    @contextlib.contextmanager
    def evaluated(self) -> Iterator[None]:
        """The rows are computed once: those that are looked at are those that are written."""
        with evaluated_once(self._rows) as self._rows:
            yield

    def named(self, column: str, queue: str) -> Named:
        """Which messages a column names."""
        return named_by_column(self._rows, column, queue)

    def make(self) -> Location:
        """Where the table lies; makes it, empty, when there is none."""
        return make_with_spark(self._table, self.place, self._rows)

    def columns_there(self, location: str) -> dict[str, str]:
        """The columns of the table and their types."""
        return dict(self._spark.read.format("delta").load(for_spark(location)).dtypes)

    def write(self, location: str, application: str, metadata: Mapping[str, Any]) -> None:
        """One append under the transaction; Delta leaves it out when another version of it was committed."""
        writer = self._rows.write.format("delta").mode("append").option("userMetadata", json.dumps(metadata))
        writer.option("txnAppId", application).option("txnVersion", output_doubts.WRITTEN).save(for_spark(location))


class _ArrowWriter:
    """Writes an Arrow table, through delta-rs, without a JVM."""

    needs_all = True

    def __init__(self, outputs: OutputWrites, rows: Any, table: object) -> None:
        known = arrow_table("rows", rows)
        if known is None:
            raise InvalidParameterValue("rows", type(rows).__name__, "Must be a DataFrame or an Arrow table")
        self._engine, self._rows, self._table = outputs.without_spark(), known, table
        self.place = place_of(table, None)

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the rows and their types."""
        return {field.name: str(field.type) for field in self._rows.schema}

    def evaluated(self) -> contextlib.AbstractContextManager[None]:
        """The rows are what they are."""
        return contextlib.nullcontext()

    def named(self, column: str, queue: str) -> Named:
        """Which messages a column names."""
        return named_by_values(self._rows[column].to_pylist(), queue)

    def make(self) -> Location:
        """Where the table lies; makes it, empty, when there is none."""
        with not_written(self._table), table_lock(self.place.text).exclusive():
            self._engine.create_output(self.place.text, self._rows.schema)
        return self.place

    def columns_there(self, location: str) -> dict[str, str]:
        """The columns of the table and their types."""
        return {field.name: str(field.type) for field in self._engine.output_schema(location)}

    def write(self, location: str, application: str, metadata: Mapping[str, Any]) -> None:
        """One append under the transaction."""
        self._engine.append_output(location, self._rows, application, output_doubts.WRITTEN, metadata)


Writer = _SparkWriter | _ArrowWriter
