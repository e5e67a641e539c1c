"""The actions of a commit that this client writes: lines of a log's file, as Delta's protocol has them."""

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

#: A line of a log's file.
Action = dict[str, Any]
#: Who made a commit, in the table's history.
ENGINE = f"ledger/{__version__}"
#: What a commit says of its operation that only appends.
APPENDED = {"mode": "Append"}
NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})


def commit_info(
    operation: str, metadata: Mapping[str, Any], now: int, parameters: Mapping[str, str] = NO_PARAMETERS
) -> Action:
    """What the commit says of itself; `parameters`: of its operation. Its id makes it another one than each other
    commit, also than one that does the same in the same moment."""
    known = {"timestamp": now, "operation": operation, "operationParameters": dict(parameters), "engineInfo": ENGINE}
    return {"commitInfo": {**known, "txnId": secrets.token_hex(16), "userMetadata": json.dumps(metadata)}}


def txn_action(transaction: tuple[str, int], now: int) -> Action:
    """A transaction that the commit carries."""
    return {"txn": {"appId": transaction[0], "version": transaction[1], "lastUpdated": now}}


def remove_action(path: str, size: int, partition: Mapping[str, Any], now: int, *, is_change: bool = True) -> Action:
    """A file that is no longer the table's; `is_change`: with its rows."""
    known = {"path": path, "deletionTimestamp": now, "dataChange": is_change, "extendedFileMetadata": True}
    return {"remove": {**known, "partitionValues": _values(partition), "size": size}}


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
    """A file that holds rows, and for which columns the log has statistics; `is_change`: rows that were not there."""
    known = {"path": path, "partitionValues": _values(partition), "size": size, "modificationTime": now}
    stats: dict[str, Any] = {"numRecords": rows.num_rows}
    if statistics:
        least = {name: pc.min_max(rows[name]).as_py() for name in statistics}
        stats["minValues"] = {name: bound_text(one["min"]) for name, one in least.items() if one["min"] is not None}
        stats["maxValues"] = {name: bound_text(one["max"]) for name, one in least.items() if one["max"] is not None}
        stats["nullCount"] = {name: rows[name].null_count for name in statistics}
    return {"add": {**known, "dataChange": is_change, "stats": json.dumps(stats)}}


def _values(partition: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: partition_text(value) for name, value in partition.items()}
