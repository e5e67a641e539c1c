"""The queue attributes, SQS's and our own, with ranges and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.rules import limits


@dataclass(frozen=True)
class WholeNumber:
    """An attribute that is a number from `least` to `most`.

    On a queue with Limits=UNBOUNDED, `lifted` replaces `most`, unless `lifted` is None.
    """

    default: int
    least: int
    most: int
    lifted: int | None = None


@dataclass(frozen=True)
class Choice:
    """An attribute that is one of a few words."""

    default: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Text:
    """An attribute that is a short text, and absent until it is set. The empty text removes it."""

    longest: int
    default: None = None


@dataclass(frozen=True)
class Document:
    """An attribute that is a JSON document, and absent until it is set. The empty text removes it."""

    default: None = None


BOOLEAN = ("false", "true")
FENCED = "fenced"
#: The attributes about encryption. They are stored and answered, but the ledger encrypts nothing.
KEY, KEY_PERIOD, MANAGED = "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled"
#: SQS's attributes of all kinds of queues.
SQS_ATTRIBUTES: dict[str, WholeNumber | Choice | Document | Text] = {
    "VisibilityTimeout": WholeNumber(limits.DEFAULT_VISIBILITY_TIMEOUT, 0, limits.MAXIMUM_VISIBILITY_TIMEOUT),
    "DelaySeconds": WholeNumber(0, 0, limits.MAXIMUM_DELAY),
    "MessageRetentionPeriod": WholeNumber(
        limits.DEFAULT_RETENTION, limits.MINIMUM_RETENTION, limits.MAXIMUM_RETENTION, limits.LONGEST_RETENTION
    ),
    "MaximumMessageSize": WholeNumber(
        limits.MAXIMUM_MESSAGE_BYTES, 1_024, limits.MAXIMUM_MESSAGE_BYTES, limits.LARGEST_MESSAGE_BYTES
    ),
    "ReceiveMessageWaitTimeSeconds": WholeNumber(0, 0, limits.MAXIMUM_WAIT, 86_400),
    "RedrivePolicy": Document(),
    "RedriveAllowPolicy": Document(),
    "Policy": Document(),
    KEY: Text(longest=2_048),
    KEY_PERIOD: WholeNumber(300, 60, 86_400),
    MANAGED: Choice("true", BOOLEAN),
}
#: Our own attributes, which SQS does not know.
OUR_ATTRIBUTES: dict[str, WholeNumber | Choice] = {
    # For how many seconds at most one receipt may hold a message, extensions included. It is also the longest
    # visibility timeout.
    "MaximumVisibilityTimeout": WholeNumber(
        limits.MAXIMUM_VISIBILITY_TIMEOUT, 1, limits.MAXIMUM_VISIBILITY_TIMEOUT, limits.MAXIMUM_RETENTION
    ),
    # "fenced" refuses changes through a receipt that a later receive replaced, as SQS documents. "recorded" accepts
    # these changes, and late changes, as SQS was recorded to do. On FIFO queues the attribute has no effect.
    "Receipts": Choice(FENCED, (FENCED, "recorded")),
    # "accept" accepts late changes, but not through replaced receipts. A call that sets only Receipts also sets
    # LateChange: see `attributes._set_late_change`.
    "LateChange": Choice("reject", ("reject", "accept")),
    # UNBOUNDED keeps SQS's semantics without most of its bounds: see `limits.Limits`.
    "Limits": Choice("UNBOUNDED", ("UNBOUNDED", "SQS")),
    "Lanes": WholeNumber(limits.DEFAULT_LANES, 1, limits.MAXIMUM_LANES),
    # How many messages the queue may have (0: no bound), without deleted, expired and moved ones. The store refuses a
    # send that would exceed this number.
    "MaximumMessages": WholeNumber(0, 0, limits.MAXIMUM_STORED),
    # How many bytes the queue's messages may take in data files, compressed (0: no bound). The same messages count as
    # for MaximumMessages.
    "MaximumStoredBytes": WholeNumber(0, 0, limits.MAXIMUM_STORED_BYTES),
}
ATTRIBUTES = {**SQS_ATTRIBUTES, **OUR_ATTRIBUTES}
#: The names of our own attributes. An answer in SQS's form leaves them out.
OURS = frozenset(OUR_ATTRIBUTES)
#: The attributes that only FIFO queues have.
FIFO_ATTRIBUTES: dict[str, Choice] = {
    "FifoQueue": Choice("true", ("true",)),
    "ContentBasedDeduplication": Choice("false", BOOLEAN),
    "DeduplicationScope": Choice("queue", ("queue", "messageGroup")),
    "FifoThroughputLimit": Choice("perQueue", ("perQueue", "perMessageGroupId")),
}
#: For these attributes on a standard queue, SQS has a sentence of its own (recorded): see `attributes.complete`.
ONLY_FIFO = ("DeduplicationScope", "FifoThroughputLimit")
#: The attributes that cannot change after a queue is made, each with its error's bound. FifoQueue's bound is recorded.
FIXED_AT_CREATION = {
    "Lanes": "It is fixed when the queue is created",
    "Limits": "It is fixed when the queue is created",
    "FifoQueue": "Modifying queue type is not supported",
}
