"""The log of a table that is made without an engine, and has no rows yet."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from ledger.delta_log.table_files import LOG, log_entry, log_file
from ledger.rules.publishable import Demands


def first_commit(demands: Demands, now: int) -> bytes:
    """The first commit of a table with these demands."""
    return _entry(demands.actions(str(uuid.uuid4()), now))


def log_for_spark(demands: Demands, now: int) -> dict[str, bytes]:
    """The log of such a table, files by their paths: the first commit, and what Delta's protocol calls its version's
    checksum, which says what a replay of the log would find. Without it Spark replays the log behind the commit that it
    makes, in three jobs that take longer than a small write."""
    said = demands.actions(str(uuid.uuid4()), now)
    nothing = {"tableSizeBytes": 0, "numFiles": 0, "setTransactions": [], "domainMetadata": [], "allFiles": []}
    known = {"numMetadata": 1, "numProtocol": 1, "metadata": said["metaData"], "protocol": said["protocol"]}
    return {log_file(0): _entry(said), f"{LOG}/{0:020d}.crc": json.dumps({**nothing, **known}).encode()}


def _entry(said: Mapping[str, Any]) -> bytes:
    return log_entry({action: about} for action, about in said.items())
