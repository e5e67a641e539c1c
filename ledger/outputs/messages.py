"""Which messages a write acknowledges: those that its rows are about, or all but the exceptions, and none that nobody
meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ledger.client.tables import arrow_table, is_spark, is_text, listed, require_column
from ledger.errors import InvalidParameterValue
from ledger.outputs.named_messages import (
    Named,
    first_id,
    named_by_array,
    named_by_column,
    named_by_values,
    of_claim,
    others_of_claim,
)
from ledger.store.protocol import RUNS, Grant, QueueRecord

#: Columns by which rows say which message they are about, without being asked.
HANDLES = "receipt_handle"
CARRIED = ("message_id", HANDLES)
TEXT = ("string", "large_string", "string_view")


class OutputRows(Protocol):
    """Rows that are to be written, as far as they say which messages they are about."""

    @property
    def columns(self) -> Mapping[str, str]:
        """Their columns and the types of these."""

    def named(self, column: str, queue: str) -> Named:
        """Which messages a column names."""

    def named_failed(self, column: str, queue: str) -> Named:
        """The same of the rows that say that their message failed, which are not written."""


class Chosen(NamedTuple):
    """The messages of a claim that are acknowledged, and those that are not, both as RUNS."""

    done: pa.Table
    failed: pa.Table


def messages_of(queue: QueueRecord, grant: Grant, rows: OutputRows, messages: Any) -> pa.Table:
    """The messages to acknowledge, as RUNS. `messages` is as in Claim.write.

    Raises InvalidParameterValue when the rows are about other messages than those that are to be acknowledged.
    """
    claimed = grant.runs.select(RUNS.names)
    if isinstance(messages, str):
        return _in_claim(grant, claimed, _of_column(queue, rows, messages), "messages", f"column {messages} of rows")
    chosen, said = claimed, "the claim"
    if messages is not None:
        chosen, said = (
            _in_claim(grant, claimed, _given(queue, messages, "messages"), "messages", "messages"),
            "messages",
        )
    # Where it is said which messages are meant, a column of such a name with none of our ids is somebody else's.
    columns = _named(queue, rows)
    for column, named in _carried(columns) if messages is not None else columns:
        _require_agreement(grant, chosen, named, column, said, exactly=messages is not None)
    return chosen


def all_but(queue: QueueRecord, grant: Grant, rows: OutputRows, failed: Any) -> Chosen:
    """All messages of a claim but those that `failed` names, as in Claim.write.

    Raises InvalidParameterValue when the rows carry ids and are not about just the others: no message is acknowledged
    that has neither a row nor is named.
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
    # Where none names any of ours, one that is empty says that no message has a row; one of others' ids is others'.
    carried = _carried(columns) or [(column, one) for column, one in columns if column == by or not one.others][:1]
    if not carried and is_spark(failed):
        raise InvalidParameterValue(
            "failed",
            "a DataFrame",
            "The rows carry no message ids, and are computed apart from it: nobody can tell whether both agree",
            "Give the rows a column message_id, or name a column of theirs that says which failed.",
        )
    for column, about in carried:
        _require_agreement(grant, others, about, column, "the claim without the failed ones", exactly=True)
    return Chosen(others, exceptions)


def id_column(rows: OutputRows) -> str:
    """The column by which rows say which message they are about. Raises InvalidParameterValue without one."""
    found = next((column for column in CARRIED if rows.columns.get(column) in TEXT), None)
    if found is None:
        raise InvalidParameterValue(
            "rows", ", ".join(rows.columns), f"They say by no column {' or '.join(CARRIED)} what they are about"
        )
    return found


def require_failed(failed: str | None, columns: Sequence[str]) -> None:
    """Raises InvalidParameterValue where rows have no column that says which failed."""
    if failed is not None and failed not in columns:
        raise InvalidParameterValue(
            "failed", failed, f"The rows have no such column; they have {', '.join(columns)}", "Name one of them."
        )


def _carried(columns: list[tuple[str, Named]]) -> list[tuple[str, Named]]:
    """Of columns those by which rows say what they are about: with some of the ledger's ids."""
    return [(column, one) for column, one in columns if one.messages.num_rows]


def _named(queue: QueueRecord, rows: OutputRows) -> list[tuple[str, Named]]:
    """What the columns name by whose names they say what the rows are about."""
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
        return named_by_values(listed(field, messages), queue.id)
    return named_by_array(require_column(table, _naming(table.column_names), is_text, "string"), queue.id)


def _naming(columns: Sequence[str]) -> str:
    """The column of a table of messages that names them."""
    return CARRIED[0] if CARRIED[0] in columns and HANDLES not in columns else HANDLES


def _in_claim(grant: Grant, claimed: pa.Table, named: Named, field: str, what: str) -> pa.Table:
    if named.nulls or named.others:
        raise InvalidParameterValue(
            field,
            named.example,
            f"In {what}, {named.nulls + named.others:,} are neither a message id nor a receipt handle of the queue"
            f"{_at(named)}",
            "Leave out what is about no message.",
        )
    runs, strangers, _ = of_claim(claimed, named.messages)
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
    """Where the first of the values is that name no message, as far as that is known."""
    if named.row is not None:
        return f" (row {named.row} for one)"
    return "" if named.example is None else f" ({named.example!r} for one)"


def _require_agreement(grant: Grant, chosen: pa.Table, named: Named, column: str, said: str, *, exactly: bool) -> None:
    _, strangers, missing = of_claim(chosen, named.messages)
    wrong = []
    if strangers:
        one = first_id(others_of_claim(named.messages, chosen))
        wrong.append(f"there are rows about {strangers:,} messages that are not in {said} (message {one} for one)")
    if named.receipts - {grant.receipt_id}:
        wrong.append("there are handles of another receipt")
    if exactly and missing:
        one = first_id(others_of_claim(chosen, named.messages))
        wrong.append(f"{missing:,} of the messages have no row (message {one} for one)")
    # Some rows may be about no message; that all of them are is a join that found nothing, say.
    if named.others or (named.nulls and (exactly or not named.messages.num_rows)):
        wrong.append(f"{named.others + named.nulls:,} rows name no message of the queue{_at(named)}")
    if wrong:
        raise InvalidParameterValue(
            "rows",
            column,
            f"By their column {column}, {' and '.join(wrong)}",
            f'Give messages="{column}" to acknowledge what has rows. Where the column means something else, rename it, '
            "or name the messages by messages=.",
        )
