"""Effectively-once output: a claim's rows are written and its messages deleted as if in one commit.

The rows go into a Delta table and the messages out of the queue, but no commit spans two tables. So before a receiver
writes, it records in the queue where it will write and under which transaction id (`begin`). Nobody commits a version
of this id to the output table if the table already has one. Version WRITTEN says that the rows are in the table;
version FENCED says that this write will never add them. After the write the receiver deletes the messages (`finish`).

From `begin` to `finish` the messages are *in doubt*. Meanwhile the receiver may die, or the claim's deadline may pass.
So each later receive of these messages first asks the table. If the rows are in, the receive deletes the messages
(`decided`), and grants none of them. Otherwise it commits FENCED under the same id, so that the first receiver can no
longer write. Then it grants the messages.

At most one of the two versions is ever committed. So a message's rows are written under at most one receipt, unless the
owner restores the message later. A redrive, a lock and a restore ask the table, too. If a table cannot be asked, its
messages stay in doubt, and nobody receives them. If the table is gone for good, the owner restores the
messages: a restore does not ask a table that is gone.
"""

from __future__ import annotations

import secrets
from enum import Enum

from ledger.rules.state import Record, in_doubt
from ledger.rules.visibility import Standing, restore, standing

#: The versions of a write's transaction id in the output table.
WRITTEN, FENCED = 1, 2


def new_write_id(table_id: str) -> str:
    """Return a new id for a write that begins.

    The id also names the table. A later table at the same place has another id, so its answer is not taken for the
    answer of the first table.
    """
    return f"{secrets.token_hex(16)}@{table_id}"


def table_of(write_id: str) -> str | None:
    """Return the id of the table that a write was begun for; None for a write by an older version of the package."""
    return write_id.partition("@")[2] or None


def application(write_id: str) -> str:
    """Return the transaction id (Delta's application id) of a write."""
    return f"ledger/{write_id}"


class Part(Enum):
    """How a message relates to a write that its receiver wants to begin."""

    HELD = "held"
    WRITTEN = "written by an earlier call"
    ACKNOWLEDGED = "acknowledged without a row"
    LOST = "held no longer"


def begun(record: Record) -> tuple[str, str] | None:
    """Return the table and the id of the write on a message's record; None if the record has no write."""
    if record.writing_to is None or record.write_id is None:
        return None
    return record.writing_to, record.write_id


def to_ask(record: Record, receipt_id: str) -> bool:
    """Return whether a write was begun under `receipt_id` before, so that its table has to say whether the rows are in.

    False after a move of the message, and for a write under another receipt, which may still be running.
    """
    return record.receipt_id == receipt_id and record.write_id is not None and record.moved_to is None


def to_fence(record: Record, receipt_id: str, now: int) -> bool:
    """Return whether a restore under `receipt_id` releases a message for which a write was begun.

    If so, the write's table is asked before the restore, and the write is fenced off if its rows are not in. Without a
    fence, a writer that still runs could write a row that the next receiver also writes.
    """
    return record.write_id is not None and restore(record, receipt_id, now) is not None


def part(record: Record, receipt_id: str, now: int, *, written: bool) -> Part:
    """Return how a message relates to a write under `receipt_id`.

    `written` is the table's answer, or False if the table did not have to be asked (see `to_ask`).
    """
    if written:
        return Part.WRITTEN
    if record.deleted_at is not None and record.receipt_id == receipt_id:
        return Part.ACKNOWLEDGED
    return Part.HELD if standing(record, receipt_id, now) is Standing.HELD else Part.LOST


def begin(record: Record, table: str, identifier: str) -> Record:
    """Return the record of a held message whose receiver begins the write `identifier` to `table`."""
    return record._replace(writing_to=table, write_id=identifier)


def finish(record: Record, identifier: str | None, now: int) -> Record | None:
    """Return the record of a message whose rows are written: deleted, even if its deadline has passed.

    Return None if this write does not hold the message in doubt: the write's end was noted before, or the owner
    restored the message.
    """
    if not in_doubt(record) or record.write_id != identifier:
        return None
    return record._replace(deleted_at=now)


def undo(record: Record, identifier: str) -> Record | None:
    """Return the record without a write that is fenced off; None as in `finish`."""
    if not in_doubt(record) or record.write_id != identifier:
        return None
    return record._replace(writing_to=None, write_id=None)


def decided(record: Record, *, written: bool, now: int) -> Record:
    """Return the record of a message in doubt after its table was asked: deleted, or without the write."""
    if written:
        return record._replace(deleted_at=now)
    return record._replace(writing_to=None, write_id=None)
