"""Attempt ids: a send or receive that is repeated under the same id is the same call (F3 of docs/reference/rules.md).

A different send under the same id is an error: otherwise, if two tasks shared an id, the second task's messages would
silently be dropped. A repeated receive gets the claim that the earlier receive still holds. It is an error only if it
asks for fewer messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from ledger.errors import InvalidParameterValue
from ledger.rules.message import Entry
from ledger.rules.message_id import send_key
from ledger.rules.text import encode_text

LONGEST = 128
RECIPE = "{{ dag.dag_id }}.{{ run_id }}.{{ task.task_id }}.{{ ti.map_index }}"
OWN_ID = f"Give every task an id of its own, in Airflow {RECIPE}"


class Share(NamedTuple):
    """A worker's number, from 0, among the processes that consume under one attempt.

    After a restart, the worker continues the claims of earlier processes whose number modulo `processes` is `number`.
    """

    number: int
    processes: int


ALONE = Share(0, 1)


class Attempt(NamedTuple):
    """A send under an attempt id. `content` is a number that stands for the messages: see `hash_content`."""

    attempt_id: str
    queue: str
    content: int

    @property
    def transaction(self) -> tuple[str, int]:
        """The application id and version of the send's transaction in Delta's log.

        One attempt id cannot send to two queues, because the application id does not name the queue. After a committed
        version only the next number may be committed. All contents are even, so no other send can be committed under
        the id.
        """
        return f"attempt/{self.attempt_id}", self.content

    @property
    def key(self) -> str:
        """The send's key, which names the send's segments. Only a retry has the same key."""
        return send_key("attempt", self.queue, self.attempt_id, str(self.content))

    def require_same(self, content: int) -> None:
        """Raise InvalidParameterValue unless `content`, which was committed under the id, is this send's."""
        if content != self.content:
            raise InvalidParameterValue(
                "attempt_id",
                self.attempt_id,
                "Another send was committed under it: its messages, their number or its queue differ",
                f"Nothing was sent. {OWN_ID}; a retry sends the same again.",
            )


def attempt_id(value: object, field: str) -> str | None:
    """Return `value` if it is None or can be an attempt id. Raises InvalidParameterValue."""
    if value is None or (isinstance(value, str) and 1 <= len(value) <= LONGEST):
        encode_text(field, value or "")
        return value
    fix = f"{OWN_ID}. For a longer text, use hashlib.sha256(text.encode()).hexdigest()."
    raise InvalidParameterValue(field, value, f"Must be a string of 1 to {LONGEST} characters", fix)


def require_not_smaller(value: str | None, held: int, maximum: int | None) -> None:
    """Raise InvalidParameterValue if the claim that an attempt holds has more messages than `maximum`."""
    if maximum is not None and held > maximum:
        raise InvalidParameterValue(
            "ReceiveRequestAttemptId",
            value,
            f"It holds a claim of {held} messages, and {maximum} are asked for",
            f"A retry asks for at least {held}. {OWN_ID}.",
        )


def require_different(ids: Iterable[str | None]) -> None:
    seen: set[str | None] = set()
    for attempt in ids:
        if attempt is not None and attempt in seen:
            bound = "Two receives of one call have it"
            raise InvalidParameterValue(
                "ReceiveRequestAttemptId", attempt, bound, "Give every receive an id of its own."
            )
        seen.add(attempt)


def shorten_id(text: str, longest: int = LONGEST) -> str:
    """Return the text, or if it is too long its start and its SHA-256."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return text if len(text) <= longest else f"{text[: longest - len(digest) - 1]}.{digest}"


def claim_id(attempt: str, process: int | None, number: int) -> str:
    """Return the attempt id of a worker's claim: `attempt/7`, or for one of several processes `attempt/2.7`."""
    return f"{attempt}/{number}" if process is None else f"{attempt}/{process}.{number}"


def parse_claim_id(attempt: str, attempt_id: str | None) -> tuple[int | None, int] | None:
    """Return the process and the number in a `claim_id`, or None for an id of another attempt."""
    before, slash, numbers = (attempt_id or "").rpartition("/")
    process, point, number = numbers.rpartition(".")
    if not slash or before != attempt or not number.isdecimal() or (point and not process.isdecimal()):
        return None
    return (int(process) if point else None), int(number)


def hash_content(queue: str, entries: Iterable[Entry]) -> int:
    """Return a number for messages in their order. Delays do not count: the queue's may change before a retry."""
    digest = hashlib.sha256(_frame_parts([queue, "list"]))
    for entry in entries:
        attributes = [(name, *entry.message_attributes[name]) for name in sorted(entry.message_attributes)]
        own = [entry.body, entry.message_group_id, entry.aws_trace_header]
        digest.update(_frame_parts([*own, *(part for one in attributes for part in one)]))
    return _number(digest.digest())


def hash_row_content(queue: str, count: int, hashes: int) -> int:
    """Return a number for messages in any order, from their count and the sum of their hashes."""
    return _number(hashlib.sha256(_frame_parts([queue, "rows", str(count), str(hashes)])).digest())


def _number(digest: bytes) -> int:
    """Return an even number from 61 bits of a digest, at least 2: see `Attempt.transaction`."""
    return (int.from_bytes(digest[:8], "big") >> 3) * 2 + 2


def _frame_parts(parts: list[str | bytes | None]) -> bytes:
    """Join the parts so that no other parts give the same bytes."""
    encoded = [part.encode() if isinstance(part, str) else part for part in parts]
    framed = [b"-;" if part is None else b"%d:%b" % (len(part), part) for part in encoded]
    return b"%d;%b" % (len(parts), b"".join(framed))
