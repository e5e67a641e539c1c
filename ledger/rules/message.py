"""What a message body may be."""

from __future__ import annotations

from ledger.errors import InvalidParameterValue


def body(text: object, maximum_bytes: int) -> str:
    """`text` if it can be a body: 1 byte to the queue's MaximumMessageSize in UTF-8."""
    if not isinstance(text, str):
        raise InvalidParameterValue(
            "MessageBody", text, "Must be a string", "Encode other values, for example as JSON."
        )
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidParameterValue("MessageBody", text, "It holds half a character (a lone surrogate)") from None
    if not 1 <= size <= maximum_bytes:
        raise InvalidParameterValue(
            "MessageBody",
            text,
            f"It has {size} bytes and must have 1 to {maximum_bytes} (MaximumMessageSize)",
            "Raise the queue's MaximumMessageSize, or send a pointer to the data.",
        )
    return text
