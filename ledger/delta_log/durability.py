"""What of a table on a local path survives a power cut: the files that are synced, and in which order.

A file system keeps what was written in memory for up to half a minute. A power cut loses it, in any order: the name of
a commit can survive without its bytes. So this process keeps four rules.

1. *The data before the commit.* The data files of a commit, and the folders that name them, are synced before the
   commit becomes visible. A new folder is named by its parent, which is synced too.
2. *The bytes before the name.* A commit is written to a temporary file and synced. Then a link gives it its name. So a
   commit that can be seen has all its bytes on the disk, and so has everything that it names.
3. *The name before the answer.* The folder of the log is synced before the verb answers. One sync covers all verbs
   that share a commit.
4. *What a decision relied on before what is decided.* Between the link and the sync of the folder others can see a
   commit that a power cut still loses. A later commit to the same table makes both durable, because one folder names
   both. Across tables nothing does. Somebody could record in one table that work is done because another
   table has its rows, and only the rows would be lost. So `make_durable` syncs each version that this process has
   seen before this process commits to another table, and before it answers without a commit.

**Commits of others.** A commit that keeps rules 1 to 3 says so: its `commitInfo` has SYNCED. Its writer made all
versions before it durable first. So a process that meets it need only sync the folder. Any other commit (by Spark, by
delta-rs, by a process with the setting `sync` off, by an earlier release) is synced by the first process with `sync` on
that relies on it: its data files, its entry, and so on back to the nearest commit that has the mark. Such a commit can
be seen for some milliseconds before that. A power cut in this time can damage it, and no verb has been answered by it.

**Checkpoints** of the client's own are durable before they can be seen. Those that an engine writes are synced
afterwards, and before any entry that they sum up is removed. What a power cut tears in between costs nothing but a look
at the entries: see `damage.mend`.
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

#: What the commitInfo of a commit says that was synced before it became visible, with all versions before it.
SYNCED = "synced"
#: More commits without the mark are not read one by one: everything that is in memory is synced.
MOST_UNMARKED = 32
#: More files than these are synced by several threads. Fewer share a write of the file system's journal anyway.
FEW_FILES, THREADS = 4, 8
#: At most so many folders are known to be durable.
MOST_FOLDERS = 100_000
#: The folders of which this process knows that their parents name them durably.
_named: set[str] = set()
known_tables: dict[str, Durability] = {}
_workers = Workers(THREADS, "ledger-sync")


def _renew_workers() -> None:
    """Threads do not come along into the child of a fork."""
    global _workers
    _workers = Workers(THREADS, "ledger-sync")


os.register_at_fork(after_in_child=_renew_workers)


def durability_of(place: Path) -> Durability:
    """Return what this process knows of the table at a place: one object for all who ask."""
    return known_tables.setdefault(str(place), Durability(place))


def with_mark(actions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the actions of a commit with SYNCED in its commitInfo."""
    return [{"commitInfo": {**one["commitInfo"], SYNCED: True}} if "commitInfo" in one else one for one in actions]


class Durability:
    """Syncs one table. Threads share it. Its methods raise OSError where the storage fails."""

    def __init__(self, place: Path) -> None:
        self._place = place
        #: All versions up to the first survive a power cut; up to the second all but their names do.
        self._durable = self._prepared = -1
        #: The entry of the newest version that is durable, and the file that it was.
        self._witness: tuple[str, tuple[int, ...] | None] | None = None

    def sync_files(self, paths: Iterable[str], descriptors: Iterable[int] = ()) -> None:
        """Make files durable with the folders that name them, and what was written to open files. A file that is gone
        is passed over. All is done at the same time, which takes half as long."""
        files = list(dict.fromkeys(self._place / path for path in paths))
        folders = _workers.begin(partial(self.sync_folders, {str(file.parent) for file in files})) if files else None
        try:
            for descriptor in descriptors:
                sync(descriptor)
            if len(files) <= FEW_FILES:
                for file in files:
                    _sync_file(file)
            else:
                for one in [_workers.begin(partial(_sync_file, file)) for file in files]:
                    one.result()
        finally:
            if folders is not None:
                folders.result()

    def sync_folders(self, folders: Iterable[str]) -> None:
        """Make what folders name durable, and the folders themselves, up to the root of the file system."""
        for folder in folders:
            _sync_folder(folder)
            self._sync_names_of(folder)

    def _sync_names_of(self, folder: str) -> None:
        """Make durable that a folder is there, and its parents."""
        while folder not in _named:
            parent = os.path.dirname(folder)  # noqa: PTH120
            if parent == folder:
                break
            _sync_folder(parent, is_ours=parent.startswith(str(self._place)))
            if len(_named) >= MOST_FOLDERS:
                _named.clear()
            _named.add(folder)
            folder = parent

    def sync_folder(self, descriptor: int, folder: str) -> None:
        """Make durable what an open folder names, and the folder itself."""
        _sync_open_folder(descriptor, is_ours=True)
        self._sync_names_of(folder)

    def make_folder(self, folder: Path, below: Path | None = None) -> None:
        """Make a folder, with its parents. What has just been made is not durable, whatever was there before. Raises
        FileNotFoundError where the folder `below` which it is to lie is gone: it is not made."""
        missing = [folder]
        while missing[-1] != below and not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for one in reversed(missing):
            if one == below:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(below))
            one.mkdir(exist_ok=True)
        _named.difference_update(map(str, missing))

    def prepare(self, version: int, entry_of: Callable[[int], str]) -> None:
        """Make durable all versions up to this one, but for the name of the last: see the module.

        Args:
            version: The version that a commit is made on, or that a decision relied on.
            entry_of: Returns the path of a version's entry in the log.
        """
        self._forget_other_log()
        if version <= self._prepared:
            return
        are_marked = True
        for one in range(version, self._prepared, -1):
            path = entry_of(one)
            try:
                content = (self._place / path).read_bytes()
            except FileNotFoundError:
                # Old entries were removed. Nothing is removed before a checkpoint that sums it up is durable.
                break
            if _is_marked(content):
                break
            are_marked = False
            if version - one >= MOST_UNMARKED:
                os.sync()
                break
            self.sync_files([*_named_in(content), path])
        if not are_marked:
            self.sync_checkpoints(os.path.dirname(entry_of(version)))  # noqa: PTH120
        self._prepared = max(self._prepared, version)

    def make_durable(self, version: int, entry_of: Callable[[int], str]) -> None:
        """Make durable all versions up to this one. Costs a look at one file where this process did so before."""
        self._forget_other_log()
        if version <= self._durable:
            return
        self.prepare(version, entry_of)
        self.sync_folders([str((self._place / entry_of(version)).parent)])
        self.committed(version, entry_of(version), stamp_of(self._place / entry_of(version)))

    def committed(self, version: int, entry: str, stamp: tuple[int, ...] | None) -> None:
        """Note that a version, with this entry in the log, which is this very file, is durable, and all before it.
        Version 0 begins another log."""
        if version == 0 or version >= self._durable:
            self._witness = entry, stamp
        if version == 0:
            self._durable = self._prepared = 0
        self._durable = max(self._durable, version)
        self._prepared = max(self._prepared, version)

    def _forget_other_log(self) -> None:
        """Forget what is known to be durable where the log is another one by now: it was removed and made anew, or a
        backup lies in its place. So it is where the witness is gone with old entries, which costs a few syncs."""
        known = self._witness
        if known is not None and stamp_of(self._place / known[0]) != known[1]:
            self._durable = self._prepared = -1
            self._witness = None
            _named.clear()

    def sync_checkpoints(self, log: str) -> None:
        """Make the checkpoints durable that are in a table's log. The engines write these without a sync."""
        names = os.listdir(self._place / log)  # noqa: PTH208
        self.sync_files(f"{log}/{name}" for name in names if "checkpoint" in name and not name.startswith("."))


def stamp_of(file: str | Path, folder: int | None = None) -> tuple[int, ...] | None:
    """What tells a file from another one in its place; None: there is none. `folder`: an open one that it is named
    from."""
    try:
        found = os.stat(file, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _is_marked(entry: bytes) -> bool:
    """Whether a commit says that it was synced before it became visible."""
    try:
        said = json.loads(entry.partition(b"\n")[0])["commitInfo"]
        return said[SYNCED] is True
    except (KeyError, TypeError, ValueError):
        return False


def _named_in(entry: bytes) -> list[str]:
    """The paths of the files that a commit adds below its table. What cannot be read names nothing here: whoever reads
    the log says what is wrong with it."""
    found = []
    for line in entry.splitlines():
        try:
            action = json.loads(line)
            added = action.get("add") or action.get("cdc") or {}
            path = unquote(added.get("path", ""))
        except (AttributeError, TypeError, ValueError):
            continue
        if path and "://" not in path and not path.startswith(("/", "file:")):
            found.append(path)
    return found


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
    """Sync a folder's names. Above a table it may be one that this process cannot read: whoever made it keeps it. A
    folder that is gone has no names."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    except PermissionError:
        if is_ours:
            raise
        return
    try:
        _sync_open_folder(descriptor, is_ours=is_ours)
    finally:
        os.close(descriptor)


def _sync_open_folder(descriptor: int, *, is_ours: bool) -> None:
    try:
        sync(descriptor)
    except OSError as error:
        # Some file systems keep no names in memory, and say that a folder cannot be synced.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) and (is_ours or error.errno != errno.EROFS):
            raise


def begin_writing(descriptor: int) -> None:
    """Have the file system begin to write an open file, where it can be told to. To sync it then takes less time."""
    advise = getattr(os, "posix_fadvise", None)
    if advise is not None:
        advise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def sync(descriptor: int) -> None:
    """Sync an open file to the disk itself. On macOS fsync leaves it in the disk's own memory."""
    to_disk = getattr(fcntl, "F_FULLFSYNC", None)
    if to_disk is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, to_disk)
