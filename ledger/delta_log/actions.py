"""The actions of the client's commits, as lines of the log in the form of Delta's protocol."""

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

#: An action: one line of an entry of the log.
Action = dict[str, Any]
#: The writer of a commit, in the table's history.
ENGINE = f"ledger/{__version__}"
#: The operation's parameters of a commit that only appends.
APPENDED = {"mode": "Append"}
NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})


def commit_info(
    operation: str, metadata: Mapping[str, Any], now: int, parameters: Mapping[str, str] = NO_PARAMETERS
) -> Action:
    """Return the `commitInfo` of a commit; `parameters` are the parameters of its operation.

    Its `txnId` makes the commit differ from every other commit, even from one with the same actions and time.
    """
    info = {"timestamp": now, "operation": operation, "operationParameters": dict(parameters), "engineInfo": ENGINE}
    return {"commitInfo": {**info, "txnId": secrets.token_hex(16), "userMetadata": json.dumps(metadata)}}


def txn_action(transaction: tuple[str, int], now: int) -> Action:
    """Return the `txn` action of a transaction (application id, version) that the commit carries."""
    return {"txn": {"appId": transaction[0], "version": transaction[1], "lastUpdated": now}}


def remove_action(path: str, size: int, partition: Mapping[str, Any], now: int, *, is_change: bool = True) -> Action:
    """Return the action that removes a file from the table; `is_change`: its rows are removed, too."""
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
    """Return the action that adds a file of rows, with the log's statistics; `is_change`: the rows are new."""
    add = {"path": path, "partitionValues": _values(partition), "size": size, "modificationTime": now}
    stats: dict[str, Any] = {"numRecords": rows.num_rows}
    if statistics:
        least = {name: pc.min_max(rows[name]).as_py() for name in statistics}
        stats["minValues"] = {name: bound_text(one["min"]) for name, one in least.items() if one["min"] is not None}
        stats["maxValues"] = {name: bound_text(one["max"]) for name, one in least.items() if one["max"] is not None}
        stats["nullCount"] = {name: rows[name].null_count for name in statistics}
    return {"add": {**add, "dataChange": is_change, "stats": json.dumps(stats)}}


def _values(partition: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: partition_text(value) for name, value in partition.items()}
