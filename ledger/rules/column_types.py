"""The rule for values that fit into a column of an output table.

Types have the form of Delta's log. `fit` compares a type of rows with a type of a column:

    Fit.ALWAYS  every value of the rows' type is a value of the column's
    Fit.EXACT   some values are: each value is cast to the column's type and back, and refused if it changes
    Fit.NEVER   the column means something else (a text and a number, a number and an instant)

| rows          | ALWAYS                          | EXACT                                            |
|---------------|---------------------------------|--------------------------------------------------|
| whole numbers | longer ones; decimals, float    | shorter ones, narrower decimals, long as double, |
|               | and double that have all their  | integer and long as float                        |
|               | digits                          |                                                  |
| float, double | double                          | whole numbers, decimals, double as float         |
| decimal       | decimals and whole numbers that | the others, float, double                        |
|               | have all its digits             |                                                  |
| date          |                                 | timestamp, timestamp_ntz: its midnight (UTC)     |
| timestamp     |                                 | date: a midnight (UTC); timestamp_ntz: as UTC    |
| timestamp_ntz |                                 | date: a midnight; timestamp: as UTC              |
| void          | all                             |                                                  |

Arrays, maps and structs fit as their contents do. A double between -2**53 and 2**53 means the decimal of its shortest
text (9.99, and not its fifty digits). Any other double means its exact whole number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

VOID = "void"
#: How many decimal digits the greatest number of each type has.
INTEGERS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
FLOATS = ("float", "double")
WHOLE_IN = {"float": ("byte", "short"), "double": ("byte", "short", "integer")}
#: From this size on, the shortest text of a double may be a different whole number.
FIRST_OF_WHOLE = 2.0**53
INSTANTS = ("date", "timestamp", "timestamp_ntz")
#: The digits of the longest decimal, and the type that Spark makes of Python's decimals.
MOST_DIGITS, USUAL_DECIMAL = 38, (38, 18)
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_SQL_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


class Fit(IntEnum):
    NEVER = 0
    EXACT = 1
    ALWAYS = 2


def fit(given: Any, column: Any) -> Fit:
    given, column = drop_char_length(given), drop_char_length(column)
    if given in (VOID, column):
        return Fit.ALWAYS
    if isinstance(given, str) and isinstance(column, str):
        return _fit_of_plain(given, column)
    if isinstance(given, str) or isinstance(column, str) or given["type"] != column["type"]:
        return Fit.NEVER
    if given["type"] == "array":
        return fit(given["elementType"], column["elementType"])
    if given["type"] == "map":
        return min(fit(given["keyType"], column["keyType"]), fit(given["valueType"], column["valueType"]))
    if given["type"] != "struct":
        return Fit.NEVER
    return _fit_of_structs(given, column)


def drop_char_length(kind: Any) -> Any:
    """Return "string" for CHAR(n) and VARCHAR(n), and any other type unchanged."""
    return "string" if isinstance(kind, str) and re.match(r"(var)?char\(", kind) else kind


def parse_decimal(kind: Any) -> tuple[int, int] | None:
    match = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    return None if match is None else (int(match[1]), int(match[2]))


def name_decimal(precision: int, scale: int) -> str:
    return f"decimal({precision},{scale})"


def name_type(kind: Any) -> str:
    if isinstance(kind, str):
        return _SQL_NAMES.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{name_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{name_type(kind['keyType'])},{name_type(kind['valueType'])}>"
    if kind["type"] == "struct":
        fields = [f"{one['name']}:{name_type(one['type'])}" for one in kind["fields"]]
        return f"struct<{','.join(fields)}>"
    return str(kind["type"])


def find_wider_type(given: Any, column: Any) -> str | None:
    """Return the number type that comes nearest to holding two number types, or None.

    For long and a float type this is double, which does not hold every long: the caller checks each value.
    """
    given, column = drop_char_length(given), drop_char_length(column)
    if not isinstance(given, str) or not isinstance(column, str) or not fit(given, column):
        return None
    numbers = (*INTEGERS, *FLOATS)
    digits = _digits_of(given), _digits_of(column)
    if given in INTEGERS and column in INTEGERS:
        return max(given, column, key=list(INTEGERS).index)
    if digits[0] is not None and digits[1] is not None:
        scale = max(digits[0][1], digits[1][1])
        precision = max(one[0] - one[1] for one in digits if one is not None) + scale
        return name_decimal(precision, scale) if precision <= MOST_DIGITS else None
    if given in numbers and column in numbers:
        return "float" if {given, column} <= {"byte", "short", "float"} else "double"
    return None


def widen_type(given: Any, column: Any) -> Any:
    """Return the type of a column that holds values of both types, or the column's own type if no type does."""
    given, column = drop_char_length(given), drop_char_length(column)
    if isinstance(given, str) or isinstance(column, str) or given["type"] != column["type"]:
        to = find_wider_type(given, column) if fit(given, column) is Fit.EXACT else None
        return column if to is None else to
    if column["type"] == "struct":
        given_types = {one["name"].lower(): one["type"] for one in given["fields"]}
        fields = [
            {**one, "type": widen_type(given_types.get(one["name"].lower(), one["type"]), one["type"])}
            for one in column["fields"]
        ]
        return {**column, "fields": fields}
    inner = [part for part in ("elementType", "keyType", "valueType") if part in column]
    return {**column, **{part: widen_type(given[part], column[part]) for part in inner}}


def drop_unknown_types(kind: Any) -> Any:
    """Return the type without its void parts; None if nothing is left."""
    kind = drop_char_length(kind)
    if isinstance(kind, str):
        return None if kind in (VOID, "null") else kind
    if kind["type"] == "array":
        inner = drop_unknown_types(kind["elementType"])
        return None if inner is None else {"type": "array", "elementType": inner, "containsNull": True}
    if kind["type"] == "map":
        key, value = drop_unknown_types(kind["keyType"]), drop_unknown_types(kind["valueType"])
        if key is None or value is None:
            return None
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if kind["type"] != "struct":
        return kind
    fields = [
        make_nullable_field(one["name"], inner)
        for one in kind["fields"]
        if (inner := drop_unknown_types(one["type"])) is not None
    ]
    return {"type": "struct", "fields": fields} if fields else None


def inner_types(kind: Mapping[str, Any]) -> list[Any]:
    inside = [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
    return inside + [one["type"] for one in kind.get("fields", ())]


def find_unread_type(kind: Any) -> str | None:
    """Return the name of a type inside `kind` that some readers do not know (variant, an interval)."""
    if isinstance(kind, str):
        read_by_all = (*INTEGERS, *FLOATS, *INSTANTS, "boolean", "string", "binary", VOID, "null")
        return None if drop_char_length(kind) in read_by_all or parse_decimal(kind) is not None else name_type(kind)
    inner = inner_types(kind)
    if not inner and kind["type"] not in ("struct", "array", "map"):
        return name_type(kind)
    return next((found for one in inner if (found := find_unread_type(one)) is not None), None)


def find_repeated_field(kind: Any, path: str = "") -> str | None:
    """Return the path of a field that has the same name, ignoring case, as another field of its struct."""
    if isinstance(kind, str):
        return None
    seen = set[str]()
    for field in kind.get("fields", ()):
        name = f"{path}{field['name']}"
        if field["name"].lower() in seen:
            return name
        seen.add(field["name"].lower())
        found = find_repeated_field(field["type"], f"{name}.")
        if found is not None:
            return found
    inner = [(part, kind[part]) for part in ("elementType", "keyType", "valueType") if part in kind]
    inner_paths = (find_repeated_field(one, f"{path}{part.removesuffix('Type')}.") for part, one in inner)
    return next((found for found in inner_paths if found is not None), None)


def has_local_time_in_map(kind: Any) -> bool:
    """Return whether a type has a map with a timestamp_ntz inside.

    delta-rs makes no table with such a column: it does not see that the table needs the feature timestampNtz.
    """
    if isinstance(kind, str):
        return False
    if kind["type"] == "map":
        return _has_local_time(kind["keyType"]) or _has_local_time(kind["valueType"])
    if kind["type"] == "array":
        return has_local_time_in_map(kind["elementType"])
    return any(has_local_time_in_map(one["type"]) for one in kind.get("fields", ()))


def _has_local_time(kind: Any) -> bool:
    if isinstance(kind, str):
        return kind == "timestamp_ntz"
    inner = [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
    return any(map(_has_local_time, (*inner, *(one["type"] for one in kind.get("fields", ())))))


def make_nullable_field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _fit_of_plain(given: str, column: str) -> Fit:
    if given in INSTANTS and column in INSTANTS:
        return Fit.EXACT
    if given in FLOATS:
        if column == "double":
            return Fit.ALWAYS
        return Fit.EXACT if column == "float" or _digits_of(column) else Fit.NEVER
    has = _digits_of(given)
    if has is None:
        return Fit.NEVER
    if column in FLOATS:
        return Fit.ALWAYS if given in WHOLE_IN[column] else Fit.EXACT
    if column in INTEGERS and given in INTEGERS:
        return Fit.ALWAYS if INTEGERS[given] <= INTEGERS[column] else Fit.EXACT
    holds = _digits_of(column)
    if holds is None:
        return Fit.NEVER
    # A byte has 3 digits, but does not hold every number of 3 digits.
    whole = holds[0] - holds[1] - (column in INTEGERS)
    return Fit.ALWAYS if has[0] - has[1] <= whole and has[1] <= holds[1] else Fit.EXACT


def _digits_of(kind: str) -> tuple[int, int] | None:
    return (INTEGERS[kind], 0) if kind in INTEGERS else parse_decimal(kind)


def _fit_of_structs(given: Any, column: Any) -> Fit:
    column_types = {field["name"].lower(): field["type"] for field in column["fields"]}
    worst = Fit.ALWAYS
    for field in given["fields"]:
        kind = column_types.get(field["name"].lower(), VOID)
        worst = min(
            worst, fit(field["type"], kind) if kind != VOID or drop_unknown_types(field["type"]) else Fit.ALWAYS
        )
    return worst
