"""The columns of an Arrow table that is sent, and its rows as entries of a send without Spark.

`typed_table` also serves a send through Spark, so that both ways accept the same columns. The ways differ in the types
that are written as JSON.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ledger.client.attribute_columns import COLUMN, attributes_by_row
from ledger.client.tables import is_integer, is_text, require_column
from ledger.errors import InvalidParameterValue, LedgerError
from ledger.rules.attributes import is_fifo
from ledger.rules.message import NOT_IN_JSON, WITH_WHOLE_ROWS, Entry, entry, require_columns, require_group
from ledger.rules.message_fields import GIVEN, Kind
from ledger.runtime.forks import uses_arrow
from ledger.store.protocol import StoredSend

#: A test of a column's type, and the types as errors name them.
TYPES = {
    Kind.TEXT: (is_text, "string"),
    Kind.NUMBER: (is_integer, "int8, int16, int32 or int64"),
}
#: The columns, besides body and attributes, that set fields of a message.
MEANINGFUL = {field.name: TYPES[field.kind] for field in GIVEN if field.name not in ("body", COLUMN)}


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
        the message that it repeats. With Spark, the rows are the messages that this send stored, in no order. There the
        first call reads the stored messages. If this read raises an error of Spark, a further call reads again: the
        messages are sent.
        """
        return self._ids()


@uses_arrow
def sent_table(entries: Sequence[Entry], sent: Sequence[StoredSend]) -> SentTable:
    ids, bodies = [stored.message_id for stored in sent], [sent_entry.body for sent_entry in entries]
    table = pa.table({"message_id": pa.array(ids, pa.string()), "body": pa.array(bodies, pa.string())})
    return SentTable(len(ids), lambda: table)


@uses_arrow
def entries_of(table: pa.Table, queue: Mapping[str, str], body: str | None) -> list[Entry]:
    """Return every row as an entry for a queue with these attributes.

    Raises the error of the first row that cannot be sent, with the row's number (from 0).
    """
    entries = []
    for number, fields in enumerate(rows_of(table, queue, body)):
        try:
            if isinstance(fields, LedgerError):
                raise fields
            entries.append(entry(fields.pop("body"), queue, **fields))
        except LedgerError as error:
            raise error.advised(f"It is row {number}. Nothing was sent.") from None
    return entries


def typed_table(table: pa.Table, queue: Mapping[str, str], body: str | None) -> pa.Table:
    """Return the columns that a send of a table reads, each with the type of its field.

    Whole numbers, also whole floats, become int64. The column of attributes keeps its type. If the rows are sent whole,
    as JSON, columns without a meaning stay.

    Raises InvalidParameterValue for a table that cannot be sent, and what `require_group` raises.
    """
    names = table.column_names
    require_columns(names, body)
    if not names:
        raise InvalidParameterValue("column", "body", "The table has no columns")
    if _is_sent_whole(names, body):
        columns = {name: table[name] for name in names}
    else:
        columns = {name: table[name] for name in names if name == COLUMN}
        columns[body or "body"] = require_column(table, body or "body", is_text, "string")
    for name in _meaningful(names, queue, body):
        values = require_column(table, name, *MEANINGFUL[name])
        columns[name] = values.cast(pa.int64()) if MEANINGFUL[name] == TYPES[Kind.NUMBER] else values
    if is_fifo(queue):
        require_group(names)
    return pa.table(columns)


def _is_sent_whole(names: Sequence[str], body: str | None) -> bool:
    return body is None and "body" not in names


def _meaningful(names: Sequence[str], queue: Mapping[str, str], body: str | None) -> list[str]:
    if _is_sent_whole(names, body):
        return [name for name in WITH_WHOLE_ROWS if name in names and is_fifo(queue)]
    return [name for name in MEANINGFUL if name in names]


def rows_of(table: pa.Table, queue: Mapping[str, str], body: str | None) -> Iterator[dict[str, Any] | LedgerError]:
    """Yield for every row the fields of an entry, by name, or the error about the row's attributes.

    `body` names the column of bodies. Default: the column `body`, else the whole row as JSON.
    """
    typed = typed_table(table, queue, body)
    attributes_of = attributes_by_row(typed, body)
    texts = _json_rows(typed) if _is_sent_whole(typed.column_names, body) else typed[body or "body"].to_pylist()
    columns = {name: typed[name].to_pylist() for name in _meaningful(typed.column_names, queue, body)}
    for number, text in enumerate(texts):
        try:
            attributes = attributes_of(number)
        except LedgerError as error:
            yield error
            continue
        yield {"body": text, COLUMN: attributes, **{name: values[number] for name, values in columns.items()}}


def _json_rows(table: pa.Table) -> Iterator[str]:
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
            yield json.dumps(_without_nulls(row), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        except ValueError:
            name = next((name for name, value in row.items() if not _is_writable_as_json(value)), "")
            fix = f"A row has it in the column {name}. Nothing was sent. Give null for it, or filter such rows."
            raise InvalidParameterValue("messages", f"row {number}", NOT_IN_JSON, fix) from None


def _is_writable_as_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _find_part_without_json(path: str, kind: pa.DataType) -> tuple[str, pa.DataType] | None:
    """Return the path and type of the first part of a column without JSON here."""
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


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
