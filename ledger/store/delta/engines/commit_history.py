"""What the commits to a table said of themselves, each by the version that its file of the log is named after.

delta-rs's own history counts down from the version that is loaded, but tells of the newest files that there are when it
looks: beside others who commit, each commit would have a version that is too low, and the oldest would be left out.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from ledger.store.delta.engines.commit_metadata import said_in
from ledger.store.delta.engines.protocol import Commit
from ledger.store.delta.engines.table_files import AT_ONCE, TableFiles, log_file, version_of

#: Up to so many commits are looked for by their names; for more the log is listed.
FEW = 20


def history(stored: TableFiles, since: int) -> list[Commit]:
    """The commits with a version > `since` of which the log still tells, oldest first.

    Raises what the storage does, and OSError for an entry that cannot be read.
    """
    found = _following(stored, since + 1, FEW)
    if 0 < len(found) < FEW:
        return found
    # There are more, or none, or the next one was removed with old ones.
    last = found[-1].version if found else since
    later = [version for version in map(version_of, stored.log_paths()) if version is not None and version > last]
    if later:
        # All between, and before: a listing may leave out what comes while it is made.
        first = last + 1 if stored.has(log_file(last + 1)) else min(later)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            read = threads.map(lambda version: _commit(stored, version), range(first, max(later) + 1))
            found += [commit for commit in read if commit is not None]
        found += _following(stored, max(later) + 1)
    return found


def _following(stored: TableFiles, first: int, most: int | None = None) -> list[Commit]:
    """The commits from a version on up to the first that is not there."""
    found: list[Commit] = []
    while len(found) != most:
        commit = _commit(stored, first + len(found))
        if commit is None:
            break
        found.append(commit)
    return found


def _commit(stored: TableFiles, version: int) -> Commit | None:
    content = stored.read(log_file(version))
    if content is None:
        return None
    try:
        for line in content.splitlines():
            said = json.loads(line).get("commitInfo") if b'"commitInfo"' in line else None
            if said is not None:
                return Commit(version, said.get("timestamp", 0), said_in(said.get("userMetadata")))
    except (AttributeError, ValueError) as error:
        raise OSError(f"{log_file(version)} is no entry of a Delta log: {error}") from error
    return Commit(version, 0, {})
