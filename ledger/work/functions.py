"""Safe UDFs for claims: a row for which a UDF raises gets the error in place of a value.

An error is an `Exception`: SystemExit, for example, is not caught.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ledger.errors import InvalidParameterValue

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

VALUE, ERROR = "value", "error"
#: Spark's `evalType` of UDFs: of values without Arrow, of values with Arrow, and of pandas.Series.
_VALUE_EVAL_TYPES, _OF_SERIES = (100, 101), 200
REASON_COLUMN = "_failed"


def safely(function: Any) -> Any:
    """Wrap a UDF. A row for which the UDF raises gets the error in place of a value.

    Args:
        function: a UDF of values from `pyspark.sql.functions.udf`, or a UDF from `pandas_udf` with a pandas.Series for
            each argument and for the result. A pandas UDF that raises, or returns another number of rows, gets the
            batch again in halves, down to single rows.

    Returns:
        A UDF with the same arguments. Its result is a struct: `value`, as the UDF returns it, and `error`, a text such
        as "ValueError: no such date (dates.py:7)". `value` is null if the UDF raised, and `error` if it did not.
        Executors do not need this package.

    Raises:
        InvalidParameterValue: `function` is another kind of function, such as a plain function, or a UDF of iterators,
            groups or tables.
    """
    kind = getattr(function, "evalType", None)
    if kind not in (*_VALUE_EVAL_TYPES, _OF_SERIES):
        fix = "Give udf(f, 'double') or pandas_udf(f, 'double') of pyspark.sql.functions."
        bound = "Must be a UDF of values or of pandas.Series"
        raise InvalidParameterValue("function", getattr(function, "__name__", type(function).__name__), bound, fix)
    from pyspark.sql.functions import udf
    from pyspark.sql.pandas.functions import pandas_udf
    from pyspark.sql.types import StringType, StructField, StructType

    returns = StructType([StructField(VALUE, function.returnType), StructField(ERROR, StringType())])
    if kind == _OF_SERIES:
        # PySpark's stubs know no function of any number of Series.
        of_series: Any = pandas_udf
        return of_series(_make_safe_for_series(function.func), returns)
    return udf(_make_safe_for_values(function.func), returns, useArrow=kind == 101)


def rowwise(function: Callable[[Any], Any], schema: pa.Schema) -> Callable[[DataFrame], DataFrame]:
    """Return a function of a claim's DataFrame that calls `function` for each message, and catches its errors.

    `function` gets a message as a Row, and returns a dict, a tuple or a Row with the columns of `schema`, an Arrow
    schema. The result has message_id, these columns, and `_failed`: null, or why the message failed.

    Raises:
        InvalidParameterValue: `function` is a UDF. Or `schema` is no Arrow schema, is empty, or has message_id,
            `_failed`, two columns of one name (whatever the capitals), or a type that Spark lacks.
    """
    import pyarrow as pa
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    if not isinstance(schema, pa.Schema) or not len(schema):
        bound = "With per_row it must be an Arrow schema of the columns that the function returns"
        raise InvalidParameterValue("schema", type(schema).__name__, bound, "Give pyarrow.schema([...]).")
    if hasattr(function, "evalType"):
        name, bound = (
            getattr(function, "__name__", "function"),
            "It is a UDF, which gets columns; with per_row it gets a Row",
        )
        raise InvalidParameterValue("function", name, bound, f"Give the function itself: {name}.func, without @udf.")
    for name in schema.names:
        if name.lower() in ("message_id", REASON_COLUMN):
            raise InvalidParameterValue("schema", name, "The worker adds this column to each row", "Leave it out.")
    for field in schema:
        if [name.lower() for name in schema.names].count(field.name.lower()) > 1:
            raise InvalidParameterValue(
                "schema", field.name, "Two columns have this name, whatever the capitals", "Rename one."
            )
        _require_type_of_spark(field.name, field.type)
    safe = safely(F.udf(with_checked_answers(function, schema), from_arrow_schema(schema), useArrow=False))

    def of_frame(messages: DataFrame) -> DataFrame:
        called = messages.select("message_id", safe(F.struct("*")).alias("called"))
        columns = [F.col("called")[VALUE][name].alias(name) for name in schema.names]
        return called.select("message_id", *columns, F.col("called")[ERROR].alias(REASON_COLUMN))

    return of_frame


def _require_type_of_spark(name: str, kind: pa.DataType) -> None:
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_type

    types = pa.types
    is_list = hasattr(kind, "value_field")
    if types.is_dictionary(kind):
        _require_type_of_spark(name, kind.value_type)
    elif types.is_map(kind):
        _require_type_of_spark(f"{name}.key", kind.key_type)
        _require_type_of_spark(f"{name}.value", kind.item_type)
    elif types.is_struct(kind):
        for field in kind:
            _require_type_of_spark(f"{name}.{field.name}", field.type)
    elif is_list and "list_view" not in str(kind)[:15]:
        _require_type_of_spark(f"{name}.element", kind.value_type)
    elif types.is_decimal(kind) and kind.precision > 38:
        _refuse_type(name, kind, f"decimal128(38, {min(kind.scale, 38)})")
    else:
        try:
            from_arrow_type(kind)
        except Exception:
            substitutes = {
                "uint8": "int16()",
                "uint16": "int32()",
                "uint32": "int64()",
                "uint64": "decimal128(20, 0)",
                "halffloat": "float32()",
                "date64[ms]": "date32()",
                "binary_view": "binary()",
            }
            _refuse_type(name, kind, "list_(...)" if is_list else substitutes.get(str(kind), "string()"))


def _refuse_type(name: str, kind: pa.DataType, takes: str) -> NoReturn:
    bound = f"It is or has {kind}, which Spark does not have"
    raise InvalidParameterValue("schema", name, bound, f"Give pyarrow.{takes} in its place.")


# Executors may not have this package, so each function made below contains all that it needs of this module.


def with_checked_answers(function: Callable[[Any], Any], schema: pa.Schema) -> Callable[[Any], Any]:
    """Return the function with a check that its answers are values of the schema's types.

    Arrow and Spark convert values silently: in a list of whole numbers 1.5 becomes 1. The check raises TypeError for a
    value that would change, for an unknown column, and for an answer that is no dict, Row or tuple of the schema's
    length. Shorter floats may round a double. A column that a dict or a Row lacks is null.
    """
    names = list(schema.names)
    refuse = _make_refuser()
    keep_of = _make_converters(refuse)
    columns = [(name, keep_of(field)) for name, field in zip(names, schema)]

    def checked(row: Any) -> Any:
        answer = function(row)
        if hasattr(answer, "asDict"):
            answer = answer.asDict()
        elif isinstance(answer, tuple) and len(answer) == len(names):
            answer = dict(zip(names, answer))
        if not isinstance(answer, dict):
            refuse(f"{type(answer).__name__}: it must return a dict, or a tuple of {len(names)}")
        for name in answer:
            if name not in names:
                refuse(f"the column {name}, which schema does not name")
        return tuple([keep(answer.get(name), (name,)) for name, keep in columns])

    return checked


def _make_refuser() -> Callable[[str], NoReturn]:
    def refuse(problem: str) -> NoReturn:
        error = TypeError(f"the function returned {problem}")
        # No line of the user's code raises this error, so its text names none.
        error.has_no_place = True  # type: ignore[attr-defined]
        raise error

    return refuse


def _make_converters(refuse: Callable[[str], NoReturn]) -> Callable[[Any], Callable[[Any, tuple[Any, ...]], Any]]:
    """Return a function that makes a check for an Arrow field.

    The check takes a value and its path in the row. It returns the value as Spark takes it, or calls `refuse`.
    """
    import array
    import contextlib
    import math
    import uuid
    from collections.abc import Mapping
    from datetime import date, datetime, timedelta, timezone

    import pyarrow as pa

    types, utc, most_exact = pa.types, timezone.utc, 2**53

    def refuse_value(value: Any, kind: Any, path: tuple[Any, ...]) -> NoReturn:
        name = path[0] + "".join(f".{step}" if isinstance(step, str) else f"[{step[0]!r}]" for step in path[1:])
        try:
            shown = " ".join(repr(value).split())
        except Exception:
            shown = f"a {type(value).__name__}"
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        refuse(f"{shown} for the column {name}, which is {kind}")

    def keep_of(field: Any) -> Callable[[Any, tuple[Any, ...]], Any]:
        kind = field.type
        if types.is_map(kind):
            keep = keep_map(kind)
        elif types.is_struct(kind):
            keep = keep_struct(kind)
        elif types.is_nested(kind) and hasattr(kind, "value_field"):
            keep = keep_list(kind)
        else:
            keep = keep_scalar(kind.value_type if types.is_dictionary(kind) else kind)
        if field.nullable:
            return lambda value, path: None if value is None else keep(value, path)

        def keep_required(value: Any, path: tuple[Any, ...]) -> Any:
            kept = None if value is None else keep(value, path)
            if kept is None:
                refuse_value(value, f"{kind} not null", path)
            return kept

        return keep_required

    def keep_scalar(kind: Any) -> Callable[[Any, tuple[Any, ...]], Any]:
        is_double, is_bool = types.is_float64(kind), types.is_boolean(kind)
        is_text = types.is_string(kind) or types.is_large_string(kind)
        is_short = types.is_floating(kind) and not is_double
        least, most = bounds(kind)
        exact = kind
        # Spark has no finer unit of time than microseconds.
        if types.is_timestamp(kind):
            exact = pa.timestamp("us", kind.tz) if kind.unit == "ns" else kind
        elif types.is_duration(kind):
            exact = pa.duration("us") if kind.unit == "ns" else kind
        elif types.is_time64(kind):
            exact = pa.time64("us")

        def keep(value: Any, path: tuple[Any, ...]) -> Any:
            of_class = type(value)
            # Arrow is slower than these checks.
            if of_class is float and is_double:
                return value
            if of_class is int and least <= value <= most:
                return value
            if of_class is int and is_double and -most_exact <= value <= most_exact:
                return float(value)
            if of_class is bool and is_bool:
                return value
            if of_class is str and is_text and value.isascii():
                return value
            # Arrow's own error names no column.
            with contextlib.suppress(Exception):
                plain = plain_scalar(value)
                kept = pa.scalar(plain, type=exact).as_py()
                if is_same(plain, kept, is_short):
                    return kept
            refuse_value(value, kind, path)

        return keep

    def bounds(kind: Any) -> tuple[int, int]:
        if types.is_signed_integer(kind):
            return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
        return (0, 2**kind.bit_width - 1) if types.is_integer(kind) else (1, 0)

    def plain_scalar(value: Any) -> Any:
        """Return a scalar of numpy or pandas as Python's value, and a UUID as bytes. Nanoseconds raise ValueError."""
        if getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m"):
            short = value.astype(f"{value.dtype.kind}8[us]")
            if short != value and value == value:
                raise ValueError(value)
            return value.item() if isinstance(value.item(), (date, timedelta)) else short.item()
        if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
            return value.item()
        if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
            raise ValueError(value)
        for plain in ("to_pydatetime", "to_pytimedelta"):
            if hasattr(value, plain):
                return getattr(value, plain)()
        return value.bytes if isinstance(value, uuid.UUID) else value

    def is_same(value: Any, kept: Any, is_short: bool) -> bool:
        """Return whether a value equals its converted value, which may be rounded if `is_short`."""
        if isinstance(value, bool) or isinstance(kept, bool):
            return value is kept
        if isinstance(kept, bytes):
            return isinstance(value, (bytes, bytearray, memoryview)) and bytes(value) == kept
        if isinstance(value, float) and isinstance(kept, float):
            if is_short and math.isfinite(value):
                return math.isfinite(kept)
            return value == kept or (math.isnan(value) and math.isnan(kept))
        if isinstance(value, datetime) and isinstance(kept, datetime):
            if kept.tzinfo is None and value.tzinfo is not None and value.utcoffset():
                return False
            # In the hour that a clock repeats, Python never finds times of two zones equal.
            first, second = (one if one.tzinfo else one.replace(tzinfo=utc) for one in (value, kept))
            return first.astimezone(utc) == second.astimezone(utc)
        return isinstance(value, datetime) == isinstance(kept, datetime) and bool(value == kept)

    def keep_list(kind: Any) -> Callable[[Any, tuple[Any, ...]], Any]:
        keep_item, of_item = keep_of(kind.value_field), kind.value_type
        size = kind.list_size if types.is_fixed_size_list(kind) else None
        least, most = bounds(of_item)
        is_double, is_float = types.is_float64(of_item), types.is_float32(of_item)
        if is_double or is_float:
            least, most = (-most_exact, most_exact) if is_double else (-(2**24), 2**24)

        def keep(value: Any, path: tuple[Any, ...]) -> Any:
            items = None
            if not isinstance(value, (str, bytes, bytearray, memoryview, Mapping)) and not hasattr(value, "asDict"):
                with contextlib.suppress(Exception):
                    numpy_kind = getattr(getattr(value, "dtype", None), "kind", "M")
                    len(value)
                    # tolist() would turn numpy's instants into whole numbers.
                    items = list(value) if numpy_kind in ("M", "m") else value.tolist()
            if items is None or (size is not None and len(items) != size):
                refuse_value(value, kind, path)
            # Faster than a check of each item.
            of_items = set(map(type, items))
            if of_items == {int} and least <= min(items) and max(items) <= most:
                return list(map(float, items)) if is_double or is_float else items
            if (is_double or is_float) and of_items == {float}:
                if is_double:
                    return items
                short = array.array("f", items).tolist()
                if math.inf not in short and -math.inf not in short:
                    return short
            return [keep_item(item, (*path, (place,))) for place, item in enumerate(items)]

        return keep

    def keep_struct(kind: Any) -> Callable[[Any, tuple[Any, ...]], Any]:
        fields = [(field.name, keep_of(field)) for field in kind]
        names = {name for name, _ in fields}

        def keep(value: Any, path: tuple[Any, ...]) -> Any:
            entries = None
            with contextlib.suppress(Exception):
                if hasattr(value, "asDict"):
                    entries = value.asDict()
                elif hasattr(value, "_asdict"):
                    entries = value._asdict()
                else:
                    entries = as_entries(value)
            if entries is None or not names.issuperset(entries):
                refuse_value(value, kind, path)
            return tuple([keep_field(entries.get(name), (*path, name)) for name, keep_field in fields])

        return keep

    def keep_map(kind: Any) -> Callable[[Any, tuple[Any, ...]], Any]:
        keep_key, keep_value = keep_of(kind.key_field), keep_of(kind.item_field)

        def keep(value: Any, path: tuple[Any, ...]) -> Any:
            entries = None
            with contextlib.suppress(Exception):
                entries = as_entries(value)
            if entries is None:
                refuse_value(value, kind, path)
            kept = {}
            for key, one in entries.items():
                kept_key = keep_key(key, path)
                kept[tuple(kept_key) if isinstance(kept_key, list) else kept_key] = keep_value(one, (*path, (key,)))
            if len(kept) != len(entries):
                refuse_value(value, kind, path)
            return kept

        return keep

    def as_entries(value: Any) -> Any:
        if isinstance(value, Mapping):
            return dict(value)
        if not isinstance(value, (list, tuple)) or not all(isinstance(one, tuple) and len(one) == 2 for one in value):
            raise ValueError(value)
        entries = dict(value)
        if len(entries) != len(value):
            raise ValueError(value)
        return entries

    return keep_of


def _make_safe_for_values(function: Callable[..., Any]) -> Callable[..., Any]:
    text_of = _make_error_formatter()

    def safe(*values: Any) -> Any:
        try:
            return (function(*values), None)
        except Exception as error:
            return (None, text_of(error))

    return safe


def _make_safe_for_series(function: Callable[..., Any]) -> Callable[..., Any]:
    text_of = _make_error_formatter()

    def halves(series: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
        count = len(series[0])
        try:
            result = function(*series)
            if len(result) != count:
                raise ValueError(f"the function returned {len(result)} rows for {count}")
            values = result.to_dict("records") if hasattr(result, "columns") else list(result)
            return values, [None] * count
        except Exception as error:
            if count == 1:
                return [None], [text_of(error)]
        middle = count // 2
        first = halves(tuple(one.iloc[:middle].reset_index(drop=True) for one in series))
        second = halves(tuple(one.iloc[middle:].reset_index(drop=True) for one in series))
        return first[0] + second[0], first[1] + second[1]

    def safe(*series: Any) -> Any:
        import pandas as pd

        values, errors = halves(series) if len(series[0]) else ([], [])
        return pd.DataFrame({"value": pd.Series(values, dtype=object), "error": pd.Series(errors, dtype=object)})

    return _annotate(safe)


def _annotate(safe: Callable[..., Any]) -> Callable[..., Any]:
    """Annotate the function as pandas_udf expects it."""
    import inspect

    import pandas as pd

    several = inspect.Parameter("series", inspect.Parameter.VAR_POSITIONAL, annotation=pd.Series)
    safe.__signature__ = inspect.Signature([several], return_annotation=pd.DataFrame)  # type: ignore[attr-defined]
    safe.__annotations__ = {"series": pd.Series, "return": pd.DataFrame}
    return safe


def _make_error_formatter() -> Callable[[Exception], str]:
    def text_of(error: Exception) -> str:
        import traceback
        from pathlib import Path

        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name not in ("safe", "halves")]
        own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
        has_place = own and not hasattr(error, "has_no_place")
        place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if has_place else ""
        text = " ".join(str(error).split())[:300]
        return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"

    return text_of
