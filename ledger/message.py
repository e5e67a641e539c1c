"""A message as users see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any

from ledger.clock import instant
from ledger.rules.arns import DEFAULT, Account
from ledger.rules.attributes import queue_name_of
from ledger.rules.message_attributes import Attribute, md5_of_attributes, md5_of_body
from ledger.rules.message_fields import SHOWN, Kind
from ledger.rules.receipt_handle import ReceiptHandle, encode
from ledger.rules.state import Status, expires_at, status
from ledger.store.protocol import QueueRecord, StoredMessage

#: The fields that users see as they are stored, and the fields that users see as instants.
_AS_STORED = tuple(field.name for field in SHOWN if field.kind is not Kind.INSTANT)
_INSTANTS = tuple(field.name for field in SHOWN if field.kind is Kind.INSTANT)
_as_stored = attrgetter(*_AS_STORED)


@dataclass(frozen=True)
class Message:
    """A message. `receipt_handle` is None when the message was peeked at. Instants are UTC, or None."""

    message_id: str
    body: str
    receipt_handle: str | None
    receive_count: int
    first_received_at: datetime | None
    sent_at: datetime
    visible_at: datetime | None
    status: Status
    message_attributes: Mapping[str, Attribute] = field(default_factory=dict)
    message_group_id: str | None = None
    message_deduplication_id: str | None = None
    sequence_number: int | None = None
    aws_trace_header: str | None = None
    #: The name of the queue that a dead letter, or a redriven message, was moved from.
    dead_letter_source: str | None = None
    #: The ledger's account and region, for ARNs.
    account: Account = DEFAULT
    #: The sender that `Ledger.open(sender_id=...)` named. None stands for the ledger's account.
    sender_id: str | None = None

    @property
    def md5_of_body(self) -> str:
        """SQS's MD5OfBody."""
        return md5_of_body(self.body)

    @property
    def md5_of_message_attributes(self) -> str | None:
        """SQS's MD5OfMessageAttributes, or None without attributes."""
        return md5_of_attributes(self.message_attributes)

    def attributes(self) -> dict[str, str]:
        """Return the message's SQS system attributes as text. Timestamps are in milliseconds."""
        texts = {
            "SenderId": self.sender_id or self.account.account_id,
            "SentTimestamp": _timestamp(self.sent_at),
            "ApproximateReceiveCount": str(self.receive_count),
            "ApproximateFirstReceiveTimestamp": _timestamp(self.first_received_at),
            "MessageGroupId": self.message_group_id,
            "MessageDeduplicationId": self.message_deduplication_id,
            # S1's order as SQS writes it: 20 digits.
            "SequenceNumber": None if self.sequence_number is None else f"{self.sequence_number:020d}",
            "AWSTraceHeader": self.aws_trace_header,
            "DeadLetterQueueSourceArn": self.dead_letter_source and self.account.arn(self.dead_letter_source),
        }
        return {name: text for name, text in texts.items() if text is not None}


def public_message(
    queue: QueueRecord, stored: StoredMessage, now: int, receipt_id: str | None, account: Account = DEFAULT
) -> Message:
    """Return a stored message as users see it. With a `receipt_id` the message has a receipt handle."""
    handle = receipt_id and encode(ReceiptHandle(queue.id, stored.lane, stored.segment, stored.seq, receipt_id))
    record = stored.record
    shown: dict[str, Any] = dict(zip(_AS_STORED, _as_stored(stored)))
    shown.update((name, instant(getattr(stored, name))) for name in _INSTANTS)
    return Message(
        message_id=stored.message_id,
        receipt_handle=handle,
        receive_count=record.receive_count,
        first_received_at=None if record.first_received_at is None else instant(record.first_received_at),
        visible_at=None if record.visible_at is None else instant(record.visible_at),
        status=status(record, stored.available_at, now, expires_at(record, stored.sent_at, queue.retention)),
        dead_letter_source=stored.record.origin_queue and queue_name_of(stored.record.origin_queue),
        account=account,
        **shown,
    )


def _timestamp(at: datetime | None) -> str | None:
    return None if at is None else str(round(at.timestamp() * 1_000))
