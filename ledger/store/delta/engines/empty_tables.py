"""The log of a table that is made without an engine, and has no rows yet."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from ledger.rules.publishable import Demands
from ledger.store.delta.engines.table_files import LOG, log_file


def first_commit(demands: Demands, now: int) -> dict[str, bytes]:
    """The first commit of a table with these demands, as a file by its path."""
    return {log_file(0): _text(demands.actions(str(uuid.uuid4()), now))}


def first_commit_for_spark(demands: Demands, now: int) -> dict[str, bytes]:
    """The same with what Delta's protocol calls the version's checksum, which says what a replay of the log would find:
    without it Spark replays the log behind its first commit, in three jobs that take longer than a small write."""
    said = demands.actions(str(uuid.uuid4()), now)
    nothing = {"tableSizeBytes": 0, "numFiles": 0, "setTransactions": [], "domainMetadata": [], "allFiles": []}
    known = {"numMetadata": 1, "numProtocol": 1, "metadata": said["metaData"], "protocol": said["protocol"]}
    return {log_file(0): _text(said), f"{LOG}/{0:020d}.crc": json.dumps({**nothing, **known}).encode()}


def _text(said: Mapping[str, Any]) -> bytes:
    return "".join(json.dumps({action: about}) + "\n" for action, about in said.items()).encode()
