"""What workers say of messages that they give back, as the receipts ledger keeps it: a text, and none of any length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ledger.errors import InvalidParameterValue
from ledger.rules.text import escaped

#: So many characters of a reason are kept: it is in the commit, once for all that is given back for it.
LONGEST = 500
#: One commit names at most so many different reasons. The table of failures has each message's own.
MOST = 100
#: What a commit says of messages whose reasons are further ones.
FURTHER = "a reason that fewer messages have than the 100 that are named"


def reason_of(given: object) -> str | None:
    """A reason as it is kept; None for none. Half a character, which no file can hold, is kept as its escape.

    Raises InvalidParameterValue for what is no text.
    """
    if given is not None and not isinstance(given, str):
        raise InvalidParameterValue("reason", type(given).__name__, "Must be a text", "Give str(error), say.")
    text = escaped(" ".join((given or "").split()))
    return _cut(text) or None


def distinct(reasons: Iterable[object]) -> list[str]:
    """The different reasons of many messages as they are kept, the most frequent first, at most MOST; None and blank
    texts are none. Each is a text of its own, so that messages group by it in SQL."""
    counted: Counter[str] = Counter()
    for given, count in Counter(str(reason) for reason in reasons if reason is not None).items():
        reason = reason_of(given)
        if reason is not None:
            counted[reason] += count
    ordered = sorted(counted, key=lambda reason: (-counted[reason], reason))
    return ordered[:MOST]


def kept(given: object) -> str | None:
    """A reason of any type as it is kept; None for none."""
    return None if given is None else reason_of(str(given))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
