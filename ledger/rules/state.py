"""The record of a message, and its state at an instant.

The state is not stored: it follows from the record, the message's delay and expiry, and the instant. Q1 and Q7 are
rules of docs/reference/rules.md, and S2 is a text about SQS.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Record(NamedTuple):
    """The facts about one message, or about several messages that share them. Instants are in milliseconds."""

    receipt_id: str | None = None
    attempt_id: str | None = None
    receive_count: int = 0
    first_received_at: int | None = None
    received_at: int | None = None
    visible_at: int | None = None
    released_at: int | None = None
    deleted_at: int | None = None
    #: The id of the queue that the message was moved from.
    origin_queue: str | None = None
    #: The id of the queue that the message was moved to. The record's own queue no longer has it.
    moved_to: str | None = None
    #: The instant of a move that restarted the message's retention. It replaces `sent_at`.
    enqueued_at: int | None = None
    #: The output table, and the id of the receiver's write.
    writing_to: str | None = None
    write_id: str | None = None


UNTOUCHED = Record()


class Hold(NamedTuple):
    receipt_id: str
    received_at: int
    visible_at: int


class Status(str, Enum):
    """The state of a message. S2's "stored" is VISIBLE, DELAYED or LOCKED."""

    VISIBLE = "visible"
    DELAYED = "delayed"
    LOCKED = "locked"
    IN_FLIGHT = "in flight"
    DELETED = "deleted"
    EXPIRED = "expired"
    MOVED = "moved"


#: The states of messages that a queue no longer has.
GONE = (Status.DELETED, Status.EXPIRED, Status.MOVED)


def status(record: Record, available_at: int, now: int, expires_at: int | None = None) -> Status:
    """Return the state of a message at `now`. A deadline that equals `now` has passed.

    A message expires even if it is held (Q7).
    """
    if record.deleted_at is not None:
        return Status.DELETED
    if record.moved_to is not None:
        return Status.MOVED
    if expires_at is not None and expires_at <= now:
        return Status.EXPIRED
    if record.visible_at is not None and record.visible_at > now:
        return Status.IN_FLIGHT if record.receipt_id is not None else Status.LOCKED
    if available_at > now:
        return Status.DELAYED
    return Status.VISIBLE


def deadline(record: Record) -> int:
    """Return when the last hold or lock of a message ends or ended; -1 if there was none."""
    return -1 if record.visible_at is None else record.visible_at


def hold(record: Record) -> Hold | None:
    """Return the last hold of a message, even if it is over; None if no receipt is on record.

    A lock, a restore, a purge, and time after a delete remove the receipt from the record.
    """
    if record.receipt_id is None or record.received_at is None or record.visible_at is None:
        return None
    return Hold(record.receipt_id, record.received_at, record.visible_at)


def latest_hold(records: Iterable[Record]) -> Hold | None:
    holds = [one for one in map(hold, records) if one is not None]
    return max(holds, key=lambda one: one.visible_at, default=None)


def in_doubt(record: Record) -> bool:
    """Return whether a write of the message's output was begun, and its end is not recorded.

    An invariant: while a message is in doubt, the receipt of the write stays on record. By this receipt the owner
    restores the message if the table is gone.
    """
    return record.write_id is not None and record.deleted_at is None and record.moved_to is None


class Retention(NamedTuple):
    """How long a queue keeps a message, in milliseconds from its arrival (Q7).

    Messages that arrived up to `expired_before` stay expired, however long `period` becomes. A change to a longer
    period sets `expired_before`, and so does upkeep before it drops messages.
    """

    period: int
    expired_before: int = -1

    def expired(self, now: int) -> int:
        """Return the latest instant of arrival that has expired at `now`."""
        return max(now - self.period, self.expired_before)

    def ends(self, arrived_at: int) -> int:
        """Return when a message expires; an instant before the note if the message is noted as expired."""
        end = arrived_at + self.period
        return min(end, self.expired_before) if arrived_at <= self.expired_before else end

    def changed(self, period: int, now: int) -> Retention:
        return Retention(period, self.expired(now) if period > self.period else self.expired_before)

    def put_back(self, now: int) -> Retention:
        """Return the retention after the repair of a clock that was ahead, and noted too much as expired.

        Messages that are younger than the period come back, unless upkeep has dropped them.
        """
        return self._replace(expired_before=min(self.expired_before, now - self.period))


def expires_at(record: Record, sent_at: int, retention: Retention) -> int:
    """Return when a message expires (Q7), counted from its arrival.

    The repair of a clock can record an arrival before the send. Then the send counts.
    """
    return retention.ends(max(arrived_at(record, sent_at), sent_at))


def arrived_at(record: Record, sent_at: int) -> int:
    return sent_at if record.enqueued_at is None else record.enqueued_at
