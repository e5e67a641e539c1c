"""Functions for the DataFrames of claims: a row whose Python raises becomes a row with its error, and harms no one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ledger.errors import InvalidParameterValue

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: The fields of what a safe function returns.
VALUE, ERROR = "value", "error"
#: By Spark's number: a UDF that gets values, with and without Arrow, and one that gets pandas.Series.
_OF_VALUES, _OF_SERIES = (100, 101), 200
#: The column of `rowwise` that says why a message failed.
REASON = "_failed"


def safely(function: Any) -> Any:
    """Wrap a UDF so that a row for which it raises has its error in place of a value.

    Args:
        function: what `pyspark.sql.functions.udf` or `pandas_udf` returned: of values, or of one pandas.Series for each
            argument and for the result. A pandas UDF that raises for its batch is called again in halves, until
            the rows that raise stand alone.

    Returns:
        A UDF of the same arguments. It returns a struct of `value`, as the UDF returns it, and `error`, a text such as
        "ValueError: no such date (dates.py:7)". One of the two is null, or both where the UDF returned null.
        Executors need no package of the ledger's.

    Raises:
        InvalidParameterValue: for what is no such UDF: a plain function, one of iterators, groups or whole tables.
    """
    kind = getattr(function, "evalType", None)
    if kind not in (*_OF_VALUES, _OF_SERIES):
        fix = "Give udf(f, 'double') or pandas_udf(f, 'double') of pyspark.sql.functions."
        bound = "Must be a UDF of values or of pandas.Series"
        raise InvalidParameterValue("function", getattr(function, "__name__", type(function).__name__), bound, fix)
    from pyspark.sql.functions import udf
    from pyspark.sql.pandas.functions import pandas_udf
    from pyspark.sql.types import StringType, StructField, StructType

    returns = StructType([StructField(VALUE, function.returnType), StructField(ERROR, StringType())])
    if kind == _OF_SERIES:
        # Its types know no function of any number of Series.
        of_series: Any = pandas_udf
        return of_series(_safe_of_series(function.func), returns)
    return udf(_safe_of_values(function.func), returns, useArrow=kind == 101)


def rowwise(function: Callable[[Any], Any], schema: pa.Schema) -> Callable[[DataFrame], DataFrame]:
    """Return a function of a claim's DataFrame that calls `function` for each message, safely.

    Args:
        function: gets a message as a Row, and returns a dict, a tuple or a Row of the columns of `schema`.
        schema: the columns that it returns, as an Arrow schema, without message_id.

    Returns:
        The function. Its rows have message_id, the columns of `schema`, and REASON: null, or why the message failed.

    Raises:
        InvalidParameterValue: for a schema that is none of Arrow's, or names one of these columns itself.
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
    for name in ("message_id", REASON):
        if name in schema.names:
            raise InvalidParameterValue("schema", name, "It has a column that each row gets by itself", "Leave it out.")
    safe = safely(F.udf(required(function, schema), from_arrow_schema(schema), useArrow=False))

    def of_frame(messages: DataFrame) -> DataFrame:
        called = messages.select("message_id", safe(F.struct("*")).alias("called"))
        columns = [F.col("called")[VALUE][name].alias(name) for name in schema.names]
        return called.select("message_id", *columns, F.col("called")[ERROR].alias(REASON))

    return of_frame


# What follows runs on executors, which may not have this package: each function that is sent there holds all it needs.


def required(function: Callable[[Any], Any], schema: pa.Schema) -> Callable[[Any], Any]:
    """The function, whose answers are values of the schema's types and no others: Spark would make nulls of some."""
    names, fields = list(schema.names), list(schema)

    def checked(row: Any) -> Any:
        import pyarrow as pa

        answer = function(row)
        if hasattr(answer, "asDict"):
            answer = answer.asDict()
        elif isinstance(answer, tuple) and len(answer) == len(names):
            answer = dict(zip(names, answer))
        if not isinstance(answer, dict):
            kind = type(answer).__name__
            raise TypeError(f"the function returned {kind}: it must return a dict, or a tuple of {len(names)}")
        unknown = [str(name) for name in answer if name not in names]
        if unknown:
            raise TypeError(f"the function returned the column {unknown[0]}, which schema does not name")
        values = []
        for field in fields:
            value = answer.get(field.name)
            values.append(pa.scalar(value, type=field.type).as_py())
            # Arrow would cut off what stands behind the point.
            if isinstance(value, float) and isinstance(values[-1], int) and value != values[-1]:
                raise TypeError(f"the function returned {value} for the column {field.name}, which is {field.type}")
        return tuple(values)

    return checked


def _safe_of_values(function: Callable[..., Any]) -> Callable[..., Any]:
    text_of = _text_of_error()

    def safe(*values: Any) -> Any:
        try:
            return (function(*values), None)
        except Exception as error:
            return (None, text_of(error))

    return safe


def _safe_of_series(function: Callable[..., Any]) -> Callable[..., Any]:
    text_of = _text_of_error()

    def halves(series: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
        count = len(series[0])
        try:
            found = function(*series)
            if len(found) != count:
                raise ValueError(f"the function returned {len(found)} rows for {count}")
            values = found.to_dict("records") if hasattr(found, "columns") else list(found)
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

    return _annotated(safe)


def _annotated(safe: Callable[..., Any]) -> Callable[..., Any]:
    """The function, as pandas_udf takes it for one of Series that returns a DataFrame."""
    import inspect

    import pandas as pd

    several = inspect.Parameter("series", inspect.Parameter.VAR_POSITIONAL, annotation=pd.Series)
    safe.__signature__ = inspect.Signature([several], return_annotation=pd.DataFrame)  # type: ignore[attr-defined]
    safe.__annotations__ = {"series": pd.Series, "return": pd.DataFrame}
    return safe


def _text_of_error() -> Callable[[Exception], str]:
    def text_of(error: Exception) -> str:
        import traceback
        from pathlib import Path

        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name not in ("safe", "halves")]
        own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
        place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
        said = " ".join(str(error).split())[:300]
        return f"{type(error).__name__}: {said}{place}" if said else f"{type(error).__name__}{place}"

    return text_of
