"""Output tables through delta-rs: see the protocols ForeignTables and ArrowOutputs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import DeltaError

from ledger.delta_log.alterations import explain_forgetting, list_unappendable_features
from ledger.delta_log.delta_rs_commits import add_missing_columns, commit_nothing, conflicts, properties, read_demands
from ledger.delta_log.local_commits import can_commit_here, commit_files
from ledger.delta_log.protocol import Conflict
from ledger.delta_log.storage import LocalFiles, TableStorage, table_files
from ledger.errors import OutputNotWritten, OutputUnreadable
from ledger.output_tables.arrow_types import schema_of_rows, widen_decimals
from ledger.output_tables.exact_casts import describe_row, first_true, first_value, fit_columns
from ledger.output_tables.files_aside import Bounds, RowsAside, correct_file, exact_bounds
from ledger.output_tables.protocol import OutputLog, require_remembered, unreadable
from ledger.output_tables.publishing import (
    DeltaRsOutputs,
    load_output,
    require_uncommitted,
    target_of,
    why_not_widened,
    widen,
)
from ledger.output_tables.schemas import (
    REFUSED,
    add,
    columns_for,
    create,
    make_constraint_error,
    require_not_null,
    schema_of,
    translating_column_errors,
)
from ledger.rules.location import S3, recorded
from ledger.rules.output_columns import (
    NULL_PARTITION,
    Columns,
    ColumnsAsked,
    ColumnsDiffer,
    describe_stored_null,
    describe_stored_text,
    drop_maps_of_local_times,
    plan_new_columns,
)
from ledger.rules.publishable import MAPPING, list_unapplied_demands
from ledger.store.protocol import ArrowOutputs

#: The metadata by which Spark marks a text column as CHAR(n) or VARCHAR(n). delta-rs ignores it.
LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
#: How often a commit is tried at most while other writers commit.
TRIES = 10
#: A decimal with more digits may change as a float.
EXACT_DIGITS = 15


def _columns_for(loaded: DeltaTable, rows: pa.Table, asked: ColumnsAsked) -> Columns:
    return columns_for(loaded, schema_of_rows(rows, schema_of(loaded)), asked, partial(first_value, rows))


def _require_appendable(location: str, loaded: DeltaTable) -> None:
    """Raise OutputNotWritten for a table where a write would stay in doubt.

    Such a table forgets its transactions, or takes no fence from delta-rs.
    """
    if forgetful := explain_forgetting(loaded.metadata().configuration):
        raise OutputNotWritten(location, forgetful)
    beyond = list_unappendable_features(loaded) if list_unapplied_demands(read_demands(loaded)) else []
    if beyond:
        problem = f"the table has the feature {', '.join(beyond)}, with which delta-rs writes no rows"
        raise OutputNotWritten(location, f"{problem}. Write a DataFrame of Spark's, by a ledger that has a session")


def _fit_rows(rows: pa.Table, columns: Columns) -> pa.Table:
    with _naming_row(rows):
        return fit_columns(rows, columns.schema)


def _add_absent_columns(loaded: DeltaTable, rows: pa.Table) -> pa.Table:
    """Add the absent columns as nulls if the table has column mapping: delta-rs accepts no other rows."""
    is_mapped = loaded.metadata().configuration.get(MAPPING, "none") != "none"
    return add_missing_columns(loaded, rows) if is_mapped else rows


@contextmanager
def _naming_row(rows: pa.Table) -> Iterator[None]:
    try:
        yield
    except ColumnsDiffer as error:
        if error.row is not None:
            error.place = describe_row(rows, error.row)
        raise


class DeltaRsOutputTables:
    """ForeignTables and ArrowOutputs without a JVM. Threads may share an object of this class."""

    name = "delta-rs"

    def __init__(
        self,
        storage_options: Mapping[str, str] | None = None,
        known_elsewhere: Callable[[str], Mapping[str, str]] | None = None,
        *,
        sync: bool = True,
    ) -> None:
        """
        Args:
            storage_options: The settings for the ledger's own storage, which also reach output tables.
            known_elsewhere: Returns the settings for a bucket of S3. `storage_options` override them.
            sync: If true, a commit on a local path survives a power cut.
        """
        self._storage_options = dict(storage_options or {}) or None
        self._known_elsewhere, self._sync = known_elsewhere, sync

    def read_output_log(self, location: str, application: str) -> OutputLog:
        with unreadable(location):
            loaded = self._output(location)
            committed = loaded.transaction_version(application)
            if committed is None and application:
                require_remembered(location, loaded.metadata().configuration)
            return OutputLog(str(loaded.metadata().id), loaded.version(), committed)

    def fence_output(self, location: str, application: str, version: int) -> None:
        with unreadable(location):
            loaded, stored = self._output(location), self._open_storage(location)
            require_uncommitted(loaded, application)
            metadata, transaction = {"verb": "fence"}, (application, version)
            if isinstance(stored, LocalFiles) and can_commit_here(loaded, stored):
                require = partial(require_uncommitted, application=application)
                commit_files(loaded, stored, [], metadata, [transaction], require, cleans_log=True)
            else:
                commit_nothing(loaded, properties(metadata, transaction))
                stored.make_durable(loaded.version())

    def arrow_outputs(self) -> ArrowOutputs:
        return self

    def output_publishing(self, location: str) -> DeltaRsOutputs:
        return DeltaRsOutputs(self._options_of(location), sync=self._sync)

    def prepare_output(
        self, location: str, rows: pa.Table, asked: ColumnsAsked, alone: Callable[[], AbstractContextManager[Any]]
    ) -> pa.Table:
        loaded, stored = load_output(location, self._options_of(location)), self._open_storage(location)
        with translating_column_errors(location, lambda: None if loaded is None else why_not_widened(loaded)):
            if loaded is None:
                columns = plan_new_columns(schema_of_rows(rows), asked)
                columns = replace(columns, schema=widen_decimals(columns.schema, rows, asked.declared))
                rows = _fit_rows(rows, columns)
                with alone():
                    create(location, drop_maps_of_local_times(columns), self._options_of(location), stored)
            else:
                _require_appendable(location, loaded)
                columns = _columns_for(loaded, rows, asked)
                with _naming_row(rows):
                    require_not_null(loaded, rows)
                rows = _fit_rows(rows, columns)
                if columns.retyped:
                    with alone():
                        self._widen(location, rows, asked)
        return rows

    def append_output(
        self,
        location: str,
        rows: pa.Table,
        application: str,
        version: int,
        metadata: Mapping[str, Any],
        asked: ColumnsAsked,
    ) -> None:
        for tried in range(TRIES):
            loaded, stored = self._output(location), self._open_storage(location)
            require_uncommitted(loaded, application)
            with translating_column_errors(location, partial(why_not_widened, loaded)):
                columns = _columns_for(loaded, rows, asked)
                with _naming_row(rows):
                    require_not_null(loaded, rows)
                ready = _fit_rows(rows, columns)
                with _naming_row(rows):
                    _require_partitions_kept(loaded, ready)
            if columns.retyped:
                # Another writer has made the table, or changed its columns, since the rows were prepared.
                self._widen(location, rows, asked)
                continue
            schema_before, applied = schema_of(loaded), _copy_nested_columns(_pad_char_columns(loaded, ready))
            bounds = exact_bounds(applied.drop_columns(_partitions_in(loaded, applied)))
            how = _choose_writer_properties(applied.schema, bounds)
            try:
                here, is_plain = can_commit_here(loaded, stored), not list_unapplied_demands(read_demands(loaded))
                # delta-rs's own append would describe the files misleadingly (see `files_aside`).
                is_misdescribed = bounds is None or any(_has_long_decimal(one.type) for one in applied.schema)
                is_staged = here or (is_misdescribed and is_plain)
                if columns.added and (_asks_for_feature(loaded, columns) or (is_staged and not here)):
                    add(loaded, columns)
                    stored.make_durable(loaded.version())
                    schema_before = schema_of(loaded)
                if is_staged:
                    schema = json.dumps(columns.schema) if columns.schema != schema_before else None
                    self._publish_rows(location, loaded, schema, applied, bounds, (application, version), metadata, how)
                    return
                with conflicts():
                    commit_properties = properties(metadata, (application, version))
                    how |= {"schema_mode": "merge"} if columns.added else {}
                    applied = applied if columns.added else _add_absent_columns(loaded, applied)
                    write_deltalake(loaded, applied, mode="append", commit_properties=commit_properties, **how)
                stored.make_durable(loaded.version())
                return
            except Conflict:
                # Try again only if another writer changed the columns.
                if tried + 1 == TRIES or schema_of(self._output(location)) == schema_before:
                    raise
            except DeltaError as error:
                if REFUSED not in str(error):
                    raise
                with translating_column_errors(location), _naming_row(rows):
                    raise make_constraint_error(loaded, ready) from error
        raise Conflict(f"others changed the columns of {location} {TRIES} times in the meantime")

    def _widen(self, location: str, rows: pa.Table, asked: ColumnsAsked) -> None:
        for tried in range(TRIES):
            loaded, stored = self._output(location), self._open_storage(location)
            with translating_column_errors(location, partial(why_not_widened, loaded)):
                columns = _columns_for(loaded, rows, asked)
                if not columns.retyped:
                    return
                try:
                    widen(loaded, columns, location, stored, self._options_of(location))
                    stored.make_durable(loaded.version())
                    return
                except Conflict:
                    if tried + 1 == TRIES:
                        raise

    def _publish_rows(
        self,
        location: str,
        loaded: DeltaTable,
        schema: str | None,
        rows: pa.Table,
        bounds: Bounds,
        transaction: tuple[str, int],
        metadata: Mapping[str, Any],
        how: Mapping[str, Any],
    ) -> None:
        """Write rows into a folder below a table, and publish the files in one commit.

        On a local path, this commit also gives the table another `schema`. If the process dies before, VACUUM removes
        the files.
        """
        target = target_of(loaded)
        demands = target.demands if schema is None else replace(target.demands, schema=schema)
        publishing, columns = self.output_publishing(location), schema_of(loaded)
        aside, is_unneeded = RowsAside(location, self._options_of(location), demands, sync=self._sync), True
        try:
            files = [correct_file(one, bounds, columns) for one in aside.write(rows, **how)]
            # If an error leaves open whether the files are published, they stay.
            is_unneeded = False
            publishing.publish(location, target, files, transaction, metadata, schema)
            aside.settle()
        except Conflict:
            is_unneeded = True
            raise
        finally:
            if is_unneeded:
                aside.remove()

    def _open_storage(self, location: str) -> TableStorage:
        return table_files(location, self._options_of(location), sync=self._sync)

    def _output(self, location: str) -> DeltaTable:
        loaded = load_output(location, self._options_of(location))
        if loaded is None:
            raise OutputUnreadable(location, "there is no Delta table, or this process cannot see it", gone=True)
        return loaded

    def _options_of(self, location: str) -> dict[str, str] | None:
        place = recorded(location)
        if self._known_elsewhere is None or place.scheme not in S3:
            return self._storage_options
        return {**self._known_elsewhere(place.text.split("/")[2]), **(self._storage_options or {})}


def _require_partitions_kept(loaded: DeltaTable, rows: pa.Table) -> None:
    for name in _partitions_in(loaded, rows):
        values = rows[name]
        if pa.types.is_binary(values.type) and values.null_count < len(values):
            raise ColumnsDiffer(describe_stored_text(name), first_true(values.is_valid()))
        if pa.types.is_string(values.type):
            row = first_true(pc.is_in(values, pa.array(["", NULL_PARTITION])))
            if row is not None:
                raise ColumnsDiffer(describe_stored_null(name), row)


def _partitions_in(loaded: DeltaTable, rows: pa.Table) -> list[str]:
    return [name for name in loaded.metadata().partition_columns if name in rows.column_names]


def _asks_for_feature(loaded: DeltaTable, columns: Columns) -> bool:
    """Return whether delta-rs has to add the protocol feature timestampNtz in a commit of its own."""
    return "timestamp_ntz" in json.dumps(columns.schema) and "timestampNtz" not in (
        loaded.protocol().writer_features or ()
    )


def _choose_writer_properties(schema: pa.Schema, bounds: Bounds) -> dict[str, Any]:
    """Return the settings by which delta-rs leaves out bounds that would make readers skip a file wrongly.

    If `bounds` is None, no column gets statistics. Otherwise long decimals outside structs get none. `correct_file`
    adds the exact bounds to files that `_publish_rows` publishes.
    """
    none = ColumnProperties(statistics_enabled="NONE")
    if bounds is None:
        return {"writer_properties": WriterProperties(compression="SNAPPY", default_column_properties=none)}
    wrong = [one.name for one in schema if not pa.types.is_struct(one.type) and _has_long_decimal(one.type)]
    if not wrong:
        return {}
    return {"writer_properties": WriterProperties(compression="SNAPPY", column_properties=dict.fromkeys(wrong, none))}


def _has_long_decimal(kind: pa.DataType) -> bool:
    """Return whether a type has a decimal, also in a struct, whose bounds delta-rs would round to floats."""
    if pa.types.is_struct(kind):
        return any(_has_long_decimal(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind) and kind.precision > EXACT_DIGITS)


def _copy_nested_columns(rows: pa.Table) -> pa.Table:
    """Copy nested columns: delta-rs aborts the process for a struct in a struct that is a slice of a longer array."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            chunks = [pa.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in rows.column(place).chunks]
            rows = rows.set_column(place, field, pa.chunked_array(chunks, field.type))
    return rows


def _pad_char_columns(loaded: DeltaTable, rows: pa.Table) -> pa.Table:
    """Return the rows with texts in CHAR(n) columns filled up with spaces, as Spark writes them."""
    for field in loaded.schema().fields:
        kind = field.metadata.get(LENGTH)
        if kind is None or field.name not in rows.column_names:
            continue
        declared = re.fullmatch(r"(char|varchar)\((\d+)\)", str(kind), re.IGNORECASE)
        if declared is None:
            raise ValueError(f"the column {field.name} is {kind}, which only Spark applies: write a DataFrame")
        most, values = int(declared[2]), rows[field.name].cast(pa.large_string())
        longest = pc.max(pc.utf8_length(values)).as_py() or 0
        if longest > most:
            raise ValueError(f"the column {field.name} is {kind}, and a text has {longest} characters")
        filled = pc.utf8_rpad(values, most) if declared[1].lower() == "char" else values
        rows = rows.set_column(rows.column_names.index(field.name), field.name, filled)
    return rows
