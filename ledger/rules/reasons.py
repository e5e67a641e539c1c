"""The reasons that workers give for released messages, as the table and view `receipts` keep them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ledger.errors import InvalidParameterValue
from ledger.rules.text import escaped

#: In characters.
LONGEST = 500
#: How many different reasons one commit names, besides FURTHER. The table of failures has each message's reason.
MOST = 100
FURTHER = f"a reason that fewer messages have than the {MOST} that are named"


def reason_of(given: object) -> str | None:
    """Return a reason as it is kept: one line of at most LONGEST characters. Return None for None and a blank text.

    Raises InvalidParameterValue for a value that is no text.
    """
    if given is not None and not isinstance(given, str):
        raise InvalidParameterValue("reason", type(given).__name__, "Must be a text", "Give str(error), say.")
    text = escaped(" ".join((given or "").split()))
    return _cut(text) or None


def distinct(reasons: Iterable[object]) -> list[str]:
    """Return the different reasons as they are kept: at most MOST, the most frequent first."""
    counted: Counter[str] = Counter()
    for text, count in Counter(str(reason) for reason in reasons if reason is not None).items():
        reason = reason_of(text)
        if reason is not None:
            counted[reason] += count
    ordered = sorted(counted, key=lambda reason: (-counted[reason], reason))
    return ordered[:MOST]


def kept(given: object) -> str | None:
    return None if given is None else reason_of(str(given))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
