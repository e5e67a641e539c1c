"""Copies of messages from another ledger's queue or an exported file.

A copy proceeds in parts, and each part is one commit to the target. The commit appends messages and notes the copy's
progress: the number of its parts and messages, and marks that say where the next part begins. A part can only be
committed directly after the part before it. A process that copies again reads the progress and continues with the next
part. So one copy sends no message twice, and skips none that is still there.

The marks must stay true while the source changes. For a file the mark is a number of row groups. A message of a queue
keeps its position until it is moved. For a queue the marks are the `Position` of the last message that was read, and
the instant `until`: the arrival of the newest message when the copy began. A message that enters the queue later mostly
has an arrival after `until`, and is not copied. The exception is a dead letter of a standard queue: it keeps its
earlier arrival.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from ledger.rules.message_id import SEGMENT_LENGTH
from ledger.rules.state import Retention

#: How many hexadecimal digits of a segment's name make one number of a position; the name has twice as many.
_HALF = 12


class Position(NamedTuple):
    """A message's place in the order in which a queue is copied.

    The oldest message comes first, and the messages of a FIFO queue's group keep their order. Each number of a position
    fits into a transaction of Delta's log.
    """

    arrived_at: int
    sent_at: int
    sequence_number: int
    segment_high: int
    segment_low: int
    seq: int


class CopyProgress(NamedTuple):
    """A copy's progress: the parts that are committed, the messages in them, and where the next part begins."""

    parts: int
    messages: int
    marks: tuple[int, ...]

    def transactions(self, key: str) -> list[tuple[str, int]]:
        """Return the transactions of a part's commit.

        The first transaction has the part's number, and commits only directly after the part before.
        """
        marks = [(mark_application(key, number), mark) for number, mark in enumerate(self.marks)]
        return [(application(key), self.parts), (messages_application(key), self.messages), *marks]


def position(arrived_at: int, sent_at: int, sequence_number: int | None, segment: str, seq: int) -> Position:
    """Return the position of a message. Instants are in milliseconds."""
    return Position(arrived_at, sent_at, sequence_number or 0, *segment_numbers(segment), seq)


def segment_numbers(segment: str) -> tuple[int, int]:
    """Return a segment's name as two numbers, which sort in the order of the names."""
    digits = segment[:SEGMENT_LENGTH].replace("-", "")
    return int(digits[:_HALF], 16), int(digits[_HALF:], 16)


def copy_key(kind: str, source: str, target: str, attempt_id: str | None) -> str:
    """Return the name of a copy, from the ids of its source and its target, and the attempt id if there is one."""
    parts = [kind, source, target, attempt_id or ""]
    return hashlib.sha256("\0".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()[:32]


def application(key: str) -> str:
    """Return the application id that counts a copy's parts."""
    return f"copy/{key}"


def messages_application(key: str) -> str:
    """Return the application id that counts a copy's messages."""
    return f"copy/{key}/messages"


def mark_application(key: str, number: int) -> str:
    """Return the application id of one of a copy's marks."""
    return f"copy/{key}/{number}"


def instants_in_target(
    kept_since: int, available_at: int, now: int, retention: Retention, *, fifo: bool
) -> tuple[int, int]:
    """Return when a copied message counts as sent, and from when it may be received, in milliseconds.

    Where possible, a copy is as old as its message. A message from the future counts as sent now, and so does a message
    that the new queue would expire at once. On a FIFO queue every copy counts as sent now: otherwise an older message
    would come before others of its group.
    """
    is_kept = not fifo and kept_since <= now < retention.ends(kept_since)
    sent_at = kept_since if is_kept else now
    return sent_at, max(sent_at, available_at)
