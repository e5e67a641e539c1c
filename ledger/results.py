"""The results of calls: an outcome for each entry or receipt handle, or counts."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import Any, TypeVar

from ledger.errors import LedgerError
from ledger.notebook.html_view import render_fields, render_outcomes
from ledger.rules.message import Entry
from ledger.rules.message_attributes import Attribute, md5_of_attributes, md5_of_body
from ledger.store.protocol import StoredSend

One = TypeVar("One")


class OutcomeList(list[One]):
    """A list of outcomes, in the order of the input. Notebooks show it as a table."""

    def _repr_html_(self) -> str:
        return render_outcomes(self)


class SendOutcome(str):
    """The outcome of one entry of a send, as SQS's SendMessageBatchResult has it.

    The outcome is a text: the id of the message, or an empty text (false) for a refused entry.

    `sequence_number` is for FIFO queues. A duplicate has the id and the sequence number of its original. `error` is the
    exception for which the entry was refused, or None.
    """

    sequence_number: int | None
    error: LedgerError | None
    _entry: Entry | None

    @classmethod
    def of(cls, entry: Entry | LedgerError, sent: StoredSend | None) -> SendOutcome:
        """Return the outcome of an entry that was stored as `sent`, or of a refused entry."""
        outcome = cls("" if sent is None else sent.message_id)
        outcome.sequence_number = sent and sent.sequence_number
        outcome.error, outcome._entry = (entry, None) if isinstance(entry, LedgerError) else (None, entry)
        return outcome

    def __repr__(self) -> str:
        if self.error is None:
            return f"SendOutcome(message_id={self.message_id!r})"
        # SQS's sentence does not say what to do. str() adds the advice, which says it.
        return f"SendOutcome(error_code={self.error_code!r}, error={str(self.error)!r})"

    def _repr_html_(self) -> str:
        names = ("message_id", "sequence_number", "error_code", "error_message")
        return render_fields(self, names)

    @property
    def successful(self) -> bool:
        """Whether the entry was sent: SQS would list it under Successful."""
        return self.error is None

    @property
    def message_id(self) -> str | None:
        """The id of the message, or None when the entry was refused."""
        return str(self) or None

    @property
    def md5_of_body(self) -> str | None:
        """SQS's MD5OfMessageBody, or None when the entry was refused."""
        return self._entry and md5_of_body(self._entry.body)

    @property
    def md5_of_message_attributes(self) -> str | None:
        """SQS's MD5OfMessageAttributes, or None without attributes."""
        return self._entry and md5_of_attributes(self._entry.message_attributes)

    @property
    def md5_of_system_attributes(self) -> str | None:
        """SQS's MD5OfMessageSystemAttributes, of the AWSTraceHeader, or None without this header."""
        header = self._entry and self._entry.aws_trace_header
        return header and md5_of_attributes({"AWSTraceHeader": Attribute("String", header)})

    @property
    def error_code(self) -> str | None:
        """SQS's name of the failure, or None for a success."""
        return None if self.error is None else self.error.code

    @property
    def error_message(self) -> str | None:
        """SQS's sentence about the failure, or None for a success."""
        return None if self.error is None else self.error.message

    @property
    def sender_fault(self) -> bool:
        """SQS's SenderFault: True for a refused entry."""
        return self.error is not None


@dataclass(frozen=True)
class HandleOutcome:
    """The outcome of one receipt handle of a list. A failure is false: `all(queue.delete(handles))`.

    `error_code` and `error_message` are SQS's, and None for a success.
    """

    receipt_handle: str | None
    outcome: str
    error_code: str | None = None
    error_message: str | None = None

    def _repr_html_(self) -> str:
        return render_fields(self, ("receipt_handle", "outcome", "error_code", "error_message"))

    @property
    def successful(self) -> bool:
        """Whether SQS would list the handle under Successful."""
        return self.error_code is None

    def __bool__(self) -> bool:
        return self.successful


@dataclass(frozen=True)
class Counts:
    """How many messages a queue has, by state, and the age in seconds of the oldest message (None: no message).

    `age_of_oldest` ignores deleted, expired and moved messages. But if small sends were joined into one file, the age
    may be that of such a message, sent up to `open_segment_seconds` (a setting) earlier. `deleted`, `expired` and
    `moved` (to a dead-letter queue, or back) count messages that upkeep has not removed yet.
    """

    visible: int
    delayed: int
    locked: int
    in_flight: int
    deleted: int
    age_of_oldest: float | None
    expired: int = 0
    moved: int = 0

    def _repr_html_(self) -> str:
        return render_fields(self, [field.name for field in fields(self)])

    @property
    def stored(self) -> int:
        """The number of visible, delayed and locked messages. Messages in flight are not among them."""
        return self.visible + self.delayed + self.locked


def _add_fields(one: Worked | Consumed, other: Worked | Consumed) -> list[Any]:
    return [first + second for first, second in zip(astuple(one), astuple(other))]


@dataclass(frozen=True)
class Worked:
    """The result of `Queue.work`.

    `claims`: how many claims were worked on. `messages`: how many messages are done. `failed`: how many times a message
    failed. `lost`: how many messages others received, settled or wrote during the work.
    """

    claims: int
    messages: int
    failed: int
    lost: int = 0

    def and_then(self, more: Worked) -> Worked:
        """Return the sum of both results."""
        return Worked(*_add_fields(self, more))

    def _repr_html_(self) -> str:
        return render_fields(self, ("claims", "messages", "failed", "lost"))


@dataclass(frozen=True)
class Consumed:
    """The result of `Queue.consume`. The numbers count messages, unless stated otherwise.

    `claims`: how many claims were received. `messages`: messages handled and acknowledged. `failed`: how many times a
    message's handler raised, or its rows could not be written. `retried`: how many times a message was given back for
    later because its handler raised RetryLater, or because an earlier RetryLater put off its message group. `limited`:
    how many times a message was given back for later by its group's limit. `rejected`: messages for which the handler
    raised Reject. `parked`: messages hidden for `park` seconds. `lost`: messages lost to others. `rows`: rows written.
    `cost`: the sum of the rows' column that the argument `cost` names.
    """

    claims: int = 0
    messages: int = 0
    failed: int = 0
    retried: int = 0
    rejected: int = 0
    lost: int = 0
    rows: int = 0
    cost: float = 0
    limited: int = 0
    parked: int = 0

    def and_then(self, more: Consumed) -> Consumed:
        """Return the sum of both results."""
        return Consumed(*_add_fields(self, more))

    def _repr_html_(self) -> str:
        return render_fields(self, [field.name for field in fields(self)])


@dataclass(frozen=True)
class Copied:
    """The result of `Queue.copy_to` or `Queue.import_from`.

    `messages`: how many messages this call sent. `before`: how many messages other calls of the same copy had sent when
    this call began.
    """

    messages: int
    before: int = 0

    def _repr_html_(self) -> str:
        return render_fields(self, ("messages", "before"))


@dataclass(frozen=True)
class Exported:
    """The result of `Queue.export_to`: which file, how many messages, and how many bytes."""

    path: str
    messages: int
    bytes: int

    def _repr_html_(self) -> str:
        return render_fields(self, ("path", "messages", "bytes"))


@dataclass(frozen=True)
class Settled:
    """The result of a call on a whole claim.

    `messages`: how many messages the call acknowledged, released or extended. `lost`: how many messages of the claim
    passed their deadline, or are held, released or deleted by others. `failed`: how many failed messages were released,
    or hidden for longer.
    """

    messages: int
    lost: int
    failed: int = 0

    def _repr_html_(self) -> str:
        return render_fields(self, ("messages", "lost", "failed"))
