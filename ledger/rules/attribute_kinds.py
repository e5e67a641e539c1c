"""The queue attributes, SQS's and our own, with ranges and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.rules import limits


@dataclass(frozen=True)
class WholeNumber:
    """An attribute that is a number from `least` to `most`.

    On a queue with Limits=UNBOUNDED, `lifted` replaces `most`, if it is given.
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
    # How long one receipt may hold a message, in all: V7's ceiling and V1's bound.
    "MaximumVisibilityTimeout": WholeNumber(
        limits.MAXIMUM_VISIBILITY_TIMEOUT, 1, limits.MAXIMUM_VISIBILITY_TIMEOUT, limits.MAXIMUM_RETENTION
    ),
    # V8, V9: "fenced" gives the documented errors, "recorded" the recorded behaviour of standard queues. "recorded"
    # accepts late changes, and changes through a receipt that a later receive replaced. On FIFO queues the attribute
    # has no effect.
    "Receipts": Choice(FENCED, (FENCED, "recorded")),
    # "accept" accepts late changes, and no changes through replaced receipts. A call that sets Receipts and not
    # this attribute sets it, too: see `attributes._set_late_change`.
    "LateChange": Choice("reject", ("reject", "accept")),
    # Q4: UNBOUNDED keeps the semantics and lifts the numbers.
    "Limits": Choice("UNBOUNDED", ("UNBOUNDED", "SQS")),
    "Lanes": WholeNumber(limits.DEFAULT_LANES, 1, limits.MAXIMUM_LANES),
    # How many messages the queue may have (0: no bound). Deleted, expired and moved messages do not count. The store
    # refuses a send that would pass the bound.
    "MaximumMessages": WholeNumber(0, 0, limits.MAXIMUM_STORED),
    # How many bytes of the data files the queue's messages may take (0: no bound), as the log of the table has them:
    # compressed. The same messages count as for MaximumMessages.
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
#: Recorded: SQS refuses these attributes for standard queues with a sentence of their own.
ONLY_FIFO = ("DeduplicationScope", "FifoThroughputLimit")
#: The attributes that cannot change after a queue is made, with the bound in the error. The sentence about FifoQueue is
#: recorded.
FIXED_AT_CREATION = {
    "Lanes": "It is fixed when the queue is created",
    "Limits": "It is fixed when the queue is created",
    "FifoQueue": "Modifying queue type is not supported",
}
