"""The search for the row that breaks a table's constraint: NOT NULL, CHECK, or an invariant of a column.

delta-rs refuses such rows, but names neither the constraint nor the row.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from ledger.output_tables.exact_casts import first_true
from ledger.output_tables.schemas import schema_of
from ledger.rules.output_columns import ColumnsDiffer

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


def broken_constraint(loaded: DeltaTable, rows: pa.Table) -> ColumnsDiffer:
    """Return the error for rows that delta-rs refused: the broken constraint, if it is found, or all constraints."""
    checks = dict(_checks_of(loaded))
    broken = _first_broken(checks, rows)
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


def _first_broken(checks: Mapping[str, str], rows: pa.Table) -> tuple[str, int] | None:
    try:
        with tempfile.TemporaryDirectory(prefix="ledger-rows-") as folder:
            # delta-rs queries only Delta tables, so make one of the rows.
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
