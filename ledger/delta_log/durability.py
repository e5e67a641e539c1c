"""Durability on a local path: which files are synced, in which order.

A power cut loses some of what a file system keeps in memory, in any order: the name of a commit can survive without its
bytes. With the setting `sync` on, a process therefore keeps four rules.

1. *The data before the commit.* The data files of a commit, and the folders that have their names, are synced before
   the commit becomes visible.
2. *The bytes before the name.* The entry of a commit is written to a temporary file and synced. Then a link gives the
   entry its name.
3. *The name before the answer.* The folder of the log is synced before the call returns.
4. *The versions that were read before the decision.* Between the link and the sync of the folder, others can see a
   commit that a power cut can still undo. Suppose that one table records work as done, and another table has its rows.
   A power cut could lose the rows and keep the record. So `make_durable` syncs each version that this process has seen,
   before it commits to another table, and before it answers without a commit.

**Commits of others.** A commit with SYNCED in its `commitInfo` keeps rules 1 and 2, and the bytes of all versions
before it were synced first. Its readers need only sync the log's folder. Commits of Spark and delta-rs, for example,
lack the mark. Before a process relies on an unmarked commit, it syncs the data files and the entry of this commit. It
does the same for earlier commits, back to the nearest one that has the mark or was synced before.

**Checkpoints** that this package writes are durable before they can be seen. Those of engines are synced before a
vacuum removes an entry that they sum up. If a power cut tears such a checkpoint, the entries replace it: see
`damage.mend`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ledger.runtime.threads import Workers

SYNCED = "synced"
#: The most commits without the mark that are read one by one. For more, everything in memory is synced.
MOST_UNMARKED = 32
FEW_FILES, THREADS = 4, 8
MOST_FOLDERS = 100_000
_named: set[str] = set()
known_tables: dict[str, Durability] = {}
_workers = Workers(THREADS, "ledger-sync")


def _renew_workers() -> None:
    global _workers
    _workers = Workers(THREADS, "ledger-sync")


os.register_at_fork(after_in_child=_renew_workers)


def durability_of(place: Path) -> Durability:
    """Return the Durability of a table: one object for all callers of this process."""
    return known_tables.setdefault(str(place), Durability(place))


def mark_synced(actions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [
        {"commitInfo": {**action["commitInfo"], SYNCED: True}} if "commitInfo" in action else action
        for action in actions
    ]


class Durability:
    """Syncs one table. Threads share the object."""

    def __init__(self, place: Path) -> None:
        self._place = place
        #: All versions up to `_durable` survive a power cut. Of those up to `_prepared` the content survives.
        self._durable = self._prepared = -1
        self._witness: tuple[str, tuple[int, ...] | None] | None = None

    def sync_files(self, paths: Iterable[str], descriptors: Iterable[int] = ()) -> None:
        """Make durable: files, the folders that have their names, and open files. A file that is gone is left out."""
        files = list(dict.fromkeys(self._place / path for path in paths))
        folders = _workers.begin(partial(self.sync_folders, {str(file.parent) for file in files})) if files else None
        try:
            for descriptor in descriptors:
                sync(descriptor)
            if len(files) <= FEW_FILES:
                for file in files:
                    _sync_file(file)
            else:
                for begun in [_workers.begin(partial(_sync_file, file)) for file in files]:
                    begun.result()
        finally:
            if folders is not None:
                folders.result()

    def sync_folders(self, folders: Iterable[str]) -> None:
        """Make durable the names in folders, and the names of these folders, up to the file system's root."""
        for folder in folders:
            _sync_folder(folder)
            self._sync_names_of(folder)

    def _sync_names_of(self, folder: str) -> None:
        synced = []
        while folder not in _named and (parent := os.path.dirname(folder)) != folder:  # noqa: PTH120
            _sync_folder(parent, is_ours=parent.startswith(str(self._place)))
            synced.append(folder)
            folder = parent
        # A folder counts only when all above it are synced: a call after a failure, or another thread's, begins again.
        if len(_named) >= MOST_FOLDERS:
            _named.clear()
        _named.update(synced)

    def sync_folder(self, descriptor: int, folder: str) -> None:
        sync_open_folder(descriptor)
        self._sync_names_of(folder)

    def make_folder(self, folder: Path, below: Path | None = None) -> None:
        """Make a folder, with its parents. A new folder counts as not durable.

        Raises FileNotFoundError, and makes nothing, if the folder `below`, above the new one, is gone.
        """
        missing = [folder]
        while missing[-1] != below and not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for missing_folder in reversed(missing):
            if missing_folder == below:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(below))
            missing_folder.mkdir(exist_ok=True)
        _named.difference_update(map(str, missing))

    def prepare(self, version: int, entry_of: Callable[[int], str]) -> None:
        """Make durable all versions up to `version`, except perhaps their names in the log: see rule 4."""
        self._forget_other_log()
        if version <= self._prepared:
            return
        are_marked = True
        for earlier in range(version, self._prepared, -1):
            path = entry_of(earlier)
            try:
                content = (self._place / path).read_bytes()
            except FileNotFoundError:
                # Old entries were removed, after a checkpoint that sums them up was durable.
                break
            if _is_marked(content):
                break
            are_marked = False
            if version - earlier >= MOST_UNMARKED:
                os.sync()
                break
            self.sync_files([*_read_added_paths(content), path])
        if not are_marked:
            self.sync_checkpoints(os.path.dirname(entry_of(version)))  # noqa: PTH120
        self._prepared = max(self._prepared, version)

    def make_durable(self, version: int, entry_of: Callable[[int], str]) -> None:
        """Make durable all versions up to `version`. A repeated call only looks at a file's stamp."""
        self._forget_other_log()
        if version <= self._durable:
            return
        self.prepare(version, entry_of)
        self.sync_folders([str((self._place / entry_of(version)).parent)])
        self.committed(version, entry_of(version), stamp_of(self._place / entry_of(version)))

    def committed(self, version: int, entry: str, stamp: tuple[int, ...] | None) -> None:
        """Remember that a version and all before it are durable. Version 0 begins a new log."""
        if version == 0 or version >= self._durable:
            self._witness = entry, stamp
        if version == 0:
            self._durable = self._prepared = 0
        self._durable = max(self._durable, version)
        self._prepared = max(self._prepared, version)

    def _forget_other_log(self) -> None:
        """Forget what is durable, if another log is in this log's place."""
        witness = self._witness
        if witness is not None and stamp_of(self._place / witness[0]) != witness[1]:
            self._durable = self._prepared = -1
            self._witness = None
            _named.clear()

    def sync_checkpoints(self, log: str) -> None:
        names = os.listdir(self._place / log)  # noqa: PTH208
        self.sync_files(f"{log}/{name}" for name in names if "checkpoint" in name and not name.startswith("."))


def stamp_of(file: str | Path, folder: int | None = None) -> tuple[int, ...] | None:
    """Return the stamp of a file (see `storage.Stamp`). `folder` is the descriptor of an open folder that has the
    file."""
    try:
        status = os.stat(file, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _is_marked(entry: bytes) -> bool:
    try:
        info = json.loads(entry.partition(b"\n")[0])["commitInfo"]
        return info[SYNCED] is True
    except (KeyError, TypeError, ValueError):
        return False


def _read_added_paths(entry: bytes) -> list[str]:
    paths = []
    for line in entry.splitlines():
        try:
            action = json.loads(line)
            added = action.get("add") or action.get("cdc") or {}
            path = unquote(added.get("path", ""))
        except (AttributeError, TypeError, ValueError):
            continue
        if path and "://" not in path and not path.startswith(("/", "file:")):
            paths.append(path)
    return paths


def _sync_file(file: Path) -> None:
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: str, *, is_ours: bool = True) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    except PermissionError:
        if is_ours:
            raise
        return
    try:
        sync_open_folder(descriptor, is_ours=is_ours)
    finally:
        os.close(descriptor)


def sync_path(path: Path) -> None:
    """Sync a file, or the names that are in a folder. Raises OSError, also if it is gone."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if path.is_dir():
            sync_open_folder(descriptor)
        else:
            sync(descriptor)
    finally:
        os.close(descriptor)


def sync_open_folder(descriptor: int, *, is_ours: bool = True) -> None:
    try:
        sync(descriptor)
    except OSError as error:
        # Some file systems refuse to sync a folder. A folder above a table may be read-only.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) and (is_ours or error.errno != errno.EROFS):
            raise


def begin_writing(descriptor: int) -> None:
    """Ask the file system to begin writing an open file: a later sync takes less time."""
    advise = getattr(os, "posix_fadvise", None)
    if advise is not None:
        advise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def sync(descriptor: int) -> None:
    """Sync an open file to the disk itself. On macOS fsync leaves the bytes in the disk's own memory."""
    to_disk = getattr(fcntl, "F_FULLFSYNC", None)
    if to_disk is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, to_disk)
