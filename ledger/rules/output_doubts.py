"""Effectively-once output: a claim's rows are written and its messages deleted as if in one commit.

No commit spans the output table and the queue. So before a receiver writes, it records in the queue where it will write
and under which transaction id (`begin`). Nobody commits a version of this id to the output table if the table already
has one. Version WRITTEN says that the rows are in the table. Version FENCED says that this write will never add them.
After the write the receiver deletes the messages (`finish`).

From `begin` to `finish` the messages are *in doubt*. Meanwhile the receiver may die, or the claim's deadline may pass.
So each later receive of these messages first asks the table. If the rows are in, the receive deletes the messages and
grants none of them. Otherwise the receive commits FENCED under the same id, and then grants the messages.

At most one of the two versions is ever committed. So a message's rows are written under at most one receipt, unless the
owner restores the message later. A redrive, a lock and a restore ask the table, too. If a table cannot be asked, nobody
receives its messages. If the table is gone for good, the owner restores the messages.
"""

from __future__ import annotations

import secrets
from enum import Enum

from ledger.rules.visibility import Record, Standing, find_standing, is_in_doubt, restore

WRITTEN, FENCED = 1, 2


def new_write_id(table_id: str) -> str:
    """Return a new id for a write.

    The id names the table, so that a later table at the same place cannot answer for the first.
    """
    return f"{secrets.token_hex(16)}@{table_id}"


def table_of(write_id: str) -> str | None:
    """Return the id of a write's table; None for a write by an older version of the package."""
    return write_id.partition("@")[2] or None


def application(write_id: str) -> str:
    return f"ledger/{write_id}"


class Part(Enum):
    HELD = "held"
    WRITTEN = "written by an earlier call"
    ACKNOWLEDGED = "acknowledged without a row"
    LOST = "held no longer"


def find_begun_write(record: Record) -> tuple[str, str] | None:
    if record.writing_to is None or record.write_id is None:
        return None
    return record.writing_to, record.write_id


def must_ask(record: Record, receipt_id: str) -> bool:
    """Return whether the table must say if an earlier write under `receipt_id` has its rows in.

    A write under another receipt may still be running.
    """
    return record.receipt_id == receipt_id and record.write_id is not None and record.moved_to is None


def must_fence(record: Record, receipt_id: str, now: int) -> bool:
    """Return whether a restore under `receipt_id` releases a message for which a write was begun.

    Such a restore first asks the table, and fences the write off if its rows are not in. Without a fence, a writer that
    still runs could write a row that the next receiver also writes.
    """
    return record.write_id is not None and restore(record, receipt_id, now) is not None


def classify_part(record: Record, receipt_id: str, now: int, *, written: bool) -> Part:
    """Return how a message relates to a write under `receipt_id`. `written` is the table's answer."""
    if written:
        return Part.WRITTEN
    if record.deleted_at is not None and record.receipt_id == receipt_id:
        return Part.ACKNOWLEDGED
    return Part.HELD if find_standing(record, receipt_id, now) is Standing.HELD else Part.LOST


def begin(record: Record, table: str, identifier: str) -> Record:
    return record._replace(writing_to=table, write_id=identifier)


def finish(record: Record, identifier: str | None, now: int) -> Record | None:
    """Return the record of a message whose rows are written: deleted, even if its deadline has passed.

    Return None if this write does not hold the message in doubt.
    """
    if not is_in_doubt(record) or record.write_id != identifier:
        return None
    return record._replace(deleted_at=now)


def undo(record: Record, identifier: str) -> Record | None:
    """Return the record without a write that is fenced off; None as in `finish`."""
    if not is_in_doubt(record) or record.write_id != identifier:
        return None
    return record._replace(writing_to=None, write_id=None)


def decide_doubt(record: Record, *, written: bool, now: int) -> Record:
    if written:
        return record._replace(deleted_at=now)
    return record._replace(writing_to=None, write_id=None)
