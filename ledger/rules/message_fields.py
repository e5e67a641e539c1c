"""A message's fields, each once. What lists them is made of this: the entries that senders give, the columns of tables
that are sent, those of the table `messages` and of its statistics, and those of a claim's DataFrame and of the views.

A field that is added here needs beside it: its place in `Entry` and `StoredMessage` or `Message`, which say its type,
and what a sender may say (`rules.message.entry`, and its twin in `bulk_rows.message_columns`); when it is stored, the
next format of the table `messages` (`store/delta/model/formats.py`). `tests/delta/test_message_fields.py` says which
of them is missing.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """What a field is, for each world's own name of the type."""

    TEXT = "text"
    NUMBER = "number"
    INSTANT = "instant"
    ATTRIBUTES = "message attributes"


class Field(NamedTuple):
    """A field by its name in Python and in all columns that users see, and by SQS's, where SQS has it."""

    name: str
    kind: Kind
    sqs: str | None = None
    #: Whether senders say it: SQS's entries by its SQS name, tables in a column.
    is_given: bool = False
    #: Whether users see it: as an attribute of `Message`, in a claim's DataFrame, and in the view `messages`.
    is_shown: bool = True
    #: Whether it has a column of its own in the table `messages`.
    is_stored: bool = True
    #: Whether each data file says the smallest and the greatest value: what reads leave files out by. The log repeats
    #: it for every file; so it is for what is asked for, and no text of any length.
    has_statistics: bool = False
    #: The column's name, where it has another one.
    stored_as: str | None = None

    @property
    def column(self) -> str:
        """What the table `messages` calls it."""
        return self.stored_as or self.name


TEXT, NUMBER, INSTANT = Kind.TEXT, Kind.NUMBER, Kind.INSTANT
FIELDS = (
    Field("body", TEXT, "MessageBody", is_given=True),
    # Stored as what follows from it: when the message is available.
    Field("delay_seconds", NUMBER, "DelaySeconds", is_given=True, is_shown=False, is_stored=False),
    Field("message_attributes", Kind.ATTRIBUTES, "MessageAttributes", is_given=True),
    Field("message_group_id", TEXT, "MessageGroupId", is_given=True, has_statistics=True),
    Field("message_deduplication_id", TEXT, "MessageDeduplicationId", is_given=True),
    # The one message system attribute that senders say. Its column has the name that the field had at first.
    Field("aws_trace_header", TEXT, "AWSTraceHeader", is_given=True, stored_as="trace_header"),
    # Of FIFO queues; grows in the order of the commits.
    Field("sequence_number", NUMBER, "SequenceNumber", has_statistics=True),
    Field("sent_at", INSTANT, "SentTimestamp", has_statistics=True),
    Field("available_at", INSTANT, is_shown=False, has_statistics=True),
    # Stored among the attributes, see `rules.message_attributes.SENDER`.
    Field("sender_id", TEXT, "SenderId", is_stored=False),
)
#: What senders say.
GIVEN = tuple(field for field in FIELDS if field.is_given)
#: What users see.
SHOWN = tuple(field for field in FIELDS if field.is_shown)
#: What has a column in the table `messages`.
STORED = tuple(field for field in FIELDS if field.is_stored)
