"""A DataFrame to be sent, read into columns of messages: bodies, and what else its rows say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, NamedTuple

from ledger.errors import InvalidMessageContents, InvalidParameterValue, LedgerError, MissingParameter, StorageFailed
from ledger.output_tables.row_errors import failure_of_storage, is_of_function, raised_in_sql, row_error
from ledger.rules import message_attributes
from ledger.rules.attributes import is_fifo
from ledger.rules.limits import MAXIMUM_DELAY, MAXIMUM_MESSAGE_ATTRIBUTES
from ledger.rules.message import (
    IDENTIFIER,
    NO_DEDUPLICATION_ID,
    NOT_FOR_THIS_QUEUE,
    NOT_IN_JSON,
    WITH_WHOLE_ROWS,
    require_columns,
    require_group,
    too_long,
)
from ledger.rules.message_fields import GIVEN, Kind
from ledger.rules.text import CONTROLS, FORBIDDEN, NONE_AT_ALL, PLAIN
from ledger.store.delta.dataframes.column_casts import (
    SHOWN_CHARACTERS,
    not_finite_conditions,
    not_utf8_conditions,
    schema_of,
)
from ledger.store.delta.dataframes.columns import quoted
from ledger.store.delta.model.tables import MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: How a task says that a row cannot be sent: the field and the bound stand behind it.
REFUSED = "ledger refuses a row:"
#: What stands there instead of a field when the refusal has an error, or words, of its own.
MISSING, CHARACTER, TOO_LONG = "missing", "character", "too long"
#: What stands there instead of a value that is null, or helps nobody.
NULL, UNSHOWN = "null", "unshown"
#: Field, bound, where it is and its value: not the expressions that make them, which plans in errors show.
_REFUSAL = re.compile(rf"{REFUSED}([^|]*)\|([^|]*)\|([0-9a-f]*)\|([0-9A-F]*|{NULL}|{UNSHOWN})\|")
#: Instead of a character's name.
NO_UTF_8 = "no UTF-8"
#: How instants are written in JSON: with all that Spark keeps of them. It cuts microseconds off by itself.
ALL_DIGITS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
#: Which types the columns of each kind may have.
TYPES = {
    Kind.TEXT: ("string",),
    Kind.NUMBER: ("int", "bigint", "smallint", "tinyint"),
    Kind.ATTRIBUTES: (
        "map<string,string>",
        "map<string,struct<data_type:string,string_value:string,binary_value:binary>>",
    ),
}
#: Beside the body: the columns that mean something when a DataFrame has them.
MEANINGFUL = {field.name: TYPES[field.kind] for field in GIVEN if field.name != "body"}


def message_columns(
    frame: DataFrame,
    queue: Mapping[str, str],
    body: str | None,
    *,
    checks_bodies: bool = True,
    fields: Collection[str] | None = None,
) -> dict[str, Column]:
    """Return a column for each field that senders give, under the field's name, of what a DataFrame's rows say. Each
    fails its task when a row's value is refused; that of the bodies only if it `checks_bodies`. `fields`: those that
    are wanted; None: all."""
    from pyspark.sql import functions as F

    fifo, kinds = is_fifo(queue), dict(frame.dtypes)
    require_columns(frame.columns, body)
    text = _body(frame, body)
    as_json = body is None and "body" not in kinds
    # A row that is sent as JSON as a whole keeps its columns to itself, but for what a FIFO queue asks of each.
    counted = [name for name in MEANINGFUL if not as_json or (fifo and name in WITH_WHOLE_ROWS)]
    named = {name: kinds[name] for name in counted if name in kinds}
    for name, kind in named.items():
        if kind not in MEANINGFUL[name]:
            raise InvalidParameterValue(
                "column", name, f"It is {kind} and must be {' or '.join(MEANINGFUL[name])}", "Cast it."
            )
    if fifo:
        require_group(frame.columns)
    most, size = int(queue["MaximumMessageSize"]), F.octet_length(text)

    def text_of(name: str) -> Column:
        return F.col(name) if name in named else F.lit(None).cast("string")

    makers: dict[str, Callable[[], Column]] = {
        "body": lambda: _sendable(text, most, place_of_bodies(kinds, body)) if checks_bodies else text,
        "delay_seconds": lambda: _delay(queue, "delay_seconds" in named),
        "message_group_id": lambda: _identifier(
            text_of("message_group_id"), "MessageGroupId", "message_group_id", _no_group() if fifo else None
        ),
        "message_deduplication_id": lambda: _deduplication(queue, text, "message_deduplication_id" in named),
        "message_attributes": lambda: _attributes(named.get("message_attributes"), _room_beside(size, most)),
        "aws_trace_header": lambda: _trace_header(text_of("aws_trace_header")),
    }
    return {name: make() for name, make in makers.items() if fields is None or name in fields}


def _room_beside(size: Column, most: int) -> Column:
    """Return how many bytes attributes may have beside a body of this size.

    A body that is missing or too long by itself is refused for that, and not for its attributes.
    """
    from pyspark.sql import functions as F

    return F.when(size <= most, F.lit(most) - size).otherwise(F.lit(most))


def place_of_bodies(columns: Collection[str], body: str | None) -> str:
    """Return where a DataFrame with these columns has its bodies, in words."""
    return "its JSON" if body is None and "body" not in columns else f"the column {body or 'body'}"


class Fingerprint(NamedTuple):
    """What tells the rows of a send from those of another one: their count, and the sum of their hashes."""

    rows: int
    hashes: int

    @classmethod
    def of(cls, values: Sequence[Any]) -> Fingerprint:
        """Read what `fingerprint` aggregated; the sum of no hashes is null."""
        return cls(int(values[0]), int(values[1] or 0))


def fingerprint() -> list[Column]:
    """Aggregates of `message_columns`: their count, and the sum of their hashes, which no order changes."""
    from pyspark.sql import functions as F

    attributes = F.array_sort(F.map_entries("message_attributes"))
    row = F.xxhash64("body", F.coalesce("message_group_id", F.lit("")), attributes, "aws_trace_header")
    return [F.count(F.lit(1)).alias("count"), F.sum(row.cast("decimal(20, 0)")).alias("hashes")]


class Watch:
    """Watches what rows are written, at the cost of their hashes.

    `counted`: what an earlier evaluation of them came to; None: there was none, and nothing is watched.
    """

    def __init__(self, counted: Fingerprint | None) -> None:
        self._counted = counted
        self._observation: Any = None

    def over(self, rows: DataFrame) -> DataFrame:
        """Return rows of `message_columns` that are watched from now on, instead of those before them."""
        from pyspark.sql import Observation

        if self._counted is None:
            return rows
        self._observation = Observation()
        return rows.observe(self._observation, *fingerprint())

    def require_same(self) -> None:
        """Raise InvalidParameterValue where the evaluation that was written came to other rows. A session that reports
        no observation is not checked."""
        seen = self._observation and self._observation.get
        if not seen or self._counted is None:
            return
        written = Fingerprint.of([seen["count"], seen["hashes"]])
        if written == self._counted:
            return
        how = f"{self._counted.rows:,} rows and then {written.rows:,}"
        raise InvalidParameterValue(
            "messages",
            "a DataFrame",
            "Under an attempt_id its rows are computed twice, once to know the send again and once to write it; they "
            f"came out differently: {'other values' if written.rows == self._counted.rows else how}",
            "Nothing was sent. Write the rows to a table and send that, or send frame.localCheckpoint().",
        )


def _delay(queue: Mapping[str, str], is_given: bool) -> Column:
    from pyspark.sql import functions as F

    default = F.lit(int(queue["DelaySeconds"])).cast("bigint")
    if not is_given:
        return default
    if is_fifo(queue):
        none = F.coalesce(F.col("delay_seconds"), F.lit(0)) == 0
        given = F.col("delay_seconds")
        return checked(default, none, "DelaySeconds", NOT_FOR_THIS_QUEUE, "bigint", "delay_seconds", given)
    given = F.coalesce(F.col("delay_seconds").cast("bigint"), default)
    return checked(
        given,
        given.between(0, MAXIMUM_DELAY),
        "DelaySeconds",
        f"A row's delay must be from 0 to {MAXIMUM_DELAY}",
        "bigint",
        "delay_seconds",
        given,
    )


def _deduplication(queue: Mapping[str, str], text: Column, is_given: bool) -> Column:
    from pyspark.sql import functions as F

    field, column, nothing = "MessageDeduplicationId", "message_deduplication_id", F.lit(None).cast("string")
    given = F.col(column) if is_given else nothing
    if not is_fifo(queue):
        return checked(nothing, given.isNull(), field, NOT_FOR_THIS_QUEUE, column=column, given=given)
    if queue["ContentBasedDeduplication"] == "true":
        given = F.coalesce(given, F.sha2(text, 256))
    elif not is_given:
        raise InvalidParameterValue(
            "column", "message_deduplication_id", NO_DEDUPLICATION_ID, "Add it to the DataFrame."
        )
    none = _refuse(field, F.lit(NO_DEDUPLICATION_ID), at=f"the column {column}", value=nothing)
    return _identifier(given, field, column, none)


def _no_group() -> Column:
    from pyspark.sql import functions as F

    return _refuse(MISSING, F.lit("MessageGroupId"), at="the column message_group_id", value=F.lit(None))


def _trace_header(given: Column) -> Column:
    from pyspark.sql import functions as F

    said = "It holds a character that the service does not take"
    right = F.coalesce(_has_right_characters(given), given.isNull())
    return checked(given, right, "AWSTraceHeader", said, column="aws_trace_header", given=given)


def _attributes(kind: str | None, room: Column) -> Column:
    """Twin of rules.message_attributes: what it refuses, and what has no room beside the body, fails its task."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_type

    stored = from_arrow_type(MESSAGES.field("message_attributes").type)
    if kind is None:
        return F.lit(None).cast(stored)
    given = F.col("message_attributes")
    if kind == "map<string,string>":
        one = "named_struct('data_type', 'String', 'string_value', value, 'binary_value', CAST(NULL AS BINARY))"
        given = F.expr(f"transform_values(message_attributes, (name, value) -> {one})")
    given = F.transform_values(given.cast(stored), lambda name, one: _of_one_kind(one)).cast(stored)
    entries = F.map_entries(given)
    size = F.aggregate(entries, F.lit(0), lambda so_far, entry: so_far + _size_of(entry))
    # A map that was read from a file or from Arrow may have a key twice: which value counts is a guess.
    once = F.size(F.array_distinct(F.map_keys(given))) == F.size(given)
    right = F.forall(entries, _is_attribute) & (F.size(given) <= MAXIMUM_MESSAGE_ATTRIBUTES) & once
    said = (
        f"A row has more than {MAXIMUM_MESSAGE_ATTRIBUTES} attributes, one of them twice, or one whose name, type or "
        "value is none"
    )
    shown = F.to_json("message_attributes")
    sound = checked(
        given, given.isNull() | right, "MessageAttributes", said, stored, column="message_attributes", given=shown
    )
    too_large = _refuse(TOO_LONG, F.lit(""), stored, "the column message_attributes, beside its body,", shown)
    return F.when(given.isNull() | (size <= room), sound).otherwise(too_large)


def _of_one_kind(one: Column) -> Column:
    """The attribute with the value that its type asks for, and not the other."""
    from pyspark.sql import functions as F

    kind = one["data_type"]
    text, binary = (
        F.when(~kind.startswith("Binary"), one["string_value"]),
        F.when(kind.startswith("Binary"), one["binary_value"]),
    )
    return F.struct(kind.alias("data_type"), text.alias("string_value"), binary.alias("binary_value"))


def _is_attribute(entry: Column) -> Column:
    from pyspark.sql import functions as F

    name, kind = entry["key"], entry["value"]["data_type"]
    text, binary = entry["value"]["string_value"], entry["value"]["binary_value"]
    longest = message_attributes.LONGEST_NAME
    named = name.rlike(_whole(message_attributes.JAVA_NAME)) & (F.length(name) <= longest)
    typed = kind.rlike(_whole(message_attributes.TYPE)) & (F.length(kind) <= longest)
    number = ~kind.startswith("Number") | text.rlike(_whole(message_attributes.NUMBER))
    said = (F.length(text) > 0) & number & _has_right_characters(text)
    value = F.when(kind.startswith("Binary"), F.octet_length(binary) > 0).otherwise(said)
    return F.coalesce(named & typed & value, F.lit(False))


def _size_of(entry: Column) -> Column:
    """Twin of rules.message_attributes.size_of, of one attribute."""
    from pyspark.sql import functions as F

    one = entry["value"]
    value = F.coalesce(F.octet_length(one["binary_value"]), F.octet_length(one["string_value"]), F.lit(0))
    return F.octet_length(entry["key"]) + F.coalesce(F.octet_length(one["data_type"]), F.lit(0)) + value


def _whole(pattern: str) -> str:
    """A pattern that matches whole texts only; Java's $ would let a line end pass."""
    return rf"\A(?:{pattern})\z"


def refusal(error: Exception, queue: Mapping[str, str]) -> LedgerError | None:
    """What a send to a queue failed for before anything was sent: a row was refused, or Spark did not compute it. None
    where the rows had no part in it: the process is told to end, say."""
    found = raised_in_sql(error, _REFUSAL)
    if found is None:
        return full_disk(error, "Spark's own files (spark.local.dir)") or _not_computed(error)
    field, bound, column, shown = found.groups()
    return refused_row(field, bound, _decoded(column) or "", shown, queue)


def refused_row(field: str, bound: str, column: str, shown: str, queue: Mapping[str, str]) -> LedgerError:
    """Return the error about a row that a task has refused.

    Args:
        field: The field that is wrong, or MISSING, CHARACTER or TOO_LONG.
        bound: What the value breaks; of these three the missing field, or the character.
        column: Where the row has it, in words.
        shown: The beginning of the value in hexadecimal digits, or NULL, or UNSHOWN.
        queue: The attributes of the queue that it was sent to.
    """
    value = _decoded(shown)
    if field == MISSING:
        refused: LedgerError = MissingParameter(bound)
    elif field == CHARACTER:
        refused = InvalidMessageContents(bound)
    elif field == TOO_LONG:
        refused = too_long("of a row", int(queue["MaximumMessageSize"]))
    else:
        refused = InvalidParameterValue(field, "of a row" if shown == UNSHOWN else value or shown, bound)
    if column:
        refused.advised(f"A row has it in {column}." if shown == UNSHOWN else f"In a row {column} is {_quoted(value)}.")
    return refused.advised("Nothing was sent. Filter such rows.")


def full_disk(error: Exception, place: str) -> StorageFailed | None:
    """The error of a send that a full or failing disk ended; None where it ended otherwise. `place`: where it wrote."""
    full = failure_of_storage(error)
    return None if full is None else StorageFailed(place, full, "send")


def _not_computed(error: Exception) -> LedgerError | None:
    if not is_of_function(error):
        return None
    bound = f"Spark could not compute its rows, or not write them: {row_error(error).text}"
    fix = "Nothing was sent. Mend what computes the rows, or filter those that it fails for."
    return InvalidParameterValue("messages", "a DataFrame", bound, fix)


def _decoded(shown: str) -> str | None:
    """The text behind hexadecimal digits; None for what stands there instead of a value that is null."""
    return None if shown in (NULL, UNSHOWN) else bytes.fromhex(shown).decode("utf-8", "backslashreplace")


def _quoted(value: str | None) -> str:
    if value is None:
        return "null"
    return repr(value if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]}...")


def _sendable(text: Column, most: int, at: str) -> Column:
    """Twin of rules.message.body. `at`: where rows have it, in words."""
    from pyspark.sql import functions as F

    size = F.octet_length(text)
    first = F.regexp_extract(text, FORBIDDEN, 0)
    # Bytes that are no UTF-8 are no character, and have no name.
    name = F.concat(F.lit("#x"), F.regexp_replace(F.hex(F.encode(first, "UTF-16BE")), "^0+(?=.)", ""))
    named = F.when(F.is_valid_utf8(text), name).otherwise(F.lit(NO_UTF_8))
    return (
        F.when(F.coalesce(size, F.lit(0)) == 0, _refuse(MISSING, F.lit("MessageBody"), at=at, value=text))
        .when(size > most, _refuse(TOO_LONG, F.lit(""), at=at, value=text))
        .when(_has_right_characters(text), text)
        .otherwise(_refuse(CHARACTER, named, at=at, value=text))
    )


def _has_right_characters(text: Column) -> Column:
    """Twin of rules.text.forbidden, M1."""
    from pyspark.sql import functions as F

    others = (~text.contains(F.lit(one)) for one in NONE_AT_ALL)
    right = reduce(and_, others, F.is_valid_utf8(text)) & ~text.rlike(CONTROLS)
    # Bytes that are no UTF-8 reach Java's engine as #xFFFD, which is not plain.
    return text.rlike(PLAIN) | right


def _refuse(field: str, said: Column, kind: Any = "string", at: str = "", value: Column | None = None) -> Column:
    """An error of its task, which `refusal` reads. `at`: where a row has the `value`, in words. Both go in hexadecimal
    digits: a value may have any character."""
    from pyspark.sql import functions as F

    shown = F.lit(UNSHOWN)
    if value is not None:
        shown = F.coalesce(F.hex(F.substring(value.cast("string"), 1, SHOWN_CHARACTERS + 1)), F.lit(NULL))
    text = F.concat(F.lit(f"{REFUSED}{field}|"), said, F.lit(f"|{at.encode().hex()}|"), shown, F.lit("|"))
    return F.raise_error(text).cast(kind)


def checked(
    value: Column,
    right: Column,
    field: str,
    bound: str,
    kind: Any = "string",
    column: str = "",
    given: Column | None = None,
) -> Column:
    """`value` where it is `right`; elsewhere the task fails, and the send is refused (see `refusal`) with the name of
    the column and what is `given` there."""
    from pyspark.sql import functions as F

    at = f"the column {column}" if column else ""
    return F.when(right, value).otherwise(_refuse(field, F.lit(bound), kind, at, given))


def _identifier(value: Column, field: str, column: str, missing: Column | None = None) -> Column:
    """`missing`: the refusal of a null, where one is needed."""
    from pyspark.sql import functions as F

    bound = f"{field} can only include alphanumeric and punctuation characters. 1 to 128 in length"
    none = F.lit(None).cast("string") if missing is None else missing
    sound = checked(value, value.rlike(_whole(IDENTIFIER)), field, bound, column=column, given=value)
    return F.when(value.isNull(), none).otherwise(sound)


def _as_json(frame: DataFrame) -> Column:
    """A row as JSON. The task fails for a text at any depth that is no UTF-8, of whose bytes Spark would make U+FFFD,
    and for a number that is NaN or infinite, of which it would make a text."""
    from pyspark.sql import functions as F

    whole = F.to_json(F.struct("*"), ALL_DIGITS)
    names = Counter(name.lower() for name in frame.columns)
    for one in schema_of(frame)["fields"]:
        # Of two columns whose names differ in their capitals alone, Spark can name neither.
        for wrong in not_utf8_conditions(quoted(one["name"]), one["type"]) if names[one["name"].lower()] == 1 else ():
            refused = _refuse(CHARACTER, F.lit(NO_UTF_8), at=f"the column {one['name']}")
            whole = F.when(F.expr(wrong), refused).otherwise(whole)
        for wrong in not_finite_conditions(quoted(one["name"]), one["type"]) if names[one["name"].lower()] == 1 else ():
            refused = _refuse("messages", F.lit(NOT_IN_JSON), at=f"the column {one['name']}")
            whole = F.when(F.expr(wrong), refused).otherwise(whole)
    return whole


def _body(frame: DataFrame, body: str | None) -> Column:
    """The column of bodies: the one named, `body`, or the whole row as JSON."""
    from pyspark.sql import functions as F

    kinds = dict(frame.dtypes)
    if body is None and "body" not in kinds:
        if not kinds:
            raise InvalidParameterValue("column", "body", "The DataFrame has no columns")
        return _as_json(frame)
    name = body or "body"
    if name not in kinds:
        raise InvalidParameterValue(
            "column",
            name,
            f"The DataFrame has no such column; it has {', '.join(kinds)}",
            "Name another one with body=.",
        )
    if kinds[name] != "string":
        raise InvalidParameterValue(
            "column",
            name,
            f"It is {kinds[name]} and must be string",
            "Cast it, or drop the column to send rows as JSON.",
        )
    return F.col(quoted(name))
