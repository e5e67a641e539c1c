"""The columns of a new or existing output table, from the rows of a write.

A new table leaves out a column whose type no row shows (None only, [], {}). The first rows that show the type add the
column. Any other new column is refused if the rows show its type, so a mistyped name makes no column. A writer can ask
for new columns: by WIDEN, by an Arrow schema, or by Spark's setting for schema evolution.

A column gets a wider type only by WIDEN. The one exception is a number type that came from Python values (BY_CHANCE):
later Python values widen it. If a column does not hold a value exactly, all rows of the write are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ledger.rules.column_types import (
    FLOATS,
    INTEGERS,
    Fit,
    drop_char_length,
    drop_unknown_types,
    find_repeated_field,
    find_unread_type,
    find_wider_type,
    fit,
    has_local_time_in_map,
    inner_types,
    make_nullable_field,
    name_type,
    parse_decimal,
    widen_type,
)

#: The value of `schema=` that asks for new columns and wider types.
WIDEN = "widen"
#: The table's property with the columns, and the fields inside columns, that a new table left out.
LEFT_OUT = "ledger.columnsLeftOut"
#: The table's property with the columns whose number types came from the first Python values.
BY_CHANCE = "ledger.columnsTypedByChance"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


OFFER = f', or give schema="{WIDEN}", which makes '
#: The error of a task that refuses a value: REFUSES, a sentence, END, the id of the row's message, END.
REFUSES = "ledger refuses a value: "
#: A POINT follows each BAR in the sentence and the id, so that neither contains END.
BAR, POINT, END = "|", ".", "||"
REFUSED = re.compile(f"{REFUSES}(.*?){re.escape(END)}(.*?){re.escape(END)}", re.DOTALL)


#: A user's conversion of a column, by (whether the rows have texts, the type of the table's column).
_FLOAT = 'pandas: .astype("{0}"), pyarrow: .cast("{0}", safe=False)'
_CASTS = {
    **{(False, kind): _FLOAT.format(f"float{bits}") for kind, bits in (("float", 32), ("double", 64))},
    **{(True, kind): 'pandas: pd.to_numeric(..., errors="coerce")' for kind in (*INTEGERS, *FLOATS)},
    **{(True, kind): 'pandas: pd.to_datetime(..., errors="coerce")' for kind in ("timestamp", "timestamp_ntz")},
    (False, "string"): 'pandas: .astype("string"), pyarrow: .cast("string")',
    (False, "date"): 'pandas: .dt.floor("D"), pyarrow: .cast("date32", safe=False)',
}


class ColumnsDiffer(Exception):
    """The rows do not fit the table, or no table can be made for them.

    `row` (from 0) and `place` (in words) say where the wrong row is.
    """

    def __init__(self, sentence: str, row: int | None = None, place: str = "") -> None:
        self.row, self.place = row, place
        super().__init__(sentence)


@dataclass(frozen=True)
class ColumnsAsked:
    """A writer's requests about a table's columns.

    `widen` asks for wider types and new columns, `add` for new columns alone. `declared` is a schema as in Delta's log.
    `by_chance` is True for Python values.
    """

    widen: bool = False
    add: bool = False
    declared: Mapping[str, Any] | None = None
    by_chance: bool = False


NOTHING_ASKED = ColumnsAsked()


@dataclass(frozen=True)
class Columns:
    """The columns that a table shall have. `schema` has the form of Delta's log."""

    schema: Mapping[str, Any]
    added: tuple[str, ...] = ()
    retyped: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    by_chance: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        return bool(self.added or self.retyped)


def plan_new_columns(rows: Mapping[str, Any], requests: ColumnsAsked = NOTHING_ASKED) -> Columns:
    """Return the columns of a new table for rows with this schema.

    Raises:
        ColumnsDiffer: No column has a type, a name or type cannot be used, or a declared type never fits.
    """
    declared = requests.declared
    types = {field["name"]: field["type"] for field in rows["fields"]}
    types.update({field["name"]: field["type"] for field in (declared or {"fields": ()})["fields"]})
    fields, left_out = [], []
    for name, kind in types.items():
        column_type = drop_unknown_types(kind)
        if column_type is not None:
            fields.append(make_nullable_field(name, column_type))
        left_out += paths_without_type(name, kind)
    wrong = [
        _unread_sentence(name, unread) for name, kind in types.items() if (unread := find_unread_type(kind)) is not None
    ]
    if wrong:
        raise ColumnsDiffer(wrong[0])
    nameless = next((name for name, kind in types.items() if _is_nameless(name, kind)), None)
    if nameless is not None:
        raise ColumnsDiffer(_nameless_sentence(nameless))
    double = find_repeated_field({"type": "struct", "fields": [{"name": name, "type": types[name]} for name in types]})
    if double is not None:
        raise ColumnsDiffer(_twice_sentence(double))
    if not fields:
        names = ", ".join(types) or "no column"
        raise ColumnsDiffer(
            f"no row tells the type of a column ({names}), and a table needs one: give schema= (an Arrow schema)"
        )
    schema = {"type": "struct", "fields": fields}
    for field in rows["fields"]:
        column_type = _type_of(schema, field["name"])
        if column_type is not None and fit(field["type"], column_type) is Fit.NEVER:
            raise ColumnsDiffer(
                f"column {field['name']} is {name_type(field['type'])}, and {name_type(column_type)} in schema="
            )
    declared_names = {field["name"].lower() for field in (declared or {"fields": ()})["fields"]}
    undeclared = [
        field["name"] for field in fields if requests.by_chance and field["name"].lower() not in declared_names
    ]
    by_chance = [name for name in undeclared if _has_numbers(types[name])]
    return Columns(schema, left_out=tuple(left_out), by_chance=tuple(by_chance))


def merge_columns(
    table: Mapping[str, Any],
    rows: Mapping[str, Any],
    properties: Mapping[str, str],
    requests: ColumnsAsked = NOTHING_ASKED,
    first: Callable[[str], str] | None = None,
) -> Columns:
    """Return the columns that an existing table has once the rows are in.

    Args:
        first: Returns a column's first value, by its path. None means rows of Spark, for which errors advise in SQL.

    Raises:
        ColumnsDiffer: A name or a type is wrong. Values are checked later.
    """
    merge = _Merge(_read_names(properties, LEFT_OUT), _read_names(properties, BY_CHANCE), requests, first)
    before = table
    if requests.declared is not None:
        kinds = {field["name"]: _type_of(table, field["name"]) for field in requests.declared["fields"]}
        # A declared column that can never fit is reported below, as an error of `schema=`.
        differ = {name for name, kind in kinds.items() if kind is not None and _clashes(requests.declared, name, kind)}
        agreeing = [field for field in requests.declared["fields"] if field["name"] not in differ]
        before = merge.struct(table, {**requests.declared, "fields": agreeing}, "")
        for field in requests.declared["fields"]:
            present = _type_of(before, field["name"])
            if drop_unknown_types(field["type"]) is not None and drop_char_length(present) != drop_char_length(
                field["type"]
            ):
                merge.wrong.append(_declared_sentence(field["name"], field["type"], present))
    after = merge.struct(before, rows, "")
    if merge.wrong:
        raise ColumnsDiffer(", ".join(dict.fromkeys(merge.wrong)))
    return Columns(after, tuple(merge.added), tuple(merge.retyped))


def split_refusal(match: re.Match[str]) -> tuple[str, str]:
    """Return the sentence and the row, in words, of a match of REFUSED."""
    sentence, message = (one.replace(BAR + POINT, BAR) for one in match.groups())
    return sentence, f"the row of message {message}" if message else ""


def escape_bars(text: str) -> str:
    return text.replace(BAR, BAR + POINT)


def advise_on_value(name: str, given: Any, column: Any, *, inside: str = "", sql: bool = False) -> str:
    """Return what to do about values that a column does not hold.

    `inside` is the column that the path `name` is in. `sql` is True for rows of Spark.
    """
    if str(given).startswith("timestamp[ns"):
        return f'round {name} to microseconds in the rows (pandas: .dt.floor("us"))'
    change = _change(name, given, column, inside, sql=sql)
    return f"to change the values on purpose, {change}{_offer(given, column, inside and name)}"


def _change(name: str, given: Any, column: Any, inside: str, *, sql: bool) -> str:
    are_plain, to = isinstance(given, str) and isinstance(column, str), name_type(column)
    has_fractions = are_plain and (given in FLOATS or parse_decimal(given) is not None)
    digits = parse_decimal(column) or ((0, 0) if column in INTEGERS else None) if are_plain else None
    where = f", inside {inside} by withField or transform" if sql and inside else ""
    value = "..." if inside else name if name.isidentifier() else f"`{name.replace('`', '``')}`"
    if are_plain and digits and has_fractions:
        places = f", {digits[1]}" if digits[1] else ""
        by = f"round({value}{places})" if sql else f"pandas: .round({digits[1]}), pyarrow.compute.round"
        return f"round {name} in the rows ({by}{where}), and give NULL for what {to} has no room for"
    if are_plain and digits and given in INTEGERS:
        by = f" (try_cast({value} AS {to}){where})" if sql else ""
        return f"give NULL{by} for what {to} has no room for, or leave these rows out"
    if sql:
        by = f"to_json({value})" if column == "string" and not are_plain else f"try_cast({value} AS {to})"
        return f"make it {to} in the rows ({by}{where})"
    if not are_plain:
        return f"make json.dumps of each value of {name}" if column == "string" else f"make {name} {to} in the rows"
    how = _CASTS.get((given == "string", column))
    return f"make {name} {to} in the rows ({how})" if how else f"make {name} {to} in the rows"


def describe_mismatch(
    name: str, given: Any, column: Any, example: str = "", first: str = "", inside: str = "", *, sql: bool = False
) -> str:
    """Return the sentence for a value that the column does not hold.

    `example` is such a value. `first` is the column's first value, if the two types never fit.
    """
    value = f": the value {example} would be changed" if example else f": its first value is {first}" if first else ""
    sentence = f"column {name} is {name_type(given)}, and {name_type(column)} in the table{value}"
    return f"{sentence}; {advise_on_value(name, given, column, inside=inside, sql=sql)}"


def describe_not_finite(name: str, given: Any, column: Any, example: str, inside: str = "") -> str:
    sentence = (
        f"column {name} is {name_type(given)}, and {name_type(column)} in the table, which has no value {example}"
    )
    return f"{sentence}; give NULL for it in the rows{_offer(given, column, inside and name)}"


def _offer(given: Any, column: Any, path: str = "") -> str:
    to = widen_type(given, column)
    if to == drop_char_length(column):
        return f' (schema="{WIDEN}" does not help: no wider type holds both)'
    return f"{OFFER}{path or 'the column'} {name_type(to)}"


def replace_offer(sentence: str, why: str) -> str:
    """Offer a rewrite by Spark in place of a wider column. `why` tells what prevents the widening."""
    return sentence.replace(
        OFFER, f', or have Spark write the table anew (schema="{WIDEN}" does not, because of {why}), with '
    )


class _Merge:
    def __init__(
        self,
        left_out: frozenset[str],
        by_chance: frozenset[str],
        asked: ColumnsAsked,
        first: Callable[[str], str] | None,
    ) -> None:
        self._first, self._sql = first or (lambda name: ""), first is None
        declared: Mapping[str, Any] = asked.declared or {"fields": ()}
        self._widen, self._add = asked.widen, asked.widen or asked.add
        self._free = by_chance if asked.by_chance else frozenset()
        self._may_add = left_out | {one["name"].lower() for one in declared["fields"]}
        #: The names of the rows' columns. Any other name is a path inside a column.
        self._whole: tuple[str, ...] = ()
        self.added: list[str] = []
        self.retyped: list[str] = []
        self.wrong: list[str] = []

    def struct(self, table: Mapping[str, Any], rows: Mapping[str, Any], path: str) -> dict[str, Any]:
        fields = [dict(field) for field in table["fields"]]
        places = {field["name"].lower(): number for number, field in enumerate(fields)}
        seen: set[str] = set()
        if not path:
            self._whole = tuple(field["name"] for field in rows["fields"])
        for field in rows["fields"]:
            name, kind = f"{path}{field['name']}", field["type"]
            if field["name"].lower() in seen:
                self.wrong.append(_twice_sentence(name))
            seen.add(field["name"].lower())
            place = places.get(field["name"].lower())
            if place is not None:
                fields[place]["type"] = self.kind(fields[place]["type"], kind, name)
                continue
            known_type = drop_unknown_types(kind)
            if known_type is None:
                continue
            if _is_nameless(field["name"], kind):
                self.wrong.append(_nameless_sentence(name))
                continue
            unread = find_unread_type(kind)
            if unread is not None:
                self.wrong.append(_unread_sentence(name, unread))
                continue
            double = find_repeated_field(kind, f"{name}.")
            if double is not None:
                self.wrong.append(_twice_sentence(double))
                continue
            if not self._add and name.lower() not in self._may_add:
                fix = f'rename it, leave it out, or give schema="{WIDEN}", which adds it'
                self.wrong.append(f"the table has no column {name} ({name_type(kind)}): {fix}")
                continue
            fields.append(make_nullable_field(field["name"], known_type))
            self.added.append(name)
        return {"type": "struct", "fields": fields}

    def kind(self, column: Any, given: Any, name: str) -> Any:
        if not isinstance(column, str) and not isinstance(given, str) and column["type"] == given["type"]:
            return self._merge_nested(column, given, name)
        fitting = fit(given, column)
        if fitting is Fit.NEVER:
            self.wrong.append(self._describe_mismatch(name, given, column))
            return column
        may_widen = (
            self._widen or name.lower() in self._free or any(name.lower().startswith(f"{one}.") for one in self._free)
        )
        to = find_wider_type(given, column) if may_widen and fitting is Fit.EXACT else None
        if to is None or to == drop_char_length(column):
            return column
        self.retyped.append(name)
        return to

    def _describe_mismatch(self, name: str, given: Any, column: Any) -> str:
        inside = next((one for one in self._whole if name.startswith(f"{one}.")), "") if name not in self._whole else ""
        return describe_mismatch(name, given, column, first=self._first(name), inside=inside, sql=self._sql)

    def _merge_nested(self, column: Any, given: Any, name: str) -> Any:
        if column["type"] == "struct":
            return self.struct(column, given, f"{name}.")
        inner = {"array": ("elementType",), "map": ("keyType", "valueType")}.get(column["type"])
        if inner is None:
            if drop_char_length(column) != drop_char_length(given):
                self.wrong.append(self._describe_mismatch(name, given, column))
            return column
        parts = {one: self.kind(column[one], given[one], f"{name}.{one.removesuffix('Type')}") for one in inner}
        return {**column, **parts}


IN_SCHEMA = "in schema="


def _clashes(declared: Mapping[str, Any], name: str, kind: Any) -> bool:
    return fit(_type_of(declared, name), kind) is Fit.NEVER


def _declared_sentence(name: str, given: Any, column: Any) -> str:
    sentence = f"column {name} is {name_type(column)} in the table, and {name_type(given)} {IN_SCHEMA}"
    offer = _offer(given, column) if widen_type(given, column) != drop_char_length(column) else ""
    return f"{sentence}: give the table's type, or leave the column out of it{offer}"


def _type_of(schema: Mapping[str, Any], name: str) -> Any:
    return next((one["type"] for one in schema["fields"] if one["name"].lower() == name.lower()), None)


def _unread_sentence(name: str, kind: str) -> str:
    fix = "make it a text (to_json), say"
    return f"column {name} is {kind}, or has such a value inside, which many readers of Delta tables do not know: {fix}"


def _twice_sentence(name: str) -> str:
    return f"the rows have two columns {name}, in other capitals: rename one"


def _nameless_sentence(name: str) -> str:
    return f"the rows have a column {name!r} without a name, or a field without a name inside: give each of them a name"


def _is_nameless(name: str, kind: Any) -> bool:
    """Return whether a column, or a field inside it, has a blank name. Spark cannot refer to such a name."""
    if not name.strip():
        return True
    if isinstance(kind, str):
        return False
    inner = [("element", kind[part]) for part in ("elementType", "keyType", "valueType") if part in kind]
    return any(_is_nameless(*one) for one in (*inner, *((one["name"], one["type"]) for one in kind.get("fields", ()))))


def paths_without_type(name: str, kind: Any) -> list[str]:
    known_type = drop_unknown_types(kind)
    if known_type is None:
        return [name]
    if not isinstance(kind, str) and kind["type"] == "struct":
        return [path for one in kind["fields"] for path in paths_without_type(f"{name}.{one['name']}", one["type"])]
    inner = None if isinstance(kind, str) else kind.get("elementType", kind.get("valueType"))
    return (
        [] if inner is None else paths_without_type(f"{name}.{'element' if 'elementType' in kind else 'value'}", inner)
    )


def drop_maps_of_local_times(columns: Columns) -> Columns:
    """Leave out the columns that delta-rs cannot make: the first append adds them.

    Raises ColumnsDiffer if no column is left.
    """
    fields = columns.schema["fields"]
    later = [one["name"] for one in fields if has_local_time_in_map(one["type"])]
    if len(later) == len(fields):
        raise ColumnsDiffer(
            f"no table is made of the columns {', '.join(later)} alone: give timestamps in maps a time zone"
        )
    kept = [one for one in fields if one["name"] not in later]
    return replace(columns, schema={**columns.schema, "fields": kept}, left_out=(*columns.left_out, *later))


def describe_stored_null(name: str) -> str:
    return (
        f"column {name} has an empty text, or {NULL_PARTITION}, and the table is partitioned by it: Delta would store "
        "NULL. Give NULL, or another text"
    )


def describe_stored_text(name: str) -> str:
    return (
        f"column {name} has bytes, and the table is partitioned by it: Delta stores a text for them, which readers "
        "give back as other bytes. Partition by a text instead"
    )


def describe_repeated_key(name: str, value: str) -> str:
    return (
        f"column {name} has a map with the key {value} twice, of which each reader of the table keeps another "
        "value, or fails: keep one value of each key"
    )


def describe_not_utf8(name: str) -> str:
    return (
        f"column {name} has a text that is no UTF-8, on which other readers of the table would fail: leave such bytes "
        f"in a binary column, or have {name} mended by make_valid_utf8"
    )


def describe_outside_years(name: str, value: str) -> str:
    return (
        f"column {name} has the value {value}, which lies outside the years 1 to 9999: Python and other readers of the "
        f"table would fail on it. Leave it out, or write {name} as a text"
    )


def properties_of(columns: Columns) -> dict[str, str]:
    names = {LEFT_OUT: columns.left_out, BY_CHANCE: columns.by_chance}
    return {name: json.dumps(known) for name, known in names.items() if known}


def _read_names(properties: Mapping[str, str], name: str) -> frozenset[str]:
    try:
        names = json.loads(properties.get(name, "[]"))
    except ValueError:
        return frozenset()
    return frozenset(str(one).lower() for one in names) if isinstance(names, list) else frozenset()


def _has_numbers(kind: Any) -> bool:
    if isinstance(kind, str):
        return kind in (*INTEGERS, *FLOATS) or parse_decimal(kind) is not None
    return any(map(_has_numbers, inner_types(kind)))
