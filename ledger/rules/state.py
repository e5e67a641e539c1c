"""What is recorded about messages, and the state that follows from it at an instant. Nothing else is ever stored."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Record(NamedTuple):
    """The facts about one message, or about a run of messages that share them. Instants in milliseconds, or None."""

    receipt_id: str | None = None
    attempt_id: str | None = None
    receive_count: int = 0
    first_received_at: int | None = None
    received_at: int | None = None
    visible_at: int | None = None
    released_at: int | None = None
    deleted_at: int | None = None


UNTOUCHED = Record()


class Status(str, Enum):
    """S2's three states, told apart further: stored is VISIBLE, DELAYED or LOCKED."""

    VISIBLE = "visible"
    DELAYED = "delayed"
    LOCKED = "locked"
    IN_FLIGHT = "in flight"
    DELETED = "deleted"


def status(record: Record, available_at: int, now: int) -> Status:
    """The state of a message at `now`. A deadline that equals `now` has passed."""
    if record.deleted_at is not None:
        return Status.DELETED
    if record.visible_at is not None and record.visible_at > now:
        return Status.IN_FLIGHT if record.receipt_id is not None else Status.LOCKED
    if available_at > now:
        return Status.DELAYED
    return Status.VISIBLE
