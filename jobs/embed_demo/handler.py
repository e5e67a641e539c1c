"""The handler of jobs/embed.py: the code that a user of `Queue.consume` writes."""

from __future__ import annotations

from typing import Any

from jobs.embed_demo.model import Refused, embed_paid
from ledger import Message, RetryLater

#: Texts of one request to the front, and of one call of the model.
BATCH = 32


def embed(messages: list[Message]) -> list[dict[str, Any]]:
    """Return a row for each text. If the front refuses the request, raise RetryLater: the texts have no fault."""
    try:
        return embed_paid([message.body for message in messages])
    except Refused as refused:
        raise RetryLater(max(refused.seconds, 1), reason=str(refused)) from None
