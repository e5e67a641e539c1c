"""Which row of an Arrow table breaks what an output table asks of its values: NOT NULL, a CHECK constraint.

delta-rs refuses such rows as well, and names neither the constraint nor the row.
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

#: What delta-rs says of rows that break one of the table's constraints, whichever it is.
REFUSED = "failed validation check"
#: The properties of a table that hold its CHECK constraints, and what fields say of one of their own.
CHECK, INVARIANT = "delta.constraints.", "delta.invariants"
#: By this the fields tell that Delta computes them: nobody has to give them.
COMPUTED = ("delta.generationExpression", "delta.identity.")
#: The column of row numbers beside the rows, while they are looked through.
ROW = "ledger_row_number"


def require_not_null(loaded: DeltaTable, rows: pa.Table) -> None:
    """Raise ColumnsDiffer for a NOT NULL column of a table that the rows do not have, or in which one of them has null;
    also for a field of a struct."""
    if rows.num_rows:
        _require_not_null(schema_of(loaded), {name: rows[name] for name in rows.column_names}, "")


def _require_not_null(schema: Mapping[str, Any], columns: Mapping[str, pa.ChunkedArray], path: str) -> None:
    there = {name.lower(): values for name, values in columns.items()}
    for one in schema["fields"]:
        name, values = f"{path}{one['name']}", there.get(one["name"].lower())
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
    """Return the error for rows, with the columns of a table, that delta-rs says break one of its constraints."""
    checks = dict(_checks_of(loaded))
    broken = _first_broken(checks, rows)
    if broken is None:
        names = ", ".join([*checks, "NOT NULL inside a column"])
        return ColumnsDiffer(f"a row breaks one of the table's constraints ({names}): mend the row, or leave it out")
    name, row = broken
    return ColumnsDiffer(f"the row breaks the table's {name}: mend the row, or leave it out", row)


def _checks_of(loaded: DeltaTable) -> Iterator[tuple[str, str]]:
    """The constraints of a table in words, and the expression of SQL of each."""
    for name, expression in loaded.metadata().configuration.items():
        if name.startswith(CHECK):
            yield f"constraint {name.removeprefix(CHECK)} CHECK ({expression})", expression
    for one in schema_of(loaded)["fields"]:
        said = (one.get("metadata") or {}).get(INVARIANT)
        if said is not None:
            expression = json.loads(said)["expression"]["expression"]
            yield f"invariant of the column {one['name']} ({expression})", expression


def _first_broken(checks: Mapping[str, str], rows: pa.Table) -> tuple[str, int] | None:
    """The first constraint that a row breaks, and the number of its first such row; None where that cannot be told."""
    try:
        with tempfile.TemporaryDirectory(prefix="ledger-rows-") as folder:
            # Queries are asked of tables alone.
            numbers = pa.array(range(rows.num_rows), pa.int64())
            write_deltalake(folder, rows.append_column(ROW, numbers))
            query = QueryBuilder().register("rows", DeltaTable(folder))
            for name, expression in checks.items():
                # As Delta has it, one that is null is broken.
                wrong = f'SELECT min("{ROW}") AS "{ROW}" FROM rows WHERE ({expression}) IS NOT TRUE'
                found = pa.table(query.execute(wrong).read_all())[ROW][0].as_py()
                if found is not None:
                    return name, found
    except Exception:
        # It is about the words of an error alone.
        return None
    return None
