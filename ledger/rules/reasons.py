"""The reasons that workers give for released messages.

The receipts ledger (the table and view `receipts`) keeps a reason as a text of limited length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ledger.errors import InvalidParameterValue
from ledger.rules.text import escaped

#: How many characters of a reason are kept.
LONGEST = 500
#: How many different reasons one commit names at most, besides FURTHER. The table of failures has the reason of each
#: message.
MOST = 100
#: The reason that a commit gives for messages whose own reasons are beyond MOST.
FURTHER = "a reason that fewer messages have than the 100 that are named"


def reason_of(given: object) -> str | None:
    """Return a reason as it is kept: one line of at most LONGEST characters. Return None for None and a blank text.

    A lone surrogate, which no file can hold, becomes its escape. Raises InvalidParameterValue for a value that is no
    text.
    """
    if given is not None and not isinstance(given, str):
        raise InvalidParameterValue("reason", type(given).__name__, "Must be a text", "Give str(error), say.")
    text = escaped(" ".join((given or "").split()))
    return _cut(text) or None


def distinct(reasons: Iterable[object]) -> list[str]:
    """Return the different reasons of many messages as they are kept: at most MOST, the most frequent first.

    None and blank texts do not count.
    """
    counted: Counter[str] = Counter()
    for text, count in Counter(str(reason) for reason in reasons if reason is not None).items():
        reason = reason_of(text)
        if reason is not None:
            counted[reason] += count
    ordered = sorted(counted, key=lambda reason: (-counted[reason], reason))
    return ordered[:MOST]


def kept(given: object) -> str | None:
    """Return a reason of any type as it is kept; None for None and for a blank text."""
    return None if given is None else reason_of(str(given))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
