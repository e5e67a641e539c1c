"""An Arrow table on its way into an output table, through delta-rs, without a JVM."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledger.errors import InvalidParameterValue
from ledger.output_messages import require_failed
from ledger.rules import output_doubts
from ledger.rules.location import Location
from ledger.store import OutputWrites
from ledger.store.delta.commit.file_locks import table_lock
from ledger.store.delta.commit.holdings import releasing
from ledger.store.delta.dataframes.named_messages import Named, named_by_array
from ledger.store.delta.dataframes.output_target import (
    different_columns,
    is_about_columns,
    not_written,
    place_of,
)
from ledger.tabular import arrow_table

if TYPE_CHECKING:
    pass


class ArrowWriter:
    """Writes an Arrow table, through delta-rs, without a JVM."""

    def __init__(self, outputs: OutputWrites, rows: Any, table: object, failed: str | None) -> None:
        known = arrow_table("rows", rows)
        if known is None:
            raise InvalidParameterValue("rows", type(rows).__name__, "Must be a DataFrame or an Arrow table")
        require_failed(failed, known.column_names)
        self._failed, self._exceptions = failed, known
        if failed is not None:
            is_done = known[failed].is_null()
            self._exceptions = known.filter(pa.compute.invert(is_done))
            known = known.filter(is_done).drop_columns([failed])
        self._engine, self._rows, self._table, self._outputs = outputs.without_spark(), known, table, outputs
        self._place = place_of(table, None)
        outputs.require_allowed(self._place.text)
        outputs.publishing(self._place.text)

    @property
    def columns(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self._rows.schema}

    def evaluated(self) -> contextlib.AbstractContextManager[None]:
        # The rows are what they are.
        return contextlib.nullcontext()

    def named(self, column: str, queue: str) -> Named:
        return named_by_array(self._rows[column], queue)

    def failed(self, column: str) -> pa.Table:
        return self._exceptions.select([column, self._failed])

    def named_failed(self, column: str, queue: str) -> Named:
        return named_by_array(self._exceptions[column], queue)

    @releasing
    def make(self) -> Location:
        with not_written(self._table), table_lock(self._place.text).exclusive():
            self._engine.create_output(self._place.text, self._rows.schema)
        return self._place

    def table_id(self, location: str) -> str:
        return self._outputs.table_id(location)

    @releasing
    def write(self, location: str, application: str, metadata: Mapping[str, Any]) -> bool:
        with table_lock(location).exclusive():
            self._engine.append_output(location, self._rows, application, output_doubts.WRITTEN, metadata)
        return True

    def ended(self, *, written: bool) -> None:
        pass

    def mismatch(self, location: str, failure: Exception) -> str:
        if not is_about_columns(failure):
            return ""
        with contextlib.suppress(Exception):
            there = {field.name: str(field.type) for field in self._engine.output_schema(location)}
            return different_columns(self.columns, there, needs_all=True)
        return ""
