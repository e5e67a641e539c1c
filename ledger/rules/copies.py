"""Copies of messages from another ledger's queue or an exported file.

Each part of a copy is one commit to the target, which appends messages and notes the copy's progress. A part can only
be committed directly after the part before it, and a repeated copy continues with the next part. So a copy sends no
message twice, and skips no message that is still in the source.

The progress has *marks* of where the next part begins, which stay true while the source changes. For a file the mark is
a number of row groups. For a queue the marks are the arrival of the newest message when the copy began, and the
`Position` of the last copied message. A message keeps its position until it is moved. Messages that come later are not
copied, except dead letters of a standard queue, which keep an earlier arrival.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from ledger.rules.message_id import SEGMENT_LENGTH
from ledger.rules.visibility import Retention

_HALF_DIGITS = 12


class Position(NamedTuple):
    """A message's place in the order of a copy: the oldest message first, and each FIFO group in its order.

    Each number can be the version of a transaction id in Delta's log.
    """

    arrived_at: int
    sent_at: int
    sequence_number: int
    segment_high: int
    segment_low: int
    seq: int


class CopyProgress(NamedTuple):
    """The number of a copy's committed parts and of the messages in them, and where the next part begins."""

    parts: int
    messages: int
    marks: tuple[int, ...]

    def transactions(self, key: str) -> list[tuple[str, int]]:
        """Return the transaction ids and versions of a part's commit. The first pair puts the parts in order."""
        marks = [(mark_application(key, number), mark) for number, mark in enumerate(self.marks)]
        return [(application(key), self.parts), (messages_application(key), self.messages), *marks]


def position(arrived_at: int, sent_at: int, sequence_number: int | None, segment: str, seq: int) -> Position:
    return Position(arrived_at, sent_at, sequence_number or 0, *segment_numbers(segment), seq)


def segment_numbers(segment: str) -> tuple[int, int]:
    """Return a segment's name as two numbers, which sort in the order of the names."""
    digits = segment[:SEGMENT_LENGTH].replace("-", "")
    return int(digits[:_HALF_DIGITS], 16), int(digits[_HALF_DIGITS:], 16)


def copy_key(kind: str, source: str, target: str, attempt_id: str | None) -> str:
    parts = [kind, source, target, attempt_id or ""]
    return hashlib.sha256("\0".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()[:32]


def application(key: str) -> str:
    return f"copy/{key}"


def messages_application(key: str) -> str:
    return f"copy/{key}/messages"


def mark_application(key: str, number: int) -> str:
    return f"copy/{key}/{number}"


def instants_in_target(
    kept_since: int, available_at: int, now: int, retention: Retention, *, fifo: bool
) -> tuple[int, int]:
    """Return when a copied message counts as sent, and from when it may be received, in milliseconds.

    `kept_since` is the arrival in the source. A message from the future, or one that the target would expire at once,
    counts as sent now. So does every message on a FIFO queue: otherwise it could precede older ones of its group.
    """
    is_kept = not fifo and kept_since <= now < retention.ends(kept_since)
    sent_at = kept_since if is_kept else now
    return sent_at, max(sent_at, available_at)
