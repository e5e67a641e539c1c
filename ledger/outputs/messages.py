"""The messages that a write acknowledges: the whole claim, the messages that are named, or all but the failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ledger.client.tables import arrow_table, is_spark, is_text, require_column, require_list
from ledger.errors import InvalidParameterValue
from ledger.outputs.named_messages import (
    Named,
    compare_with_claim,
    first_id,
    named_by_array,
    named_by_column,
    named_by_values,
    others_of_claim,
)
from ledger.store.protocol import RUNS, Grant, QueueRecord

#: CARRIED are the columns that name the messages of rows, even if the caller names no column.
HANDLE_COLUMN = "receipt_handle"
CARRIED = ("message_id", HANDLE_COLUMN)
TEXT = ("string", "large_string", "string_view")


class OutputRows(Protocol):
    """Rows that are to be written, and the messages that their columns name (see `writers.Writer`)."""

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns of the rows and their types."""

    def named(self, column: str, queue: str) -> Named:
        """Return which messages a column names."""

    def named_failed(self, column: str, queue: str) -> Named:
        """Return which messages a column of the failed rows names."""


class Chosen(NamedTuple):
    """Messages as RUNS: those that are acknowledged, and those that are not."""

    done: pa.Table
    failed: pa.Table


def messages_of(queue: QueueRecord, grant: Grant, rows: OutputRows, messages: Any) -> pa.Table:
    """Return the messages to acknowledge, as RUNS. `messages` is as in Claim.write.

    Each value of `messages` must name a message of the claim. Unless `messages` is a column of the rows, their columns
    of CARRIED may name only acknowledged messages, and must name all if `messages` is given.
    """
    claimed = grant.runs.select(RUNS.names)
    if isinstance(messages, str):
        return _in_claim(grant, claimed, _of_column(queue, rows, messages), "messages", f"column {messages} of rows")
    chosen, what = claimed, "the claim"
    if messages is not None:
        chosen, what = (
            _in_claim(grant, claimed, _given(queue, messages, "messages"), "messages", "messages"),
            "messages",
        )
    # If the caller names the messages, a column of CARRIED that names no message has another meaning.
    columns = _named(queue, rows)
    for column, named in _columns_with_messages(columns) if messages is not None else columns:
        _require_agreement(grant, chosen, named, column, what, exactly=messages is not None)
    return chosen


def all_but(queue: QueueRecord, grant: Grant, rows: OutputRows, failed: Any) -> Chosen:
    """Choose all messages of a claim except those that `failed` names, as in Claim.write.

    If the rows have ids or handles, each other message must have a row, and a failed message must not. Without ids and
    handles, `failed` may not be a DataFrame.
    """
    claimed = grant.runs.select(RUNS.names)
    if isinstance(failed, str):
        named, what = rows.named_failed(id_column(rows), queue.id), f"rows with a value in {failed}"
    else:
        named, what = _given(queue, failed, "failed"), "failed"
    exceptions = _in_claim(grant, claimed, named, "failed", what)
    others = others_of_claim(claimed, exceptions).select(RUNS.names)
    by = id_column(rows) if isinstance(failed, str) else None
    columns = _named(queue, rows)
    # If no column names a message, a column of nulls, a column without rows, and the column `by` say that no message
    # has a row. Any other column has another meaning.
    carried = (
        _columns_with_messages(columns)
        or [(column, named_by) for column, named_by in columns if column == by or not named_by.others][:1]
    )
    if not carried and is_spark(failed):
        raise InvalidParameterValue(
            "failed",
            "a DataFrame",
            "The rows have no message ids and are computed separately, so nothing shows whether they agree with it",
            "Give the rows a column message_id, or name a column of theirs that says which failed.",
        )
    for column, about in carried:
        _require_agreement(grant, others, about, column, "the claim without the failed ones", exactly=True)
    return Chosen(others, exceptions)


def id_column(rows: OutputRows) -> str:
    carried = next((column for column in CARRIED if rows.columns.get(column) in TEXT), None)
    if carried is None:
        raise InvalidParameterValue(
            "rows", ", ".join(rows.columns), f"They have no column {' or '.join(CARRIED)} of texts"
        )
    return carried


def require_failed(failed: str | None, columns: Sequence[str]) -> None:
    if failed is not None and failed not in columns:
        raise InvalidParameterValue(
            "failed", failed, f"The rows have no such column; they have {', '.join(columns)}", "Name one of them."
        )


def _columns_with_messages(columns: list[tuple[str, Named]]) -> list[tuple[str, Named]]:
    return [(column, named) for column, named in columns if named.messages.num_rows]


def _named(queue: QueueRecord, rows: OutputRows) -> list[tuple[str, Named]]:
    columns = [column for column in CARRIED if rows.columns.get(column) in TEXT]
    return [(column, rows.named(column, queue.id)) for column in columns]


def _of_column(queue: QueueRecord, rows: OutputRows, column: str) -> Named:
    kinds = rows.columns
    if column not in kinds:
        raise InvalidParameterValue(
            "messages", column, f"The rows have no such column; they have {', '.join(kinds)}", "Name one of them."
        )
    if kinds[column] not in TEXT:
        raise InvalidParameterValue("messages", column, f"The column is {kinds[column]} and must be string", "Cast it.")
    return rows.named(column, queue.id)


def _given(queue: QueueRecord, messages: Any, field: str) -> Named:
    if is_spark(messages):
        from ledger.store.delta.dataframes.frames import require_column as require_column_of_frame

        column = _naming(messages.columns)
        require_column_of_frame(messages, column, "string")
        return named_by_column(messages, column, queue.id)
    table = arrow_table(field, messages)
    if table is None:
        return named_by_values(require_list(field, messages), queue.id)
    return named_by_array(require_column(table, _naming(table.column_names), is_text, "string"), queue.id)


def _naming(columns: Sequence[str]) -> str:
    return CARRIED[0] if CARRIED[0] in columns and HANDLE_COLUMN not in columns else HANDLE_COLUMN


def _in_claim(grant: Grant, claimed: pa.Table, named: Named, field: str, what: str) -> pa.Table:
    if named.nulls or named.others:
        raise InvalidParameterValue(
            field,
            named.example,
            f"In {what}, {named.nulls + named.others:,} are neither a message id nor a receipt handle of the queue"
            f"{_at(named)}",
            "Leave these values out.",
        )
    runs, strangers, _ = compare_with_claim(claimed, named.messages)
    if strangers or named.receipts - {grant.receipt_id}:
        raise InvalidParameterValue(
            field,
            what,
            f"Must be messages of the claim {grant.receipt_id}; "
            + (
                f"{strangers:,} are not, message {first_id(others_of_claim(named.messages, claimed))} for one"
                if strangers
                else "the handles are of another receipt"
            ),
        )
    return runs


def _at(named: Named) -> str:
    if named.row is not None:
        return f" (row {named.row} for one)"
    return "" if named.example is None else f" ({named.example!r} for one)"


def _require_agreement(grant: Grant, chosen: pa.Table, named: Named, column: str, what: str, *, exactly: bool) -> None:
    _, strangers, missing = compare_with_claim(chosen, named.messages)
    wrong = []
    if strangers:
        example = first_id(others_of_claim(named.messages, chosen))
        wrong.append(f"there are rows about {strangers:,} messages that are not in {what} (message {example} for one)")
    if named.receipts - {grant.receipt_id}:
        wrong.append("there are handles of another receipt")
    if exactly and missing:
        example = first_id(others_of_claim(chosen, named.messages))
        wrong.append(f"{missing:,} of the messages have no row (message {example} for one)")
    # Without `exactly`, some rows may have null in the column, but not all: a join may have found nothing.
    if named.others or (named.nulls and (exactly or not named.messages.num_rows)):
        wrong.append(f"{named.others + named.nulls:,} rows name no message of the queue{_at(named)}")
    if wrong:
        raise InvalidParameterValue(
            "rows",
            column,
            f"By their column {column}, {' and '.join(wrong)}",
            f'Give messages="{column}" to acknowledge only the messages that have rows. If the column means something '
            "else, rename it, or name the messages by messages=.",
        )
