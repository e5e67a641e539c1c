"""What is recorded about messages, and the state that follows from it at an instant. Nothing else is ever stored."""

from __future__ import annotations

from collections.abc import Iterable
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
    #: A dead letter in this queue: the id of the queue it was moved from, and where its body lies.
    origin_queue: str | None = None
    #: The id of the queue that it was moved to; here it is no more.
    moved_to: str | None = None
    #: Instead of `sent_at`, for what was moved here in a way that restarts its retention.
    enqueued_at: int | None = None
    #: The Delta table that its receiver began to write its output to, and under which transaction. See `in_doubt`.
    writing_to: str | None = None
    write_id: str | None = None


UNTOUCHED = Record()


class Hold(NamedTuple):
    """What a receive records of a message: under which receipt it is held, since when and until when."""

    receipt_id: str
    received_at: int
    visible_at: int


class Status(str, Enum):
    """S2's three states, told apart further: stored is VISIBLE, DELAYED or LOCKED. The last three are gone."""

    VISIBLE = "visible"
    DELAYED = "delayed"
    LOCKED = "locked"
    IN_FLIGHT = "in flight"
    DELETED = "deleted"
    EXPIRED = "expired"
    MOVED = "moved"


#: What a queue no longer has.
GONE = (Status.DELETED, Status.EXPIRED, Status.MOVED)


def status(record: Record, available_at: int, now: int, expires_at: int | None = None) -> Status:
    """The state of a message at `now`. A deadline that equals `now` has passed.

    `expires_at` ends it whoever holds it then: Q7, "counted from the send". None: not looked at.
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
    """When the hold of a message ends, or ended; of one that was never held, before any time."""
    return -1 if record.visible_at is None else record.visible_at


def hold(record: Record) -> Hold | None:
    """The last hold of a message by a receipt, whether it goes on or not; None: there was none, or a lock came after
    it."""
    if record.receipt_id is None or record.received_at is None or record.visible_at is None:
        return None
    return Hold(record.receipt_id, record.received_at, record.visible_at)


def latest_hold(records: Iterable[Record]) -> Hold | None:
    """Of the holds of some messages the one that ends last; None: there are none."""
    holds = [one for one in map(hold, records) if one is not None]
    return max(holds, key=lambda one: one.visible_at, default=None)


def in_doubt(record: Record) -> bool:
    """Whether a write was begun, of which nothing says how it ended.

    An invariant of the rules: while a message is in doubt, the receipt that it is written under stays on record. By it
    the owner ends the doubt where the table is gone; without it, nobody could ever have the message again.
    """
    return record.write_id is not None and record.deleted_at is None and record.moved_to is None


class Retention(NamedTuple):
    """Q7: how long a queue keeps a message, counted from when it came; in milliseconds.

    What has expired stays expired. A change of the period notes in `expired_before` what had expired until then: what
    came no later than that is gone, however long the period is now. So a message expires once, and it is safe to drop.
    """

    period: int
    expired_before: int = -1

    def expired(self, now: int) -> int:
        """What came at this instant or before has expired at `now`."""
        return max(now - self.period, self.expired_before)

    def ends(self, arrived_at: int) -> int:
        """When a message that came then expires; for one that a change of the period found expired, an instant before
        that change."""
        end = arrived_at + self.period
        return min(end, self.expired_before) if arrived_at <= self.expired_before else end

    def changed(self, period: int, now: int) -> Retention:
        """After the period was changed at `now`. A shorter one notes nothing: what had expired has, by it, too."""
        return Retention(period, self.expired(now) if period > self.period else self.expired_before)

    def put_back(self, now: int) -> Retention:
        """After a clock that was ahead has noted too much: what is no older than the period is there again. How much a
        right clock would have noted nobody knows, and what had expired by that may be back, too, rather than lost."""
        return self._replace(expired_before=min(self.expired_before, now - self.period))


def expires_at(record: Record, sent_at: int, retention: Retention) -> int:
    """Q7: when a message expires, counted from the send, or from the move when that is recorded as `enqueued_at`.

    A message that a clock ahead has sent arrived before that, by a repair. It is kept from when it was sent, or it
    would be gone before it is visible."""
    return retention.ends(max(arrived_at(record, sent_at), sent_at))


def arrived_at(record: Record, sent_at: int) -> int:
    """When a message came to its queue: from when it is kept, and its place in the order of a FIFO queue."""
    return sent_at if record.enqueued_at is None else record.enqueued_at
