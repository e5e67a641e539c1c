"""What workers say of messages that they give back, as the receipts ledger keeps it: a text, and none of any length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ledger.errors import InvalidParameterValue

#: So many characters of a reason are kept: it is in the commit, once for all that is given back for it.
LONGEST = 500


def reason_of(given: object) -> str | None:
    """A reason as it is kept; None for none. Raises InvalidParameterValue for what is no text."""
    if given is not None and not isinstance(given, str):
        raise InvalidParameterValue("reason", type(given).__name__, "Must be a text", "Give str(error), say.")
    text = " ".join((given or "").split())
    return _cut(text) or None


def summary(reasons: Iterable[object]) -> str | None:
    """The reasons of many messages in one text, the most frequent first, with how many have each; None for none."""
    counted = Counter(" ".join(str(reason).split()) for reason in reasons if reason is not None)
    if len(counted) < 2:
        return reason_of(next(iter(counted), None))
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return _cut("; ".join(f"{reason} ({count:,})" for reason, count in ordered))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
