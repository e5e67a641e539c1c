"""Text that can be stored: what UTF-8 can say."""

from __future__ import annotations

from ledger.errors import InvalidParameterValue


def storable(field: str, text: str) -> bytes:
    """`text` in UTF-8; raises InvalidParameterValue for half a character, which Python's strings may hold."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidParameterValue(field, text, "It holds half a character (a lone surrogate)") from None
