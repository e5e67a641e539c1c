"""Which checkpoints a log gets and keeps, and which files of a table nobody needs any more.

A checkpoint has a line for each file that lives, and one for each that is gone and not yet removed: of a table that
commits all the time, many more of these than of those. One each 50 commits, kept for a month, would be most of what
there is on the disk. So there is one when there were as many commits as it has lines, divided by LINES_A_COMMIT: what
it costs a commit is bounded. And of those that later ones have replaced, one a day is kept, for versions of the past:
what lies between is read from the commits themselves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from deltalake import DeltaTable

from ledger.delta_log.history import CHECKPOINT, LAST_CHECKPOINT
from ledger.delta_log.spec import StagedFolders
from ledger.delta_log.storage import LogFile, Storage

#: So many lines of a checkpoint, some 100 bytes each, are written for each commit since the one before.
LINES_A_COMMIT = 50
#: There is a checkpoint after so many commits at any rate: whoever opens the table reads these one by one.
MOST_COMMITS = 2_000
#: Whoever began to read a log so long ago, in seconds, may still be about to read a checkpoint of then.
SPARED = 3_600
DAY = 86_400


def is_due(stored: Storage, version: int) -> bool:
    """Whether a checkpoint is worth it, where the table's interval says that there may be one."""
    content = stored.read(LAST_CHECKPOINT)
    if content is None:
        return True
    try:
        last = json.loads(content)
        return bool(version - last["version"] >= min(MOST_COMMITS, last["size"] // LINES_A_COMMIT))
    except (KeyError, TypeError, ValueError):
        # Only ever a hint for readers: there will be a new one.
        return True


def replaced(files: Iterable[LogFile]) -> list[str]:
    """The paths of checkpoints that nobody needs, of all files of a log: not the two newest, the oldest, the newest of
    each day, nor any that was written in the hour before the log's last file."""
    found = list(files)
    latest = max((file.at for file in found), default=0.0)
    # A checkpoint may be of several files: what counts is its version.
    of_version: dict[int, list[LogFile]] = {}
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


#: A file that is older than so many hours, and that no commit names, belongs to no commit that is still under way.
UNCOMMITTED_HOURS = 48
#: What is known of a table that was loaded so many seconds ago tells nothing of files that were committed since.
KNOWN = 3_600


def unneeded(loaded: DeltaTable, since: float, staged: StagedFolders | None = None) -> set[str]:
    """Their paths: none that a version within the table's retention has. `since`: the system's time before the table
    was loaded.

    Of a file that a commit took out the log tells for as long as that retention, and a checkpoint made then forgets it.
    Of what a commit wrote that lost or died it tells nothing. So what no version has is listed, too, once it is so old
    that nobody may be about to commit it. What lies in a folder that is `staged` is left to
    whoever staged it until it is published.
    """
    told = loaded.vacuum(dry_run=True)
    unnamed = set(loaded.vacuum(dry_run=True, full=True))
    if unnamed - set(told):
        old = loaded.vacuum(UNCOMMITTED_HOURS, dry_run=True, full=True, enforce_retention_duration=False)
        unnamed &= set(old)
    # A process that stood still between the two for days would take what was committed meanwhile for uncommitted.
    if not 0 <= time.time() - since <= KNOWN:
        return set(told)
    return {
        *told,
        *(path for path in unnamed if _is_of_rows(loaded, path, staged) and _is_published(loaded, path, staged)),
    }


def _is_of_rows(loaded: DeltaTable, path: str, staged: StagedFolders | None) -> bool:
    """Whether a file lies where the rows of a partition do: of what others keep below a table nothing is ours to
    remove."""
    *folders, name = path.split("/")
    partition = [folder.partition("=")[0] for folder in folders] == loaded.metadata().partition_columns
    is_staged = staged is not None and staged.folder_of(path) is not None and "_delta_log" not in folders
    return name.endswith(".parquet") and (partition or is_staged)


def _is_published(loaded: DeltaTable, path: str, staged: StagedFolders | None) -> bool:
    """Whether all that will ever be published of a file's folder is so, by what is loaded; of other files it is."""
    folder = None if staged is None else staged.folder_of(path)
    if staged is None or folder is None:
        return True
    return loaded.transaction_version(staged.application(folder)) == staged.published
