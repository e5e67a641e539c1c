"""Amazon SQS's visibility-timeout semantics as a Spark-native batch queue on Delta Lake tables."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ledger.version import __version__ as __version__

if TYPE_CHECKING:
    from ledger.claim import Claim
    from ledger.client.arrow_rows import SentTable
    from ledger.client.explanation import Explanation
    from ledger.errors import (
        ClocksDisagree,
        ContentionOutlastedRetries,
        ForkedProcess,
        InvalidAttributeName,
        InvalidAttributeValue,
        InvalidMessageContents,
        InvalidParameterValue,
        LeaseLost,
        LedgerDamaged,
        LedgerDoesNotExist,
        LedgerError,
        LedgerIsReadOnly,
        LedgerTooNew,
        MessageDoesNotExist,
        MessageNotInflight,
        MissingParameter,
        OutputNotWritten,
        OutputUnreadable,
        OverLimit,
        PurgeQueueInProgress,
        QueueDeletedRecently,
        QueueDoesNotExist,
        QueueNameExists,
        ReceiptHandleIsInvalid,
        ResourceNotFound,
        SparkIsNeeded,
        StorageFailed,
        TableAltered,
        UnsafeStorage,
        UnsupportedVersion,
    )
    from ledger.heartbeat import Heartbeat
    from ledger.ledger import Ledger
    from ledger.message import Message
    from ledger.queue import Queue
    from ledger.results import Consumed, Counts, HandleOutcome, SendOutcome, Settled
    from ledger.rules.message_attributes import Attribute
    from ledger.rules.redrive import MoveTask
    from ledger.rules.visibility import Status
    from ledger.settings import Settings
    from ledger.store.delta.dataframes.bulk_send import Sent
    from ledger.store.delta.verbs.health import Health, TableHealth
    from ledger.store.delta.verbs.upkeep import UpkeepReport
    from ledger.work.group_limits import GroupLimit
    from ledger.work.verdicts import Reject, RetryLater

#: The module of each public name. A module is imported when one of its names is first used, so set-up tools can import
#: the package before its dependencies are installed.
_HOMES = {
    "Ledger": "ledger.ledger",
    "Queue": "ledger.queue",
    "Claim": "ledger.claim",
    "Heartbeat": "ledger.heartbeat",
    "Settled": "ledger.results",
    "Worked": "ledger.results",
    "Consumed": "ledger.results",
    "GroupLimit": "ledger.work.group_limits",
    "Reject": "ledger.work.verdicts",
    "RetryLater": "ledger.work.verdicts",
    "Message": "ledger.message",
    "HandleOutcome": "ledger.results",
    "SendOutcome": "ledger.results",
    "Counts": "ledger.results",
    "Explanation": "ledger.client.explanation",
    "Attribute": "ledger.rules.message_attributes",
    "Status": "ledger.rules.visibility",
    "MoveTask": "ledger.rules.redrive",
    "Sent": "ledger.store.delta.dataframes.bulk_send",
    "SentTable": "ledger.client.arrow_rows",
    "Health": "ledger.store.delta.verbs.health",
    "TableHealth": "ledger.store.delta.verbs.health",
    "UpkeepReport": "ledger.store.delta.verbs.upkeep",
    "Settings": "ledger.settings",
    **dict.fromkeys(
        (
            "LedgerError",
            "InvalidParameterValue",
            "InvalidMessageContents",
            "MissingParameter",
            "InvalidAttributeName",
            "InvalidAttributeValue",
            "QueueDoesNotExist",
            "QueueNameExists",
            "QueueDeletedRecently",
            "PurgeQueueInProgress",
            "MessageDoesNotExist",
            "ReceiptHandleIsInvalid",
            "OverLimit",
            "ResourceNotFound",
            "MessageNotInflight",
            "LeaseLost",
            "ContentionOutlastedRetries",
            "OutputNotWritten",
            "OutputUnreadable",
            "UnsafeStorage",
            "UnsupportedVersion",
            "ClocksDisagree",
            "StorageFailed",
            "TableAltered",
            "LedgerDamaged",
            "LedgerIsReadOnly",
            "ForkedProcess",
            "LedgerTooNew",
            "LedgerDoesNotExist",
            "SparkIsNeeded",
        ),
        "ledger.errors",
    ),
}
__all__ = [
    "Attribute",
    "Claim",
    "ClocksDisagree",
    "Consumed",
    "ContentionOutlastedRetries",
    "Counts",
    "Explanation",
    "ForkedProcess",
    "GroupLimit",
    "HandleOutcome",
    "Health",
    "Heartbeat",
    "InvalidAttributeName",
    "InvalidAttributeValue",
    "InvalidMessageContents",
    "InvalidParameterValue",
    "LeaseLost",
    "Ledger",
    "LedgerDamaged",
    "LedgerDoesNotExist",
    "LedgerError",
    "LedgerIsReadOnly",
    "LedgerTooNew",
    "Message",
    "MessageDoesNotExist",
    "MessageNotInflight",
    "MissingParameter",
    "MoveTask",
    "OutputNotWritten",
    "OutputUnreadable",
    "OverLimit",
    "PurgeQueueInProgress",
    "Queue",
    "QueueDeletedRecently",
    "QueueDoesNotExist",
    "QueueNameExists",
    "ReceiptHandleIsInvalid",
    "Reject",
    "ResourceNotFound",
    "RetryLater",
    "SendOutcome",
    "Sent",
    "SentTable",
    "Settings",
    "Settled",
    "SparkIsNeeded",
    "Status",
    "StorageFailed",
    "TableAltered",
    "TableHealth",
    "UnsafeStorage",
    "UnsupportedVersion",
    "UpkeepReport",
    "Worked",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ledger' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
