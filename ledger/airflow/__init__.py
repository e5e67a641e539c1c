"""Integration with Apache Airflow 3: connection type, operators, sensor, triggers, message queue.

DAGs import the names below from here. A module is imported when one of its names is first used, so that Airflow can
import the provider's description alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledger.airflow.hook import LedgerHook
    from ledger.airflow.operators import (
        LedgerCreateQueueOperator,
        LedgerReceiveOperator,
        LedgerSendOperator,
        LedgerSensor,
        LedgerUpkeepOperator,
    )
    from ledger.airflow.triggers import LedgerQueueTrigger, LedgerTrigger
    from ledger.airflow.work_operators import LedgerConsumeOperator, LedgerSparkWorkOperator, LedgerWorkOperator

_HOMES = {
    "LedgerConsumeOperator": "ledger.airflow.work_operators",
    "LedgerCreateQueueOperator": "ledger.airflow.operators",
    "LedgerHook": "ledger.airflow.hook",
    "LedgerQueueTrigger": "ledger.airflow.triggers",
    "LedgerReceiveOperator": "ledger.airflow.operators",
    "LedgerSendOperator": "ledger.airflow.operators",
    "LedgerSensor": "ledger.airflow.operators",
    "LedgerSparkWorkOperator": "ledger.airflow.work_operators",
    "LedgerTrigger": "ledger.airflow.triggers",
    "LedgerUpkeepOperator": "ledger.airflow.operators",
    "LedgerWorkOperator": "ledger.airflow.work_operators",
}
__all__ = [
    "LedgerConsumeOperator",
    "LedgerCreateQueueOperator",
    "LedgerHook",
    "LedgerQueueTrigger",
    "LedgerReceiveOperator",
    "LedgerSendOperator",
    "LedgerSensor",
    "LedgerSparkWorkOperator",
    "LedgerTrigger",
    "LedgerUpkeepOperator",
    "LedgerWorkOperator",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ledger.airflow' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
