"""Amazon SQS's visibility-timeout semantics as a Spark-native batch queue on Delta Lake tables."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledger.batch import Claim, Heartbeat
    from ledger.ledger import Ledger
    from ledger.message import Counts, HandleOutcome, Message, SendOutcome
    from ledger.queue import Queue
    from ledger.settings import Settings

__version__ = "0.1.0"
#: Where each public name lives; imported when first used, so that set-up tools run before anything is installed.
_HOMES = {
    "Ledger": "ledger.ledger",
    "Queue": "ledger.queue",
    "Claim": "ledger.batch",
    "Heartbeat": "ledger.batch",
    "Message": "ledger.message",
    "HandleOutcome": "ledger.message",
    "SendOutcome": "ledger.message",
    "Counts": "ledger.message",
    "Settings": "ledger.settings",
}
__all__ = ["Claim", "Counts", "HandleOutcome", "Heartbeat", "Ledger", "Message", "Queue", "SendOutcome", "Settings"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ledger' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
