"""What a store is given of messages that come from elsewhere; see `rules.copies` for how a copy is safe to retry."""

from __future__ import annotations

from typing import NamedTuple

from ledger.rules.message import Entry


class CopiedMessage(NamedTuple):
    """A message of another queue: what was sent, since when its queue keeps it, from when it may be received
    (milliseconds), and who sent it."""

    entry: Entry
    kept_since: int
    available_at: int
    sender_id: str | None = None
