"""The texts of errors for the command line, with its options in place of Python's parameters."""

from __future__ import annotations

from ledger.errors import (
    InvalidAttributeValue,
    InvalidParameterValue,
    LedgerDoesNotExist,
    LedgerError,
    MissingParameter,
    QueueDoesNotExist,
    SparkIsNeeded,
)

#: By the field that an error names.
OPTIONS_BY_FIELD = {
    "MaxNumberOfMessages": "--max",
    "max_messages": "--max",
    "WaitTimeSeconds": "--wait",
    "VisibilityTimeout": "--visibility-timeout",
    "ReceiveRequestAttemptId": "--attempt-id",
    "attempt_id": "--attempt-id",
    "DelaySeconds": "--delay",
    "MessageId": "MESSAGE_ID",
    "MessageGroupId": "--group",
    "MessageDeduplicationId": "the column message_deduplication_id",
    "QueueName": "QUEUE",
    "root": "ROOT",
    "query": "QUERY",
    "where": "--where",
    "version": "--version",
    "timestamp": "--timestamp",
    "settings": "--settings",
    "reason": "--reason",
    "keys": "--keys",
    "without-signatures": "--without-signatures",
    "certificate": "--certificate",
    "certificate-key": "--certificate-key",
    "host": "--host",
    "port": "--port",
    "threads": "--threads",
    "receipts": "--receipts",
    "url": "--url",
    "every": "--every",
    "upkeep-every": "--upkeep-every",
}
#: Parts of errors, each with its replacement on the command line.
_PHRASES = (
    ("Must be a datetime with a time zone, or its text in ISO 8601", "Must be an instant with a time zone"),
    (", or pass datetime(..., tzinfo=timezone.utc)", ""),
    ("An instant is given as timestamp=.", "An instant is given as --timestamp."),
    ("Say where to: destination=.", "Say where to: --to QUEUE."),
    ("use hashlib.sha256(text.encode()).hexdigest()", "use a digest of it"),
    (
        "Cast it to string, make a column body, or open the ledger with Ledger.open(root, spark=spark).",
        "--body COLUMN sends one column of texts; `ledger submit send ROOT QUEUE INPUT` has Spark write whole rows.",
    ),
    ("DeltaError: ", ""),
)


def error_text(error: LedgerError) -> str:
    if isinstance(error, LedgerDoesNotExist) and not error.fix:
        how_to_create = "`ledger queues create NAME` makes one, with a queue"
        return f"There is no ledger at {error.root}: {error.found}. Is it mistyped? {error.advice or how_to_create}"
    if isinstance(error, SparkIsNeeded):
        return f"{error.message} (the command line has no Spark: run one of the jobs with `ledger submit`)"
    if isinstance(error, QueueDoesNotExist):
        advice = error.advice.replace("create_queue makes one", f"`ledger queues create {error.name}` makes one")
        return f"{error.message} {advice}"
    # A queue's attributes have the same names here.
    if isinstance(error, InvalidParameterValue) and not isinstance(error, InvalidAttributeValue):
        return _describe_invalid_value(error)
    if isinstance(error, MissingParameter) and error.field in OPTIONS_BY_FIELD:
        return f"{error} ({OPTIONS_BY_FIELD[error.field]})"
    return _replace_phrases(str(error))


def _describe_invalid_value(error: InvalidParameterValue) -> str:
    option, text = OPTIONS_BY_FIELD.get(error.field), str(error)
    value, between, _ = text.partition(f" for parameter {error.field} is invalid.")
    if option is None or not between:
        return _replace_phrases(text)
    problem = "is not given" if error.value is None else f"{value.removeprefix('Value ')} is invalid"
    return f"{option} {problem}. {_replace_phrases(error.bound.rstrip('.') + '. ' + error.fix).rstrip()}"


def _replace_phrases(text: str) -> str:
    for phrase, replacement in _PHRASES:
        text = text.replace(phrase, replacement)
    return text
