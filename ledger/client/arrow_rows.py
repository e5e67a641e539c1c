"""How a sent Arrow table is read: its columns, and for a send without Spark, its rows as entries.

The column `message_attributes` may have one of these forms:

    pandas: objects        dicts, as in a list of messages for `Queue.send`; some rows may have JSON texts
    struct                 a field for each attribute; a null field is no attribute of its row
    list of structs        with the fields `key` and `value`: polars' maps
    map                    from texts to texts, numbers or bytes
    text                   a JSON object in each row, as `ledger send` reads it; an empty text: no attributes

A value may also be a struct of data_type, string_value and binary_value: an attribute *in full*.

For a send through Spark each form becomes a map to attributes in full, except maps that are left to Spark
(`is_attributes`): Spark's tasks check these. For a send without Spark each row's attributes become a dict.

Both kinds of send accept the same columns (`select_typed_columns`), but not the same types for rows sent as JSON.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ledger.client.tables import is_integer, is_made_by, is_text, require_column
from ledger.errors import InvalidParameterValue, LedgerError
from ledger.rules.attributes import is_fifo
from ledger.rules.message import GIVEN, NOT_IN_JSON, WITH_WHOLE_ROWS, Entry, Kind, entry, require_columns, require_group
from ledger.rules.message_attributes import attributes_of_json, parse_message_attributes
from ledger.runtime.threads import uses_arrow
from ledger.store.protocol import StoredSend

ATTRIBUTES_COLUMN = "message_attributes"
UNDERSTOOD_TYPES = (
    "a struct of attributes, a map or a list of structs of key and value (from texts to texts, numbers or bytes), or "
    "JSON texts"
)
_FIELDS = {"data_type", "string_value", "binary_value"}
_IN_FULL = pa.struct([("data_type", pa.string()), ("string_value", pa.string()), ("binary_value", pa.binary())])
ATTRIBUTES_MAP = pa.map_(pa.string(), _IN_FULL)


def is_attributes(kind: pa.DataType) -> bool:
    """Return whether a type is a map from texts to texts, or to attributes in full as in ATTRIBUTES_MAP.

    A send through Spark leaves such a column to Spark's code, which takes no other type.
    """
    if not pa.types.is_map(kind) or not is_text(kind.key_type):
        return False
    item = kind.item_type
    if not pa.types.is_struct(item):
        return is_text(item)
    tests = zip(item, (is_text, is_text, _is_bytes))
    return [field.name for field in item] == [field.name for field in _IN_FULL] and all(
        is_right(field.type) for field, is_right in tests
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def with_dicts_as_maps(messages: Any, body: str | None) -> Any:
    """Return a pandas DataFrame with a map in place of its column of dicts. Return any other value unchanged.

    Without the map, Arrow would make one struct of all dicts, and turn integers into floats beside a float. Errors name
    the row.
    """
    if not (is_made_by(messages, "pandas") and hasattr(messages, "columns")):
        return messages
    names = list(messages.columns)
    if (
        names.count(ATTRIBUTES_COLUMN) != 1
        or not _has_body_column(names, body)
        or str(messages.dtypes.iloc[names.index(ATTRIBUTES_COLUMN)]) != "object"
    ):
        return messages
    column = messages[ATTRIBUTES_COLUMN]
    if not any(isinstance(value, Mapping) for value in column):
        return messages
    import pandas as pd

    dicts = [None if is_missing else value for value, is_missing in zip(column, column.isna())]
    return messages.assign(**{ATTRIBUTES_COLUMN: pd.arrays.ArrowExtensionArray(_make_map_array(dicts, _read_value))})


def with_attributes_as_maps(table: pa.Table, body: str | None) -> pa.Table:
    """Return `table` with its column of attributes as a map to attributes in full. Errors name the column or the row.

    `table` has plain types (see `client.tables`). It stays unchanged if each row is sent as one JSON body, or if the
    column is missing or left to Spark.
    """
    if ATTRIBUTES_COLUMN not in table.column_names or not _has_body_column(table.column_names, body):
        return table
    column = table[ATTRIBUTES_COLUMN]
    if is_attributes(column.type):
        return table
    if _has_attributes(table, body):
        made = _make_map_array(column.to_pylist(), _require_reader(column.type))
    else:
        made = pa.nulls(table.num_rows, ATTRIBUTES_MAP)
    return table.set_column(table.column_names.index(ATTRIBUTES_COLUMN), ATTRIBUTES_COLUMN, made)


def make_attribute_reader(table: pa.Table, body: str | None) -> Callable[[int], object]:
    """Return a function that returns the attributes of a row, by the row's number.

    An unknown type raises InvalidParameterValue at once. An unreadable value raises it in the returned function.
    """
    if not _has_attributes(table, body):
        return lambda number: None
    read = _require_reader(table[ATTRIBUTES_COLUMN].type)
    # After the check: Python may have no values for a refused type.
    values = table[ATTRIBUTES_COLUMN].to_pylist()
    return lambda number: None if values[number] is None else read(values[number])


def _require_reader(kind: pa.DataType) -> Callable[[Any], object]:
    reader = _find_reader(kind)
    if reader is None:
        raise InvalidParameterValue(
            "column", ATTRIBUTES_COLUMN, f"It is {kind} and must be {UNDERSTOOD_TYPES}", "Cast it."
        )
    return reader


def _has_attributes(table: pa.Table, body: str | None) -> bool:
    names = table.column_names
    return (
        names.count(ATTRIBUTES_COLUMN) == 1
        and _has_body_column(names, body)
        and table[ATTRIBUTES_COLUMN].null_count < table.num_rows
    )


def _has_body_column(names: Iterable[str], body: str | None) -> bool:
    """Return False if each row is sent as one JSON body, without attributes."""
    return (body or "body") in names


def _find_reader(kind: pa.DataType) -> Callable[[Any], object] | None:
    types = pa.types
    if types.is_struct(kind):
        return _read_struct if all(_is_value(field.type) for field in kind) else None
    if is_text(kind):
        return _read_value
    if types.is_map(kind) and is_text(kind.key_type):
        return _read_pairs if _is_value(kind.item_type) else None
    is_list = types.is_list(kind) or types.is_large_list(kind)
    if is_list and types.is_null(kind.value_type):
        return _read_items
    if is_list and types.is_struct(kind.value_type):
        item = kind.value_type
        named = {field.name for field in item} == {"key", "value"} and is_text(item.field("key").type)
        if named and _is_value(item.field("value").type):
            return _read_items
    return None


def _is_value(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return {field.name for field in kind} == _FIELDS
    return not (pa.types.is_nested(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind))


def _read_value(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return attributes_of_json(value)
    except ValueError as error:
        raise InvalidParameterValue("MessageAttributes", value, f"It is not JSON: {error}") from None


def _read_struct(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: _sqs_form_of(value) for name, value in fields.items() if value is not None}


def _read_items(items: Sequence[Mapping[str, object] | None]) -> dict[str, object]:
    if None in items:
        raise InvalidParameterValue("MessageAttributes", None, "An element of the list is null", "Leave it out.")
    return _read_pairs([(item["key"], item["value"]) for item in items if item is not None])


def _read_pairs(pairs: Any) -> dict[str, object]:
    return {name: _sqs_form_of(value) for name, value in require_distinct_keys(pairs)}


def require_distinct_keys(pairs: Any) -> Any:
    if len(dict(pairs)) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise InvalidParameterValue(
            "MessageAttributes", double, "The message has this attribute twice", "Leave one of them out."
        )
    return pairs


def convert_to_sqs_form(attribute: Mapping[str, Any]) -> dict[str, Any]:
    kind = attribute["data_type"]
    is_binary = isinstance(kind, str) and kind.startswith("Binary")
    value = {"BinaryValue": attribute["binary_value"]} if is_binary else {"StringValue": attribute["string_value"]}
    return {"DataType": kind, **value}


def _sqs_form_of(attribute: object) -> object:
    return convert_to_sqs_form(attribute) if isinstance(attribute, Mapping) and set(attribute) == _FIELDS else attribute


def _make_map_array(values: Iterable[object], read: Callable[[Any], object]) -> pa.Array:
    rows = list[list[tuple[str, dict[str, object]]] | None]()
    for number, value in enumerate(values):
        try:
            attributes = None if value is None else parse_message_attributes(read(value))
        except LedgerError as error:
            raise error.advised(f"It is row {number}. Nothing was sent.") from None
        rows.append(None if attributes is None else [(name, value._asdict()) for name, value in attributes.items()])
    return pa.array(rows, ATTRIBUTES_MAP)


#: A test of a column's type, and the types as errors name them.
TYPES_BY_KIND = {
    Kind.TEXT: (is_text, "string"),
    Kind.NUMBER: (is_integer, "int8, int16, int32 or int64"),
}
#: The columns, besides body and attributes, that set fields of a message.
MEANINGFUL_COLUMNS = {
    field.name: TYPES_BY_KIND[field.kind] for field in GIVEN if field.name not in ("body", ATTRIBUTES_COLUMN)
}


@dataclasses.dataclass(frozen=True)
class SentTable:
    """The result of a send of an Arrow table: how many messages the queue accepted, and their ids.

    A FIFO queue accepts a message that repeats a deduplication id, and does not store it again.
    """

    count: int
    _ids: Callable[[], pa.Table] = dataclasses.field(repr=False)

    def ids(self) -> pa.Table:
        """Return a row per message: message_id, body (strings).

        Without Spark, the rows have the order of the sent rows, and a repeated message of a FIFO queue has the id of
        the message that it repeats. With Spark, the rows are the messages that this send stored, in no order. The first
        call then reads the stored messages. If this read raises an error of Spark, call again: the messages are sent.
        """
        return self._ids()


@uses_arrow
def make_sent_table(entries: Sequence[Entry], sent: Sequence[StoredSend]) -> SentTable:
    ids, bodies = [stored.message_id for stored in sent], [sent_entry.body for sent_entry in entries]
    table = pa.table({"message_id": pa.array(ids, pa.string()), "body": pa.array(bodies, pa.string())})
    return SentTable(len(ids), lambda: table)


@uses_arrow
def read_entries(table: pa.Table, queue: Mapping[str, str], body: str | None) -> list[Entry]:
    """Return every row as an entry for a queue with the attributes `queue`.

    Raises the error of the first row that cannot be sent, with the row's number (from 0).
    """
    entries = []
    for number, fields in enumerate(read_rows(table, queue, body)):
        try:
            if isinstance(fields, LedgerError):
                raise fields
            entries.append(entry(fields.pop("body"), queue, **fields))
        except LedgerError as error:
            raise error.advised(f"It is row {number}. Nothing was sent.") from None
    return entries


def select_typed_columns(table: pa.Table, queue: Mapping[str, str], body: str | None) -> pa.Table:
    """Return the columns that a send of a table reads, each with the type of its field.

    Whole numbers, also whole floats, become int64. The column of attributes keeps its type. If each row is sent as one
    JSON body, all columns stay.

    Raises InvalidParameterValue for a table that cannot be sent, and what `require_group` raises.
    """
    names = table.column_names
    require_columns(names, body)
    if not names:
        raise InvalidParameterValue("column", "body", "The table has no columns")
    if _is_sent_whole(names, body):
        columns = {name: table[name] for name in names}
    else:
        columns = {name: table[name] for name in names if name == ATTRIBUTES_COLUMN}
        columns[body or "body"] = require_column(table, body or "body", is_text, "string")
    for name in _list_meaningful(names, queue, body):
        values = require_column(table, name, *MEANINGFUL_COLUMNS[name])
        columns[name] = values.cast(pa.int64()) if MEANINGFUL_COLUMNS[name] == TYPES_BY_KIND[Kind.NUMBER] else values
    if is_fifo(queue):
        require_group(names)
    return pa.table(columns)


def _is_sent_whole(names: Sequence[str], body: str | None) -> bool:
    return body is None and "body" not in names


def _list_meaningful(names: Sequence[str], queue: Mapping[str, str], body: str | None) -> list[str]:
    if _is_sent_whole(names, body):
        return [name for name in WITH_WHOLE_ROWS if name in names and is_fifo(queue)]
    return [name for name in MEANINGFUL_COLUMNS if name in names]


def read_rows(table: pa.Table, queue: Mapping[str, str], body: str | None) -> Iterator[dict[str, Any] | LedgerError]:
    """Yield for every row the fields of an entry, by name, or the error about the row's attributes.

    `body` names the column of bodies. Default: the column `body`, else the whole row as JSON.
    """
    typed = select_typed_columns(table, queue, body)
    attributes_of = make_attribute_reader(typed, body)
    texts = _write_json_rows(typed) if _is_sent_whole(typed.column_names, body) else typed[body or "body"].to_pylist()
    columns = {name: typed[name].to_pylist() for name in _list_meaningful(typed.column_names, queue, body)}
    for number, text in enumerate(texts):
        try:
            attributes = attributes_of(number)
        except LedgerError as error:
            yield error
            continue
        yield {
            "body": text,
            ATTRIBUTES_COLUMN: attributes,
            **{name: values[number] for name, values in columns.items()},
        }


def _write_json_rows(table: pa.Table) -> Iterator[str]:
    """Yield each row as JSON in Spark's form: fields with null are left out, nulls in lists stay."""
    for field in table.schema:
        unwritable = _find_part_without_json(field.name, field.type)
        if unwritable is not None:
            raise InvalidParameterValue(
                "column",
                unwritable[0],
                f"It is {unwritable[1]}, which is written as JSON through Spark only",
                "Cast it to string, make a column body, or open the ledger with Ledger.open(root, spark=spark).",
            )
    for number, row in enumerate(table.to_pylist()):
        try:
            yield json.dumps(_drop_nulls(row), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        except ValueError:
            name = next((name for name, value in row.items() if not _is_writable_as_json(value)), "")
            fix = f"The number is in the column {name}. Nothing was sent. Give null for it, or filter such rows."
            raise InvalidParameterValue("messages", f"row {number}", NOT_IN_JSON, fix) from None


def _is_writable_as_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _find_part_without_json(path: str, kind: pa.DataType) -> tuple[str, pa.DataType] | None:
    """Return the path and type of the first part of a column that only Spark writes as JSON."""
    types = pa.types
    if types.is_struct(kind):
        return next(
            (part for field in kind if (part := _find_part_without_json(f"{path}.{field.name}", field.type))), None
        )
    if types.is_list(kind) or types.is_large_list(kind):
        return _find_part_without_json(f"{path}.element", kind.value_type)
    has_json = (
        types.is_null(kind)
        or types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or is_text(kind)
    )
    return None if has_json else (path, kind)


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _drop_nulls(item) for name, item in value.items() if item is not None}
    return [_drop_nulls(item) for item in value] if isinstance(value, list) else value
