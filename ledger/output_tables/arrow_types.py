"""Translation of column types between Arrow and Delta's log, in both directions.

Unsigned numbers become the next longer signed type, nanoseconds become microseconds, and decimals of more than 38
digits get 38. Types without a Delta type, such as times of day and durations, are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ledger.output_tables.arrow_values import NotPlain, inside, is_list
from ledger.rules.column_types import (
    MOST_DIGITS,
    USUAL_DECIMAL,
    VOID,
    Fit,
    decimal,
    decimal_of,
    field_of,
    fit,
    plain,
)
from ledger.rules.output_columns import ColumnsDiffer

types = pa.types
_PLAIN = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    VOID: pa.null(),
}
_NAMES = {
    **{str(kind): name for name, kind in _PLAIN.items()},
    "halffloat": "float",
    "uint8": "short",
    "uint16": "integer",
    "uint32": "long",
    "uint64": decimal(20, 0),
    "large_string": "string",
    "string_view": "string",
    "large_binary": "binary",
    "binary_view": "binary",
    "date64[ms]": "date",
}


def delta_type(kind: pa.DataType) -> Any:
    """Return the type of Delta's log for values of an Arrow type. Raises NotPlain if there is none."""
    name = _NAMES.get(str(kind))
    if name is not None:
        return name
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if types.is_decimal(kind):
        if kind.scale < 0 or kind.scale > MOST_DIGITS:
            return decimal(MOST_DIGITS, max(0, min(kind.scale, MOST_DIGITS)))
        return decimal(min(kind.precision, MOST_DIGITS), kind.scale)
    if types.is_struct(kind):
        return {"type": "struct", "fields": [field_of(one.name, _inner_type(one.name, one.type)) for one in kind]}
    if types.is_map(kind):
        inner = {"keyType": _inner_type("key", kind.key_type), "valueType": _inner_type("value", kind.item_type)}
        return {"type": "map", **inner, "valueContainsNull": True}
    if is_list(kind):
        return {"type": "array", "elementType": _inner_type("element", kind.value_type), "containsNull": True}
    raise NotPlain(f"It is {kind}, for which Delta tables have no type", _advice_on(kind))


def _inner_type(step: str, kind: pa.DataType) -> Any:
    with inside(step):
        return delta_type(kind)


def _advice_on(kind: pa.DataType) -> str:
    if types.is_time(kind):
        return 'Cast it in the rows to a text, or to a whole number (pyarrow: column.cast("string"))'
    if types.is_duration(kind):
        whole = 'pyarrow: column.cast("int64"); pandas: .dt.total_seconds()'
        return f"Cast it in the rows to a whole number of its unit, or to seconds ({whole})"
    if types.is_interval(kind):
        return "Make columns of its parts in the rows: months, days and nanoseconds"
    return "Cast it in the rows to a text, or to a whole number"


def arrow_type(kind: Any) -> pa.DataType | None:
    """Return the Arrow type of a type of Delta's log; None if it has none here."""
    kind = plain(kind)
    if isinstance(kind, str):
        digits = decimal_of(kind)
        return _PLAIN.get(kind) if digits is None else pa.decimal128(*digits)
    if kind["type"] == "array":
        inner = arrow_type(kind["elementType"])
        return None if inner is None else pa.list_(inner)
    if kind["type"] == "map":
        parts = arrow_type(kind["keyType"]), arrow_type(kind["valueType"])
        return None if None in parts else pa.map_(*parts)
    if kind["type"] != "struct":
        return None
    fields = [(one["name"], arrow_type(one["type"])) for one in kind["fields"]]
    return None if any(inner is None for _, inner in fields) else pa.struct(fields)


def schema_of_rows(rows: pa.Table, table: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of rows, as Delta's log writes it. Raises ColumnsDiffer for a type that no Delta table has.

    `table` is the schema of the rows' table, if it exists. Then a column without a value becomes void if its type does
    not fit the table's column. (pandas gives a column of nulls a number type.)
    """
    fields, table_types = [], {one["name"].lower(): one["type"] for one in (table or {"fields": ()})["fields"]}
    for field in rows.schema:
        is_void = table is not None and rows[field.name].null_count == rows.num_rows
        try:
            kind = delta_type(field.type)
        except NotPlain as error:
            if not is_void:
                values = rows[field.name].drop_null()
                first = f". Its first value is {values[0]}" if len(values) else ""
                raise ColumnsDiffer(f"column {field.name}{error.path}: {error.said}{first}. {error.fix}") from None
            kind = VOID
        if is_void and fit(kind, table_types.get(field.name.lower(), VOID)) is Fit.NEVER:
            kind = VOID
        fields.append(field_of(field.name, kind))
    return {"type": "struct", "fields": fields}


def with_room(schema: Mapping[str, Any], rows: pa.Table, declared: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema for a new table, with wider decimals where only the first values decided the width.

    A column of which a value uses all digits, or of nulls, gets decimal(38,18), as in Spark. A type that does not fit
    into it gets 38 digits and keeps its scale. Decimals inside nested types are always widened, and columns in
    `declared` never.
    """
    free = set(rows.column_names) - {one["name"] for one in (declared or {"fields": ()})["fields"]}
    fields = [
        {**one, "type": _roomy(one["type"], rows[one["name"]]) if one["name"] in free else one["type"]}
        for one in schema["fields"]
    ]
    return {**schema, "fields": fields}


def _roomy(kind: Any, values: pa.ChunkedArray) -> Any:
    if not isinstance(kind, str):
        return _roomy_inside(kind)
    if not types.is_decimal(values.type) or not _uses_all_digits(values):
        return kind
    return _usual(kind)


def _roomy_inside(kind: Any) -> Any:
    if isinstance(kind, str):
        return _usual(kind) if decimal_of(kind) else kind
    if kind["type"] == "struct":
        return {**kind, "fields": [{**one, "type": _roomy_inside(one["type"])} for one in kind["fields"]]}
    inner = [name for name in ("elementType", "keyType", "valueType") if name in kind]
    return {**kind, **{name: _roomy_inside(kind[name]) for name in inner}}


def _usual(kind: str) -> str:
    precision, scale = decimal_of(kind) or (0, 0)
    whole, places = USUAL_DECIMAL[0] - USUAL_DECIMAL[1], USUAL_DECIMAL[1]
    if precision - scale <= whole and scale <= places:
        return decimal(*USUAL_DECIMAL)
    return decimal(MOST_DIGITS, scale)


def _uses_all_digits(values: pa.ChunkedArray) -> bool:
    most = pc.max(pc.abs(values)).as_py()
    if most is None:
        return True
    return bool(len(str(int(most.scaleb(values.type.scale)))) >= values.type.precision)
