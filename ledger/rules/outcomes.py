"""The errors of a batch's entries and of whole batches (V7 to V10, V13 and M2 of docs/reference/rules.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ledger.errors import InvalidParameterValue, LedgerError, MessageNotInflight, ReceiptHandleIsInvalid
from ledger.rules.limits import MAXIMUM_MESSAGE_BYTES, MAXIMUM_MESSAGES
from ledger.rules.visibility import Outcome, Verb

#: A pair without an entry is a success. V8: a change through a stale receipt is an error, and a delete succeeds and
#: does nothing. V13: a change of a deleted message is an InvalidParameterValue, and a second delete succeeds.
ERRORS: dict[tuple[Verb, Outcome], type[LedgerError]] = {
    (Verb.CHANGE, Outcome.STALE): ReceiptHandleIsInvalid,
    (Verb.CHANGE, Outcome.ALREADY_DELETED): InvalidParameterValue,
    (Verb.CHANGE, Outcome.NOT_IN_FLIGHT): MessageNotInflight,
    (Verb.CHANGE, Outcome.BEYOND_CEILING): InvalidParameterValue,
    (Verb.CHANGE, Outcome.INVALID): ReceiptHandleIsInvalid,
    (Verb.DELETE, Outcome.INVALID): ReceiptHandleIsInvalid,
    (Verb.DELETE, Outcome.EXPIRED): InvalidParameterValue,
    (Verb.CHANGE, Outcome.CONTRADICTED): InvalidParameterValue,
    (Verb.DELETE, Outcome.CONTRADICTED): InvalidParameterValue,
}
#: V13: the reason in SQS's error.
NOT_AVAILABLE = "Message does not exist or is not available for visibility timeout change"


def error(verb: Verb, outcome: Outcome, handle: object, timeout: object, ceiling: int | None) -> LedgerError | None:
    kind = ERRORS.get((verb, outcome))
    if kind is None:
        return None
    if outcome is Outcome.EXPIRED:
        return InvalidParameterValue(
            "ReceiptHandle", handle, "The receipt handle has expired", "Receive the message again."
        )
    if outcome is Outcome.ALREADY_DELETED:
        return InvalidParameterValue(
            "ReceiptHandle",
            handle,
            NOT_AVAILABLE,
            "The message was deleted. Nobody receives it, unless `ledger restore` undoes the delete.",
        )
    if outcome is Outcome.CONTRADICTED:
        bound = "It is named by two different actions of one call"
        return InvalidParameterValue(
            "ReceiptHandle", handle, bound, "Nothing was changed. Name a received message once."
        )
    if kind is InvalidParameterValue:
        return InvalidParameterValue(
            "VisibilityTimeout",
            timeout,
            f"Total VisibilityTimeout for the message is beyond the limit [{ceiling} seconds]",
            "The limit counts from the receive. Give at most the time that is left, or release the message and receive "
            "it anew.",
        )
    if outcome is Outcome.NOT_IN_FLIGHT:
        return MessageNotInflight(
            # Source: the API reference of ChangeMessageVisibility.
            "The specified message isn't in flight.",
            "Nothing was changed: the message's visibility timeout has run out, or the message was released "
            f"(receipt handle {handle}). Receive the message again.",
        )
    why = {
        Outcome.STALE: "a later receive, a lock, a restore or a move has replaced the receipt",
        Outcome.INVALID: "the receipt handle was never handed out for this message, or only before a redrive",
    }[outcome]
    return ReceiptHandleIsInvalid(handle, f"Nothing was changed: {why}. Receive the message again.")


_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


class TooManyEntriesInBatchRequest(LedgerError, ValueError):
    code = "TooManyEntriesInBatchRequest"


class EmptyBatchRequest(LedgerError, ValueError):
    code = "EmptyBatchRequest"


class InvalidBatchEntryId(LedgerError, ValueError):
    code = "InvalidBatchEntryId"


class BatchEntryIdsNotDistinct(LedgerError, ValueError):
    code = "BatchEntryIdsNotDistinct"


class BatchRequestTooLong(LedgerError, ValueError):
    code = "BatchRequestTooLong"


def require_entries(entries: Sequence[Mapping[str, object]], kind: str) -> None:
    """Raise SQS's error for a batch with a wrong number of entries, or with a wrong or repeated id.

    `kind` is SQS's name for the type of the entries.
    """
    if not entries:
        raise EmptyBatchRequest(f"There should be at least one {kind} in the request.")
    if len(entries) > MAXIMUM_MESSAGES:
        raise TooManyEntriesInBatchRequest(
            f"Maximum number of entries per request are {MAXIMUM_MESSAGES}. You have sent {len(entries)}."
        )
    ids = [str(entry["Id"]) for entry in entries]
    if not all(map(_ID.fullmatch, ids)):
        raise InvalidBatchEntryId(
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 "
            "letters long."
        )
    repeated = next((one for number, one in enumerate(ids) if one in ids[:number]), None)
    if repeated is not None:
        raise BatchEntryIdsNotDistinct(f"Id {repeated} repeated.")


def require_length(entries: Sequence[Mapping[str, object]]) -> None:
    """Raise BatchRequestTooLong if the bodies and attributes of a batch have more than 1 MiB together.

    Recorded: the queue's MaximumMessageSize does not bound the sum.
    """
    sent_bytes = sum(_length(entry.get("MessageBody")) + _length_of_attributes(entry) for entry in entries)
    if sent_bytes > MAXIMUM_MESSAGE_BYTES:
        raise BatchRequestTooLong(
            f"Batch requests cannot be longer than {MAXIMUM_MESSAGE_BYTES} bytes. You have sent {sent_bytes} bytes."
        )


def _length_of_attributes(entry: Mapping[str, object]) -> int:
    attributes = entry.get("MessageAttributes")
    if not isinstance(attributes, Mapping):
        return 0
    values = [(name, *one.values()) for name, one in attributes.items() if isinstance(one, Mapping)]
    return sum(_length(part) for parts in values for part in parts)


def _length(part: object) -> int:
    if isinstance(part, str):
        return len(part.encode(errors="surrogatepass"))
    return len(part) if isinstance(part, bytes) else 0
