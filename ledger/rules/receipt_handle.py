"""Receipt handles: `queue.lane.segment.seq.receipt.checksum`, where `queue` is the queue's id.

Users must not rely on the parts. The receipt is 128 random bits, so nobody can guess a handle. The checksum (CRC-32)
only shows that a handle was cut or mistyped.
"""

from __future__ import annotations

import re
import secrets
import zlib
from typing import NamedTuple

from ledger.errors import InvalidParameterValue, ReceiptHandleIsInvalid
from ledger.rules.message_id import SEGMENT, SEQ_BOUND

PATTERN = (
    r"^([A-Za-z0-9_-]{1,100}(?:\.fifo-[0-9a-f]{8})?)\.([0-9]{1,3})\.(" + SEGMENT.pattern + r")\.([0-9]{1,10})"
    r"\.([0-9a-f]{32})\.([0-9a-f]{8})$"
)
_HANDLE = re.compile(PATTERN)
_RECEIPT = re.compile(r"[0-9a-f]{32}")


class ReceiptHandle(NamedTuple):
    queue: str
    lane: int
    segment: str
    seq: int
    receipt_id: str


def new_receipt_id() -> str:
    return secrets.token_hex(16)


def is_receipt(receipt_id: object) -> bool:
    """Return whether a claim has a receipt: an empty claim has None or the empty text.

    Raises InvalidParameterValue for any other value.
    """
    if receipt_id is None or receipt_id == "":
        return False
    if not isinstance(receipt_id, str) or _RECEIPT.fullmatch(receipt_id) is None:
        bound = "Must be 32 hexadecimal digits"
        raise InvalidParameterValue("receipt_id", receipt_id, bound, "Give a claim's receipt_id, no receipt handle.")
    return True


def encode(handle: ReceiptHandle) -> str:
    text = ".".join(map(str, handle))
    return f"{text}.{zlib.crc32(text.encode()):08x}"


def decode(text: object, queue: str) -> ReceiptHandle:
    """Return the handle in `text`. Raises ReceiptHandleIsInvalid if it is no handle of `queue` (the queue's id)."""
    match = _HANDLE.match(text) if isinstance(text, str) else None
    if match is None or f"{zlib.crc32(match.string[:-9].encode()):08x}" != match[6] or int(match[4]) >= SEQ_BOUND:
        raise ReceiptHandleIsInvalid(text, "It is not one that receive handed out.")
    if match[1] != queue:
        raise ReceiptHandleIsInvalid(text, f"It is of another queue ({match[1]}), not of {queue}.")
    return ReceiptHandle(match[1], int(match[2]), match[3], int(match[4]), match[5])
