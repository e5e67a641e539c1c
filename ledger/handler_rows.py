"""The rows that handlers return, as one Arrow table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

#: The column by which each row names its message.
NAMES_MESSAGE = "message_id"
_KINDS = "must return None (no row), a dict, a dataclass, or a list of them"


def rows_of(answer: Any, message_id: str) -> list[dict[str, Any]]:
    """Return what a handler returned for a message as rows, each with the message's id.

    Raises:
        TypeError: for an answer that is no row, a column whose name is no text, and a row about another message.
    """
    if answer is None:
        return []
    fields = getattr(answer, "_fields", None)
    if isinstance(answer, (list, tuple)) and fields is None:
        return [row for one in answer if one is not None for row in [_row(one, message_id)]]
    return [_row(answer, message_id)]


def cost_of(rows: Iterable[Mapping[str, Any]], column: str | None) -> float:
    """Return the sum of a column of rows, as far as its values are finite numbers, numpy's and Decimal too; 0 without a
    column."""
    costs = [row.get(column) for row in rows] if column else []
    known = [cost for cost in costs if isinstance(cost, (Real, Decimal)) and not isinstance(cost, bool)]
    finite = [cost for cost in known if math.isfinite(cost)]
    return sum(int(cost) if isinstance(cost, Integral) else float(cost) for cost in finite)


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as a table with the columns of all of them, in the order in which they first came.

    Raises:
        TypeError: for values of one column that have no type in common; the column is named.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"the column {name} cannot be written: {error}") from error
    return pa.table(columns)


def _row(one: Any, message_id: str) -> dict[str, Any]:
    if isinstance(one, Mapping):
        row = dict(one)
    elif dataclasses.is_dataclass(one) and not isinstance(one, type):
        row = dataclasses.asdict(one)
    elif isinstance(one, tuple) and hasattr(one, "_asdict"):
        row = dict(one._asdict())
    else:
        raise TypeError(f"the handler returned {type(one).__name__}: it {_KINDS}")
    for name in row:
        if not isinstance(name, str):
            raise TypeError(f"the handler returned a row with the column {name!r}: its name must be a text")
    if row.get(NAMES_MESSAGE, message_id) != message_id:
        raise TypeError(f"the handler returned a row about {row[NAMES_MESSAGE]!r}, and was given {message_id}")
    return {NAMES_MESSAGE: message_id, **row}
