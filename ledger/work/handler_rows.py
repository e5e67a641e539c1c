"""The rows that handlers return: their check, their costs, and one Arrow table of them.

A column with both whole numbers and fractions becomes one of floats. If values have no common type (numbers and texts),
the column gets the type of most values. A row whose value does not fit the type, or would be changed by it, is refused.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from ledger.output_tables.arrow_types import first_changed
from ledger.rules.text import escape_surrogates

#: Any Exception: Arrow calls methods of the user's objects.
CONVERSION_ERRORS = (Exception,)
Row = Mapping[str, Any]


def find_common_types(answers: Sequence[Sequence[Row]]) -> tuple[pa.Schema, dict[int, TypeError]]:
    """Return the columns of the rows of many messages, in the order in which rows first have them.

    Also return the first error of each message with a refused row, by the message's place in `answers`.
    """
    names = dict.fromkeys(name for rows in answers for row in rows for name in row)
    fields, refused = [], dict[int, TypeError]()
    for name in names:
        cells = [(place, row.get(name)) for place, rows in enumerate(answers) for row in rows]
        kind, wrong = _find_common_type([value for _, value in cells])
        for number, why in wrong.items():
            refused.setdefault(cells[number][0], TypeError(f"the column {name} cannot be written: {why}"))
        fields.append(pa.field(name, kind))
    return pa.schema(fields), refused


def _find_common_type(values: Sequence[Any]) -> tuple[pa.DataType, dict[int, str]]:
    """Return the type of a column, and the errors of values by their places."""
    groups: dict[type, list[int]] = {}
    for place, value in enumerate(values):
        if value is not None:
            groups.setdefault(type(value), []).append(place)
    by_kind, wrong = dict[pa.DataType, list[int]](), dict[int, str]()
    for places in groups.values():
        for kind, fitting in _find_types(values, places, wrong).items():
            by_kind.setdefault(kind, []).extend(fitting)
    common = pa.null()
    for kind in sorted(by_kind, key=lambda one: len(by_kind[one]), reverse=True):
        # The type of a struct without fields is false, so compare with None.
        unified = _promote_types(common, kind)
        common = common if unified is None else unified
    for kind, places in by_kind.items():
        if _promote_types(common, kind) != common:
            wrong |= dict.fromkeys(places, f"its value is {kind}, and the column is {common}")
        elif kind != common and _find_refusal([values[place] for place in places], common) is not None:
            refusals = ((place, _find_refusal([values[place]], common)) for place in places)
            wrong |= {place: why for place, why in refusals if why is not None}
    return common, wrong


def _find_types(values: Sequence[Any], places: Sequence[int], wrong: dict[int, str]) -> dict[pa.DataType, list[int]]:
    """Return the types of values of one Python class, with the values' places. Note errors in `wrong`."""
    try:
        return {_find_keeping_type([values[place] for place in places]): list(places)}
    except CONVERSION_ERRORS:
        places_by_kind: dict[pa.DataType, list[int]] = {}
        for place in places:
            try:
                places_by_kind.setdefault(_find_keeping_type([values[place]]), []).append(place)
            except CONVERSION_ERRORS as error:
                wrong[place] = str(error)
        return places_by_kind


def _find_keeping_type(values: Sequence[Any]) -> pa.DataType:
    """Return the type that Arrow finds for values. Raise if it would change a value."""
    kind: pa.DataType = pa.array(values).type
    changed = first_changed(values, kind)
    if changed is not None:
        value = values[changed]
        raise TypeError(f"the type {kind} would change its value, a {type(value).__name__}")
    return kind


def _find_refusal(values: Sequence[Any], kind: pa.DataType) -> str | None:
    """Return why values do not fit a type; None if they fit."""
    try:
        pa.array(values, kind)
        if first_changed(values, kind) is not None:
            return f"the type {kind} would change its value"
    except CONVERSION_ERRORS as error:
        return str(error)
    return None


def _promote_types(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type to which Arrow promotes two types; None if there is none, or if only one is a text type."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if _is_text(one) != _is_text(other):
        return None
    try:
        schemas = [pa.schema([("value", kind)]) for kind in (one, other)]
        unified: pa.DataType = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None
    return unified


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


MESSAGE_ID_COLUMN = "message_id"
_SCALARS = frozenset({float, int, str, bool, type(None)})
_ROW_KINDS = "must return None (no row), a dict, a dataclass, or a list of them"


def rows_of(answer: Any, message_id: str) -> list[dict[str, Any]]:
    """Return a handler's answer for a message as rows, each with the message's id.

    Raises:
        TypeError: The answer has a value that is no row, or a row about another message. Or a column's name is no text.
            Or a name, at any depth, is blank or has half a character (a lone surrogate).
    """
    if answer is None:
        return []
    fields = getattr(answer, "_fields", None)
    if isinstance(answer, (list, tuple)) and fields is None:
        return [row for one in answer if one is not None for row in [_make_row(one, message_id)]]
    return [_make_row(answer, message_id)]


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
    """Return the rows of one message as JSON, without its id; as their `repr` if JSON fails."""
    without_ids = [{name: value for name, value in row.items() if name != MESSAGE_ID_COLUMN} for row in rows]
    try:
        return json.dumps(without_ids[0] if len(without_ids) == 1 else without_ids, default=str, ensure_ascii=False)
    except Exception:
        return answer_text(without_ids)


def answer_text(answer: Any) -> str:
    try:
        return repr(answer)
    except Exception:
        return f"a {type(answer).__name__}, which has no text"


def _make_row(one: Any, message_id: str) -> dict[str, Any]:
    if isinstance(one, Mapping):
        row = dict(one)
    elif dataclasses.is_dataclass(one) and not isinstance(one, type):
        row = dataclasses.asdict(one)
    elif isinstance(one, tuple) and hasattr(one, "_asdict"):
        row = dict(one._asdict())
    else:
        raise TypeError(f"the handler returned {type(one).__name__}: it {_ROW_KINDS}")
    for name in row:
        if not isinstance(name, str):
            raise TypeError(f"the handler returned a row with the column {name!r}: its name must be a text")
    nameless = _find_bad_name(row)
    if nameless is not None:
        why = "it has half a character" if nameless.strip() else "it must not be blank"
        raise TypeError(f"the handler returned a row with the column {nameless!r}: {why}")
    about = row.get(MESSAGE_ID_COLUMN, message_id)
    if not isinstance(about, str) or about != message_id:
        raise TypeError(f"the handler returned a row about {answer_text(about)}, and was given {message_id}")
    return {MESSAGE_ID_COLUMN: message_id, **row}


def _find_bad_name(value: Any) -> str | None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if isinstance(name, str) and (not name.strip() or escape_surrogates(name) != name):
                return name
            inner_name = _find_bad_name(inner)
            if inner_name is not None:
                return inner_name
    # Lists of scalars, such as an embedding, may be long.
    if isinstance(value, (list, tuple)) and not _SCALARS.issuperset(map(type, value)):
        return next((inner_name for inner in value if (inner_name := _find_bad_name(inner)) is not None), None)
    return None
