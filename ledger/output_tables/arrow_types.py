"""Arrow's column types in Delta's log, and Arrow's values in plain types.

Types that libraries hand over, and what this module makes of them:

    dictionary, run-end encoded                   their values
    string_view, binary_view, fixed-size binary   large_string, large_binary, binary
    halffloat                                     float
    decimal32, decimal64                          decimal128
    list_view, large_list_view, fixed-size list   list, large_list, list
    extension: uuid, json, bool8, 1-d tensors     string, string, bool, list
    all other extensions                          refused: their storage alone does not say what they mean
    union                                         refused: a column of Delta has one type

For Delta, unsigned numbers get a longer signed type, instants microseconds, and decimals at most 38 digits. Types that
Delta lacks, such as times of day and durations, are refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ledger.rules.column_types import (
    MOST_DIGITS,
    USUAL_DECIMAL,
    VOID,
    Fit,
    drop_char_length,
    fit,
    make_nullable_field,
    name_decimal,
    parse_decimal,
)
from ledger.rules.output_columns import ColumnsDiffer

types = pa.types
#: Advice on extension types that are refused.
FIXES = {
    "pandas.period": "Use .astype(str) or .dt.to_timestamp() on the column.",
    "pandas.interval": "Use .astype(str) on the column, or make two columns of its ends.",
}


class NotPlain(Exception):
    """A type is refused. `path` is its place in the column (`.name.element`)."""

    def __init__(self, said: str, fix: str) -> None:
        self.said, self.fix, self.path = said, fix, ""
        super().__init__(said)


@contextmanager
def inside(step: str) -> Iterator[None]:
    """Add a step to the path of a refused type: a field's name, or `element`, `key` or `value`."""
    try:
        yield
    except NotPlain as error:
        error.path = f".{step}{error.path}"
        raise


def is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind))


def is_plain(kind: pa.DataType) -> bool:
    if types.is_nested(kind):
        if types.is_map(kind):
            return is_plain(kind.key_type) and is_plain(kind.item_type)
        if types.is_struct(kind):
            return all(is_plain(field.type) and not _extension_of(field) for field in kind)
        return is_list(kind) and is_plain(kind.value_type) and not _extension_of(kind.value_field)
    return not (
        isinstance(kind, pa.BaseExtensionType)
        or types.is_dictionary(kind)
        or types.is_run_end_encoded(kind)
        or types.is_string_view(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_float16(kind)
        or _is_short_decimal(kind)
    )


def _is_short_decimal(kind: pa.DataType) -> bool:
    """Return whether a decimal has 32 or 64 bits, which many functions of Arrow do not know."""
    return bool(types.is_decimal(kind)) and kind.bit_width < 128


def require_single_names(kind: pa.DataType) -> None:
    """Raise NotPlain for a struct with two fields of one name, at any depth."""
    if types.is_struct(kind):
        names = [field.name for field in kind]
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None:
            raise NotPlain(f"It is a struct with two fields {double!r}", "Rename one of the fields.")
    for field in kind if types.is_struct(kind) else ():
        with inside(field.name):
            require_single_names(field.type)
    if types.is_map(kind):
        for step, inner in (("key", kind.key_type), ("value", kind.item_type)):
            with inside(step):
                require_single_names(inner)
    elif hasattr(kind, "value_field"):
        with inside("element"):
            require_single_names(kind.value_type)


def plain_column(field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column with plain types. Raises NotPlain, and what Arrow raises."""
    require_single_names(field.type)
    name = _extension_of(field)
    if not name and is_plain(field.type):
        return column
    chunks = [_convert_extension(name, chunk) if name else plain_values(chunk) for chunk in column.chunks]
    if not chunks:
        empty = pa.chunked_array([], field.type).combine_chunks()
        chunks = [_convert_extension(name, empty) if name else plain_values(empty)]
    return pa.chunked_array(chunks)


def plain_values(array: pa.Array) -> pa.Array:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _convert_extension(kind.extension_name, array.storage, kind)
    if is_plain(kind):
        return array
    if types.is_dictionary(kind):
        return plain_values(array.dictionary).take(array.indices)
    if types.is_run_end_encoded(kind):
        return plain_values(array.values).take(_numbers_of_runs(array))
    if types.is_string_view(kind):
        return array.cast(pa.large_string())
    if types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    if types.is_fixed_size_binary(kind):
        return array.cast(pa.binary())
    if types.is_float16(kind):
        return array.cast(pa.float32())
    if _is_short_decimal(kind):
        return array.cast(pa.decimal128(kind.precision, kind.scale))
    if types.is_union(kind):
        raise NotPlain(f"It is {kind}, which is a value of several types", "Make a column of each type.")
    return rebuild_nested(array, _plain_child)


def rebuild_nested(array: pa.Array, child: Callable[[pa.Array, pa.Field, int], pa.Array]) -> pa.Array:
    """Return nested values with new inner values from `child`. Nulls stay null.

    `child` gets the inner values of one field, the field, and its number. A map has two fields: keys and values.
    """
    kind = array.type
    if types.is_struct(kind):
        fields, inner = list(kind), array.flatten()
        children = []
        for number, (inner_array, field) in enumerate(zip(inner, fields)):
            with inside(field.name):
                children.append(child(inner_array, field, number))
        parts = [pa.field(field.name, one.type) for field, one in zip(fields, children)]
        if not parts:
            return array
        return pa.StructArray.from_arrays(children, fields=parts, mask=array.is_null())
    if types.is_map(kind):
        first, count = array.offsets[0].as_py(), array.offsets[-1].as_py() - array.offsets[0].as_py()
        with inside("key"):
            keys = child(array.keys.slice(first, count), kind.key_field, 0)
        with inside("value"):
            items = child(array.items.slice(first, count), kind.item_field, 1)
        return pa.MapArray.from_arrays(pc.subtract(array.offsets, first), keys, items, mask=array.is_null())
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    with inside("element"):
        values = child(array.flatten(), kind.value_field, 0)
    is_large = types.is_large_list(kind) or str(kind).startswith("large_list_view")
    listed = pa.LargeListArray if is_large else pa.ListArray
    return listed.from_arrays(_offsets(lengths, large=is_large), values, mask=array.is_null())


def convert_to_spark_type(kind: pa.DataType) -> pa.DataType:
    """Return a plain type as Spark has it, at any depth. An instant without a zone counts as UTC."""
    if types.is_unsigned_integer(kind):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}.get(kind.bit_width, pa.decimal128(20, 0))
    if types.is_timestamp(kind) and (kind.unit == "ns" or kind.tz is None):
        return pa.timestamp("us", kind.tz or "UTC")
    if types.is_map(kind):
        return pa.map_(convert_to_spark_type(kind.key_type), convert_to_spark_type(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([field.with_type(convert_to_spark_type(field.type)) for field in kind])
    if is_list(kind):
        listed = pa.large_list if types.is_large_list(kind) else pa.list_
        return listed(kind.value_field.with_type(convert_to_spark_type(kind.value_type)))
    return kind


def first_failing(array: pa.Array, act: Callable[[pa.Array], Any]) -> int | None:
    """Return the number of the first value for which `act` raises an error; None if `act` accepts the array.

    `act` must fail for a part of the array exactly if it fails for one of the part's values alone.
    """
    low, high = 0, len(array)
    if not high or not _fails(act, array):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fails(act, array.slice(low, middle - low)) else (middle, high)
    return low


def _fails(act: Callable[[pa.Array], Any], array: pa.Array) -> bool:
    try:
        act(array)
    except Exception:
        return True
    return False


def _plain_child(array: pa.Array, field: pa.Field, number: int) -> pa.Array:
    name = _extension_of(field)
    return _convert_extension(name, array) if name else plain_values(array)


def _extension_of(field: pa.Field) -> str:
    """Return the name of an extension type that pyarrow does not know, from the field's metadata, else ""."""
    name = (field.metadata or {}).get(b"ARROW:extension:name", b"")
    return "" if isinstance(field.type, pa.BaseExtensionType) else str(name, errors="replace")


def _convert_extension(name: str, storage: pa.Array, kind: pa.DataType | None = None) -> pa.Array:
    if name == "arrow.json":
        return plain_values(storage)
    if name == "arrow.bool8":
        return storage.cast(pa.bool_())
    if name == "arrow.uuid":
        texts = [None if one is None else str(uuid.UUID(bytes=one)) for one in storage.to_pylist()]
        return pa.array(texts, pa.string())
    if name == "arrow.fixed_shape_tensor" and kind is not None and len(kind.shape) == 1:
        return plain_values(storage)
    fix = FIXES.get(name, f"Cast it to its storage, {storage.type}, or to string.")
    raise NotPlain(f"It is of the extension type {name or kind}, which the ledger does not know how to store", fix)


def _numbers_of_runs(array: pa.RunEndEncodedArray) -> pa.Array:
    ends = array.run_ends.to_numpy(zero_copy_only=False)
    places = range(array.offset, array.offset + len(array))
    return pa.array(ends.searchsorted(list(places), side="right"), pa.int64())


def _offsets(lengths: pa.Array, *, large: bool = False) -> pa.Array:
    kind = pa.int64() if large else pa.int32()
    ends = pc.cumulative_sum(lengths.cast(pa.int64())) if len(lengths) else pa.array([], pa.int64())
    return pa.concat_arrays([pa.array([0], kind), ends.cast(kind)])


def first_changed(values: Iterable[Any], kind: pa.DataType) -> int | None:
    """Return the place of the first Python value that changes in the type that Arrow found for all.

    Arrow drops the time of day of instants that follow a date, makes bytes of texts among bytes, and drops pandas'
    nanoseconds.
    """
    if not _may_change(kind):
        return None
    return next((place for place, value in enumerate(values) if _is_changed(value, kind)), None)


def _may_change(kind: pa.DataType) -> bool:
    if types.is_map(kind):
        return _may_change(kind.key_type) or _may_change(kind.item_type)
    if types.is_struct(kind):
        return any(_may_change(field.type) for field in kind)
    if is_list(kind):
        return _may_change(kind.value_type)
    return bool(types.is_date(kind)) or _is_binary(kind) or _drops_nanoseconds(kind)


def _drops_nanoseconds(kind: pa.DataType) -> bool:
    return bool(types.is_timestamp(kind) or types.is_duration(kind)) and kind.unit != "ns"


def _is_binary(kind: pa.DataType) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _is_changed(value: Any, kind: pa.DataType) -> bool:
    if value is None:
        return False
    if types.is_date(kind):
        # Only pandas' NaT, a null, is not equal to itself.
        return isinstance(value, datetime) and value == value and value.timetz() != time(0)
    if _is_binary(kind):
        return isinstance(value, str)
    if _drops_nanoseconds(kind):
        digits = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
        # The nanoseconds of NaT are NaN, which is not equal to itself.
        return bool(digits) and digits == digits
    if types.is_struct(kind):
        return isinstance(value, Mapping) and any(_is_changed(value.get(field.name), field.type) for field in kind)
    if is_list(kind) and _may_change(kind.value_type):
        return any(_is_changed(one, kind.value_type) for one in value)
    if types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return any(_is_changed(key, kind.key_type) or _is_changed(one, kind.item_type) for key, one in pairs)
    return False


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
    "uint64": name_decimal(20, 0),
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
            return name_decimal(MOST_DIGITS, max(0, min(kind.scale, MOST_DIGITS)))
        return name_decimal(min(kind.precision, MOST_DIGITS), kind.scale)
    if types.is_struct(kind):
        return {
            "type": "struct",
            "fields": [make_nullable_field(one.name, _inner_type(one.name, one.type)) for one in kind],
        }
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
    """Return the Arrow type of a type of Delta's log, or None."""
    kind = drop_char_length(kind)
    if isinstance(kind, str):
        digits = parse_decimal(kind)
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
        fields.append(make_nullable_field(field.name, kind))
    return {"type": "struct", "fields": fields}


def widen_decimals(
    schema: Mapping[str, Any], rows: pa.Table, declared: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the schema for a new table, with wider decimals where only the first values decided the width.

    A column of nulls, or with a value that uses all digits, gets decimal(38,18), as in Spark. A type that does not fit
    into decimal(38,18) gets 38 digits and keeps its scale. Decimals inside nested types are always widened, and columns
    in `declared` never.
    """
    free = set(rows.column_names) - {one["name"] for one in (declared or {"fields": ()})["fields"]}
    fields = [
        {**one, "type": _widen_decimal(one["type"], rows[one["name"]]) if one["name"] in free else one["type"]}
        for one in schema["fields"]
    ]
    return {**schema, "fields": fields}


def _widen_decimal(kind: Any, values: pa.ChunkedArray) -> Any:
    if not isinstance(kind, str):
        return _widen_decimals_inside(kind)
    if not types.is_decimal(values.type) or not _uses_all_digits(values):
        return kind
    return _choose_usual_decimal(kind)


def _widen_decimals_inside(kind: Any) -> Any:
    if isinstance(kind, str):
        return _choose_usual_decimal(kind) if parse_decimal(kind) else kind
    if kind["type"] == "struct":
        return {**kind, "fields": [{**one, "type": _widen_decimals_inside(one["type"])} for one in kind["fields"]]}
    inner = [name for name in ("elementType", "keyType", "valueType") if name in kind]
    return {**kind, **{name: _widen_decimals_inside(kind[name]) for name in inner}}


def _choose_usual_decimal(kind: str) -> str:
    precision, scale = parse_decimal(kind) or (0, 0)
    whole, places = USUAL_DECIMAL[0] - USUAL_DECIMAL[1], USUAL_DECIMAL[1]
    if precision - scale <= whole and scale <= places:
        return name_decimal(*USUAL_DECIMAL)
    return name_decimal(MOST_DIGITS, scale)


def _uses_all_digits(values: pa.ChunkedArray) -> bool:
    most = pc.max(pc.abs(values)).as_py()
    if most is None:
        return True
    return bool(len(str(int(most.scaleb(values.type.scale)))) >= values.type.precision)
