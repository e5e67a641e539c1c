"""The two writers of DataFrames (see `writers.Writer`), and the staged rows that one commit publishes.

Published files stay in their folder. VACUUM removes the files of a writer that died, usually when they are 7 days old.
So a writer that began more than two days ago does not publish. VACUUM skips folders whose names begin with _, so the
name FOLDER begins with a letter.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledger.delta_log.protocol import StagedFile, reason
from ledger.delta_log.storage import log_file
from ledger.errors import LedgerError, OutputNotWritten, StorageFailed
from ledger.output_tables.files_aside import staged_file
from ledger.output_tables.protocol import Target, require_same
from ledger.output_tables.row_errors import TRACEBACK, find_refused_value, make_row_error
from ledger.output_tables.schemas import correct_offer
from ledger.outputs.messages import Named, resolve_array, resolve_column, resolve_ids
from ledger.outputs.targets import (
    describe_different_columns,
    is_about_columns,
    make_empty_table,
    not_written,
    read_partitions,
    read_spark_table,
    require_transactions_kept,
    restate_refusal,
)
from ledger.place import find_absent_folders, remove_empty
from ledger.rules import output_doubts, staging
from ledger.rules.location import Location, name_for_spark
from ledger.rules.output_columns import Columns, properties_of
from ledger.rules.publishable import FOLDER, Demands
from ledger.store.delta.commit.folders import Folders, folders_below
from ledger.store.delta.commit.locks import releasing, table_lock
from ledger.store.delta.dataframes.column_casts import fit_frame
from ledger.store.delta.dataframes.columns import quote_column
from ledger.store.delta.dataframes.evaluation import evaluated_once, stored_in_microseconds
from ledger.store.protocol import OutputWrites

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.clock import Clock
    from ledger.output_tables.protocol import OutputPublishing

#: Up to this many rows, the driver itself reads the column that names messages, in some 40 bytes of memory an id.
MOST_BY_DRIVER = 8_000_000
#: Writers that died leave logs, which no VACUUM removes. `tidy` searches the newest folders older than two days, at
#: most this many.
TIDIED_WRITES = 20


class StagedRows:
    """The rows of one write, in a folder below the table. The table need not exist yet.

    `settle`, `remove` and `tidy` ignore errors of the storage: files that stay do no harm.
    """

    def __init__(self, publishing: OutputPublishing, spark: SparkSession, location: str, now: int) -> None:
        self._publishing, self._spark, self._now = publishing, spark, now
        self._name = staging.new_folder(now)
        self._place = f"{location.rstrip('/')}/{FOLDER}/{self._name}"
        self._made = find_absent_folders(f"{location.rstrip('/')}/{FOLDER}")
        writes = folders_below(f"{location.rstrip('/')}/{FOLDER}", spark, publishing.storage_options or {})
        assert writes is not None
        self._writes: Folders = writes
        self.files: list[StagedFile] = []

    def write(self, rows: DataFrame, demands: Demands, metadata: Mapping[str, Any]) -> None:
        """Compute the rows once, and write them into the folder as files that meet the demands.

        Raises StorageFailed if this process does not see the files, or if Spark changed the folder's columns or
        protocol.
        """
        self._publishing.stage(self._place, demands, self._now)
        writer = rows.write.format("delta").mode("append").option("userMetadata", json.dumps(metadata))
        with stored_in_microseconds(rows):
            writer.save(name_for_spark(self._place))
        log = self._writes.read(f"{self._name}/{log_file(1)}")
        if log is None:
            # Without a row Delta may commit nothing.
            if self._writes.read(f"{self._name}/{log_file(0)}") is None:
                raise StorageFailed(self._place, "this process does not see the files that Spark wrote there", "write")
            return
        entries = [json.loads(line) for line in log.split("\n") if line]
        if any("metaData" in entry or "protocol" in entry for entry in entries):
            raise StorageFailed(self._place, "Spark gave the rows another schema than the table's", "write")
        self.files = [staged_file(self._name, entry["add"]) for entry in entries if "add" in entry]

    @property
    def count(self) -> int | None:
        counts = [json.loads(file.statistics).get("numRecords") for file in self.files]
        return None if None in counts else sum(filter(None, counts))

    def named(self, column: str, queue: str) -> Named:
        named = self._resolve_by_driver(column)
        if named is None:
            written = self._spark.read.format("delta").load(name_for_spark(self._place))
            named = resolve_column(written, column, queue)
        return named

    def _resolve_by_driver(self, column: str) -> Named | None:
        paths = [file.path.removeprefix(f"{FOLDER}/{self._name}/") for file in self.files]
        count = self.count
        if count is None or count > MOST_BY_DRIVER:
            return None
        try:
            values = self._publishing.column(self._place, paths, column)
        except (OSError, StorageFailed, pa.ArrowException):
            # Spark wrote the files, so let Spark read them.
            return None
        return None if values is None or not _is_text(values.type) else resolve_ids(values)

    def is_too_old(self, now: int) -> bool:
        """Return whether a VACUUM may soon remove the files."""
        return staging.is_abandoned(self._name, now)

    def settle(self) -> None:
        with contextlib.suppress(StorageFailed):
            self._writes.remove(f"{self._name}/_delta_log")

    def remove(self) -> None:
        """Remove the folder, and empty folders above it that this write made.

        Call it only if nobody publishes the rows.
        """
        with contextlib.suppress(StorageFailed):
            self._writes.remove(self._name)
            remove_empty(self._made)

    def tidy(self) -> None:
        """Remove the logs that dead writers left."""
        with contextlib.suppress(StorageFailed):
            old = [name for name in self._writes.names() if staging.is_abandoned(name, self._now)]
            for name in old[-TIDIED_WRITES:]:
                if self._writes.read(f"{name}/{log_file(0)}") is not None:
                    self._writes.remove(f"{name}/_delta_log")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


#: Why a table is not widened if Spark has to commit to it, in words that follow "because of".
WHY_SPARK_DOES_NOT_WIDEN = "its commits, which Spark has to make"


class _DataFrameWriter:
    def __init__(
        self, outputs: OutputWrites, rows: DataFrame, table: object, failed: str | None, columns: Columns
    ) -> None:
        self._outputs, self._rows, self._table, self._spark = outputs, rows, table, rows.sparkSession
        self._failed, self._exceptions = failed, rows
        self._after = columns

    @property
    def columns(self) -> dict[str, str]:
        return {name: kind for name, kind in self._rows.dtypes if name != self._failed}

    @contextlib.contextmanager
    def _parting_failed_rows(self) -> Iterator[None]:
        """If the caller named a column of failures, compute the rows once, and take out the failed rows."""
        if self._failed is None:
            yield
            return
        with contextlib.ExitStack() as until_written:
            kept = self._evaluate_once(until_written)
            is_done = kept[quote_column(self._failed)].isNull()
            self._rows, self._exceptions = kept.where(is_done).drop(self._failed), kept.where(~is_done)
            yield

    def _evaluate_once(self, until_written: contextlib.ExitStack) -> DataFrame:
        try:
            return until_written.enter_context(evaluated_once(self._rows))
        except LedgerError:
            raise
        except Exception as error:
            raise self.make_error(str(self._table), error) from error

    def failed(self, column: str) -> pa.Table:
        if not isinstance(self._exceptions, pa.Table):
            names = [quote_column(name) for name in (column, self._failed) if name is not None]
            self._exceptions = self._exceptions.select(names).toArrow()
        return self._exceptions

    def find_named_failed(self, column: str, queue: str) -> Named:
        return resolve_array(self.failed(column)[column], queue)

    def make_error(self, location: str, failure: Exception) -> OutputNotWritten:
        refusal = restate_refusal(location, failure)
        if refusal is not None:
            return refusal
        refused_value = find_refused_value(failure)
        if refused_value is not None:
            problem = correct_offer(refused_value[0], partial(self._why_not_widened, location))
            return OutputNotWritten(location, problem, place=refused_value[1])
        return OutputNotWritten(location, self._reason(location, failure))

    def _why_not_widened(self, location: str) -> str | None:
        return WHY_SPARK_DOES_NOT_WIDEN

    def _reason(self, location: str, failure: Exception) -> str:
        if is_about_columns(failure):
            with contextlib.suppress(Exception):
                table_types = dict(self._spark.read.format("delta").load(name_for_spark(location)).dtypes)
                # A column that the rows lack becomes null in the table.
                return reason(failure) + describe_different_columns(self.columns, table_types, needs_all=False)
        # Spark's first line only says that a Python worker raised something.
        return make_row_error(failure).text if TRACEBACK in str(failure) else reason(failure)


class StagedWriter(_DataFrameWriter):
    """Lets Spark write the rows into a folder below the table, and delta-rs publish its files."""

    def __init__(
        self,
        outputs: OutputWrites,
        rows: DataFrame,
        table: object,
        failed: str | None,
        columns: Columns,
        place: Location,
        publishing: OutputPublishing,
        target: Target,
        clock: Clock,
    ) -> None:
        super().__init__(outputs, rows, table, failed, columns)
        self._place, self._publishing, self._target, self._clock = place, publishing, target, clock
        #: The table's demands, once it has the rows' columns.
        self._demands = (
            replace(target.demands, schema=json.dumps(columns.schema)) if columns.changes else target.demands
        )
        self._staged: StagedRows
        #: Whether the rows are in the table; None: not known.
        self._written: bool | None = False

    @contextlib.contextmanager
    def evaluated(self) -> Iterator[None]:
        location = self._place.text
        self._staged = StagedRows(self._publishing, self._spark, location, self._clock())
        try:
            with self._parting_failed_rows():
                self._stage(location)
                self._outputs.step("staged")
                yield
        finally:
            if self._written:
                self._staged.settle()
            elif self._written is False:
                self._staged.remove()

    def _stage(self, location: str) -> None:
        try:
            rows = fit_frame(self._rows, self._after.schema, self._demands.partitions)
            self._staged.write(rows, self._demands, {"owner": self._outputs.owner})
        except Exception as error:
            raise self.make_error(location, error) from error

    def _why_not_widened(self, location: str) -> str | None:
        return self._publishing.why_not_widened(location)

    def named(self, column: str, queue: str) -> Named:
        return self._staged.named(column, queue)

    @releasing
    def make(self, before_changing: Callable[[], None]) -> Location:
        location, demands = self._place.text, self._demands
        with not_written(self._table):
            if not self._target.table_id or self._after.changes:
                before_changing()
                with table_lock(location).exclusive():
                    if not self._target.table_id:
                        self._publishing.make(location, demands, self._clock())
                    else:
                        self._publishing.evolve(location, self._target, self._after)
            target = self._publishing.look(location)
            if target is None:
                raise OutputNotWritten(self._table, "it is gone")
            require_same(Target(self._target.table_id or target.table_id, demands), target)
        self._target = target
        if self._outputs.is_new_here(location):
            self._staged.tidy()
        return self._place

    def table_id(self, location: str) -> str:
        return self._target.table_id

    @releasing
    def write(self, location: str, application: str, metadata: Mapping[str, Any]) -> bool:
        if self._staged.is_too_old(self._clock()):
            raise OutputNotWritten(location, "the rows took so long that a VACUUM could remove them")
        self._written = None
        # On a local path the commit locks the table, but only briefly.
        with table_lock(location).exclusive():
            transaction = application, output_doubts.WRITTEN
            self._publishing.publish(location, self._target, self._staged.files, transaction, metadata)
        self._written = True
        return True

    def ended(self, *, written: bool) -> None:
        self._written = written


class SparkWriter(_DataFrameWriter):
    def __init__(
        self,
        outputs: OutputWrites,
        rows: DataFrame,
        table: object,
        failed: str | None,
        columns: Columns,
        place: Location | None,
    ) -> None:
        super().__init__(outputs, rows, table, failed, columns)
        self._place = place

    @contextlib.contextmanager
    def evaluated(self) -> Iterator[None]:
        with contextlib.ExitStack() as until_written:
            self._rows = self._rows if self._failed else self._evaluate_once(until_written)
            with self._parting_failed_rows():
                yield

    def named(self, column: str, queue: str) -> Named:
        return resolve_column(self._rows, column, queue)

    def make(self, before_changing: Callable[[], None]) -> Location:
        before_changing()
        rows = fit_frame(self._rows, self._after.schema)
        if self._place is None or read_spark_table(self._spark, self._place.text) is None:
            self._require_writable_values(rows)
        made = make_empty_table(self._table, self._place, rows, properties_of(self._after))
        require_transactions_kept(self._table, made, self._spark)
        # A new table of the catalog has its place only now.
        self._outputs.require_allowed(made.text)
        return made

    def _require_writable_values(self, rows: DataFrame) -> None:
        """Compute all rows, so that no table is made for rows with a refused value."""
        try:
            rows.write.format("noop").mode("overwrite").save()
        except Exception as error:
            problem, place = find_refused_value(error) or (reason(error), "")
            raise OutputNotWritten(self._table, problem, place=place) from error

    def table_id(self, location: str) -> str:
        return self._outputs.table_id(location)

    @releasing
    def write(self, location: str, application: str, metadata: Mapping[str, Any]) -> bool:
        rows = fit_frame(self._rows, self._after.schema, read_partitions(self._spark, location))
        writer = rows.write.format("delta").mode("append").option("userMetadata", json.dumps(metadata))
        if self._after.added:
            writer.option("mergeSchema", True)
        # Delta silently skips the write if WRITTEN or FENCED is committed already.
        writer.option("txnAppId", application).option("txnVersion", output_doubts.WRITTEN)
        with table_lock(location).exclusive(), stored_in_microseconds(rows):
            writer.save(name_for_spark(location))
        return False

    def ended(self, *, written: bool) -> None:
        pass
