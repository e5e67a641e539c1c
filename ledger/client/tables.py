"""The inputs of users: a list, a Spark DataFrame, or an Arrow table (also of pandas or polars).

Plain types are those that `output_tables.arrow_types.is_plain` accepts.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ledger.errors import InvalidParameterValue, LedgerError
from ledger.output_tables.arrow_types import NotPlain, convert_to_spark_type, first_changed, first_failing, plain_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from typing_extensions import TypeIs


class ArrowTable(Protocol):
    """A table with Arrow's PyCapsule interface, such as pyarrow's, or a DataFrame of pandas or polars."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """See Arrow's PyCapsule interface."""


#: The integer types of Arrow that Spark also has.
INTEGER_TYPES = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
#: The name that pandas gives to the column of an index without a name.
_INDEX = re.compile(r"__index_level_\d+__")


def is_spark(value: object) -> TypeIs[DataFrame]:
    return hasattr(value, "sparkSession") and hasattr(value, "select")


def require_batch(field: str, value: object, verb: str) -> None:
    """Raise InvalidParameterValue for a streaming DataFrame. `verb` is a call that takes one of its batches."""
    if is_spark(value) and getattr(value, "isStreaming", False):
        raise InvalidParameterValue(
            field,
            "a streaming DataFrame",
            "It has no last row, and one commit cannot take rows without end",
            f"Nothing was done. Take its batches: frame.writeStream.foreachBatch(lambda batch, number: {verb}).",
        )


def is_empty(rows: Any) -> bool:
    """Return whether a table or a Spark DataFrame has no row. Return False for other values.

    Raises InvalidParameterValue for a streaming DataFrame, a lazy query, and a table that Arrow cannot read.
    """
    if is_spark(rows):
        require_batch("rows", rows, "claim.write(batch, table)")
        return bool(rows.isEmpty())
    table = read_arrow_table("rows", rows)
    return table is not None and table.num_rows == 0


def read_arrow_table(field: str, value: Any) -> pa.Table | None:
    """Return `value` as an Arrow table of plain types. Return None for a value that is no table.

    Tables are pyarrow's tables, batches, readers and datasets, and objects with the Arrow PyCapsule interface. A Spark
    DataFrame is no table here. A pandas index without a name is left out.

    Raises InvalidParameterValue for a lazy query, and for a table that Arrow cannot read or would change. The error
    names the column and the row if they are known.
    """
    if is_spark(value):
        return None
    is_dataset = isinstance(value, _dataset_types())
    if not (is_dataset or hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")):
        if hasattr(value, "collect") and hasattr(value, "collect_schema"):
            raise InvalidParameterValue(
                field, type(value).__name__, "It is a query that was not run", "Call collect()."
            )
        return None
    _require_no_objects(field, value)
    require_no_nul(value)
    if is_made_by(value, "pandas") and hasattr(value, "columns"):
        _require_names(list(value.columns))
    try:
        with reading_by_library():
            table = value.to_table() if is_dataset else _read_table(value)
    except UnreadableByLibrary as error:
        if not hasattr(value, "columns") and ("non-struct" in str(error) or hasattr(value, "__array__")):
            raise _make_column_error(field, value) from None
        raise _error_of_unreadable(field, value, error) from error.__cause__
    _require_as_given(value, table)
    table = table.drop_columns([name for name in table.column_names if _INDEX.fullmatch(name)])
    _require_names(table.column_names)
    columns = {column.name: _convert_column(column, table[number]) for number, column in enumerate(table.schema)}
    return pa.table(columns) if columns else table.select([])


def is_made_by(value: object, library: str) -> bool:
    return any(base.__module__.partition(".")[0] == library for base in type(value).__mro__)


def require_no_nul(value: Any) -> None:
    """Refuse a NUL in the name of a column, or of a field inside it: Arrow's C interface ends a name there."""
    schema = getattr(value, "schema", None)
    if isinstance(schema, pa.Schema):
        kinds = {field.name: str(field) for field in schema}
    elif isinstance(schema, Mapping):
        kinds = {str(name): repr(kind) for name, kind in schema.items()}
    else:
        # A DataFrame of pandas has no schema. Only its Arrow dtypes show the names of inner fields.
        kinds = dict(zip(map(str, getattr(value, "columns", ())), map(str, getattr(value, "dtypes", ()))))
    for name, kind in kinds.items():
        if "\0" in f"{name}{kind}" or "\\x00" in kind:
            bound = "A NUL character is in its name, or in that of a field inside it"
            raise InvalidParameterValue("column", name, bound, "Rename it.")


def _require_names(names: Sequence[object]) -> None:
    double = [name for name, count in Counter(map(str, names)).items() if count > 1]
    if double:
        raise InvalidParameterValue("column", double[0], "The table has two columns of this name", "Rename one.")


class UnreadableByLibrary(Exception):
    """A library cannot read a value. `__cause__` is the library's error."""


@contextmanager
def reading_by_library() -> Iterator[None]:
    """Turn an error of a library, also a panic of Rust, into UnreadableByLibrary. A LedgerError passes unchanged."""
    try:
        yield
    except (LedgerError, UnreadableByLibrary):
        raise
    except Exception as error:
        if "Python exception" in str(error) and "KeyboardInterrupt" in str(error):
            # An error that Arrow made of a Ctrl-C in a generator of the user.
            raise KeyboardInterrupt from error
        raise UnreadableByLibrary(f"{error}" or type(error).__name__) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise UnreadableByLibrary(f"the library broke off ({error})") from error


def require_list(field: str, value: Any, bound: str = "Must be a list, a DataFrame or an Arrow table") -> list[Any]:
    """Return a sequence as a list.

    Refuse a text, bytes, a row with named fields, and any value that is no Sequence (such as a set, a NumPy array or a
    generator).
    """
    is_row = hasattr(value, "_fields") or hasattr(value, "__fields__")
    if isinstance(value, (str, bytes, bytearray, memoryview)) or not isinstance(value, Sequence) or is_row:
        fix = "Put one value into a list; list(...) turns a set, an array, a column or a generator into a list."
        shown = value if isinstance(value, (str, bytes, int, float, type(None))) else type(value).__name__
        raise InvalidParameterValue(field, shown, bound, fix)
    return list(value)


def require_column(table: pa.Table, name: str, accepts: Callable[[pa.DataType], bool], kinds: str) -> pa.ChunkedArray:
    """Return a column with nulls in place of NaN. If `accepts` is `is_integer`, whole floats become int64.

    A column without values becomes string nulls. Raises InvalidParameterValue for a missing column, or one that
    `accepts` refuses. `kinds` are the accepted types in words.
    """
    if name not in table.column_names:
        names = ", ".join(table.column_names) or "none"
        raise InvalidParameterValue(
            "column", name, f"The table has no such column; it has {names}", "Rename a column, or name another."
        )
    values = _replace_nan(table[name])
    kind = values.type
    if pa.types.is_null(kind) or values.null_count == table.num_rows:
        return pa.chunked_array([pa.nulls(table.num_rows, pa.string())])
    if accepts is is_integer and pa.types.is_floating(kind):
        # pandas makes floats of whole numbers in a column with a missing number.
        with suppress(pa.ArrowInvalid):
            return values.cast(pa.int64())
    if not accepts(kind):
        raise InvalidParameterValue("column", name, f"It is {kind} and must be {kinds}", "Cast it.")
    return values


def _replace_nan(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_integer(kind: pa.DataType) -> bool:
    return kind in INTEGER_TYPES


def _dataset_types() -> tuple[type, ...]:
    module = sys.modules.get("pyarrow.dataset")
    return () if module is None else (module.Dataset, module.Scanner)


def _read_table(value: Any) -> pa.Table:
    # Through the C interface, pyarrow 20 crashes on a string_view column whose texts are all short.
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatchReader):
        return value.read_all()
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if hasattr(value, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(value).read_all()
    # A batch of another library, or a single column, for which Arrow raises an error.
    return pa.Table.from_batches([pa.record_batch(value)])


def _require_no_objects(field: str, value: Any) -> None:
    """Refuse a polars column of Python objects: Arrow would read addresses as values."""
    kinds = getattr(value, "schema", None)
    if is_made_by(value, "polars") and isinstance(kinds, Mapping):
        for name, kind in kinds.items():
            if "Object" in str(kind):
                raise InvalidParameterValue("column", name, f"It is {kind}, which Arrow cannot read", "Cast it.")


def _require_as_given(value: Any, table: pa.Table) -> None:
    """Refuse a pandas column of Python objects if Arrow changed a value."""
    if not (is_made_by(value, "pandas") and hasattr(value, "columns")):
        return
    for place, kind in enumerate(value.dtypes):
        if str(kind) == "object":
            column, field = value.iloc[:, place], table.schema.field(place)
            row = first_changed(column, field.type)
            if row is not None:
                given_class = type(column.iloc[row]).__name__
                bound = f"Row {row} is of the class {given_class}, and Arrow turns all values into {field.type}"
                fix = "Make all values of one class. Cut instants to microseconds: .floor('us')."
                raise InvalidParameterValue("column", field.name, bound, fix)


def _convert_column(field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        with reading_by_library():
            for chunk in column.chunks:
                chunk.validate(full=True)
            return plain_column(field, column)
    except UnreadableByLibrary as error:
        if isinstance(error.__cause__, NotPlain):
            bound, fix = error.__cause__.said, error.__cause__.fix
            raise InvalidParameterValue("column", f"{field.name}{error.__cause__.path}", bound, fix) from None
        raise _make_value_error(field, column, error) from error.__cause__


def convert_for_spark(table: pa.Table) -> pa.Table:
    """Convert a table of plain types to Spark's types. Refuse a column that would lose nanoseconds."""
    columns = dict[str, pa.ChunkedArray]()
    for field in table.schema:
        kind = convert_to_spark_type(field.type)
        try:
            columns[field.name] = table[field.name] if kind == field.type else table[field.name].cast(kind)
        except pa.ArrowInvalid:
            bound = f"It is {field.type}, and has nanoseconds, which Spark does not keep"
            fix = "Cast it to microseconds (pandas .dt.floor('us'), polars .dt.truncate('1us')), or make a text of it."
            raise InvalidParameterValue("column", field.name, bound, fix) from None
    return pa.table(columns) if columns else table


def _make_value_error(field: pa.Field, column: pa.ChunkedArray, error: Exception) -> InvalidParameterValue:
    row = 0
    for chunk in column.chunks:
        place = first_failing(chunk, lambda part: part.validate(full=True))
        if place is not None:
            where = f"Row {row + place} holds a value that Arrow cannot read"
            break
        row += len(chunk)
    else:
        where = "Arrow cannot read it"
    fix = "Repair the value, or cast the column to binary."
    return InvalidParameterValue("column", field.name, f"{where}: it is {field.type}, and {str(error)[:200]}", fix)


def _find_wrong_object(values: Any) -> tuple[str, str] | None:
    first: tuple[int, Any] | None = None
    for row, value in enumerate(values.tolist()):
        try:
            with reading_by_library():
                is_null = pa.array([value], from_pandas=True).null_count > 0
        except UnreadableByLibrary as error:
            fix = "Make a text of it, say: .astype(str)."
            if isinstance(value, int):
                fix = "It is beyond 64 bits: make a decimal of it (decimal.Decimal(value)), or a text: .astype(str)."
            return f"Row {row} is {_show_value(value)}, which Arrow cannot read ({str(error)[:100]})", fix
        if is_null:
            continue
        first = first or (row, value)
        if type(value) is not type(first[1]):
            rows = f"Row {row} is {_show_value(value)}, and row {first[0]} is {_show_value(first[1])}"
            bound = f"{rows}: they are of several classes"
            return bound, "Make all values of one class: .astype(str), or pd.to_numeric(column) for numbers."
    return None


def _show_value(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = "a value"
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def _make_column_error(field: str, value: object) -> InvalidParameterValue:
    return InvalidParameterValue(
        field,
        type(value).__name__,
        "It is a single column and no table",
        "Give list(column), or a table with the column.",
    )


def _error_of_unreadable(field: str, value: Any, error: Exception) -> InvalidParameterValue:
    """Return an error about the first column that Arrow cannot read even alone, else about the table."""
    name, why = field, str(error)
    for column in list(getattr(value, "columns", ())):
        try:
            with reading_by_library():
                _read_table(value[[column]])
        except UnreadableByLibrary as alone:
            name, why = str(column), str(alone)
            break
    bound = f"Arrow cannot read it as a table ({why[:200]})"
    fix = "Give every column values of one type, or cast it (to string, say)."
    if name != field and is_made_by(value, "pandas"):
        bound, fix = _find_wrong_object(value[column]) or (bound, fix)
    if "_pli128" in why or "_plu128" in why:
        bound, fix = (
            "It is Int128 or UInt128 of polars, which Arrow does not have",
            "Cast it: to Decimal(38, 0), Int64 or String.",
        )
    if name == field:
        return InvalidParameterValue(field, type(value).__name__, bound, fix)
    return InvalidParameterValue("column", name, bound, fix)
