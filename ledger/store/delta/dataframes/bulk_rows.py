"""The columns of messages from a DataFrame that is sent, with checks of each row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, NamedTuple

from ledger.errors import InvalidMessageContents, InvalidParameterValue, LedgerError, MissingParameter, StorageFailed
from ledger.output_tables.row_errors import find_storage_failure, is_of_function, make_row_error, match_raised_error
from ledger.rules import message_attributes
from ledger.rules.attributes import is_fifo
from ledger.rules.limits import MAXIMUM_DELAY, MAXIMUM_MESSAGE_ATTRIBUTES
from ledger.rules.message import (
    GIVEN,
    IDENTIFIER,
    NO_DEDUPLICATION_ID,
    NOT_FOR_THIS_QUEUE,
    NOT_IN_JSON,
    WITH_WHOLE_ROWS,
    Kind,
    make_size_error,
    require_columns,
    require_group,
)
from ledger.rules.text import CONTROLS, FORBIDDEN, NONE_AT_ALL, PLAIN
from ledger.store.delta.dataframes.column_casts import (
    SHOWN_CHARACTERS,
    not_finite_conditions,
    not_utf8_conditions,
    schema_of,
)
from ledger.store.delta.dataframes.columns import quote_column
from ledger.store.delta.dataframes.task_files import CHARACTER, MISSING, NO_UTF_8, TOO_LONG
from ledger.store.delta.model.tables import MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Begins the error of a task that refuses a row. The field, the broken rule, the column and the value follow.
REFUSED = "ledger refuses a row:"
#: Shown in place of a null, and of a value that would not help the reader.
NULL, UNSHOWN = "null", "unshown"
#: Matches a refusal, but not the expression that makes it: Spark shows expressions in plans.
_REFUSAL = re.compile(rf"{REFUSED}([^|]*)\|([^|]*)\|([0-9a-f]*)\|([0-9A-F]*|{NULL}|{UNSHOWN})\|")
#: A retry from another session must write the same JSON. Spark's default formats cut microseconds off. The formats have
#: no optional parts: Spark would write their brackets under spark.sql.legacy.timeParserPolicy=LEGACY.
JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
    "ignoreNullFields": "true",
}
TYPES = {
    Kind.TEXT: ("string",),
    Kind.NUMBER: ("int", "bigint", "smallint", "tinyint"),
    Kind.ATTRIBUTES: (
        "map<string,string>",
        "map<string,struct<data_type:string,string_value:string,binary_value:binary>>",
    ),
}
MEANINGFUL = {field.name: TYPES[field.kind] for field in GIVEN if field.name != "body"}


def message_columns(
    frame: DataFrame,
    queue: Mapping[str, str],
    body: str | None,
    *,
    checks_bodies: bool = True,
    fields: Collection[str] | None = None,
) -> dict[str, Column]:
    """Return a column for each field that senders give, under the field's name.

    To refuse a value, a column makes its task fail. Without `checks_bodies` the column of bodies refuses only rows that
    JSON cannot hold unchanged.
    """
    from pyspark.sql import functions as F

    fifo, kinds = is_fifo(queue), dict(frame.dtypes)
    require_columns(frame.columns, body)
    text = _body(frame, body)
    as_json = body is None and "body" not in kinds
    # In a row that is sent whole, only the columns for a FIFO queue have a meaning.
    meaningful = [name for name in MEANINGFUL if not as_json or (fifo and name in WITH_WHOLE_ROWS)]
    kinds_by_column = {name: kinds[name] for name in meaningful if name in kinds}
    for name, kind in kinds_by_column.items():
        if kind not in MEANINGFUL[name]:
            raise InvalidParameterValue(
                "column", name, f"It is {kind} and must be {' or '.join(MEANINGFUL[name])}", "Cast it."
            )
    if fifo:
        require_group(frame.columns)
    maximum_size, size = int(queue["MaximumMessageSize"]), F.octet_length(text)

    def text_of(name: str) -> Column:
        return F.col(name) if name in kinds_by_column else F.lit(None).cast("string")

    makers: dict[str, Callable[[], Column]] = {
        "body": lambda: _check_body(text, maximum_size, describe_bodies_place(kinds, body)) if checks_bodies else text,
        "delay_seconds": lambda: _delay(queue, "delay_seconds" in kinds_by_column),
        "message_group_id": lambda: _check_identifier(
            text_of("message_group_id"), "MessageGroupId", "message_group_id", _no_group() if fifo else None
        ),
        "message_deduplication_id": lambda: _deduplication(queue, text, "message_deduplication_id" in kinds_by_column),
        "message_attributes": lambda: _attributes(
            kinds_by_column.get("message_attributes"), _room_beside(size, maximum_size)
        ),
        "aws_trace_header": lambda: _trace_header(text_of("aws_trace_header")),
    }
    return {name: make() for name, make in makers.items() if fields is None or name in fields}


def _room_beside(size: Column, most: int) -> Column:
    """Return the bytes left for attributes. A missing or too long body, which refuses its row, counts as empty."""
    from pyspark.sql import functions as F

    return F.when(size <= most, F.lit(most) - size).otherwise(F.lit(most))


def describe_bodies_place(columns: Collection[str], body: str | None) -> str:
    return "its JSON" if body is None and "body" not in columns else f"the column {body or 'body'}"


class Fingerprint(NamedTuple):
    """The number of rows and the sum of their hashes, which tell one send from another."""

    rows: int
    hashes: int

    @classmethod
    def of(cls, values: Sequence[Any]) -> Fingerprint:
        return cls(int(values[0]), int(values[1] or 0))


def fingerprint() -> list[Column]:
    """Return the aggregates of a Fingerprint over `message_columns`.

    Delays are not hashed: they may be the queue's default (see `attempts.hash_content`).
    """
    from pyspark.sql import functions as F

    attributes = F.array_sort(F.map_entries("message_attributes"))
    row = F.xxhash64("body", F.coalesce("message_group_id", F.lit("")), attributes, "aws_trace_header")
    return [F.count(F.lit(1)).alias("count"), F.sum(row.cast("decimal(20, 0)")).alias("hashes")]


class Watch:
    """Compares the rows that a send writes with an earlier evaluation, `counted` (None: not at all)."""

    def __init__(self, counted: Fingerprint | None) -> None:
        self._counted = counted
        self._observation: Any = None

    def over(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import Observation

        if self._counted is None:
            return rows
        self._observation = Observation()
        return rows.observe(self._observation, *fingerprint())

    def require_same(self) -> None:
        """Raise InvalidParameterValue if the written rows differ. Do nothing in a session that reports no
        observations."""
        observed = self._observation and self._observation.get
        if not observed or self._counted is None:
            return
        written = Fingerprint.of([observed["count"], observed["hashes"]])
        if written == self._counted:
            return
        difference = f"{self._counted.rows:,} rows and then {written.rows:,}"
        raise InvalidParameterValue(
            "messages",
            "a DataFrame",
            "Under an attempt_id its rows are computed twice, to recognize a repeated send and to write them; they "
            f"came out differently: {'other values' if written.rows == self._counted.rows else difference}",
            "Nothing was sent. Write the rows to a table and send that, or send frame.localCheckpoint().",
        )


def _delay(queue: Mapping[str, str], is_given: bool) -> Column:
    from pyspark.sql import functions as F

    default = F.lit(int(queue["DelaySeconds"])).cast("bigint")
    if not is_given:
        return default
    if is_fifo(queue):
        has_no_delay = F.coalesce(F.col("delay_seconds"), F.lit(0)) == 0
        delay = F.col("delay_seconds")
        return checked(default, has_no_delay, "DelaySeconds", NOT_FOR_THIS_QUEUE, "bigint", "delay_seconds", delay)
    delay = F.coalesce(F.col("delay_seconds").cast("bigint"), default)
    return checked(
        delay,
        delay.between(0, MAXIMUM_DELAY),
        "DelaySeconds",
        f"A row's delay must be from 0 to {MAXIMUM_DELAY}",
        "bigint",
        "delay_seconds",
        delay,
    )


def _deduplication(queue: Mapping[str, str], text: Column, is_given: bool) -> Column:
    from pyspark.sql import functions as F

    field, column, null = "MessageDeduplicationId", "message_deduplication_id", F.lit(None).cast("string")
    value = F.col(column) if is_given else null
    if not is_fifo(queue):
        return checked(null, value.isNull(), field, NOT_FOR_THIS_QUEUE, column=column, given=value)
    if queue["ContentBasedDeduplication"] == "true":
        value = F.coalesce(value, F.sha2(text, 256))
    elif not is_given:
        raise InvalidParameterValue(
            "column", "message_deduplication_id", NO_DEDUPLICATION_ID, "Add it to the DataFrame."
        )
    refusal_of_null = _refuse(field, F.lit(NO_DEDUPLICATION_ID), at=f"the column {column}", value=null)
    return _check_identifier(value, field, column, refusal_of_null)


def _no_group() -> Column:
    from pyspark.sql import functions as F

    return _refuse(MISSING, F.lit("MessageGroupId"), at="the column message_group_id", value=F.lit(None))


def _trace_header(value: Column) -> Column:
    from pyspark.sql import functions as F

    bound = "It holds a character that the service does not take"
    is_valid = F.coalesce(_has_right_characters(value), value.isNull())
    return checked(value, is_valid, "AWSTraceHeader", bound, column="aws_trace_header", given=value)


def _attributes(kind: str | None, room: Column) -> Column:
    """Twin of rules.message_attributes."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_type

    stored = from_arrow_type(MESSAGES.field("message_attributes").type)
    if kind is None:
        return F.lit(None).cast(stored)
    attributes = F.col("message_attributes")
    if kind == "map<string,string>":
        one = "named_struct('data_type', 'String', 'string_value', value, 'binary_value', CAST(NULL AS BINARY))"
        attributes = F.expr(f"transform_values(message_attributes, (name, value) -> {one})")
    attributes = F.transform_values(attributes.cast(stored), lambda name, one: _keep_one_value(one)).cast(stored)
    entries = F.map_entries(attributes)
    size = F.aggregate(entries, F.lit(0), lambda so_far, entry: so_far + _size_of(entry))
    # A map from a file or from Arrow may have a key twice.
    has_distinct_names = F.size(F.array_distinct(F.map_keys(attributes))) == F.size(attributes)
    is_valid = (
        F.forall(entries, _is_attribute) & (F.size(attributes) <= MAXIMUM_MESSAGE_ATTRIBUTES) & has_distinct_names
    )
    bound = (
        f"A row has more than {MAXIMUM_MESSAGE_ATTRIBUTES} attributes, one of them twice, or one with an invalid "
        "name, type or value"
    )
    shown = F.to_json("message_attributes")
    valid = checked(
        attributes,
        attributes.isNull() | is_valid,
        "MessageAttributes",
        bound,
        stored,
        column="message_attributes",
        given=shown,
    )
    too_large = _refuse(
        TOO_LONG, F.lit(""), stored, "the column message_attributes (its size counts with the body's)", shown
    )
    return F.when(attributes.isNull() | (size <= room), valid).otherwise(too_large)


def _keep_one_value(one: Column) -> Column:
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
    maximum_length = message_attributes.LONGEST_NAME
    has_valid_name = name.rlike(_match_whole(message_attributes.JAVA_NAME)) & (F.length(name) <= maximum_length)
    has_valid_type = kind.rlike(_match_whole(message_attributes.TYPE)) & (F.length(kind) <= maximum_length)
    is_text_or_valid_number = ~kind.startswith("Number") | text.rlike(_match_whole(message_attributes.NUMBER))
    has_valid_text = (F.length(text) > 0) & is_text_or_valid_number & _has_right_characters(text)
    has_valid_value = F.when(kind.startswith("Binary"), F.octet_length(binary) > 0).otherwise(has_valid_text)
    return F.coalesce(has_valid_name & has_valid_type & has_valid_value, F.lit(False))


def _size_of(entry: Column) -> Column:
    """Twin of rules.message_attributes.size_of."""
    from pyspark.sql import functions as F

    attribute = entry["value"]
    value = F.coalesce(F.octet_length(attribute["binary_value"]), F.octet_length(attribute["string_value"]), F.lit(0))
    return F.octet_length(entry["key"]) + F.coalesce(F.octet_length(attribute["data_type"]), F.lit(0)) + value


def _match_whole(pattern: str) -> str:
    """Return a pattern for whole texts. Java's $ also matches before a line end."""
    return rf"\A(?:{pattern})\z"


def explain_row_failure(error: Exception, queue: Mapping[str, str]) -> LedgerError | None:
    """Return the error of a send whose rows or disk failed, or None for another cause."""
    match = match_raised_error(error, _REFUSAL)
    if match is None:
        return find_disk_failure(error, "Spark's own files (spark.local.dir)") or _find_computing_failure(error)
    field, bound, column, shown = match.groups()
    return make_row_refusal(field, bound, _decode(column) or "", shown, queue)


def make_row_refusal(field: str, bound: str, column: str, shown: str, queue: Mapping[str, str]) -> LedgerError:
    """Return the error about a row that a task refused.

    Args:
        field: The field that is wrong, or MISSING, CHARACTER or TOO_LONG.
        bound: The rule that the value breaks. For MISSING it is the missing field, for CHARACTER the character.
        column: A phrase that says where the row has the value.
        shown: The beginning of the value in hexadecimal digits, or NULL, or UNSHOWN.
        queue: The queue's attributes.
    """
    value = _decode(shown)
    if field == MISSING:
        refused: LedgerError = MissingParameter(bound)
    elif field == CHARACTER:
        refused = InvalidMessageContents(bound)
    elif field == TOO_LONG:
        refused = make_size_error("of a row", int(queue["MaximumMessageSize"]))
    else:
        refused = InvalidParameterValue(field, "of a row" if shown == UNSHOWN else value or shown, bound)
    if column:
        refused.advised(f"A row has it in {column}." if shown == UNSHOWN else f"In a row {column} is {_quote(value)}.")
    return refused.advised("Nothing was sent. Filter such rows.")


def find_disk_failure(error: Exception, place: str) -> StorageFailed | None:
    """Return the error if a full or failing disk at `place` ended a send, or None."""
    failure = find_storage_failure(error)
    return None if failure is None else StorageFailed(place, failure, "send")


def _find_computing_failure(error: Exception) -> LedgerError | None:
    if not is_of_function(error):
        return None
    bound = f"Spark could not compute its rows, or could not write them: {make_row_error(error).text}"
    fix = "Nothing was sent. Mend what computes the rows, or filter those that it fails for."
    return InvalidParameterValue("messages", "a DataFrame", bound, fix)


def _decode(shown: str) -> str | None:
    return None if shown in (NULL, UNSHOWN) else bytes.fromhex(shown).decode("utf-8", "backslashreplace")


def _quote(value: str | None) -> str:
    if value is None:
        return "null"
    return repr(value if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]}...")


def _check_body(text: Column, most: int, at: str) -> Column:
    """Twin of rules.message.body."""
    from pyspark.sql import functions as F

    size = F.octet_length(text)
    wrong_character = F.regexp_extract(text, FORBIDDEN, 0)
    name = F.concat(F.lit("#x"), F.regexp_replace(F.hex(F.encode(wrong_character, "UTF-16BE")), "^0+(?=.)", ""))
    name_or_no_utf8 = F.when(F.is_valid_utf8(text), name).otherwise(F.lit(NO_UTF_8))
    return (
        F.when(F.coalesce(size, F.lit(0)) == 0, _refuse(MISSING, F.lit("MessageBody"), at=at, value=text))
        .when(size > most, _refuse(TOO_LONG, F.lit(""), at=at, value=text))
        .when(_has_right_characters(text), text)
        .otherwise(_refuse(CHARACTER, name_or_no_utf8, at=at, value=text))
    )


def _has_right_characters(text: Column) -> Column:
    """Twin of rules.text.find_forbidden_character."""
    from pyspark.sql import functions as F

    has_none_of_others = (~text.contains(F.lit(character)) for character in NONE_AT_ALL)
    is_valid = reduce(and_, has_none_of_others, F.is_valid_utf8(text)) & ~text.rlike(CONTROLS)
    # Java reads bytes that are not UTF-8 as #xFFFD, which PLAIN does not match.
    return text.rlike(PLAIN) | is_valid


def _refuse(field: str, bound: Column, kind: Any = "string", at: str = "", value: Column | None = None) -> Column:
    """Return an expression that fails its task with an error that `explain_row_failure` reads.

    Place and value are in hexadecimal digits: a value may have any character.
    """
    from pyspark.sql import functions as F

    shown = F.lit(UNSHOWN)
    if value is not None:
        shown = F.coalesce(F.hex(F.substring(value.cast("string"), 1, SHOWN_CHARACTERS + 1)), F.lit(NULL))
    text = F.concat(F.lit(f"{REFUSED}{field}|"), bound, F.lit(f"|{at.encode().hex()}|"), shown, F.lit("|"))
    return F.raise_error(text).cast(kind)


def checked(
    value: Column,
    is_valid: Column,
    field: str,
    bound: str,
    kind: Any = "string",
    column: str = "",
    given: Column | None = None,
) -> Column:
    """Return `value` where `is_valid`. Elsewhere fail the task, and show the column's `given` value."""
    from pyspark.sql import functions as F

    at = f"the column {column}" if column else ""
    return F.when(is_valid, value).otherwise(_refuse(field, F.lit(bound), kind, at, given))


def _check_identifier(value: Column, field: str, column: str, missing: Column | None = None) -> Column:
    """Check an identifier. `missing` refuses a null (None: a null is allowed)."""
    from pyspark.sql import functions as F

    bound = f"{field} can only include alphanumeric and punctuation characters. 1 to 128 in length"
    value_for_null = F.lit(None).cast("string") if missing is None else missing
    valid = checked(value, value.rlike(_match_whole(IDENTIFIER)), field, bound, column=column, given=value)
    return F.when(value.isNull(), value_for_null).otherwise(valid)


def _as_json(frame: DataFrame) -> Column:
    """Return rows as JSON. Fail the task of a row that JSON cannot hold unchanged.

    Spark would write U+FFFD for bytes that are not UTF-8, and texts for NaN and infinite numbers. Columns whose names
    differ only in capitals are not checked: Spark cannot name them.
    """
    from pyspark.sql import functions as F

    row = F.to_json(F.struct("*"), JSON_OPTIONS)
    names = Counter(name.lower() for name in frame.columns)
    for field in schema_of(frame)["fields"]:
        for condition in (
            not_utf8_conditions(quote_column(field["name"]), field["type"]) if names[field["name"].lower()] == 1 else ()
        ):
            refused_value = _refuse(CHARACTER, F.lit(NO_UTF_8), at=f"the column {field['name']}")
            row = F.when(F.expr(condition), refused_value).otherwise(row)
        for condition in (
            not_finite_conditions(quote_column(field["name"]), field["type"])
            if names[field["name"].lower()] == 1
            else ()
        ):
            refused_value = _refuse("messages", F.lit(NOT_IN_JSON), at=f"the column {field['name']}")
            row = F.when(F.expr(condition), refused_value).otherwise(row)
    return row


def _body(frame: DataFrame, body: str | None) -> Column:
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
    return F.col(quote_column(name))
