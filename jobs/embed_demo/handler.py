"""The handler of the job: what a user of `Queue.consume` writes."""

from __future__ import annotations

from typing import Any

from jobs.embed_demo.model import Refused, embed_paid
from ledger import Message, RetryLater

#: So many texts are one request to the front, and one call of the model.
BATCH = 32


def embed(messages: list[Message]) -> list[dict[str, Any]]:
    """Return a row for each text. A request that the front refuses is no fault of its texts."""
    try:
        return embed_paid([message.body for message in messages])
    except Refused as refused:
        raise RetryLater(max(refused.seconds, 1), reason=str(refused)) from None
