"""Which messages a write acknowledges: those that its rows are about, and none that they are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from ledger.errors import InvalidParameterValue
from ledger.store import RUNS, Grant, QueueRecord
from ledger.store.delta.dataframes.named_messages import Named, named_by_column, named_by_values, of_claim
from ledger.tabular import arrow_table, is_spark, is_text, listed, require_column

#: Columns by which rows say which message they are about, without being asked.
HANDLES = "receipt_handle"
CARRIED = ("message_id", HANDLES)
TEXT = ("string", "large_string", "string_view")


class Rows(Protocol):
    """Rows that are to be written, as far as they say which messages they are about."""

    @property
    def columns(self) -> Mapping[str, str]:
        """Their columns and the types of these."""

    def named(self, column: str, queue: str) -> Named:
        """Which messages a column names."""


def messages_of(queue: QueueRecord, grant: Grant, rows: Rows, messages: Any) -> pa.Table:
    """The messages, as RUNS. `messages` is as in Claim.write.

    Raises InvalidParameterValue when the rows are about other messages than those that are to be acknowledged.
    """
    claimed = grant.runs.select(RUNS.names)
    if isinstance(messages, str):
        return _in_claim(grant, claimed, _of_column(queue, rows, messages), f"column {messages} of rows")
    chosen, said = claimed, "the claim"
    if messages is not None:
        chosen, said = _in_claim(grant, claimed, _given(queue, messages), "messages"), "messages"
    for column in CARRIED:
        if rows.columns.get(column) not in TEXT:
            continue
        named = rows.named(column, queue.id)
        # A column of this name with none of the ledger's ids in it is somebody else's.
        if named.messages.num_rows:
            _require_agreement(grant, chosen, named, column, said, exactly=messages is not None)
    return chosen


def _of_column(queue: QueueRecord, rows: Rows, column: str) -> Named:
    kinds = rows.columns
    if column not in kinds:
        raise InvalidParameterValue(
            "messages", column, f"The rows have no such column; they have {', '.join(kinds)}", "Name one of them."
        )
    if kinds[column] not in TEXT:
        raise InvalidParameterValue("messages", column, f"The column is {kinds[column]} and must be string", "Cast it.")
    return rows.named(column, queue.id)


def _given(queue: QueueRecord, messages: Any) -> Named:
    if is_spark(messages):
        from ledger.store.delta.dataframes.frames import require_column as require_column_of_frame

        require_column_of_frame(messages, HANDLES, "string")
        return named_by_column(messages, HANDLES, queue.id)
    table = arrow_table("messages", messages)
    if table is None:
        return named_by_values(listed("messages", messages), queue.id)
    return named_by_values(require_column(table, HANDLES, is_text, "string").to_pylist(), queue.id)


def _in_claim(grant: Grant, claimed: pa.Table, named: Named, what: str) -> pa.Table:
    if named.nulls or named.others:
        raise InvalidParameterValue(
            "messages",
            named.example,
            f"In {what}, {named.nulls + named.others:,} are neither a message id nor a receipt handle of the queue",
            "Leave out what is about no message.",
        )
    runs, strangers, _ = of_claim(claimed, named.messages)
    if strangers or named.receipts - {grant.receipt_id}:
        raise InvalidParameterValue(
            "messages",
            what,
            f"Must be messages of the claim {grant.receipt_id}; "
            + (f"{strangers:,} are not" if strangers else "the handles are of another receipt"),
        )
    return runs


def _require_agreement(grant: Grant, chosen: pa.Table, named: Named, column: str, said: str, *, exactly: bool) -> None:
    _, strangers, missing = of_claim(chosen, named.messages)
    wrong = []
    if strangers:
        wrong.append(f"there are rows about {strangers:,} messages that are not in {said}")
    if named.receipts - {grant.receipt_id}:
        wrong.append("there are handles of another receipt")
    if exactly and missing:
        wrong.append(f"{missing:,} of the messages have no row")
    if named.others or (exactly and named.nulls):
        wrong.append(f"{named.others + named.nulls:,} rows name no message of the queue")
    if wrong:
        raise InvalidParameterValue(
            "rows",
            column,
            f"By their column {column}, {' and '.join(wrong)}",
            f'Give messages="{column}" to acknowledge what has rows, or rename a column that means something else.',
        )
