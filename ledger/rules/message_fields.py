"""The fields of a message, each listed once.

The fields of entries are made from this list. So are the columns of the tables and DataFrames that callers send, of
claims' DataFrames and of the views, and the columns and statistics of the ledger's table `messages`.

A new field also needs a typed attribute in each of the classes `Entry`, `StoredMessage` and `Message` that shall have
the field. A field that senders give needs a rule for its value in `rules.message.entry`, and the same rule in
`bulk_rows.message_columns`. A stored field needs the next format of the table `messages`
(`store/delta/model/formats.py`). The test `tests/delta/model/test_message_fields.py` says which attribute or rule is
missing. The test `test_formats.py` in that folder says whether a format is missing.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """The kind of a field, for which Python, Arrow and Spark each have their own type."""

    TEXT = "text"
    NUMBER = "number"
    INSTANT = "instant"
    ATTRIBUTES = "message attributes"


class Field(NamedTuple):
    """A field: its name in Python and in all columns that users see, and SQS's name, if any."""

    name: str
    kind: Kind
    sqs: str | None = None
    #: Whether senders give the field: in SQS's entries by its SQS name, in tables and DataFrames by a column.
    is_given: bool = False
    #: Whether users see the field: as an attribute of `Message`, in a claim's DataFrame, and in the view `messages`.
    is_shown: bool = True
    #: Whether the field has its own column in the table `messages`.
    is_stored: bool = True
    #: Whether Delta's log has the field's smallest and greatest value for each data file. Reads skip files by these
    #: values. The values take room in the log, so only fields by which reads filter have them, and no text of unlimited
    #: length.
    has_statistics: bool = False
    #: The column's name in the table `messages`, if it differs from `name`.
    stored_as: str | None = None

    @property
    def column(self) -> str:
        """The field's name in the table `messages`."""
        return self.stored_as or self.name


TEXT, NUMBER, INSTANT = Kind.TEXT, Kind.NUMBER, Kind.INSTANT
FIELDS = (
    Field("body", TEXT, "MessageBody", is_given=True),
    # Only the effect of the delay is stored: `available_at`.
    Field("delay_seconds", NUMBER, "DelaySeconds", is_given=True, is_shown=False, is_stored=False),
    Field("message_attributes", Kind.ATTRIBUTES, "MessageAttributes", is_given=True),
    Field("message_group_id", TEXT, "MessageGroupId", is_given=True, has_statistics=True),
    Field("message_deduplication_id", TEXT, "MessageDeduplicationId", is_given=True),
    # The one message system attribute that senders give. Its column still has the name that the field had at first.
    Field("aws_trace_header", TEXT, "AWSTraceHeader", is_given=True, stored_as="trace_header"),
    # Only messages of FIFO queues have a sequence number. The number grows in the order of the commits.
    Field("sequence_number", NUMBER, "SequenceNumber", has_statistics=True),
    Field("sent_at", INSTANT, "SentTimestamp", has_statistics=True),
    Field("available_at", INSTANT, is_shown=False, has_statistics=True),
    # The sender's id is stored among the attributes, see `rules.message_attributes.SENDER`.
    Field("sender_id", TEXT, "SenderId", is_stored=False),
)
#: The fields that senders give.
GIVEN = tuple(field for field in FIELDS if field.is_given)
#: The fields that users see.
SHOWN = tuple(field for field in FIELDS if field.is_shown)
#: The fields that have a column in the table `messages`.
STORED = tuple(field for field in FIELDS if field.is_stored)
