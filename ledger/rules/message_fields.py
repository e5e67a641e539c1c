"""The fields of a message, each listed once.

Entries, columns of tables, DataFrames and views, and the statistics of `messages` are made from this list.

A new field also needs a typed attribute in `Entry`, `StoredMessage` and `Message`. A field that senders give needs a
rule in `rules.message.entry` and in `bulk_rows.message_columns`. A stored field needs the next format of `messages`
(`store/delta/model/formats.py`). The tests in tests/delta/model say what is missing.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    TEXT = "text"
    NUMBER = "number"
    INSTANT = "instant"
    ATTRIBUTES = "message attributes"


class Field(NamedTuple):
    """A field: its name in Python and in all columns that users see, and SQS's name, if any."""

    name: str
    kind: Kind
    sqs: str | None = None
    #: Whether senders give the field, in entries and tables.
    is_given: bool = False
    #: Whether users see the field in `Message`, DataFrames and the view `messages`.
    is_shown: bool = True
    is_stored: bool = True
    #: Whether Delta's log has the field's smallest and greatest value for each data file, by which reads skip files.
    #: The values take room in the log, so no text of unlimited length has them.
    has_statistics: bool = False
    #: The column's name in the table `messages`, if it differs from `name`.
    stored_as: str | None = None

    @property
    def column(self) -> str:
        return self.stored_as or self.name


TEXT, NUMBER, INSTANT = Kind.TEXT, Kind.NUMBER, Kind.INSTANT
FIELDS = (
    Field("body", TEXT, "MessageBody", is_given=True),
    # Only the effect of the delay is stored: `available_at`.
    Field("delay_seconds", NUMBER, "DelaySeconds", is_given=True, is_shown=False, is_stored=False),
    Field("message_attributes", Kind.ATTRIBUTES, "MessageAttributes", is_given=True),
    Field("message_group_id", TEXT, "MessageGroupId", is_given=True, has_statistics=True),
    Field("message_deduplication_id", TEXT, "MessageDeduplicationId", is_given=True),
    # Its column keeps the field's first name.
    Field("aws_trace_header", TEXT, "AWSTraceHeader", is_given=True, stored_as="trace_header"),
    # Only messages of FIFO queues have it. It grows in the order of the commits.
    Field("sequence_number", NUMBER, "SequenceNumber", has_statistics=True),
    Field("sent_at", INSTANT, "SentTimestamp", has_statistics=True),
    Field("available_at", INSTANT, is_shown=False, has_statistics=True),
    # The sender's id is stored among the attributes, see `rules.message_attributes.SENDER`.
    Field("sender_id", TEXT, "SenderId", is_stored=False),
)
GIVEN = tuple(field for field in FIELDS if field.is_given)
SHOWN = tuple(field for field in FIELDS if field.is_shown)
STORED = tuple(field for field in FIELDS if field.is_stored)
