"""Effectively-once output: how a claim's rows get into a Delta table and its messages out of the queue, as if at once.

No commit spans two tables. So before a receiver writes, it records in the queue where it will write and under which
transaction id (`begin`). Delta commits a transaction id and version at most once, which makes the output table itself
the one place that decides: version WRITTEN says that the rows are in, version FENCED that they never will be. After it
wrote, the receiver deletes the messages (`finish`). Whoever meets such messages later, because the receiver died in
between or lost its lease, asks the table first (`decided`): written ones are deleted instead of received again; else it
commits FENCED under the same id, after which the first receiver can no longer write, and receives them. Of the two
versions exactly one is committed, so every message's rows are written by exactly one receipt, and every message is
either deleted with its rows written, or received again without. A lock and a restore ask as a receive does. A table
that cannot be asked, be it gone, replaced by another one, out of sight or broken, decides nothing: its messages stay in
doubt, and nobody receives them, until the owner restores them as those of a table that is gone for good.
"""

from __future__ import annotations

import secrets
from enum import Enum

from ledger.rules.state import Record, in_doubt
from ledger.rules.visibility import Standing, restore, standing

#: The versions of a write's transaction id in the output table.
WRITTEN, FENCED = 1, 2


def new_write_id(table_id: str) -> str:
    """Every write that is begun has an id of its own. It names the table, too: what is made anew in its place knows
    nothing of the write, which says nothing about what the table had."""
    return f"{secrets.token_hex(16)}@{table_id}"


def table_of(write_id: str) -> str | None:
    """The id of the table that a write was begun for; None when an older version began it."""
    return write_id.partition("@")[2] or None


def application(write_id: str) -> str:
    """The transaction id (Delta's application id) of a write."""
    return f"ledger/{write_id}"


class Part(Enum):
    """How a message stands to a write that its receiver wants to begin."""

    HELD = "held"
    WRITTEN = "written by an earlier call"
    ACKNOWLEDGED = "acknowledged without a row"
    LOST = "held no longer"


def begun(record: Record) -> tuple[str, str] | None:
    """The table and the id of the last write that was begun of a message; None: none was."""
    if record.writing_to is None or record.write_id is None:
        return None
    return record.writing_to, record.write_id


def to_ask(record: Record, receipt_id: str) -> bool:
    """Whether a write was begun under `receipt_id` before, so that its table has to say whether it is in. The writes of
    others are none of a receipt's business: it may be stale, and they may be at it."""
    return record.receipt_id == receipt_id and record.write_id is not None and record.moved_to is None


def to_fence(record: Record, receipt_id: str, now: int) -> bool:
    """Whether a restore under `receipt_id` gives back a message of which a write was begun: then its table has to be
    asked first, which fences the write off if it is not in. Its writer may still stand somewhere, whether the message
    is in doubt or was acknowledged beside it, and would write a row that the next receiver writes, too."""
    return record.write_id is not None and restore(record, receipt_id, now) is not None


def part(record: Record, receipt_id: str, now: int, *, written: bool) -> Part:
    """How a message stands to a write under `receipt_id`. `written`: what the table said, when it was to be asked."""
    if written:
        return Part.WRITTEN
    if record.deleted_at is not None and record.receipt_id == receipt_id:
        return Part.ACKNOWLEDGED
    return Part.HELD if standing(record, receipt_id, now) is Standing.HELD else Part.LOST


def begin(record: Record, table: str, identifier: str) -> Record:
    """What the receiver of a held message records before it writes."""
    return record._replace(writing_to=table, write_id=identifier)


def finish(record: Record, identifier: str | None, now: int) -> Record | None:
    """What is recorded once the write is in: deleted, even when the deadline has passed meanwhile. None: somebody has
    recorded it already."""
    if not in_doubt(record) or record.write_id != identifier:
        return None
    return record._replace(deleted_at=now)


def undo(record: Record, identifier: str) -> Record | None:
    """What is recorded once a write is known never to get in: as before it began. None: somebody recorded it."""
    if not in_doubt(record) or record.write_id != identifier:
        return None
    return record._replace(writing_to=None, write_id=None)


def decided(record: Record, *, written: bool, now: int) -> Record:
    """What follows for a message in doubt once its table was asked."""
    if written:
        return record._replace(deleted_at=now)
    return record._replace(writing_to=None, write_id=None)
