"""The Delta actions of the client's commits, in the form of Delta's protocol."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.values import bound_text, partition_text
from ledger.version import __version__

#: A line of a log file.
Action = dict[str, Any]
ENGINE = f"ledger/{__version__}"
#: The `operationParameters` of a commit that only appends.
APPENDED = {"mode": "Append"}
NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})


def commit_info(
    operation: str, metadata: Mapping[str, Any], now: int, parameters: Mapping[str, str] = NO_PARAMETERS
) -> Action:
    """Return the `commitInfo` of a commit. A random `txnId` makes each entry unique."""
    info = {"timestamp": now, "operation": operation, "operationParameters": dict(parameters), "engineInfo": ENGINE}
    return {"commitInfo": {**info, "txnId": secrets.token_hex(16), "userMetadata": json.dumps(metadata)}}


def txn_action(transaction: tuple[str, int], now: int) -> Action:
    return {"txn": {"appId": transaction[0], "version": transaction[1], "lastUpdated": now}}


def remove_action(path: str, size: int, partition: Mapping[str, Any], now: int, *, is_change: bool = True) -> Action:
    """Return the `remove` action of a file. `is_change` is False if the commit adds the same rows."""
    remove = {"path": path, "deletionTimestamp": now, "dataChange": is_change, "extendedFileMetadata": True}
    return {"remove": {**remove, "partitionValues": _values(partition), "size": size}}


def add_action(
    path: str,
    size: int,
    rows: pa.Table,
    partition: Mapping[str, Any],
    now: int,
    statistics: Sequence[str] = (),
    *,
    is_change: bool = True,
) -> Action:
    """Return the `add` action of a file. `is_change` is False if the rows were in the table before.

    The log gets nulls, minimum and maximum of the columns `statistics`.
    """
    add = {"path": path, "partitionValues": _values(partition), "size": size, "modificationTime": now}
    stats: dict[str, Any] = {"numRecords": rows.num_rows}
    if statistics:
        extremes = {name: pc.min_max(rows[name]).as_py() for name in statistics}
        stats["minValues"] = {
            name: bound_text(extreme["min"]) for name, extreme in extremes.items() if extreme["min"] is not None
        }
        stats["maxValues"] = {
            name: bound_text(extreme["max"]) for name, extreme in extremes.items() if extreme["max"] is not None
        }
        stats["nullCount"] = {name: rows[name].null_count for name in statistics}
    return {"add": {**add, "dataChange": is_change, "stats": json.dumps(stats)}}


def _values(partition: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: partition_text(value) for name, value in partition.items()}
