"""Checkpoints of a table's log: when one is worth its bytes, and which of those that there are nobody needs.

A checkpoint has a line for each file that lives, and one for each that is gone and not yet removed: of a table that
commits all the time, many more of these than of those. One each 50 commits, kept for a month, would be most of what a
ledger has on its disk. So there is one when there were as many commits as it has lines, divided by LINES_A_COMMIT: what
it costs a commit is bounded. And of those that later ones have replaced, one a day is kept, for versions of the past:
what lies between is read from the commits themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from ledger.delta_log.table_files import LOG, CommitFiles, Stored

#: So many lines of a checkpoint, some 100 bytes each, are written for each commit since the one before.
LINES_A_COMMIT = 50
#: There is a checkpoint after so many commits at any rate: whoever opens the table reads these one by one.
MOST_COMMITS = 2_000
#: Whoever began to read a log so long ago, in seconds, may still be about to read a checkpoint of then.
SPARED = 3_600
DAY = 86_400
_LAST = f"{LOG}/_last_checkpoint"
#: The path of a file of a checkpoint, from its table.
CHECKPOINT = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\..*parquet")


def is_due(stored: CommitFiles, version: int) -> bool:
    """Whether a checkpoint is worth it, where the table's interval says that there may be one."""
    content = stored.read(_LAST)
    if content is None:
        return True
    try:
        last = json.loads(content)
        return bool(version - last["version"] >= min(MOST_COMMITS, last["size"] // LINES_A_COMMIT))
    except (KeyError, TypeError, ValueError):
        # Only ever a hint for readers: there will be a new one.
        return True


def replaced(files: Iterable[Stored]) -> list[str]:
    """The paths of checkpoints that nobody needs, of all files of a log: not the two newest, the oldest, the newest of
    each day, nor any that was written in the hour before the log's last file."""
    found = list(files)
    latest = max((file.at for file in found), default=0.0)
    # A checkpoint may be of several files: what counts is its version.
    of_version: dict[int, list[Stored]] = {}
    for file in found:
        named = CHECKPOINT.fullmatch(file.path)
        if named is not None:
            of_version.setdefault(int(named[1]), []).append(file)
    versions = sorted(of_version)
    last_of_day = {max(file.at for file in of_version[version]) // DAY: version for version in versions}
    kept = {*versions[:1], *versions[-2:], *last_of_day.values()}
    return [
        file.path
        for version in versions
        if version not in kept
        for file in of_version[version]
        if file.at < latest - SPARED
    ]
