"""A message as users see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any

from ledger.clock import instant
from ledger.rules.arns import DEFAULT, Account
from ledger.rules.attributes import queue_name_of
from ledger.rules.message import SHOWN, Kind
from ledger.rules.message_attributes import Attribute, md5_of_attributes, md5_of_body
from ledger.rules.receipt_handle import ReceiptHandle, encode
from ledger.rules.visibility import Status, expires_at, status
from ledger.store.protocol import QueueRecord, StoredMessage

#: The fields that users see as they are stored, and the fields that users see as instants.
_AS_STORED = tuple(field.name for field in SHOWN if field.kind is not Kind.INSTANT)
_INSTANTS = tuple(field.name for field in SHOWN if field.kind is Kind.INSTANT)
_as_stored = attrgetter(*_AS_STORED)


@dataclass(frozen=True)
class Message:
    """A message. `receipt_handle` is None if `Queue.peek` returned the message. Instants are UTC, or None."""

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
    #: The sender that `Ledger.open(sender_id=...)` named. None means the ledger's account.
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
            "SentTimestamp": _format_timestamp(self.sent_at),
            "ApproximateReceiveCount": str(self.receive_count),
            "ApproximateFirstReceiveTimestamp": _format_timestamp(self.first_received_at),
            "MessageGroupId": self.message_group_id,
            "MessageDeduplicationId": self.message_deduplication_id,
            # SQS's form of the number has 20 digits.
            "SequenceNumber": None if self.sequence_number is None else f"{self.sequence_number:020d}",
            "AWSTraceHeader": self.aws_trace_header,
            "DeadLetterQueueSourceArn": self.dead_letter_source and self.account.arn(self.dead_letter_source),
        }
        return {name: text for name, text in texts.items() if text is not None}


def public_message(
    queue: QueueRecord, stored: StoredMessage, now: int, receipt_id: str | None, account: Account = DEFAULT
) -> Message:
    return public_messages(queue, [stored], now, receipt_id, account)[0]


def public_messages(
    queue: QueueRecord,
    stored: Iterable[StoredMessage],
    now: int,
    receipt_id: str | None,
    account: Account = DEFAULT,
) -> list[Message]:
    """Return stored messages as users see them. With a `receipt_id` each has a receipt handle."""
    # Many messages of a claim share their instants.
    instants, retention = _SharedInstants(), queue.retention

    def public(one: StoredMessage) -> Message:
        record = one.record
        shown: dict[str, Any] = dict(zip(_AS_STORED, _as_stored(one)))
        for name in _INSTANTS:
            shown[name] = instants[getattr(one, name)]
        return Message(
            message_id=one.message_id,
            receipt_handle=receipt_id and encode(ReceiptHandle(queue.id, one.lane, one.segment, one.seq, receipt_id)),
            receive_count=record.receive_count,
            first_received_at=instants[record.first_received_at],
            visible_at=instants[record.visible_at],
            status=status(record, one.available_at, now, expires_at(record, one.sent_at, retention)),
            dead_letter_source=record.origin_queue and queue_name_of(record.origin_queue),
            account=account,
            **shown,
        )

    return [public(one) for one in stored]


class _SharedInstants(dict[int | None, Any]):
    """Instants by milliseconds, made when they are first looked up."""

    def __missing__(self, milliseconds: int | None) -> datetime | None:
        made = self[milliseconds] = None if milliseconds is None else instant(milliseconds)
        return made


def _format_timestamp(at: datetime | None) -> str | None:
    return None if at is None else str(round(at.timestamp() * 1_000))
