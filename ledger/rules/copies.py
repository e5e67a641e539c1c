"""Copies of messages that come from elsewhere: from another ledger's queue, or from an exported file.

A copy goes in parts, each of which is one commit to the target. The commit appends messages, and notes how far the copy
is by then: how many parts it has, how many messages, and marks that say where the next part begins. A part is committed
directly after the part before it, or not at all. So whoever copies again, after a crash or beside another process,
reads how far the copy is and goes on from there: no message is sent twice, and none is passed over.

What the marks say must not change in the source. Of a queue they are an instant, `until`, and the `Position` of the
last message that was looked at. A message that is there when the copy begins keeps its position. It may be acknowledged
before its part is read, and is not copied then. A message that comes later, also by a move, arrives after `until`. Of a
file the mark is a number of row groups.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from ledger.rules.message_id import SEGMENT_LENGTH
from ledger.rules.state import Retention

#: So many hexadecimal digits of a segment's name are a number of a position; the name has twice as many.
_HALF = 12


class Position(NamedTuple):
    """A message's place in the order in which a queue is copied: on FIFO queues that of their groups, else the oldest
    first. Numbers that a transaction of Delta's log can carry."""

    arrived_at: int
    sent_at: int
    sequence_number: int
    segment_high: int
    segment_low: int
    seq: int


class CopyProgress(NamedTuple):
    """How far a copy is: the parts that are committed, the messages in them, and where the next part begins."""

    parts: int
    messages: int
    marks: tuple[int, ...]

    def transactions(self, key: str) -> list[tuple[str, int]]:
        """What a part's commit carries. The first one is committed only directly after the part before it."""
        marks = [(mark_application(key, number), mark) for number, mark in enumerate(self.marks)]
        return [(application(key), self.parts), (messages_application(key), self.messages), *marks]


def position(arrived_at: int, sent_at: int, sequence_number: int | None, segment: str, seq: int) -> Position:
    """The position of a message. Instants in milliseconds."""
    return Position(arrived_at, sent_at, sequence_number or 0, *segment_numbers(segment), seq)


def segment_numbers(segment: str) -> tuple[int, int]:
    """A segment's name as two numbers, which are in the order of the names."""
    digits = segment[:SEGMENT_LENGTH].replace("-", "")
    return int(digits[:_HALF], 16), int(digits[_HALF:], 16)


def copy_key(kind: str, source: str, target: str, attempt_id: str | None) -> str:
    """The name of a copy: of one source to one queue, by their ids, and of one attempt if it has an id."""
    parts = [kind, source, target, attempt_id or ""]
    return hashlib.sha256("\0".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()[:32]


def application(key: str) -> str:
    """The application id under which a copy's parts are counted."""
    return f"copy/{key}"


def messages_application(key: str) -> str:
    """The application id under which a copy's messages are counted."""
    return f"copy/{key}/messages"


def mark_application(key: str, number: int) -> str:
    """The application id of one of a copy's marks."""
    return f"copy/{key}/{number}"


def instants_in_target(
    kept_since: int, available_at: int, now: int, retention: Retention, *, fifo: bool
) -> tuple[int, int]:
    """When a copied message counts as sent, and from when it may be received, in milliseconds.

    It stays as old as it is where that is possible: it was not sent in the future, and its new queue would not find it
    expired at once, as nothing may be lost by a copy. On a FIFO queue it is sent now: a message that is older than
    others of its group would get before them.
    """
    is_kept = not fifo and kept_since <= now < retention.ends(kept_since)
    sent_at = kept_since if is_kept else now
    return sent_at, max(sent_at, available_at)
