"""Casts of a DataFrame to an output table's columns: `rules.column_types` as SQL expressions.

A value that a cast would change fails its task. `row_errors.find_refused_value` reads the error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ledger.delta_log.statements import literal
from ledger.rules.column_types import (
    FIRST_OF_WHOLE,
    FLOATS,
    INTEGERS,
    MOST_DIGITS,
    VOID,
    Fit,
    drop_char_length,
    fit,
    name_decimal,
    name_type,
    parse_decimal,
)
from ledger.rules.output_columns import (
    BAR,
    END,
    NULL_PARTITION,
    POINT,
    REFUSES,
    describe_mismatch,
    describe_not_finite,
    describe_not_utf8,
    describe_outside_years,
    describe_repeated_key,
    describe_stored_null,
    describe_stored_text,
    escape_bars,
)
from ledger.store.delta.dataframes.columns import quote_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The bounds of Python and of most readers of tables.
YEARS = {
    "date": ("0001-01-01", "9999-12-31"),
    "timestamp": ("0001-01-01 00:00:00+00:00", "9999-12-31 23:59:59.999999+00:00"),
    "timestamp_ntz": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
}
#: Placeholders in a sentence and in an expression.
VALUE, MESSAGE = "\x01", "\x02"
SHOWN_CHARACTERS = 80
#: 2**64 cuts a number of up to 38 digits into two whole numbers of 64 bits.
TWO_TO_64 = "18446744073709551616"
#: The first double above the whole numbers of 64 bits. Spark casts it to the greatest of them.
BEHIND_LONG = "9223372036854775808D"
MICROSECONDS_OF_DAY = 86_400_000_000


def schema_of(frame: DataFrame) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(frame.schema.json())
    return schema


def fit_frame(frame: DataFrame, schema: Mapping[str, Any], partitions: Sequence[str] = ()) -> DataFrame:
    """Return the frame with the types of a table's columns, and without other columns.

    In a column of `partitions`, a binary value, or a text that Delta would read back as null, fails its task.
    """
    lower_partitions = {name.lower() for name in partitions}
    columns_by_name = {field["name"].lower(): field for field in schema["fields"]}
    columns, void_columns, changed = [], [], False
    names_message = dict(frame.dtypes).get("message_id") == "string"
    message = f"coalesce({quote_column('message_id')}, '')" if names_message else "''"
    for field in schema_of(frame)["fields"]:
        column, value = columns_by_name.get(field["name"].lower()), quote_column(field["name"])
        cast = None if column is None else _cast_exactly(value, field["type"], column["type"], (field["name"],), 0)
        if cast is not None and column is not None:
            cast = _guard_value(
                cast,
                drop_char_length(column["type"]),
                field["name"],
                is_partition=field["name"].lower() in lower_partitions,
            )
            if _has_metadata(field):
                # Metadata may ask for a length or an expression of an earlier table's column. A cast drops metadata.
                cast = f"CAST({cast} AS {_sql(drop_char_length(column['type']))})"
        elif field["type"] == VOID:
            void_columns.append(value)
        changed |= cast != value
        if cast is not None and column is not None:
            columns.append(f"{cast.replace(MESSAGE, message)} AS {quote_column(field['name'])}")
    for value in void_columns:
        # A void column's expression may raise, as assert_true does, so compute it.
        frame = frame.where(f"{value} IS NULL")
    return frame.selectExpr(*columns) if changed else frame


def _has_metadata(field: Any) -> bool:
    if not isinstance(field, Mapping):
        return False
    inner = [field.get(part) for part in ("type", "elementType", "keyType", "valueType")]
    return bool(field.get("metadata")) or any(map(_has_metadata, [*inner, *field.get("fields", ())]))


def _cast_exactly(value: str, source_type: Any, column: Any, path: tuple[str, ...], depth: int) -> str:
    """Return the value in the column's type. The expression fails if the cast would change it."""
    if source_type == column:
        return value
    if isinstance(source_type, str) or isinstance(column, str):
        if fit(source_type, column) is Fit.ALWAYS:
            return value if _is_text(source_type, column) else f"CAST({value} AS {_sql(column)})"
        return _cast_and_compare(value, source_type, column, path)
    inner = f"x{depth}"
    if column["type"] == "array":
        cast = _cast_exactly(inner, source_type["elementType"], column["elementType"], (*path, "element"), depth + 1)
        return value if cast == inner else f"transform({value}, {inner} -> {cast})"
    if column["type"] == "map":
        for part, function in (("keyType", "transform_keys"), ("valueType", "transform_values")):
            variable = f"k{depth}" if part == "keyType" else f"v{depth}"
            inner_path = *path, part.removesuffix("Type")
            cast = _cast_exactly(variable, source_type[part], column[part], inner_path, depth + 1)
            value = value if cast == variable else f"{function}({value}, (k{depth}, v{depth}) -> {cast})"
        return value
    parts = {inner_field["name"].lower(): inner_field for inner_field in source_type["fields"]}
    casts, is_same = (
        [],
        [inner_field["name"] for inner_field in source_type["fields"]]
        == [inner_field["name"] for inner_field in column["fields"]],
    )
    for target in column["fields"]:
        source = parts.get(target["name"].lower())
        field = (
            f"{value}.{quote_column(source['name'])}" if source is not None else f"CAST(NULL AS {_sql(target['type'])})"
        )
        cast = (
            field
            if source is None
            else _cast_exactly(field, source["type"], target["type"], (*path, target["name"]), depth)
        )
        is_same &= cast == field
        casts.append(f"{literal(target['name'])}, {cast}")
    return value if is_same else f"IF({value} IS NULL, NULL, named_struct({', '.join(casts)}))"


def _guard_value(value: str, kind: Any, name: str, *, is_partition: bool) -> str:
    """Return the value. The expression fails if Delta, or its readers, would change it."""
    conditions = [
        (condition, describe_outside_years(name, VALUE)) for condition in _outside_years_conditions(value, kind, 0)
    ]
    conditions += [
        (condition, describe_repeated_key(name, f"among {VALUE}"))
        for condition in _repeated_key_conditions(value, kind, 0)
    ]
    conditions += [(condition, describe_not_utf8(name)) for condition in not_utf8_conditions(value, kind)]
    if is_partition and kind == "string":
        conditions.append((f"{value} IN ('', '{NULL_PARTITION}')", describe_stored_null(name)))
    elif is_partition and kind == "binary":
        conditions.append((f"{value} IS NOT NULL", describe_stored_text(name)))
    if not conditions:
        return value
    refusals = [f"WHEN {condition} THEN {_refusal(sentence, value, _sql(kind))}" for condition, sentence in conditions]
    return f"CASE {' '.join(refusals)} ELSE {value} END"


def _outside_years_conditions(value: str, kind: Any, depth: int) -> list[str]:
    """Return conditions. One is true if a day or instant, at any depth, is outside YEARS."""
    if isinstance(kind, str):
        if kind not in YEARS:
            return []
        first, last = (f"{kind.upper()} '{bound}'" for bound in YEARS[kind])
        return [f"({value} < {first} OR {value} > {last})"]
    return _collect_inner_conditions(value, kind, depth, _outside_years_conditions)


def _repeated_key_conditions(value: str, kind: Any, depth: int) -> list[str]:
    """Return conditions. One is true if a map, at any depth, has a key twice."""
    if isinstance(kind, str):
        return []
    conditions = _collect_inner_conditions(value, kind, depth, _repeated_key_conditions)
    if kind["type"] == "map":
        conditions.append(f"size(array_distinct(map_keys({value}))) < size({value})")
    return conditions


def not_utf8_conditions(value: str, kind: Any, depth: int = 0) -> list[str]:
    """Return SQL conditions. One is true if a text, at any depth, is not UTF-8."""
    if isinstance(kind, str):
        return [f"NOT is_valid_utf8({value})"] if kind == "string" else []
    return _collect_inner_conditions(value, kind, depth, not_utf8_conditions)


def not_finite_conditions(value: str, kind: Any, depth: int = 0) -> list[str]:
    """Return SQL conditions. One is true if a number, at any depth, is infinite or NaN, which Spark orders last."""
    if isinstance(kind, str):
        return [f"abs({value}) >= {kind}('Infinity')"] if kind in FLOATS else []
    return _collect_inner_conditions(value, kind, depth, not_finite_conditions)


def _collect_inner_conditions(
    value: str, kind: Any, depth: int, conditions: Callable[[str, Any, int], list[str]]
) -> list[str]:
    if kind["type"] == "struct":
        fields = [
            (f"{value}.{quote_column(inner_field['name'])}", inner_field["type"]) for inner_field in kind["fields"]
        ]
        return [condition for field, inner in fields for condition in conditions(field, inner, depth)]
    each = f"e{depth}"
    parts = {
        "array": [(value, "elementType")],
        "map": [(f"map_keys({value})", "keyType"), (f"map_values({value})", "valueType")],
    }.get(kind["type"], [])
    return [
        f"exists({values}, {each} -> {condition})"
        for values, part in parts
        for condition in conditions(each, kind[part], depth + 1)
    ]


def _refusal(sentence: str, value: str, to: str) -> str:
    before, marker, after = sentence.partition(VALUE)
    shown = _escape_bars(f"left(CAST({value} AS STRING), {SHOWN_CHARACTERS})") if marker else "''"
    beginning, end = literal(REFUSES + escape_bars(before)), literal(escape_bars(after) + END)
    parts = f"{beginning}, {shown}, {end}, {_escape_bars(MESSAGE)}, '{END}'"
    return f"CAST(raise_error(concat({parts})) AS {to})"


def _escape_bars(text: str) -> str:
    """See `output_columns.split_refusal`."""
    return f"replace({text}, '{BAR}', '{BAR}{POINT}')"


def _is_text(source_type: Any, column: Any) -> bool:
    return bool(column == "string" and source_type != "void")


def _cast_and_compare(value: str, source_type: str, column: str, path: tuple[str, ...]) -> str:
    name, inside = ".".join(path), path[0] if path[1:] else ""
    to, wide = _sql(column), value
    if source_type == "float":
        # Spark would compare bounds of whole numbers with the float itself, which has too few digits.
        wide = f"CAST({value} AS DOUBLE)"
    cast, survives = f"TRY_CAST({wide} AS {to})", ""
    if source_type in ("date", "timestamp", "timestamp_ntz"):
        cast, survives = _instant(value, source_type, column)
    elif source_type in FLOATS:
        cast = _decimal(wide, to) if parse_decimal(column) else cast
        survives = f"TRY_CAST({cast} AS DOUBLE) <=> {wide}"
        survives += f" AND {wide} < {BEHIND_LONG}" * (column in INTEGERS)
    elif column in FLOATS and (digits := parse_decimal(source_type)) is not None:
        # To a type with fewer places, Spark could round a float with other digits, and so reach the value.
        wider = name_decimal(MOST_DIGITS, MOST_DIGITS - (digits[0] - digits[1]))
        survives = f"{_decimal(f'CAST({cast} AS DOUBLE)', wider)} <=> {value}"
    elif column in FLOATS:
        # If a double lay between, Spark would merge the casts of the integer into one exact cast.
        survives = f"TRY_CAST({cast} AS {_sql(source_type)}) <=> {value} AND {cast} < {BEHIND_LONG}"
    else:
        survives = f"TRY_CAST({cast} AS {_sql(source_type)}) <=> {value}"
    refusal = _refusal(describe_mismatch(name, source_type, column, VALUE, inside=inside, sql=True), value, to)
    if source_type in FLOATS and column not in FLOATS:
        refusal_of_not_finite = _refusal(describe_not_finite(name, source_type, column, VALUE, inside), value, to)
        refusal = f"IF(isnan({value}) OR abs({wide}) = DOUBLE('Infinity'), {refusal_of_not_finite}, {refusal})"
    return f"CASE WHEN {value} IS NULL THEN NULL WHEN {survives} THEN {cast} ELSE {refusal} END"


def _decimal(double: str, to: str) -> str:
    """Return the decimal that a double means (`rules.column_types`), or null if the type cannot hold it.

    Spark's cast reads Java's text of the double. From FIRST_OF_WHOLE (2**53) on, this text depends on the version of
    Java.
    """
    # A double of FIRST_OF_WHOLE or more is `high` * 2**64 + `half` * 2, both whole numbers of 64 bits. No division
    # rounds: after a double's 53 bits come zeros.
    high = f"CAST({double} / {TWO_TO_64}D AS BIGINT)"
    half = f"CAST(({double} - CAST({high} AS DOUBLE) * {TWO_TO_64}D) / 2D AS BIGINT)"
    whole = f"CAST({high} AS DECIMAL(19, 0)) * {TWO_TO_64}BD + CAST({half} AS DECIMAL(19, 0)) * 2BD"
    return (
        f"CASE WHEN abs({double}) < {FIRST_OF_WHOLE:.0f}D THEN TRY_CAST({double} AS {to}) "
        f"WHEN abs({double}) <= 1e{MOST_DIGITS}D THEN TRY_CAST({whole} AS {to}) END"
    )


def _instant(value: str, source_type: str, column: str) -> tuple[str, str]:
    """Return the value as another type, and a condition that this changes no instant. Both use UTC."""
    epoch = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
    # An interval of seconds does not depend on time zones.
    seconds = f"CAST(CAST(({value}) - {epoch} AS INTERVAL SECOND) AS DECIMAL(20, 6))"
    micros = {
        "date": f"CAST(unix_date({value}) AS BIGINT) * {MICROSECONDS_OF_DAY}L",
        "timestamp": f"unix_micros({value})",
        "timestamp_ntz": f"CAST({seconds} * 1000000 AS BIGINT)",
    }[source_type]
    cast = {
        "date": f"date_from_unix_date(CAST({micros} DIV {MICROSECONDS_OF_DAY}L AS INT))",
        "timestamp": f"timestamp_micros({micros})",
        "timestamp_ntz": f"{epoch} + make_dt_interval(0, 0, 0, CAST({micros} AS DECIMAL(20, 0)) / 1000000)",
    }[column]
    return cast, f"{micros} % {MICROSECONDS_OF_DAY}L = 0" if column == "date" else "TRUE"


def _sql(kind: Any) -> str:
    if isinstance(kind, str):
        return name_type(kind)
    if kind["type"] == "array":
        return f"ARRAY<{_sql(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"MAP<{_sql(kind['keyType'])}, {_sql(kind['valueType'])}>"
    fields = [f"{quote_column(field['name'])}: {_sql(field['type'])}" for field in kind["fields"]]
    return f"STRUCT<{', '.join(fields)}>"
