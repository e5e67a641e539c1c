"""The errors that the ledger raises on purpose, all subclasses of LedgerError.

`code` is SQS's error code, or our own if SQS has no such error. `message` is SQS's own sentence, as far as it is known,
or a sentence of ours. `advice` is always ours: what to do, or a bound that SQS's sentence leaves out. `str()` is the
message, then the advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

#: How many characters errors show of a str, and of any other value.
LONGEST_TEXT, LONGEST_OTHER = 4_096, 120


def show_value(value: object) -> str:
    """Return a value as SQS's sentences show it: a str as it is, any other value as its repr. Long values are cut."""
    if not isinstance(value, str):
        return quote_value(value)
    # A lone surrogate (half of a character) cannot be encoded. Show it as \udXXX.
    return _cut(value[: LONGEST_TEXT + 1].encode("utf-8", "backslashreplace").decode(), LONGEST_TEXT)


def quote_value(value: object) -> str:
    """Return a value's repr, cut if it is long, or the name of its type if the repr fails."""
    try:
        return _cut(repr(value), LONGEST_OTHER)
    except Exception:  # raised by the repr of a user's object, or of a number with thousands of digits
        return f"<{type(value).__name__}>"


def invalid_character(character: str, place: str) -> str:
    """Return SQS's sentence about a character that it refuses.

    Source: public bug reports, for message bodies only.
    """
    return (
        f"Invalid binary character '{character}' was found in the {place}, the set of allowed characters is "
        "#x9 | #xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF]."
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


Error = TypeVar("Error", bound="LedgerError")


class LedgerError(Exception):
    """The base class of all errors that the ledger raises on purpose: a sentence, `message`, and our `advice`."""

    code = "LedgerError"
    #: The index (from 0) of the entry for which a send raised this error, or None.
    entry: int | None = None

    def __init__(self, message: str, advice: str = "") -> None:
        self.message, self.advice = message, advice
        super().__init__(message)

    def __str__(self) -> str:
        if not self.advice:
            return self.message
        sentence = self.message.rstrip()
        return f"{sentence}{'' if sentence.endswith('.') else '.'} {self.advice}"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors are pickled between processes. Pickle would call the constructor with the message, and many
        # constructors take other arguments.
        return _restore, (type(self), self.args, self.__dict__)

    def advised(self: Error, advice: str) -> Error:
        """Add to the advice of this error, and return this error."""
        self.advice = f"{self.advice} {advice}".strip()
        return self


def _restore(kind: type[Error], args: tuple[object, ...], state: dict[str, object]) -> Error:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InvalidParameterValue(LedgerError, ValueError):
    """A value is outside what its field allows.

    The message is "Value V for parameter F is invalid. Reason: B.", except where SQS has another sentence.
    """

    code = "InvalidParameterValue"

    def __init__(self, field: str, value: object, bound: str, fix: str = "", *, message: str | None = None) -> None:
        self.field, self.value, self.bound, self.fix = field, value, bound, fix
        # SQS's parameters begin with a capital letter. SQS shows their texts without quotes.
        text = show_value(value) if field[:1].isupper() else quote_value(value)
        sentence = f"Value {text} for parameter {field} is invalid. Reason: {bound.rstrip('.')}."
        super().__init__(sentence if message is None else message, fix)


class InvalidMessageContents(LedgerError, ValueError):
    """A message's body has a character that SQS does not allow. `character` is its code, such as `#xFFFF`."""

    code = "InvalidMessageContents"

    def __init__(self, character: str) -> None:
        self.character = character
        super().__init__(invalid_character(character, "message body"), "Encode the body, as JSON or base64 say.")


class MissingParameter(LedgerError, ValueError):
    """A parameter that the call needs is missing, such as a body, or a group id for a FIFO queue."""

    code = "MissingParameter"

    def __init__(self, field: str, advice: str = "") -> None:
        self.field = field
        super().__init__(f"The request must contain the parameter {field}.", advice)


class InvalidAttributeName(LedgerError, ValueError):
    """A queue has no attribute of this name, or cannot have the attribute together with its other attributes."""

    code = "InvalidAttributeName"


class InvalidAttributeValue(InvalidParameterValue):
    """A queue attribute has a value outside its range.

    The message is "Invalid value for the parameter F.", and the bound is part of the advice. With `in_message` the
    bound is in the message: if SQS's message has a bound, and for attributes that SQS does not have.
    """

    code = "InvalidAttributeValue"

    def __init__(self, field: str, value: object, bound: str, fix: str = "", *, in_message: bool = False) -> None:
        reason = f" Reason: {bound.rstrip('.')}." if in_message else ""
        super().__init__(field, value, bound, fix, message=f"Invalid value for the parameter {field}.{reason}")
        if not in_message:
            self.advice = f"It is {show_value(value)}. {bound.rstrip('.')}. {fix}".strip()


class QueueDoesNotExist(LedgerError, LookupError):
    """The ledger has no queue of this name, or another queue has the name now (`made_anew`)."""

    code = "AWS.SimpleQueueService.NonExistentQueue"

    def __init__(self, name: str, known: Iterable[str] = (), *, made_anew: bool = False) -> None:
        self.name = name
        names = ", ".join(sorted(known)[:10]) or "none"
        advice = (
            f"The queue {name!r} was deleted, and another one has its name now: take that with Ledger.queue(name)."
            if made_anew
            else f"There is no queue {name!r} in this ledger (queues: {names}); create_queue makes one."
        )
        super().__init__("The specified queue does not exist.", advice)


class QueueNameExists(LedgerError):
    """A queue of this name exists, with another value of an attribute or with other tags.

    `attribute` is the attribute that differs, or "tags". `there` is the queue's value, and `asked` the call's.
    """

    code = "QueueAlreadyExists"

    def __init__(self, name: str, attribute: str, there: str | None, asked: str | None) -> None:
        self.name, self.attribute, self.there, self.asked = name, attribute, there, asked
        super().__init__(
            f"A queue already exists with the same name and a different value for attribute {attribute}",
            f"{name} has {there}, and the call asked for {asked}. "
            f"Use {'set_tags' if attribute == 'tags' else 'set_attributes'}.",
        )


class QueueDeletedRecently(LedgerError):
    """A queue of this name was deleted less than deletion_interval (a setting) ago. Only with Limits=SQS."""

    code = "QueueDeletedRecently"


class PurgeQueueInProgress(LedgerError):
    """The queue was purged less than purge_interval (a setting) ago. Only with Limits=SQS."""

    code = "PurgeQueueInProgress"


class MessageDoesNotExist(LedgerError, LookupError):
    """No message of this id is in the queue."""

    code = "InvalidParameterValue"


class ReceiptHandleIsInvalid(LedgerError, ValueError):
    """The receipt handle has a wrong form, is of another queue, was never handed out for this message, or is outdated.

    `why` is the advice.
    """

    code = "ReceiptHandleIsInvalid"

    def __init__(self, handle: object, why: str) -> None:
        self.handle, self.why = handle, why
        super().__init__(f'The input receipt handle "{show_value(handle)}" is not a valid receipt handle.', why)


class OverLimit(LedgerError):
    """A limit is reached: messages in flight, a bound of the queue, or the actions of one permission."""

    code = "OverLimit"


class ResourceNotFound(LedgerError, LookupError):
    """A queue that a call about message move tasks names does not exist, or no running move task has the handle."""

    code = "ResourceNotFoundException"


class MessageNotInflight(LedgerError):
    """The message is not in flight under this receipt: its visibility timeout has run out, or it was released."""

    code = "MessageNotInflight"


class LeaseLost(MessageNotInflight):
    """The claim no longer holds the messages that the call is about.

    The deadline of these messages passed, or they were deleted or released, or others received them. Or another call of
    `claim.write` under the same receipt came first.
    """


class ContentionOutlastedRetries(LedgerError):
    """Other writers won every attempt to commit.

    The verb's last commit was not made, and the verb may be called again. Earlier commits of the verb may have been
    made.
    """

    code = "RequestThrottled"

    def __init__(self, verb: str, attempts: int, seconds: float) -> None:
        self.verb, self.attempts, self.seconds = verb, attempts, seconds
        super().__init__(
            f"{verb} lost to other writers {attempts} times in {seconds:.1f} s. The step that lost changed nothing. "
            "Call it again, or give the queue more lanes (attribute Lanes) or the ledger more attempts (setting "
            "maximum_attempts)"
        )


class OutputNotWritten(LedgerError):
    """`claim.write` wrote no row to the table.

    The claim is still held, unless the error says that it was given back (released). If `reason` is about one row,
    `place` says in words which row.
    """

    code = "OutputNotWritten"

    def __init__(self, table: object, reason: str, claim: str = "The claim is held as before", place: str = "") -> None:
        self.table, self.reason, self.place = table, reason, place
        where = f"{place}: " if place else ""
        super().__init__(f"Nothing was written to the output table {table}: {where}{reason}. {claim}")

    def given_back(self) -> OutputNotWritten:
        """Return the same error for a claim that was given back (released) after the error."""
        return OutputNotWritten(self.table, self.reason, "The messages that were still held are given back", self.place)


class OutputUnreadable(LedgerError):
    """An output table cannot say whether the rows of some messages are in it. Those messages are left alone.

    `gone` is True if this process sees no table, or another table is in its place. Else the table exists, but cannot be
    read or written to.
    """

    code = "OutputUnreadable"

    def __init__(self, table: object, reason: str, gone: bool = False) -> None:
        self.table, self.reason, self.gone = table, reason, gone
        super().__init__(
            f"The output table {table} cannot say whether the rows of some messages are in it: {reason}. These "
            "messages are left alone, neither lost nor received again, until the table can be read and written to. If "
            "the table is gone for good, acknowledge them by their receipt handles, or give them back with "
            "restore(receipt_id)"
        )


class UnsafeStorage(LedgerError):
    """With this storage, engine or session, writers could silently lose commits, or write to a disk of their own."""

    code = "UnsafeStorage"


class UnsupportedVersion(LedgerError):
    """This release of the package was not tested with this version of delta-rs or of Spark."""

    code = "UnsupportedVersion"


class ClocksDisagree(LedgerError):
    """This machine's clock differs from another time by more than the setting maximum_clock_skew allows.

    The other time is that of a queue's last commit or change, that of the storage, or an earlier reading of this clock
    plus the time since. (The storage's bound is half of the setting, at least 1 second.)
    """

    code = "ClocksDisagree"


_NOT_KNOWN = (
    "Whether it was committed is not known: call a verb under an attempt_id again; before you repeat any other verb, "
    "look at the queue"
)


class StorageFailed(LedgerError):
    """The storage could not be read or written: a full or read-only disk, a damaged log, no permission, no network.

    The error has the place, and the cause in the storage's own words. `unknown` is True if the verb may have been
    committed all the same. Else the failed commit changed nothing, but earlier commits of the same call stay.
    `is_closed` is True if this user may not enter a folder. Then the advice alone says what to do.
    """

    code = "ServiceUnavailable"

    def __init__(
        self, place: str, cause: str, verb: str = "", *, unknown: bool = False, is_closed: bool = False
    ) -> None:
        self.place, self.cause, self.verb, self.unknown, self.is_closed = place, cause, verb, unknown, is_closed
        super().__init__(f"{self._what_failed()}. {_NOT_KNOWN if unknown else self._nothing_changed()}")

    def of_verb(self, verb: str, *, unknown: bool) -> StorageFailed:
        """Return the same error for the verb that met it."""
        failed = StorageFailed(self.place, self.cause, verb, unknown=unknown, is_closed=self.is_closed)
        return failed.advised(self.advice)

    def _what_failed(self) -> str:
        return f"The storage at {self.place} failed{f' in {self.verb}' if self.verb else ''}: {self.cause}"

    def _nothing_changed(self) -> str:
        if self.is_closed:
            return "The step that failed changed nothing"
        return (
            "The step that failed changed nothing; call again once the storage is right (free space, permission to "
            "write, a whole Delta log)"
        )


class TableAltered(StorageFailed):
    """Somebody altered one of the ledger's tables, and the engine cannot do what the verb needs.

    `what` says what was done to the table. `fix` says what undoes this. Before that, the verb fails in the same way.
    """

    def __init__(self, place: str, what: str, fix: str, verb: str = "", *, unknown: bool = False) -> None:
        self.what, self.fix = what, fix
        super().__init__(place, f"{what}. {fix}", verb, unknown=unknown)

    def of_verb(self, verb: str, *, unknown: bool) -> TableAltered:
        """Return the same error for the verb that met it."""
        return TableAltered(self.place, self.what, self.fix, verb, unknown=unknown).advised(self.advice)

    def _what_failed(self) -> str:
        verb = f". The verb that failed is {self.verb}" if self.verb else ""
        return f"{self.cause[:1].upper()}{self.cause[1:]}. The table lies at {self.place}{verb}"

    def _nothing_changed(self) -> str:
        return "The step that failed changed nothing; the call fails in the same way until the alteration is undone"


class LedgerDamaged(LedgerError):
    """The tables are in a state that no commit of the ledger leaves, such as a row that exists twice.

    The error says what to do: upkeep, `ledger repair`, or a backup.
    """

    code = "LedgerDamaged"


class LedgerIsReadOnly(LedgerError):
    """The ledger was opened with read_only=True, and `verb` would write. Nothing was changed."""

    code = "AccessDenied"

    def __init__(self, verb: str) -> None:
        self.verb = verb
        super().__init__(
            f"{verb} writes, and the ledger was opened with read_only=True",
            "Nothing was changed. Open it without read_only, by an account that may write to its storage.",
        )


class ForkedProcess(LedgerError):
    """A forked child called `library` (delta-rs, say), which its parent had used and which does not survive a fork."""

    code = "UnsupportedOperation"

    def __init__(self, library: str) -> None:
        self.library = library
        super().__init__(
            f"This process was forked from one that had used {library}, which does not work in a forked process",
            "Nothing was changed. Start processes by `spawn` or `forkserver` (see multiprocessing.get_context), or "
            "open ledgers only in the children.",
        )


class LedgerTooNew(LedgerError):
    """A newer release wrote a table, an attribute or a backup in a form that this release does not know."""

    code = "LedgerTooNew"


class LedgerDoesNotExist(LedgerError, LookupError):
    """The root has no complete ledger and the call makes none, or the root is a backup.

    `missing` names tables that the root lacks. If all of them are missing, `missing` may be empty. `fix` says what to
    do.
    """

    code = "LedgerDoesNotExist"

    def __init__(self, root: str, found: str, missing: Sequence[str] = (), fix: str = "") -> None:
        self.root, self.found, self.missing, self.fix = root, found, tuple(missing), fix
        made = (
            "Is the root mistyped? Ledger.open(root), without create=False, makes what is missing; `ledger queues "
            "create NAME` also makes a queue"
        )
        super().__init__(f"There is no ledger at {root}: {found}. {fix or made}")


class SparkIsNeeded(LedgerError):
    """Only Spark can do this, and the ledger was opened without Spark: DataFrames, catalog schemas, some storage."""

    code = "SparkIsNeeded"
