"""A message and an outcome, as users meet them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ledger.clock import instant
from ledger.errors import LedgerError
from ledger.rules.arns import DEFAULT, Account
from ledger.rules.attributes import queue_name_of
from ledger.rules.message import Entry
from ledger.rules.message_attributes import Attribute, md5_of_attributes, md5_of_body
from ledger.rules.receipt_handle import ReceiptHandle, encode
from ledger.rules.state import Status, expires_at, status
from ledger.store import QueueRecord, Sent, StoredMessage


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
    message_attributes: Mapping[str, Attribute] = field(default_factory=dict)
    message_group_id: str | None = None
    message_deduplication_id: str | None = None
    sequence_number: int | None = None
    trace_header: str | None = None
    #: The name of the queue that a dead letter, or a redriven message, was moved from.
    dead_letter_source: str | None = None
    #: The ledger's account and region, for ARNs.
    account: Account = DEFAULT
    #: Who sent it, as `Ledger.open(sender_id=...)` said; None: the ledger's account.
    sender_id: str | None = None

    @property
    def md5_of_body(self) -> str:
        """SQS's MD5OfBody."""
        return md5_of_body(self.body)

    @property
    def md5_of_message_attributes(self) -> str | None:
        """SQS's MD5OfMessageAttributes; None without attributes."""
        return md5_of_attributes(self.message_attributes)

    def attributes(self) -> dict[str, str]:
        """SQS's system attributes, as text; those that the message has. Timestamps are in milliseconds."""
        known = {
            "SenderId": self.sender_id or self.account.account_id,
            "SentTimestamp": _timestamp(self.sent_at),
            "ApproximateReceiveCount": str(self.receive_count),
            "ApproximateFirstReceiveTimestamp": _timestamp(self.first_received_at),
            "MessageGroupId": self.message_group_id,
            "MessageDeduplicationId": self.message_deduplication_id,
            # S1's order as SQS writes it: 20 digits.
            "SequenceNumber": None if self.sequence_number is None else f"{self.sequence_number:020d}",
            "AWSTraceHeader": self.trace_header,
            "DeadLetterQueueSourceArn": self.dead_letter_source and self.account.arn(self.dead_letter_source),
        }
        return {name: text for name, text in known.items() if text is not None}


class SendOutcome(str):
    """What became of one entry that was sent: an entry of SQS's SendMessageBatchResult.

    As text it is the id of its message, so that ids are what `ids = queue.send(bodies)` holds. A refused entry has no
    message: as text it is empty, and so it is false: `all(queue.send(bodies))` says whether all were sent.
    `sequence_number` is for FIFO queues; of a duplicate (F1), the id and the number are those of the first.
    `error` is what a refused entry was refused for: an error that can be raised; None for a success.
    """

    sequence_number: int | None
    error: LedgerError | None
    _entry: Entry | None

    @classmethod
    def of(cls, read: Entry | LedgerError, sent: Sent | None) -> SendOutcome:
        """The outcome of an entry that was stored as `sent`, or of one that was refused."""
        outcome = cls("" if sent is None else sent.message_id)
        outcome.sequence_number = sent and sent.sequence_number
        outcome.error, outcome._entry = (read, None) if isinstance(read, LedgerError) else (None, read)
        return outcome

    def __repr__(self) -> str:
        what = f"message_id={self.message_id!r}" if self.successful else f"error={self.error!r}"
        return f"SendOutcome({what})"

    @property
    def successful(self) -> bool:
        """Whether it was sent: SQS would list it under Successful."""
        return self.error is None

    @property
    def message_id(self) -> str | None:
        """The id of its message; None when it was refused."""
        return str(self) or None

    @property
    def md5_of_body(self) -> str | None:
        """SQS's MD5OfMessageBody."""
        return self._entry and md5_of_body(self._entry.body)

    @property
    def md5_of_message_attributes(self) -> str | None:
        """SQS's MD5OfMessageAttributes; None without attributes."""
        return self._entry and md5_of_attributes(self._entry.message_attributes)

    @property
    def md5_of_system_attributes(self) -> str | None:
        """SQS's MD5OfMessageSystemAttributes, of the AWSTraceHeader; None without one."""
        header = self._entry and self._entry.trace_header
        return header and md5_of_attributes({"AWSTraceHeader": Attribute("String", header)})

    @property
    def error_code(self) -> str | None:
        """SQS's name of the failure; None for a success."""
        return None if self.error is None else self.error.code

    @property
    def error_message(self) -> str | None:
        """The service's sentence about the failure; None for a success."""
        return None if self.error is None else self.error.message

    @property
    def sender_fault(self) -> bool:
        """SQS's SenderFault: what is refused is the sender's to mend."""
        return self.error is not None


@dataclass(frozen=True)
class HandleOutcome:
    """What became of one receipt handle of a list. `error_code` is SQS's name of the failure and `error_message` the
    service's sentence about it; both None for a success. A failure is false: `all(queue.delete(handles))`."""

    receipt_handle: str | None
    outcome: str
    error_code: str | None = None
    error_message: str | None = None

    @property
    def successful(self) -> bool:
        """Whether SQS would list it under Successful."""
        return self.error_code is None

    def __bool__(self) -> bool:
        return self.successful


@dataclass(frozen=True)
class Counts:
    """How many messages a queue has (Q1), and the age in seconds of the oldest one still there (None: none).

    `deleted`, `expired` and `moved` (to a dead-letter queue, or back) are those that upkeep has not removed yet.
    """

    visible: int
    delayed: int
    locked: int
    in_flight: int
    deleted: int
    age_of_oldest: float | None
    expired: int = 0
    moved: int = 0

    @property
    def stored(self) -> int:
        """S2: "sent to a queue by a producer, but not yet received" (or given back since)."""
        return self.visible + self.delayed + self.locked


def public_message(
    queue: QueueRecord, stored: StoredMessage, now: int, receipt_id: str | None, account: Account = DEFAULT
) -> Message:
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
        status=status(record, stored.available_at, now, expires_at(record, stored.sent_at, queue.retention)),
        message_attributes=stored.message_attributes,
        message_group_id=stored.message_group_id,
        message_deduplication_id=stored.message_deduplication_id,
        sequence_number=stored.sequence_number,
        trace_header=stored.trace_header,
        sender_id=stored.sender_id,
        dead_letter_source=stored.record.origin_queue and queue_name_of(stored.record.origin_queue),
        account=account,
    )


def _timestamp(at: datetime | None) -> str | None:
    return None if at is None else str(round(at.timestamp() * 1_000))
