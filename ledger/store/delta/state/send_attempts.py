"""What was sent under an attempt id before."""

from __future__ import annotations

from ledger.rules.attempts import Attempt
from ledger.store.delta.engine import Tables


def sent_before(tables: Tables, attempt: Attempt) -> str | None:
    """The key of the segments that a send under this attempt wrote, which survive a power cut; None when none was
    committed.

    Raises InvalidParameterValue when what was committed under it is another send.
    """
    content = tables.transaction_version("messages", attempt.transaction[0])
    if content is None:
        return None
    attempt.require_same(content)
    tables.make_durable("messages", tables.version("messages"))
    return attempt.key
