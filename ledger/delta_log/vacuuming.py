"""Which files of a table nobody needs any more, by a loaded table of delta-rs's."""

from __future__ import annotations

import time

from deltalake import DeltaTable

from ledger.delta_log.spec import StagedFolders

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
    # Who stood still between the two for days would take what was committed meanwhile for left behind.
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
