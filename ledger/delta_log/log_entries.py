"""Entries of a table's log: parsed, or named as damage.

An entry is one JSON file. Each writer makes it appear whole. The ledger and delta-rs link a finished file; on an object
store they put it in one request. Delta's log stores for local paths and HDFS write a temporary file and rename it, as
their documentation says. So an entry that is empty or torn is no commit in progress. A power cut left it of a commit
that the disk did not have yet, or a copy was cut short. delta-rs and Spark both read an empty entry as a commit that
changes nothing. Another log store may write in place. For it, and for network file systems, `require_whole` reads a
flawed entry again for a second.

An entry of the ledger's own tables also has a `commitInfo`, by which the ledger finds its own commits. Delta's protocol
makes it optional, but the ledger, delta-rs and Spark write one. Spark 4.2 with Delta 4.4 does so even in a session with
spark.databricks.delta.commitInfo.enabled=false (tried). An entry without one is taken for damage. Entries of output
tables need none.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ledger.delta_log.log_gaps import PAUSES
from ledger.delta_log.table_files import LOG, CommitFiles, log_file
from ledger.errors import LedgerDamaged

#: What repairs a log.
REPAIR = (
    "A power cut does this to a ledger that was written without sync, and so does a copy that was cut short. Restore a "
    "backup; or stop all that uses the ledger, and `ledger repair ROOT` cuts it back to its last whole version"
)
#: What a damaged entry of the ledger's own tables lacks, if it is nothing else.
NO_COMMIT_INFO = "has no commitInfo, which every commit of the ledger has"
_CHECKPOINT = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\..*parquet")


class Flawed(ValueError):
    """An entry is no whole commit; the message says what it is."""


def actions_in(content: bytes, *, needs_info: bool = True) -> list[dict[str, Any]]:
    """Return the actions of an entry. Raises Flawed for one that is empty, torn, or lacks the `commitInfo` it needs."""
    if not content.strip(b" \t\r\n\0"):
        raise Flawed("has no bytes" if not content else "has nothing but blanks")
    try:
        actions = [json.loads(line) for line in content.splitlines() if line.strip()]
    except ValueError as error:
        raise Flawed(f"is torn: {error}") from error
    if not all(isinstance(action, dict) for action in actions):
        raise Flawed("is torn: a line is no JSON object")
    if needs_info and not any("commitInfo" in action for action in actions):
        raise Flawed(NO_COMMIT_INFO)
    return actions


def flaw_of(content: bytes, *, needs_info: bool = True) -> str | None:
    """Return what is wrong with an entry; None: it is whole."""
    try:
        actions_in(content, needs_info=needs_info)
    except Flawed as flaw:
        return str(flaw)
    return None


def damaged(table: str, version: int, what: str) -> LedgerDamaged:
    """Return the error that names a damaged entry of one of the ledger's tables."""
    return LedgerDamaged(f"Version {version} of the table {table} is damaged: {log_file(version)} {what}", f"{REPAIR}.")


def require_whole(table: str, version: int, content: bytes, stored: CommitFiles) -> list[dict[str, Any]] | None:
    """Return the actions of an entry; None when it is gone by now.

    A network file system may show a new file without its bytes for a moment, so a flawed entry is read again, for a
    second. Raises LedgerDamaged for one that stays so.
    """
    try:
        return actions_in(content)
    except Flawed as flaw:
        last = flaw
    for pause in PAUSES:
        time.sleep(pause)
        again = stored.read(log_file(version))
        if again is None:
            return None
        try:
            return actions_in(again)
        except Flawed as flaw:
            last = flaw
    raise damaged(table, version, str(last)) from last


def flaws_in(stored: CommitFiles, versions: Sequence[int], *, needs_info: bool = True) -> Mapping[int, str]:
    """Return, by version, what is wrong with some entries; those that are gone by now are left out."""
    contents = ((version, stored.read(log_file(version))) for version in versions)
    flaws = ((version, flaw_of(content, needs_info=needs_info)) for version, content in contents if content is not None)
    return {version: flaw for version, flaw in flaws if flaw is not None}


def checkpointed(paths: Sequence[str]) -> list[int]:
    """Return the versions that have a checkpoint, in order, of the paths of a log."""
    return sorted({int(found[1]) for found in map(_CHECKPOINT.fullmatch, paths) if found})
