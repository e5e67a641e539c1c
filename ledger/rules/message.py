"""The rules for a message: its fields, and checks at a send (Q6, F1, F2, M1, M2 of docs/reference/rules.md).

Entries, columns of tables, DataFrames and views, and the statistics of `messages` are made from FIELDS.

A new field also needs a typed attribute in `Entry`, `StoredMessage` and `Message`. A field that senders give needs a
rule in `rules.message.entry` and in `bulk_rows.message_columns`. A stored field needs the next format of `messages`
(`store/delta/model/tables.py`). The tests in tests/delta/model say what is missing.

A column of a table of messages is *meaningful* if it has the name of a field that senders give (GIVEN).
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from ledger.errors import InvalidMessageContents, InvalidParameterValue, MissingParameter
from ledger.rules import limits
from ledger.rules import message_attributes as attribute_rules
from ledger.rules.attributes import is_fifo
from ledger.rules.message_attributes import Attribute, require_characters, size_of
from ledger.rules.text import find_forbidden_character


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
    # The column has the field's former name.
    Field("aws_trace_header", TEXT, "AWSTraceHeader", is_given=True, stored_as="trace_header"),
    # Only messages of FIFO queues have a sequence number. It grows in the order of the commits.
    Field("sequence_number", NUMBER, "SequenceNumber", has_statistics=True),
    Field("sent_at", INSTANT, "SentTimestamp", has_statistics=True),
    Field("available_at", INSTANT, is_shown=False, has_statistics=True),
    # The sender's id is stored among the attributes, see `rules.message_attributes.SENDER`.
    Field("sender_id", TEXT, "SenderId", is_stored=False),
)
GIVEN = tuple(field for field in FIELDS if field.is_given)
SHOWN = tuple(field for field in FIELDS if field.is_shown)
STORED = tuple(field for field in FIELDS if field.is_stored)


#: Recorded: "can only include alphanumeric and punctuation characters. 1 to 128 in length."
IDENTIFIER = r"[!-~]{1,128}"
#: SQS's first sentence about a message that is too long, sent alone (recorded) and in a batch.
_INVALID, _NOT_VALIDATED = "One or more parameters are invalid.", "One or more parameters cannot be validated."
AS_JSON = "To send it as a JSON body, send json.dumps of it; rows of a table without a column body are sent so."
NOT_IN_JSON = "It holds a number that JSON has no way to write (NaN or infinite)"
NOT_FOR_THIS_QUEUE = "The request include parameter that is not valid for this queue type"


class Entry(NamedTuple):
    """A checked message to be sent. For a FIFO queue it has a group id and a deduplication id."""

    body: str
    delay_seconds: int = 0
    message_attributes: Mapping[str, Attribute] = {}
    message_group_id: str | None = None
    message_deduplication_id: str | None = None
    aws_trace_header: str | None = None

    @property
    def group(self) -> str:
        return self.message_group_id or ""

    @property
    def deduplication(self) -> str:
        return self.message_deduplication_id or ""


_NAMES = {field.sqs: field.name for field in GIVEN}
_GIVEN = {field.name for field in GIVEN}
#: The meaningful columns of a table for a FIFO queue whose rows are sent whole: each row is one JSON body.
WITH_WHOLE_ROWS = ("message_group_id", "message_deduplication_id")
#: Other names of meaningful columns, without separators between words.
_OTHER_NAMES = {
    "groupid": "message_group_id",
    "deduplicationid": "message_deduplication_id",
    "dedupid": "message_deduplication_id",
    "dedupeid": "message_deduplication_id",
    "delay": "delay_seconds",
    "attributes": "message_attributes",
    "messagebody": "body",
}
#: Names that are refused for a column, and the meaningful column to use instead.
_COLUMNS = {name: field.name for field in GIVEN for name in (field.sqs, field.stored_as) if name is not None}


def parse_entry(
    given: object, queue: Mapping[str, str], common: Mapping[str, object], *, in_batch: bool = False
) -> Entry:
    """Return an entry from a body, or from a mapping with SQS's names. `common` has the values that `given` lacks.

    `in_batch` selects SQS's other words for a message that is too long. Raises the errors of `body`.
    """
    if in_batch:
        try:
            return parse_entry(given, queue, common)
        except InvalidParameterValue as error:
            error.message = error.message.replace(_INVALID, _NOT_VALIDATED, 1)
            raise
    if not isinstance(given, Mapping):
        return entry(given, queue, **common)
    unknown = sorted(set(given) - set(_NAMES), key=str)
    if unknown:
        corrections = [f"; write {sqs} for {unknown[0]}" for sqs, name in _NAMES.items() if name == unknown[0]]
        bound = f"An entry has {', '.join(map(str, _NAMES))}{''.join(corrections)}"
        raise InvalidParameterValue("messages", unknown[0], bound, "" if corrections else AS_JSON)
    if "MessageBody" not in given:
        raise MissingParameter("MessageBody")
    own = {_NAMES[name]: value for name, value in given.items()}
    return entry(own.pop("body"), queue, **{**common, **own})


def require_columns(names: Iterable[str], body: str | None = None) -> None:
    """Raise InvalidParameterValue for a table with a wrong column name.

    A repeated name, a name of `_COLUMNS`, and a meaningful name in other capitals (except `body`, the user's column of
    bodies) are wrong.
    """
    seen = set[str]()
    for name in names:
        if name in seen:
            raise InvalidParameterValue("column", name, "The table has two columns of this name", "Rename one.")
        seen.add(name)
        lower_name = name.lower()
        if lower_name != name and lower_name in _GIVEN and name != body:
            bound = f"It differs from the column {lower_name}, which means something, in its capitals only"
            raise InvalidParameterValue("column", name, bound, f"Rename it: {lower_name}, or a word of its own.")
        if name in _COLUMNS:
            bound = f"A table has it in the column {_COLUMNS[name]}"
            raise InvalidParameterValue("column", name, bound, "Rename the column. Nothing was sent.")


def find_resembled_column(name: str, absent: Collection[str]) -> str | None:
    """Return the column of `absent` that a name resembles: message_group_id for `messageGroupId` and `group_id`."""
    plain = re.sub(r"[\W_]", "", name.lower())
    for column in absent:
        if plain == column.replace("_", "") or _OTHER_NAMES.get(plain) == column:
            return column
    near = difflib.get_close_matches(name.lower(), absent, 1, 0.8)
    return near[0] if near else None


def describe_column(name: str, absent: Collection[str]) -> str:
    resembled = find_resembled_column(name, absent)
    return name if resembled is None else f"{name} (is {resembled} meant?)"


def list_unsent_columns(names: Iterable[str], body: str | None) -> list[str]:
    """Return the columns that are not sent, because they have no meaning next to a column of bodies."""
    columns = list(names)
    if (body or "body") not in columns:
        return []
    absent = [name for name in _GIVEN if name not in columns and name != "body"]
    # If `body` names another column, the column "body" does not have the bodies.
    counted = {*(_GIVEN - {"body"}), body or "body"}
    return [describe_column(name, absent) for name in columns if name not in counted]


def list_mistaken_columns(names: Iterable[str], body: str | None, *, fifo: bool) -> list[str]:
    """Return the probably mistaken columns of a table whose rows are sent whole.

    A column is mistaken if it resembles an absent column of bodies or, for a FIFO queue, an absent one of
    WITH_WHOLE_ROWS. A meaningful column that whole rows do not use, such as `delay_seconds`, is mistaken, too.
    """
    columns = list(names)
    if (body or "body") in columns:
        return []
    counted = WITH_WHOLE_ROWS if fifo else ()
    absent = [name for name in ("body", *counted) if name not in columns]
    nearly = [describe_column(name, absent) for name in columns if find_resembled_column(name, absent) is not None]
    return [*nearly, *(f"{name} (is not applied)" for name in columns if name in _GIVEN and name not in counted)]


def require_group(names: Iterable[str]) -> None:
    columns, group = list(names), "message_group_id"
    if group not in columns:
        near = [name for name in columns if find_resembled_column(name, [group]) is not None]
        fix = f"Rename {near[0]}, if it is meant, or add it to the table." if near else "Add it to the table."
        raise InvalidParameterValue("column", group, "A FIFO queue needs it", fix)


def entry(
    text: object,
    queue: Mapping[str, str],
    *,
    delay_seconds: object = None,
    message_attributes: object = None,
    message_group_id: object = None,
    message_deduplication_id: object = None,
    aws_trace_header: object = None,
) -> Entry:
    """Return a checked message for a queue whose attributes are `queue`. Raises the errors of `body`."""
    most = int(queue["MaximumMessageSize"])
    attributes = attribute_rules.parse_message_attributes(message_attributes)
    checked = body(text, most)
    require_size(Entry(checked, message_attributes=attributes), queue)
    fifo = is_fifo(queue)
    group = _check_identifier("MessageGroupId", message_group_id)
    deduplication = _check_identifier("MessageDeduplicationId", message_deduplication_id)
    if fifo and group is None:
        raise MissingParameter("MessageGroupId")
    if deduplication is not None and not fifo:
        raise InvalidParameterValue("MessageDeduplicationId", deduplication, NOT_FOR_THIS_QUEUE)
    if fifo and deduplication is None:
        if queue["ContentBasedDeduplication"] != "true":
            raise InvalidParameterValue(
                "MessageDeduplicationId", None, NO_DEDUPLICATION_ID, message=NO_DEDUPLICATION_ID
            )
        deduplication = content_digest(checked)
    if aws_trace_header is not None and not isinstance(aws_trace_header, str):
        raise InvalidParameterValue("AWSTraceHeader", aws_trace_header, "Must be a string")
    require_characters("AWSTraceHeader", "AWSTraceHeader", aws_trace_header or "")
    return Entry(checked, choose_delay(delay_seconds, queue), attributes, group, deduplication, aws_trace_header)


NO_DEDUPLICATION_ID = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
)


def fails_the_batch(error: Exception) -> bool:
    """Return whether the error of one entry fails the whole call (M2).

    Source: the scenario `send_batch_missing_deduplication_id_for_fifo_queue` (tests/recorded).
    """
    if isinstance(error, MissingParameter):
        return error.field == "MessageGroupId"
    return isinstance(error, InvalidParameterValue) and error.bound == NO_DEDUPLICATION_ID


def require_common(
    queue: Mapping[str, str],
    *,
    delay_seconds: object,
    message_attributes: object,
    message_group_id: object,
    message_deduplication_id: object,
) -> None:
    choose_delay(delay_seconds, queue)
    attribute_rules.parse_message_attributes(message_attributes)
    _check_identifier("MessageGroupId", message_group_id)
    deduplication = _check_identifier("MessageDeduplicationId", message_deduplication_id)
    if deduplication is not None and not is_fifo(queue):
        raise InvalidParameterValue("MessageDeduplicationId", deduplication, NOT_FOR_THIS_QUEUE)


def body(text: object, maximum_bytes: int) -> str:
    """Return `text` if it can be a body (M1): 1 byte to the queue's MaximumMessageSize in UTF-8.

    Raises MissingParameter without a text (recorded), InvalidMessageContents for a character that SQS refuses, and
    InvalidParameterValue.
    """
    if text is None or (isinstance(text, str) and not text):
        raise MissingParameter("MessageBody")
    if not isinstance(text, str):
        raise InvalidParameterValue(
            "MessageBody", text, "Must be a string", "Encode other values, for example as JSON."
        )
    refused = find_forbidden_character(text)
    if refused is not None:
        raise InvalidMessageContents(refused)
    size = len(text.encode())
    if size > maximum_bytes:
        raise make_size_error(text, maximum_bytes, f"MessageBody has {size} bytes")
    return text


def size_of_message(entry: Entry) -> int:
    return len(entry.body.encode()) + size_of(entry.message_attributes)


def require_size(given: Entry, queue: Mapping[str, str]) -> None:
    most = int(queue["MaximumMessageSize"])
    size = size_of_message(given)
    if size > most:
        raise make_size_error(given.body, most, f"With its attributes it has {size} bytes")


def make_size_error(text: str, maximum_bytes: int, has: str = "It has more") -> InvalidParameterValue:
    bound = f"Message must be shorter than {maximum_bytes} bytes"
    return InvalidParameterValue(
        "MessageBody",
        text,
        bound,
        f"{has} and must have 1 to {maximum_bytes} (MaximumMessageSize). Raise the queue's MaximumMessageSize, or send "
        "a pointer to the data.",
        message=f"{_INVALID} Reason: {bound}.",
    )


def choose_delay(seconds: object, queue: Mapping[str, str]) -> int:
    """Return a message's own delay of 0 to 900 s, or else the queue's delay (Q6).

    FIFO queues refuse a message's own delay, except 0. Recorded: it "defaults to queue delay".
    """
    default = int(queue["DelaySeconds"])
    if seconds is None:
        return default
    most = limits.MAXIMUM_DELAY
    checked = limits.check_whole_number(
        "DelaySeconds", seconds, 0, most, bound=f"DelaySeconds must be >= 0 and <= {most}"
    )
    if not is_fifo(queue):
        return checked
    if checked:
        raise InvalidParameterValue("DelaySeconds", seconds, NOT_FOR_THIS_QUEUE, "Set the queue's DelaySeconds.")
    return default


def content_digest(text: str) -> str:
    """Return the content-based deduplication id of a body (F1).

    SQS "uses a SHA-256 hash [...] using the body of the message (but not the attributes of the message)".
    """
    return hashlib.sha256(text.encode()).hexdigest()


def deduplication_key(queue: Mapping[str, str], group: str, deduplication_id: str) -> tuple[str, str]:
    """Return the key that repeated messages share."""
    return (group if queue["DeduplicationScope"] == "messageGroup" else ""), deduplication_id


def require_no_attempt(attempt_id: object, queue: Mapping[str, str]) -> None:
    """Refuse an attempt id on a FIFO queue, which recognizes a repeated send by its deduplication ids (F1)."""
    if attempt_id is not None and is_fifo(queue):
        raise InvalidParameterValue(
            "attempt_id", attempt_id, "A FIFO queue knows a repeated send by its deduplication id", "Leave it out."
        )


def _check_identifier(field: str, value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or not re.fullmatch(IDENTIFIER, value)):
        raise InvalidParameterValue(
            field, value, f"{field} can only include alphanumeric and punctuation characters. 1 to 128 in length"
        )
    return value


_SEPARATORS = ";\t|"
_OTHER_SEPARATOR = re.compile(f"[{_SEPARATORS}]")


def explain_wrong_header(names: Sequence[str], body: str | None) -> str | None:
    """Return why a file with this header is refused, or None. `body` is the user's name for the column of bodies."""
    double = [name for name, count in Counter(names).items() if count > 1]
    if double:
        return f"The header has two columns {double[0]!r}."
    spaced = next((name for name in names if name != name.strip() and name != body), None)
    if spaced is not None:
        return f"The header has a column {spaced!r}, with spaces around its name: remove the spaces."
    if len(names) == 1 and names[0] != body and (mark := _OTHER_SEPARATOR.search(names[0])):
        return (
            f"The header is one column {names[0]!r}: are its columns separated by {mark[0]!r}? Separate them by "
            "commas. If it is one column, name it with --body."
        )
    for separator in _SEPARATORS:
        parted = [name for name in names if separator in name and name != body]
        if len(parted) > 1:
            return (
                f"The header has {separator!r} in several columns, {parted[0]!r} and {parted[1]!r}: are its columns "
                "separated by it? Separate them by commas. If not, rename these columns."
            )
    return None
