"""The id of a message: its segment, and its number in the segment (`seq`). So no id is stored.

The id reads as a UUID of version 8 (RFC 9562, custom): 24 hexadecimal digits of the segment's name, and 8 of `seq`.
"""

from __future__ import annotations

import hashlib
import re
import secrets

from ledger.errors import InvalidParameterValue

SEGMENT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89][0-9a-f]{3}-[0-9a-f]{4}")
MESSAGE_ID = re.compile(SEGMENT.pattern + r"[0-9a-f]{8}")
SEGMENT_LENGTH = 28
SEQ_BOUND = 2**32
#: The bound of a segment's number (ordinal) in its send.
ORDINAL_BOUND = 2**18


def new_send_key() -> str:
    return secrets.token_hex(9)


def send_key(*parts: str) -> str:
    """Return 18 hexadecimal digits from a hash of the parts, so that a retried send names the same segments."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:18]


def segment(key: str, ordinal: int, *, is_open: bool = False) -> str:
    """Return a segment's name. It has 70 of the 72 bits of the send's key, and 18 bits of the ordinal.

    Only the one writer of an open segment appends to it.
    """
    low = f"{((int(key[14:18], 16) & 0x3FFF) << 18) | ordinal:08x}"
    digits = key[:8] + key[8:12] + "8" + key[12:14] + low[0] + ("9" if is_open else "8") + low[1:4] + low[4:8]
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:24]}"


def is_open(segment_name: str) -> bool:
    return segment_name[19] == "9"


def message_id(segment_name: str, seq: int) -> str:
    return f"{segment_name}{seq:08x}"


def place(identifier: object) -> tuple[str, int]:
    """Return (segment, seq) of a message id. Raises InvalidParameterValue for any other value."""
    if not isinstance(identifier, str) or not MESSAGE_ID.fullmatch(identifier):
        raise InvalidParameterValue("MessageId", identifier, "Must be a message id as send or receive returned it")
    return identifier[:SEGMENT_LENGTH], int(identifier[SEGMENT_LENGTH:], 16)
