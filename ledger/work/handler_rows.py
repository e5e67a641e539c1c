"""The rows that handlers return, as one Arrow table."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from ledger.rules.text import escaped
from ledger.work.row_types import CONVERSION_ERRORS

NAMES_MESSAGE = "message_id"
_SCALARS = frozenset({float, int, str, bool, type(None)})
_KINDS = "must return None (no row), a dict, a dataclass, or a list of them"


def rows_of(answer: Any, message_id: str) -> list[dict[str, Any]]:
    """Return a handler's answer for a message as rows, each with the message's id.

    Raises:
        TypeError: The answer has a value that is no row, or a row about another message. Or the name of a column is no
            text. Or a name, at any depth, is blank or has half a character (a lone surrogate).
    """
    if answer is None:
        return []
    fields = getattr(answer, "_fields", None)
    if isinstance(answer, (list, tuple)) and fields is None:
        return [row for one in answer if one is not None for row in [_row(one, message_id)]]
    return [_row(answer, message_id)]


def cost_of(rows: Iterable[Mapping[str, Any]], column: str | None) -> float:
    """Return the sum of a column's finite numbers; 0 without a column."""
    costs = [row[column] for row in rows if has_cost(row, column)] if column else []
    return sum(int(cost) if isinstance(cost, Integral) else float(cost) for cost in costs)


def has_cost(row: Mapping[str, Any], column: str) -> bool:
    """Return whether a column has a finite number that a float holds."""
    cost = row.get(column)
    try:
        return isinstance(cost, (Real, Decimal)) and not isinstance(cost, bool) and math.isfinite(cost)
    except (OverflowError, ValueError):
        return False


def table_of(rows: Sequence[Mapping[str, Any]], types: pa.Schema) -> pa.Table:
    """Return rows as a table with the columns of `types` that at least one row has. Errors name the column."""
    names = {name for row in rows for name in row}
    columns = {}
    for field in types:
        if field.name not in names:
            continue
        try:
            columns[field.name] = pa.array([row.get(field.name) for row in rows], field.type)
        except CONVERSION_ERRORS as error:
            raise TypeError(f"the column {field.name} cannot be written: {error}") from error
    return pa.table(columns)


def row_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows of one message as JSON, without its id; as Python's text if JSON fails."""
    without_ids = [{name: value for name, value in row.items() if name != NAMES_MESSAGE} for row in rows]
    try:
        return json.dumps(without_ids[0] if len(without_ids) == 1 else without_ids, default=str, ensure_ascii=False)
    except Exception:
        return answer_text(without_ids)


def answer_text(answer: Any) -> str:
    try:
        return repr(answer)
    except Exception:
        return f"a {type(answer).__name__}, which has no text"


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
    nameless = _find_bad_name(row)
    if nameless is not None:
        why = "it has half a character" if nameless.strip() else "it must have a character"
        raise TypeError(f"the handler returned a row with the column {nameless!r}: {why}")
    about = row.get(NAMES_MESSAGE, message_id)
    if not isinstance(about, str) or about != message_id:
        raise TypeError(f"the handler returned a row about {answer_text(about)}, and was given {message_id}")
    return {NAMES_MESSAGE: message_id, **row}


def _find_bad_name(value: Any) -> str | None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if isinstance(name, str) and (not name.strip() or escaped(name) != name):
                return name
            inner_name = _find_bad_name(inner)
            if inner_name is not None:
                return inner_name
    # Lists of scalars, such as an embedding, may be long.
    if isinstance(value, (list, tuple)) and not _SCALARS.issuperset(map(type, value)):
        return next((inner_name for inner in value if (inner_name := _find_bad_name(inner)) is not None), None)
    return None
