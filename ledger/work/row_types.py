"""The Arrow types of columns of Python values, found in the rows that one settlement writes.

Whole numbers and fractions become floats. If values have no common type (numbers and texts), the column gets the type
of most values. A row whose value does not fit the type, or would be changed by it, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ledger.output_tables.arrow_values import first_changed

#: Any Exception: Arrow calls methods of the user's objects.
CONVERSION_ERRORS = (Exception,)
Row = Mapping[str, Any]


def common_types(answers: Sequence[Sequence[Row]]) -> tuple[pa.Schema, dict[int, TypeError]]:
    """Return the columns of the rows of many messages, and the errors of refused rows by their place in `answers`.

    The columns are in the order in which rows first have them.
    """
    names = dict.fromkeys(name for rows in answers for row in rows for name in row)
    fields, refused = [], dict[int, TypeError]()
    for name in names:
        cells = [(place, row.get(name)) for place, rows in enumerate(answers) for row in rows]
        kind, wrong = _common_type([value for _, value in cells])
        for number, why in wrong.items():
            refused.setdefault(cells[number][0], TypeError(f"the column {name} cannot be written: {why}"))
        fields.append(pa.field(name, kind))
    return pa.schema(fields), refused


def _common_type(values: Sequence[Any]) -> tuple[pa.DataType, dict[int, str]]:
    """Return the type of a column, and the errors of values by their places."""
    groups: dict[type, list[int]] = {}
    for place, value in enumerate(values):
        if value is not None:
            groups.setdefault(type(value), []).append(place)
    by_kind, wrong = dict[pa.DataType, list[int]](), dict[int, str]()
    for places in groups.values():
        for kind, fitting in _types_of(values, places, wrong).items():
            by_kind.setdefault(kind, []).extend(fitting)
    common = pa.null()
    for kind in sorted(by_kind, key=lambda one: len(by_kind[one]), reverse=True):
        # The type of a struct without fields is false, so compare with None.
        unified = _unified(common, kind)
        common = common if unified is None else unified
    for kind, places in by_kind.items():
        if _unified(common, kind) != common:
            wrong |= dict.fromkeys(places, f"its value is {kind}, and the column is {common}")
        elif kind != common and _refusal([values[place] for place in places], common) is not None:
            refusals = ((place, _refusal([values[place]], common)) for place in places)
            wrong |= {place: why for place, why in refusals if why is not None}
    return common, wrong


def _types_of(values: Sequence[Any], places: Sequence[int], wrong: dict[int, str]) -> dict[pa.DataType, list[int]]:
    """Return the types of values of one Python class, with the values' places. Note errors in `wrong`."""
    try:
        return {_type_that_keeps([values[place] for place in places]): list(places)}
    except CONVERSION_ERRORS:
        places_by_kind: dict[pa.DataType, list[int]] = {}
        for place in places:
            try:
                places_by_kind.setdefault(_type_that_keeps([values[place]]), []).append(place)
            except CONVERSION_ERRORS as error:
                wrong[place] = str(error)
        return places_by_kind


def _type_that_keeps(values: Sequence[Any]) -> pa.DataType:
    """Return the type that Arrow finds for values. Raise if it would change a value."""
    kind: pa.DataType = pa.array(values).type
    changed = first_changed(values, kind)
    if changed is not None:
        value = values[changed]
        raise TypeError(f"the type {kind} would change its value, a {type(value).__name__}")
    return kind


def _refusal(values: Sequence[Any], kind: pa.DataType) -> str | None:
    """Return why values do not fit a type; None if they fit."""
    try:
        pa.array(values, kind)
        if first_changed(values, kind) is not None:
            return f"the type {kind} would change its value"
    except CONVERSION_ERRORS as error:
        return str(error)
    return None


def _unified(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type to which Arrow promotes two types; None if there is none, or if only one is of texts."""
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
