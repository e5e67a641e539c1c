"""What was sent under an attempt id before."""

from __future__ import annotations

from ledger.delta_log.protocol import Tables
from ledger.rules.attempts import Attempt


def sent_before(tables: Tables, attempt: Attempt) -> str | None:
    """The key of the segments that a send under this attempt wrote, which survive a power cut; None when none was
    committed.

    Raises InvalidParameterValue when what was committed under it is another send.
    """
    content = tables.transaction_version("messages", attempt.transaction[0])
    application, key = attempt.former
    if content is not None:
        attempt.require_same(content)
        key = attempt.key
    elif tables.transaction_version("messages", application) is None:
        return None
    tables.make_durable("messages", tables.version("messages"))
    return key
