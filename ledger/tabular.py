"""What users give: a list, a DataFrame of Spark's, or what can be had as an Arrow table (pandas, polars, pyarrow)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ledger.errors import InvalidParameterValue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from typing_extensions import TypeIs


class ArrowTable(Protocol):
    """A table with Arrow's PyCapsule interface: pyarrow's, or a DataFrame of pandas' or polars'."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Its rows, as Arrow's C data interface hands them on."""


#: Arrow's types by what Spark calls them, as far as columns that mean something may have them.
INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
#: How pandas names the column of an index that has no name.
_INDEX = re.compile(r"__index_level_\d+__")


def is_spark(value: object) -> TypeIs[DataFrame]:
    """Whether it is a DataFrame of Spark's."""
    return hasattr(value, "sparkSession") and hasattr(value, "select")


def is_empty(rows: Any) -> bool:
    """Whether a table, or a DataFrame of Spark's, has no row. Raises InvalidParameterValue for what is neither."""
    if is_spark(rows):
        return bool(rows.isEmpty())
    table = arrow_table("rows", rows)
    return table is not None and table.num_rows == 0


def arrow_table(field: str, value: Any) -> pa.Table | None:
    """`value` as an Arrow table when it is one, a RecordBatch, or a table with the Arrow PyCapsule interface (a pandas
    or polars DataFrame); None for all else, and for Spark's DataFrames. An index without a name is left out.

    Raises InvalidParameterValue for a single column, and for a table that Arrow cannot read or whose names are not
    its columns' own.
    """
    if is_spark(value) or not (hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")):
        return None
    if isinstance(value, pa.RecordBatch):
        value = pa.Table.from_batches([value])
    if not hasattr(value, "__arrow_c_stream__"):
        raise _column(field, value)
    try:
        table = pa.RecordBatchReader.from_stream(value).read_all()
    except pa.ArrowInvalid as error:
        if "non-struct" in str(error):
            raise _column(field, value) from None
        raise _unreadable(field, value, error) from error
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _unreadable(field, value, error) from error
    table = table.drop_columns([name for name in table.column_names if _INDEX.fullmatch(name)])
    double = [name for name, count in Counter(table.column_names).items() if count > 1]
    if double:
        raise InvalidParameterValue("column", double[0], "The table has two columns of this name", "Rename one.")
    return pa.table({name: _plain(table[name]) for name in table.column_names})


def listed(field: str, value: Any, bound: str = "Must be a list, a DataFrame or an Arrow table") -> list[Any]:
    """`value` as a list. Raises InvalidParameterValue for whatever is neither a list nor a tuple of values: a single
    text, a mapping, a set (it has no order, and outcomes would), a generator, an array or a column."""
    is_row = hasattr(value, "_fields") or hasattr(value, "__fields__")
    if isinstance(value, (str, bytes, bytearray, memoryview)) or not isinstance(value, Sequence) or is_row:
        fix = "Put one value into a list; list(...) makes one of a set, an array or a column."
        shown = value if isinstance(value, (str, bytes, int, float, type(None))) else type(value).__name__
        raise InvalidParameterValue(field, shown, bound, fix)
    return list(value)


def require_column(table: pa.Table, name: str, right: Callable[[pa.DataType], bool], kinds: str) -> pa.ChunkedArray:
    """A column of an Arrow table; raises InvalidParameterValue when there is none, or one of another type."""
    if name not in table.column_names:
        there = ", ".join(table.column_names) or "none"
        raise InvalidParameterValue(
            "column", name, f"The table has no such column; it has {there}", "Rename or name another one."
        )
    kind = table.schema.field(name).type
    if pa.types.is_null(kind) or not table.num_rows:
        # As pandas says of a selection without rows: a column of nothing is of any type.
        return table[name].cast(pa.string())
    if not right(kind):
        raise InvalidParameterValue("column", name, f"It is {kind} and must be {kinds}", "Cast it.")
    return table[name]


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_integer(kind: pa.DataType) -> bool:
    """Whether a column of this type holds whole numbers that Spark has a type for."""
    return kind in INTEGERS


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same values without an encoding of their own: categories and views as what they stand for."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    return column.cast(pa.large_string()) if pa.types.is_string_view(kind) else column


def _column(field: str, value: object) -> InvalidParameterValue:
    return InvalidParameterValue(
        field,
        type(value).__name__,
        "It is a single column and no table",
        "Give list(column), or a table with the column.",
    )


def _unreadable(field: str, value: object, error: Exception) -> InvalidParameterValue:
    said = f"Arrow cannot read it as a table ({str(error)[:200]})"
    return InvalidParameterValue(field, type(value).__name__, said, "Give every column values of one type.")
