"""Maintenance of a table: when a log gets a checkpoint, and which checkpoints and files nobody needs.

A checkpoint has a line for each live file, and one for each file that left the table within its retention. With
constant commits the latter are far more: a checkpoint each 50 commits would take most of the disk. So after a direct
commit, a checkpoint is due only if the last one has at most LINES_A_COMMIT lines for each commit since, or after
MOST_COMMITS commits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from deltalake import DeltaTable

from ledger.delta_log.history import CHECKPOINT, LAST_CHECKPOINT
from ledger.delta_log.protocol import StagedFolders
from ledger.delta_log.storage import LogFile, Storage

#: A line has some 100 bytes.
LINES_A_COMMIT = 50
MOST_COMMITS = 2_000
#: The seconds for which a replaced checkpoint stays: a reader may still be about to read it.
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
        return True


def find_unneeded_checkpoints(files: Iterable[LogFile]) -> list[str]:
    """Return the paths of checkpoints that nobody needs. `files` are all files of a log.

    The two newest checkpoints, the oldest, the newest of each day, and those of the hour before the log's last file
    stay.
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


#: An older file that no commit names belongs to no commit under way.
UNCOMMITTED_HOURS = 48
#: A table that was loaded more seconds ago does not show which files are uncommitted.
KNOWN = 3_600


def find_unneeded_files(loaded: DeltaTable, since: float, staged: StagedFolders | None = None) -> set[str]:
    """Return the paths of files that no version within the table's retention has.

    Old files that no commit ever named are included, but those in a folder of `staged` only if the folder was
    published. `since` is the system's time before the table was loaded.
    """
    removed_files = loaded.vacuum(dry_run=True)
    unnamed = set(loaded.vacuum(dry_run=True, full=True))
    if unnamed - set(removed_files):
        old = loaded.vacuum(UNCOMMITTED_HOURS, dry_run=True, full=True, enforce_retention_duration=False)
        unnamed &= set(old)
    # If this process stood still meanwhile, files that were committed since would look uncommitted.
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
    folder = None if staged is None else staged.folder_of(path)
    if staged is None or folder is None:
        return True
    return loaded.transaction_version(staged.application(folder)) == staged.published
