"""Casts of Arrow's values that change no value.

If a cast may change a value, Arrow refuses the change, or this module casts the result back and compares. The error
names the first value of the column that would change.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ledger.output_tables.arrow_types import arrow_type, delta_type, first_failing, rebuild_nested
from ledger.rules.column_types import FIRST_OF_WHOLE, Fit, fit
from ledger.rules.output_columns import (
    ColumnsDiffer,
    describe_mismatch,
    describe_not_finite,
    describe_outside_years,
    describe_repeated_key,
)

types = pa.types
MICROSECONDS_OF_DAY = 86_400_000_000
#: From the first day of year 1 to the end of year 9999, counted from 1970.
YEARS_IN_DAYS = -719_162, 2_932_896
YEARS_IN_MICROSECONDS = -719_162 * MICROSECONDS_OF_DAY, 2_932_897 * MICROSECONDS_OF_DAY - 1
#: The first float above int64. A cast may turn it into the greatest int64.
BEHIND_INT64 = 2.0**63


class Changed(Exception):
    """A value would change."""


def fit_columns(rows: pa.Table, schema: Mapping[str, Any]) -> pa.Table:
    """Return the rows with a table's columns: its names and types, in its order. Raises ColumnsDiffer.

    A column that the rows lack becomes nulls, unless it may not be null, has no Arrow type here, or has metadata.
    (Delta may compute such a column.) Columns that the schema lacks are left out: `rules.output_columns` lets only
    columns of unknown type come here.
    """
    names_in_rows = {name.lower(): name for name in rows.column_names}
    columns: dict[str, pa.ChunkedArray] = {}
    for one in schema["fields"]:
        name, to = names_in_rows.get(one["name"].lower()), arrow_type(one["type"])
        if name is None:
            if to is not None and one.get("nullable", True) and not one.get("metadata"):
                columns[one["name"]] = pa.chunked_array([pa.nulls(rows.num_rows, to)])
        elif to is None:
            raise ColumnsDiffer(describe_mismatch(name, delta_type(rows[name].type), one["type"]))
        else:
            columns[one["name"]] = _fit_column(name, rows[name], one["type"], to)
    return pa.table(columns) if columns else rows.select([])


def _fit_column(name: str, values: pa.ChunkedArray, column: Any, to: pa.DataType) -> pa.ChunkedArray:
    fitting, row = _cast(name, values, column, to), 0
    for chunk in fitting.chunks:
        for find, sentence in (
            (_find_outside_years, describe_outside_years),
            (_find_repeated_key, describe_repeated_key),
        ):
            value = find(chunk)
            if value is not None:
                number = first_failing(chunk, partial(_require_none, find))
                raise ColumnsDiffer(sentence(name, value), None if number is None else row + number)
        row += len(chunk)
    return fitting


def _require_none(find: Callable[[pa.Array], str | None], array: pa.Array) -> None:
    if find(array) is not None:
        raise Changed("it has such a value")


def first_value(rows: pa.Table, path: str) -> str:
    """Return the first value of a column as a text for users, or "". `path` may lead inside the column."""
    for name in rows.column_names:
        if path == name or path.startswith(f"{name}."):
            values = rows[name].drop_null()
            if len(values) and (types.is_string(values.type) or types.is_large_string(values.type)):
                return repr(_show_value(values[0]))
            return _show_value(values[0]) if len(values) else ""
    return ""


def first_true(answers: pa.ChunkedArray) -> int | None:
    number = int(pc.index(answers, True).as_py())
    return None if number < 0 else number


def describe_row(rows: pa.Table, number: int) -> str:
    for name, words in (("message_id", "the row of message"), ("receipt_handle", "the row with the receipt handle")):
        value = rows[name][number].as_py() if name in rows.column_names else None
        if value is not None:
            return f"{words} {value}"
    return f"row {number}"


def _list_inner(array: pa.Array) -> list[pa.Array]:
    if types.is_struct(array.type):
        return list(array.flatten())
    if not types.is_map(array.type):
        return [array.flatten()]
    first, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return [array.keys.slice(first, end - first), array.items.slice(first, end - first)]


def _find_repeated_key(array: pa.Array) -> str | None:
    """Return a key that one map of an array has twice, at any depth; None if there is none."""
    if not types.is_nested(array.type):
        return None
    parts = _list_inner(array)
    if types.is_map(array.type):
        listed = pa.ListArray.from_arrays(array.offsets, array.keys)
        repeated = _find_repeated(pc.list_parent_indices(listed), parts[0])
        if repeated is not None:
            return repeated
    return next((repeated for one in parts if (repeated := _find_repeated_key(one)) is not None), None)


def _find_repeated(parents: pa.Array, keys: pa.Array) -> str | None:
    if types.is_nested(keys.type):
        seen = set[str]()
        for parent, key in zip(parents.to_pylist(), keys.to_pylist()):
            entry = repr((parent, key))
            if entry in seen:
                return _show_value(pa.scalar(key, keys.type))
            seen.add(entry)
        return None
    counted = pa.table({"parent": parents, "key": keys}).group_by(["parent", "key"]).aggregate([([], "count_all")])
    if counted.num_rows == len(keys):
        return None
    return _show_value(counted.filter(pc.greater(counted["count_all"], 1))["key"][0])


def _find_outside_years(array: pa.Array) -> str | None:
    """Return a date or instant outside the years 1 to 9999, at any depth. Many readers of Delta tables fail on it."""
    kind = array.type
    if types.is_nested(kind):
        return next((outside for one in _list_inner(array) if (outside := _find_outside_years(one)) is not None), None)
    if not types.is_date32(kind) and not types.is_timestamp(kind):
        return None
    first, last = YEARS_IN_DAYS if types.is_date32(kind) else YEARS_IN_MICROSECONDS
    numbers = array.cast(pa.int32()).cast(pa.int64()) if types.is_date32(kind) else array.cast(pa.int64())
    is_outside = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    if not pc.any(is_outside).as_py():
        return None
    unit = "days" if types.is_date32(kind) else "microseconds"
    return f"{numbers.filter(is_outside)[0].as_py()} {unit} since 1970"


def _cast(name: str, values: pa.ChunkedArray, column: Any, to: pa.DataType) -> pa.ChunkedArray:
    if values.type == to:
        return values
    if not len(values):
        return pa.chunked_array([], to)
    try:
        return pa.chunked_array([cast_exactly(chunk, to) for chunk in values.chunks], to)
    except (Changed, pa.ArrowException, ArithmeticError, ValueError, TypeError) as error:
        example, row, before = str(error), None, 0
        for chunk in values.chunks:
            number = first_failing(chunk, lambda part: cast_exactly(part, to))
            if number is not None:
                example, row = _show_value(chunk[number]), before + number
                break
            before += len(chunk)
        sentence = describe_not_finite if example in ("nan", "inf", "-inf") else describe_mismatch
        raise ColumnsDiffer(sentence(name, _given_type(values.type, column), column, example), row) from None


def cast_exactly(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Return the same values in another type. Raises Changed, or what Arrow raises."""
    kind = array.type
    if kind == to:
        return array
    if types.is_null(kind) or array.null_count == len(array):
        return pa.nulls(len(array), to)
    if types.is_nested(kind):
        return _cast_nested(array, to)
    if fit(delta_type(kind), delta_type(to)) is Fit.NEVER:
        raise Changed(f"{kind} is no {to}")
    return _cast_plain(array, to)


def _cast_nested(array: pa.Array, to: pa.DataType) -> pa.Array:
    if types.is_struct(to) and types.is_struct(array.type):
        parts = dict(zip([field.name.lower() for field in array.type], array.flatten()))
        fields = [
            cast_exactly(parts[field.name.lower()], field.type)
            if field.name.lower() in parts
            else pa.nulls(len(array), field.type)
            for field in to
        ]
        lost = set(parts) - {field.name.lower() for field in to}
        if any(parts[name].null_count < len(array) and _has_known_type(parts[name].type) for name in lost):
            raise Changed("a field would be lost")
        return pa.StructArray.from_arrays(fields, fields=list(to), mask=array.is_null())
    parts_of = [to.key_type, to.item_type] if types.is_map(to) else [to.field(n).type for n in range(to.num_fields)]
    return rebuild_nested(array, lambda inner, field, number: cast_exactly(inner, parts_of[number])).cast(to)


def _has_known_type(kind: pa.DataType) -> bool:
    is_empty = types.is_null(kind) or (types.is_struct(kind) and not kind.num_fields)
    return not is_empty and all(_has_known_type(kind.field(n).type) for n in range(kind.num_fields))


def _cast_plain(array: pa.Array, to: pa.DataType) -> pa.Array:
    kind = array.type
    if types.is_floating(kind):
        return _cast_floats(array.cast(pa.float64()), to)
    if types.is_decimal(kind) and types.is_floating(to):
        converted = array.cast(pa.string()).cast(to)
        back = _cast_doubles(converted.cast(pa.float64()), pa.decimal256(76, array.type.scale))
        return _require_unchanged(pc.not_equal(back, array.cast(back.type)), converted)
    if types.is_integer(kind) and types.is_floating(to):
        converted = array.cast(to, safe=False)
        return _require_unchanged(_find_differences(array, converted.cast(pa.float64())), converted)
    if types.is_integer(kind) and types.is_decimal(to):
        return array.cast(pa.decimal128(20 + (types.is_uint64(kind)), 0)).cast(to)
    if types.is_date(kind) and types.is_timestamp(to):
        days = array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        return pc.multiply_checked(days, MICROSECONDS_OF_DAY).cast(pa.timestamp("us")).cast(to)
    if types.is_timestamp(kind) and types.is_date(to):
        micros = array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        converted = array.cast(pa.timestamp("us", kind.tz)).cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
        back = pc.multiply_checked(converted.cast(pa.int32()).cast(pa.int64()), MICROSECONDS_OF_DAY)
        return _require_unchanged(pc.not_equal(micros, back), converted)
    if types.is_timestamp(kind) and types.is_timestamp(to):
        # Arrow's instants are in UTC, whatever their zone. Instants without a zone count as UTC.
        return array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).cast(to)
    if types.is_date64(kind):
        converted = array.cast(to)
        return _require_unchanged(pc.not_equal(converted.cast(kind), array), converted)
    return array.cast(to)


def _cast_floats(array: pa.Array, to: pa.DataType) -> pa.Array:
    if types.is_floating(to):
        converted = array.cast(to)
        is_nan = pc.is_nan(array)
        return _require_unchanged(pc.and_not(pc.not_equal(converted.cast(pa.float64()), array), is_nan), converted)
    if types.is_decimal(to):
        return _cast_doubles(array, to)
    return _require_unchanged(pc.greater_equal(pc.fill_null(array, 0.0), BEHIND_INT64), array.cast(to))


def _cast_doubles(doubles: pa.Array, to: pa.DataType) -> pa.Array:
    """Return the decimals that doubles mean (`rules.column_types`)."""
    is_whole = pc.greater_equal(pc.abs(doubles), FIRST_OF_WHOLE)
    written = pc.if_else(is_whole, pa.scalar(None, pa.float64()), doubles).cast(pa.string()).cast(to)
    if not pc.any(is_whole).as_py():
        return written
    wholes = [
        None if one is None else decimal.Decimal(int(one)) for one in pc.if_else(is_whole, doubles, None).to_pylist()
    ]
    return pc.coalesce(written, pa.array(wholes, to))


def _find_differences(integers: pa.Array, floats: pa.Array) -> pa.Array:
    near = pc.and_(pc.less(floats, BEHIND_INT64), pc.greater_equal(floats, -BEHIND_INT64))
    back = pc.if_else(near, floats, 0.0).cast(pa.int64(), safe=False)
    return pc.or_(pc.invert(near), pc.not_equal(back, integers.cast(pa.int64())))


def _require_unchanged(is_wrong: pa.Array, converted: pa.Array) -> pa.Array:
    if pc.any(is_wrong).as_py():
        raise Changed("a value would be changed")
    return converted


def _given_type(kind: pa.DataType, column: Any) -> Any:
    """Return the type of the rows as Delta's log writes it, or Arrow's name if the column has that type."""
    log_type = delta_type(kind)
    return str(kind) if log_type == column else log_type


def _show_value(value: pa.Scalar) -> str:
    try:
        shown = str(value.as_py())
    except Exception:
        # Python has no value for a date outside the years 1 to 9999.
        shown = str(value.cast(pa.string()).as_py())
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
