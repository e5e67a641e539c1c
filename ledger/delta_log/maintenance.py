"""Maintenance of a table: when a log gets a checkpoint, and which checkpoints and files nobody needs.

A checkpoint has a line for each live file, and one for each file that left the table within its retention. With
constant commits, there are far more lines of the second kind: a checkpoint each 50 commits would take most of the disk.
After a direct commit, a checkpoint is therefore due only if the last one has at most LINES_A_COMMIT lines for each
commit since, or after MOST_COMMITS commits. (It is made only at multiples of the table's checkpoint interval. After
other commits, it is made at each multiple.)
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from deltalake import DeltaTable

from ledger.delta_log.history import CHECKPOINT, LAST_CHECKPOINT
from ledger.delta_log.spec import StagedFolders
from ledger.delta_log.storage import LogFile, Storage

#: A line has some 100 bytes.
LINES_A_COMMIT = 50
MOST_COMMITS = 2_000
#: How long a replaced checkpoint is spared, in seconds: a reader may still be about to read it.
SPARED = 3_600
DAY = 86_400


def is_due(stored: Storage, version: int) -> bool:
    """Return whether a checkpoint is due. The caller has checked the table's checkpoint interval."""
    content = stored.read(LAST_CHECKPOINT)
    if content is None:
        return True
    try:
        last = json.loads(content)
        return bool(version - last["version"] >= min(MOST_COMMITS, last["size"] // LINES_A_COMMIT))
    except (KeyError, TypeError, ValueError):
        # The file is unusable, and the new checkpoint replaces it.
        return True


def find_unneeded_checkpoints(files: Iterable[LogFile]) -> list[str]:
    """Return the paths of checkpoints that nobody needs. `files` are all files of a log.

    The two newest checkpoints, the oldest, the newest of each day (for versions of the past), and those of the hour
    before the log's last file are needed.
    """
    log_files = list(files)
    latest = max((file.at for file in log_files), default=0.0)
    of_version: dict[int, list[LogFile]] = {}
    for file in log_files:
        matched = CHECKPOINT.fullmatch(file.path)
        if matched is not None:
            of_version.setdefault(int(matched[1]), []).append(file)
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


#: The age, in hours, after which a file that no commit names is taken to belong to no commit under way.
UNCOMMITTED_HOURS = 48
#: The seconds after which a loaded table is too old to show which files are uncommitted.
KNOWN = 3_600


def find_unneeded_files(loaded: DeltaTable, since: float, staged: StagedFolders | None = None) -> set[str]:
    """Return the paths of files that no version within the table's retention has.

    Files of a commit that lost a race or died are included, once they are so old that no process can still commit them.
    Files in a folder of `staged` are left out until a commit has published the folder. `since` is the system's time
    before the table was loaded.
    """
    removed_files = loaded.vacuum(dry_run=True)
    unnamed = set(loaded.vacuum(dry_run=True, full=True))
    if unnamed - set(removed_files):
        old = loaded.vacuum(UNCOMMITTED_HOURS, dry_run=True, full=True, enforce_retention_duration=False)
        unnamed &= set(old)
    # If this process stood still after it loaded the table, files that were committed meanwhile would look uncommitted.
    if not 0 <= time.time() - since <= KNOWN:
        return set(removed_files)
    return {
        *removed_files,
        *(path for path in unnamed if _is_of_rows(loaded, path, staged) and _is_published(loaded, path, staged)),
    }


def _is_of_rows(loaded: DeltaTable, path: str, staged: StagedFolders | None) -> bool:
    *folders, name = path.split("/")
    partition = [folder.partition("=")[0] for folder in folders] == loaded.metadata().partition_columns
    is_staged = staged is not None and staged.folder_of(path) is not None and "_delta_log" not in folders
    return name.endswith(".parquet") and (partition or is_staged)


def _is_published(loaded: DeltaTable, path: str, staged: StagedFolders | None) -> bool:
    """Return whether a file's staged folder is published. A file outside of such folders counts as published."""
    folder = None if staged is None else staged.folder_of(path)
    if staged is None or folder is None:
        return True
    return loaded.transaction_version(staged.application(folder)) == staged.published
