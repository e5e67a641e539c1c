"""The columns and constraints of output tables, as delta-rs reads, makes and adds them.

delta-rs refuses a row that breaks a constraint, but names neither. This module finds both.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Schema, TableFeatures, write_deltalake

from ledger.delta_log import local_commits
from ledger.delta_log.delta_rs_commits import conflicts
from ledger.delta_log.protocol import Conflict
from ledger.delta_log.storage import LocalFiles, TableStorage
from ledger.errors import OutputNotWritten
from ledger.output_tables.exact_casts import first_true
from ledger.rules.column_types import has_local_time_in_map
from ledger.rules.output_columns import (
    OFFER,
    Columns,
    ColumnsAsked,
    ColumnsDiffer,
    merge_columns,
    properties_of,
    replace_offer,
)

TRIES = 5


@contextmanager
def translating_column_errors(
    location: object, why_not_widened: Callable[[], str | None] = lambda: None
) -> Iterator[None]:
    """Turn ColumnsDiffer into OutputNotWritten, without an offer to widen if `why_not_widened` returns a reason."""
    try:
        yield
    except ColumnsDiffer as error:
        raise OutputNotWritten(location, correct_offer(str(error), why_not_widened), place=error.place) from None


def correct_offer(sentence: str, why_not_widened: Callable[[], str | None]) -> str:
    """Return the sentence of an error, without an offer to widen if there is a reason not to widen."""
    why = why_not_widened() if OFFER in sentence else None
    return sentence if why is None else replace_offer(sentence, why)


def schema_of(loaded: DeltaTable) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(loaded.schema().to_json())
    return schema


def columns_for(
    loaded: DeltaTable, rows: dict[str, Any], asked: ColumnsAsked, first: Callable[[str], str] | None = None
) -> Columns:
    """Return the columns that a table has once `rows` (a schema) are in. Raises ColumnsDiffer."""
    return merge_columns(schema_of(loaded), rows, loaded.metadata().configuration, asked, first)


def create(location: str, columns: Columns, options: dict[str, str] | None, files: TableStorage) -> None:
    """Make an empty table, if there is none."""
    make = partial(
        DeltaTable.create,
        schema=Schema.from_json(json.dumps(columns.schema)),
        mode="ignore",
        configuration=properties_of(columns),
        # Without retries, delta-rs commits version 0 or nothing. So of several callers, only the first makes the table.
        commit_properties=CommitProperties(max_commit_retries=0),
        raise_if_key_not_exists=False,
    )
    if isinstance(files, LocalFiles):
        local_commits.create(files, make)
    else:
        make(location, storage_options=options)


def add(loaded: DeltaTable, columns: Columns) -> None:
    """Add the columns that a table lacks, in a separate commit. Raises Conflict after TRIES lost races.

    delta-rs does not see that a timestamp_ntz inside a map needs the feature timestampNtz. An earlier commit adds it.
    """
    for tried in range(TRIES):
        names = {one["name"].lower() for one in schema_of(loaded)["fields"]}
        fields = [one for one in columns.schema["fields"] if one["name"].lower() not in names]
        if not fields:
            return
        try:
            with conflicts():
                if any(has_local_time_in_map(one["type"]) for one in fields) and not _has_local_times(loaded):
                    loaded.alter.add_feature(
                        TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True
                    )
                loaded.alter.add_columns(Schema.from_json(json.dumps({"type": "struct", "fields": fields})).fields)
            return
        except Conflict:
            if tried + 1 == TRIES:
                raise
            loaded.update_incremental()


def _has_local_times(loaded: DeltaTable) -> bool:
    return "timestampNtz" in (loaded.protocol().writer_features or ())


REFUSED = "failed validation check"
#: The prefix of CHECK constraints among a table's properties, and a column invariant's key in the column's metadata.
CHECK, INVARIANT = "delta.constraints.", "delta.invariants"
#: Prefixes of metadata keys of columns that Delta computes.
COMPUTED = ("delta.generationExpression", "delta.identity.")
ROW = "ledger_row_number"


def require_not_null(loaded: DeltaTable, rows: pa.Table) -> None:
    """Raise ColumnsDiffer if the rows lack a NOT NULL column that Delta does not compute, or have null in one.

    The fields of a struct are checked, too, if no row has null for the whole struct.
    """
    if rows.num_rows:
        _require_not_null(schema_of(loaded), {name: rows[name] for name in rows.column_names}, "")


def _require_not_null(schema: Mapping[str, Any], columns: Mapping[str, pa.ChunkedArray], path: str) -> None:
    values_by_name = {name.lower(): values for name, values in columns.items()}
    for one in schema["fields"]:
        name, values = f"{path}{one['name']}", values_by_name.get(one["name"].lower())
        if not one.get("nullable", True):
            if values is None and not any(key.startswith(COMPUTED) for key in one.get("metadata") or ()):
                raise ColumnsDiffer(f"the rows have no column {name}, which is NOT NULL in the table: add it to them")
            row = None if values is None else first_true(values.is_null())
            if row is not None:
                raise ColumnsDiffer(
                    f"column {name} is NOT NULL in the table, and NULL here: give a value, or leave the row out", row
                )
        is_struct = not isinstance(one["type"], str) and one["type"]["type"] == "struct"
        if is_struct and values is not None and pa.types.is_struct(values.type) and not values.null_count:
            inner = {field.name: pc.struct_field(values, [number]) for number, field in enumerate(values.type)}
            _require_not_null(one["type"], inner, f"{name}.")


def make_constraint_error(loaded: DeltaTable, rows: pa.Table) -> ColumnsDiffer:
    """Return the error for rows that delta-rs refused: the broken constraint, if it is found, or all constraints."""
    checks = dict(_checks_of(loaded))
    broken = _find_first_broken(checks, rows)
    if broken is None:
        names = ", ".join([*checks, "NOT NULL inside a column"])
        return ColumnsDiffer(f"a row breaks one of the table's constraints ({names}): mend the row, or leave it out")
    name, row = broken
    return ColumnsDiffer(f"the row breaks the table's {name}: mend the row, or leave it out", row)


def _checks_of(loaded: DeltaTable) -> Iterator[tuple[str, str]]:
    for name, expression in loaded.metadata().configuration.items():
        if name.startswith(CHECK):
            yield f"constraint {name.removeprefix(CHECK)} CHECK ({expression})", expression
    for one in schema_of(loaded)["fields"]:
        invariant = (one.get("metadata") or {}).get(INVARIANT)
        if invariant is not None:
            expression = json.loads(invariant)["expression"]["expression"]
            yield f"invariant of the column {one['name']} ({expression})", expression


def _find_first_broken(checks: Mapping[str, str], rows: pa.Table) -> tuple[str, int] | None:
    try:
        with tempfile.TemporaryDirectory(prefix="ledger-rows-") as folder:
            # delta-rs queries only Delta tables, so write the rows to one.
            numbers = pa.array(range(rows.num_rows), pa.int64())
            write_deltalake(folder, rows.append_column(ROW, numbers))
            query = QueryBuilder().register("rows", DeltaTable(folder))
            for name, expression in checks.items():
                # In Delta an expression that is null breaks its constraint.
                query_of_broken = f'SELECT min("{ROW}") AS "{ROW}" FROM rows WHERE ({expression}) IS NOT TRUE'
                number = pa.table(query.execute(query_of_broken).read_all())[ROW][0].as_py()
                if number is not None:
                    return name, number
    except Exception:
        # The search only improves the text of an error.
        return None
    return None
