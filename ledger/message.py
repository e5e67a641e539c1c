"""A message and an outcome, as users meet them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from ledger.clock import instant
from ledger.rules.receipt_handle import ReceiptHandle, encode
from ledger.rules.state import Status, status
from ledger.store import QueueRecord, StoredMessage


@dataclass(frozen=True)
class Message:
    """A message. `receipt_handle` is None when it was peeked at; instants are UTC, or None."""

    message_id: str
    body: str
    receipt_handle: str | None
    receive_count: int
    first_received_at: datetime | None
    sent_at: datetime
    visible_at: datetime | None
    status: Status
    message_attributes: Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class HandleOutcome:
    """What became of one receipt handle of a list. `error_code` is SQS's name of the failure, None for a success."""

    receipt_handle: str
    outcome: str
    error_code: str | None = None

    @property
    def successful(self) -> bool:
        """Whether SQS would list it under Successful."""
        return self.error_code is None


@dataclass(frozen=True)
class Counts:
    """How many messages a queue has (Q1), and the age in seconds of the oldest one not deleted (None: none)."""

    visible: int
    delayed: int
    locked: int
    in_flight: int
    deleted: int
    age_of_oldest: float | None

    @property
    def stored(self) -> int:
        """S2: "sent to a queue by a producer, but not yet received" (or given back since)."""
        return self.visible + self.delayed + self.locked


def public_message(queue: QueueRecord, stored: StoredMessage, now: int, receipt_id: str | None) -> Message:
    """A stored message as users see it; with a receipt id, with its receipt handle."""
    handle = receipt_id and encode(ReceiptHandle(queue.id, stored.lane, stored.segment, stored.seq, receipt_id))
    record = stored.record
    return Message(
        message_id=stored.message_id,
        body=stored.body,
        receipt_handle=handle,
        receive_count=record.receive_count,
        first_received_at=None if record.first_received_at is None else instant(record.first_received_at),
        sent_at=instant(stored.sent_at),
        visible_at=None if record.visible_at is None else instant(record.visible_at),
        status=status(record, stored.available_at, now),
        message_attributes=stored.message_attributes or {},
    )
