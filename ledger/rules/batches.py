"""The checks of a batch request to the endpoint that fail the whole batch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ledger.errors import LedgerError
from ledger.rules.limits import MAXIMUM_MESSAGE_BYTES, MAXIMUM_MESSAGES

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
