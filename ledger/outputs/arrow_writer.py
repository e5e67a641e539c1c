"""The writer of an Arrow table to an output table, through delta-rs, without a JVM."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ledger.client.tables import is_text, read_arrow_table
from ledger.delta_log.protocol import reason
from ledger.errors import InvalidParameterValue, LedgerError, OutputNotWritten
from ledger.outputs.messages import CARRIED, Named, require_failed, resolve_array
from ledger.outputs.targets import not_written, place_of, restate_refusal
from ledger.rules import output_doubts
from ledger.rules.location import Location
from ledger.rules.output_columns import NOTHING_ASKED, ColumnsAsked
from ledger.store.delta.commit.locks import releasing, table_lock
from ledger.store.protocol import OutputWrites


class _WouldChange(LedgerError):
    """The table would have to be made or changed for the rows."""


class ArrowWriter:
    def __init__(
        self, outputs: OutputWrites, rows: Any, table: object, failed: str | None, asked: ColumnsAsked = NOTHING_ASKED
    ) -> None:
        table_rows = read_arrow_table("rows", rows)
        if table_rows is None:
            bound, fix = (
                "Must be a DataFrame or an Arrow table",
                "For a list of dictionaries: pa.Table.from_pylist(rows).",
            )
            raise InvalidParameterValue("rows", type(rows).__name__, bound, fix)
        table_rows = _with_ids_as_texts(table_rows)
        require_failed(failed, table_rows.column_names)
        self._failed, self._exceptions = failed, table_rows
        if failed is not None:
            is_done = table_rows[failed].is_null()
            self._exceptions = table_rows.filter(pa.compute.invert(is_done))
            table_rows = table_rows.filter(is_done).drop_columns([failed])
        self._engine, self._rows, self._table, self._outputs = (
            outputs.require_arrow_writer(),
            table_rows,
            table,
            outputs,
        )
        self._place, self._asked = place_of(table, None), asked
        outputs.require_allowed(self._place.text)
        # This call is made for its errors: UnsafeStorage and StorageFailed.
        outputs.publishing(self._place.text)

    @property
    def columns(self) -> dict[str, str]:
        """The types of the rows' columns in Arrow's words. A column without a value counts as text."""
        return {
            field.name: "string" if self._rows[field.name].null_count == self._rows.num_rows else str(field.type)
            for field in self._rows.schema
        }

    def evaluated(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def named(self, column: str, queue: str) -> Named:
        named = resolve_array(_texts(self._rows[column]), queue)
        # Without the failed rows, the other rows do not have the numbers that the caller knows.
        return named if self._failed is None else replace(named, row=None)

    def failed(self, column: str) -> pa.Table:
        return self._exceptions.select([column, self._failed])

    def find_named_failed(self, column: str, queue: str) -> Named:
        return resolve_array(_texts(self._exceptions[column]), queue)

    @releasing
    def make(self, before_changing: Callable[[], None]) -> Location:
        def alone() -> contextlib.AbstractContextManager[object]:
            before_changing()
            return table_lock(self._place.text).exclusive()

        with not_written(self._table):
            self._rows = self._engine.prepare_output(self._place.text, self._rows, self._asked, alone)
        return self._place

    def require_fitting(self) -> None:
        """Raise OutputNotWritten if `make` would refuse the rows. Neither make nor change a table."""

        def change() -> contextlib.AbstractContextManager[object]:
            raise _WouldChange("the table would be changed")

        with contextlib.suppress(_WouldChange), not_written(self._table):
            self._engine.prepare_output(self._place.text, self._rows, self._asked, change)

    def table_id(self, location: str) -> str:
        return self._outputs.table_id(location)

    @releasing
    def write(self, location: str, application: str, metadata: Mapping[str, Any]) -> bool:
        with table_lock(location).exclusive():
            written = output_doubts.WRITTEN
            self._engine.append_output(location, self._rows, application, written, metadata, self._asked)
        return True

    def ended(self, *, written: bool) -> None:
        pass

    def make_error(self, location: str, failure: Exception) -> OutputNotWritten:
        # An error about columns is an OutputNotWritten already.
        return restate_refusal(location, failure) or OutputNotWritten(location, reason(failure))


def _with_ids_as_texts(rows: pa.Table) -> pa.Table:
    for name in CARRIED:
        if name in rows.column_names:
            rows = rows.set_column(rows.column_names.index(name), name, _texts(rows[name]))
    return rows


def _texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values. If all are null, return them as texts."""
    if values.null_count < len(values) or is_text(values.type):
        return values
    return pa.chunked_array([pa.nulls(len(values), pa.string())])
