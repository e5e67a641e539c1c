"""The queue attributes, SQS's and our own, with ranges and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.rules import limits


@dataclass(frozen=True)
class WholeNumber:
    """A number from `least` to `most`. With Limits=UNBOUNDED, `lifted` replaces `most`, unless it is None."""

    default: int
    least: int
    most: int
    lifted: int | None = None


@dataclass(frozen=True)
class Choice:
    default: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Text:
    """A short text, absent until it is set. The empty text removes it."""

    longest: int
    default: None = None


@dataclass(frozen=True)
class Document:
    """A JSON document, absent until it is set. The empty text removes it."""

    default: None = None


BOOLEAN = ("false", "true")
FENCED = "fenced"
#: The attributes about encryption are stored and answered, but the ledger encrypts nothing.
KEY, KEY_PERIOD, MANAGED = "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled"
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
OUR_ATTRIBUTES: dict[str, WholeNumber | Choice] = {
    # The longest visibility timeout, and the longest hold by one receipt, extensions included, in seconds.
    "MaximumVisibilityTimeout": WholeNumber(
        limits.MAXIMUM_VISIBILITY_TIMEOUT, 1, limits.MAXIMUM_VISIBILITY_TIMEOUT, limits.MAXIMUM_RETENTION
    ),
    # "fenced" refuses changes through a replaced receipt, as SQS documents. "recorded" accepts these and late changes,
    # as SQS was recorded to do. On FIFO queues the attribute has no effect.
    "Receipts": Choice(FENCED, (FENCED, "recorded")),
    # "accept" accepts late changes, but not through replaced receipts. See also `attributes._set_late_change`.
    "LateChange": Choice("reject", ("reject", "accept")),
    "Limits": Choice("UNBOUNDED", ("UNBOUNDED", "SQS")),
    "Lanes": WholeNumber(limits.DEFAULT_LANES, 1, limits.MAXIMUM_LANES),
    # 0 is no bound. Deleted, expired and moved messages do not count.
    "MaximumMessages": WholeNumber(0, 0, limits.MAXIMUM_STORED),
    # Counts the same messages, compressed in data files. 0 is no bound.
    "MaximumStoredBytes": WholeNumber(0, 0, limits.MAXIMUM_STORED_BYTES),
}
ATTRIBUTES = {**SQS_ATTRIBUTES, **OUR_ATTRIBUTES}
#: An answer in SQS's form leaves these out.
OURS = frozenset(OUR_ATTRIBUTES)
FIFO_ATTRIBUTES: dict[str, Choice] = {
    "FifoQueue": Choice("true", ("true",)),
    "ContentBasedDeduplication": Choice("false", BOOLEAN),
    "DeduplicationScope": Choice("queue", ("queue", "messageGroup")),
    "FifoThroughputLimit": Choice("perQueue", ("perQueue", "perMessageGroupId")),
}
#: For these attributes on a standard queue, SQS has a sentence of its own (recorded): see `attributes.complete`.
ONLY_FIFO = ("DeduplicationScope", "FifoThroughputLimit")
#: Each attribute has its error's bound. FifoQueue's bound is recorded.
FIXED_AT_CREATION = {
    "Lanes": "It is fixed when the queue is created",
    "Limits": "It is fixed when the queue is created",
    "FifoQueue": "Modifying queue type is not supported",
}
