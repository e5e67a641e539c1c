"""The two writers of DataFrames (see `writers.Writer`): one stages the rows, the other lets Spark commit them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledger.delta_log.protocol import reason
from ledger.errors import LedgerError, OutputNotWritten
from ledger.output_tables.protocol import Target, require_same
from ledger.output_tables.row_errors import TRACEBACK, row_error, value_refused
from ledger.output_tables.schemas import truly_offered
from ledger.outputs.named_messages import Named, named_by_array, named_by_column
from ledger.outputs.targets import (
    different_columns,
    empty_writer,
    is_about_columns,
    not_written,
    partitions_of,
    refusal_of,
    require_transactions_kept,
    table_of_spark,
)
from ledger.rules import output_doubts
from ledger.rules.location import Location
from ledger.rules.output_columns import Columns, properties_of
from ledger.rules.storage import for_spark
from ledger.store.delta.commit.file_locks import table_lock
from ledger.store.delta.commit.holdings import releasing
from ledger.store.delta.dataframes.column_casts import fitted
from ledger.store.delta.dataframes.columns import quoted
from ledger.store.delta.dataframes.evaluation import evaluated_once, stored_in_microseconds
from ledger.store.protocol import OutputWrites

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ledger.clock import Clock
    from ledger.output_tables.protocol import OutputPublishing
    from ledger.outputs.staging import StagedRows


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
    def _parted(self) -> Iterator[None]:
        """Compute the rows once for the block, and take out the failed rows."""
        if self._failed is None:
            yield
            return
        with contextlib.ExitStack() as until_written:
            kept = self._evaluate_once(until_written)
            is_done = kept[quoted(self._failed)].isNull()
            self._rows, self._exceptions = kept.where(is_done).drop(self._failed), kept.where(~is_done)
            yield

    def _evaluate_once(self, until_written: contextlib.ExitStack) -> DataFrame:
        try:
            return until_written.enter_context(evaluated_once(self._rows))
        except LedgerError:
            raise
        except Exception as error:
            raise self.error_of(str(self._table), error) from error

    def failed(self, column: str) -> pa.Table:
        if not isinstance(self._exceptions, pa.Table):
            names = [quoted(name) for name in (column, self._failed) if name is not None]
            self._exceptions = self._exceptions.select(names).toArrow()
        return self._exceptions

    def named_failed(self, column: str, queue: str) -> Named:
        return named_by_array(self.failed(column)[column], queue)

    def error_of(self, location: str, failure: Exception) -> OutputNotWritten:
        refusal = refusal_of(location, failure)
        if refusal is not None:
            return refusal
        refused_value = value_refused(failure)
        if refused_value is not None:
            problem = truly_offered(refused_value[0], partial(self._why_not_widened, location))
            return OutputNotWritten(location, problem, place=refused_value[1])
        return OutputNotWritten(location, self._reason(location, failure))

    def _why_not_widened(self, location: str) -> str | None:
        return WHY_SPARK_DOES_NOT_WIDEN

    def _reason(self, location: str, failure: Exception) -> str:
        if is_about_columns(failure):
            with contextlib.suppress(Exception):
                table_types = dict(self._spark.read.format("delta").load(for_spark(location)).dtypes)
                # A column that the rows lack becomes null in the table.
                return reason(failure) + different_columns(self.columns, table_types, needs_all=False)
        # Spark's first line only says that a Python worker raised something.
        return row_error(failure).text if TRACEBACK in str(failure) else reason(failure)


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
        from ledger.outputs.staging import StagedRows

        location = self._place.text
        self._staged = StagedRows(self._publishing, self._spark, location, self._clock())
        try:
            with self._parted():
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
            rows = fitted(self._rows, self._after.schema, self._demands.partitions)
            self._staged.write(rows, self._demands, {"owner": self._outputs.owner})
        except Exception as error:
            raise self.error_of(location, error) from error

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
            with self._parted():
                yield

    def named(self, column: str, queue: str) -> Named:
        return named_by_column(self._rows, column, queue)

    def make(self, before_changing: Callable[[], None]) -> Location:
        before_changing()
        rows = fitted(self._rows, self._after.schema)
        if self._place is None or table_of_spark(self._spark, self._place.text) is None:
            self._require_writable_values(rows)
        made = empty_writer(self._table, self._place, rows, properties_of(self._after))
        require_transactions_kept(self._table, made, self._spark)
        # A new table of the catalog has its place only now.
        self._outputs.require_allowed(made.text)
        return made

    def _require_writable_values(self, rows: DataFrame) -> None:
        """Compute all rows, so that no table is made for rows with a refused value."""
        try:
            rows.write.format("noop").mode("overwrite").save()
        except Exception as error:
            problem, place = value_refused(error) or (reason(error), "")
            raise OutputNotWritten(self._table, problem, place=place) from error

    def table_id(self, location: str) -> str:
        return self._outputs.table_id(location)

    @releasing
    def write(self, location: str, application: str, metadata: Mapping[str, Any]) -> bool:
        rows = fitted(self._rows, self._after.schema, partitions_of(self._spark, location))
        writer = rows.write.format("delta").mode("append").option("userMetadata", json.dumps(metadata))
        if self._after.added:
            writer.option("mergeSchema", True)
        # Delta silently skips the write if WRITTEN or FENCED is committed already.
        writer.option("txnAppId", application).option("txnVersion", output_doubts.WRITTEN)
        with table_lock(location).exclusive(), stored_in_microseconds(rows):
            writer.save(for_spark(location))
        return False

    def ended(self, *, written: bool) -> None:
        pass
