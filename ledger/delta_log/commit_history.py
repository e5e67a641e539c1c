"""What the commits to a table said of themselves, each by the version that its file of the log is named after.

delta-rs's own history counts down from the version that is loaded, but tells of the newest files that there are when it
looks: beside others who commit, each commit would have a version that is too low, and the oldest would be left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ledger.delta_log.log_entries import damaged, require_whole
from ledger.delta_log.protocol import Commit
from ledger.delta_log.table_files import AT_ONCE, TableFiles, log_file, version_of
from ledger.threads import map_at_once

#: Up to so many commits are looked for by their names; for more the log is listed.
FEW = 20
ReadMetadata = Callable[[str | None], dict[str, Any]]


def parse_metadata(text: str | None) -> dict[str, Any]:
    """Return the JSON object in a commit's userMetadata; {} where others have written something else."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def history(stored: TableFiles, since: int, table: str, read_metadata: ReadMetadata) -> list[Commit]:
    """Return the commits of one of the ledger's tables with a version > `since` that its log still has, oldest first.

    Raises what the storage does, and LedgerDamaged for an entry that is empty or torn.
    """
    found = _following(stored, table, read_metadata, since + 1, FEW)
    if 0 < len(found) < FEW:
        return found
    # There are more, or none, or the next one was removed with old ones.
    last = found[-1].version if found else since
    later = [version for version in map(version_of, stored.log_paths()) if version is not None and version > last]
    if later:
        # All between, and before: a listing may leave out what comes while it is made.
        first = last + 1 if stored.has(log_file(last + 1)) else min(later)
        versions = range(first, max(later) + 1)
        read = map_at_once(lambda version: _commit(stored, version, table, read_metadata), versions, AT_ONCE)
        found += [commit for commit in read if commit is not None]
        found += _following(stored, table, read_metadata, max(later) + 1)
    return found


def _following(stored: TableFiles, table: str, read: ReadMetadata, first: int, most: int | None = None) -> list[Commit]:
    """The commits from a version on up to the first that is not there."""
    found: list[Commit] = []
    while len(found) != most:
        commit = _commit(stored, first + len(found), table, read)
        if commit is None:
            break
        found.append(commit)
    return found


def _commit(stored: TableFiles, version: int, table: str, read: ReadMetadata) -> Commit | None:
    content = stored.read(log_file(version))
    actions = None if content is None else require_whole(table, version, content, stored)
    if actions is None:
        return None
    said = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    if not isinstance(said, dict):
        raise damaged(table, version, "has a commitInfo that is no JSON object")
    return Commit(version, said.get("timestamp", 0), read(said.get("userMetadata")))
