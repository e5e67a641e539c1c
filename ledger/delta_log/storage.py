"""The files below one table, by their paths from there: how they are read, made and removed, and which there are.

One interface, `Storage`, with three classes: LocalFiles here, ObjectFiles in `object_store`, and HadoopFiles in
`hadoop`, for where only Spark's JVM reaches the files.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.fs as arrow_fs
import pyarrow.parquet as pq
from deltalake import DeltaTable

from ledger.delta_log.durability import begin_writing, durability_of, stamp_of
from ledger.delta_log.reading import Wanted, dataset_of
from ledger.delta_log.spec import PartitionFilter
from ledger.rules.location import Location, recorded
from ledger.runtime.forks import renew_in_child

#: The folder of a table's log.
LOG = "_delta_log"
_COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json")
#: What tells a file from another one that lies in its place later, without reading either: on a local path its number
#: on the disk, its time and its size. () where the storage tells nothing that is cheaper than the content.
Stamp = tuple[int, ...]
#: Up to so many bytes a file is read in one request. No file is ever written anew, so small ones are kept, too.
SMALL = 1 << 20
#: So many bytes of them.
KEPT = 64 << 20
#: What a table of few rows takes in memory beside them, in bytes, measured.
TABLE_OVERHEAD = 20_000
#: So many files are written at the same time.
AT_ONCE = 8


class LogFile(NamedTuple):
    """A file: its path, and when it was written, in seconds since 1970."""

    path: str
    at: float


class StoredFile(NamedTuple):
    """A file of a table, of whatever kind: its path, its bytes, and when it was written, in seconds since 1970."""

    path: str
    bytes: int
    at: float


class LogEntries(Protocol):
    """The entries of a table's log, by their paths below the table. Raises what the storage does."""

    def has(self, path: str) -> bool:
        """Whether there is a file."""

    def read(self, path: str) -> bytes | None:
        """What is in a file; None: there is none."""

    def stamp(self, path: str) -> Stamp | None:
        """Return the stamp of a file; None: there is no such file. Where the storage has no stamps, return (), without
        a request: the file may be there or not."""

    def put_new(self, path: str, content: bytes) -> bool:
        """Makes a file, all at once, in a folder that is there; False, and nothing, where there is one already. Of two
        at once one is True. On an object store an answer that is lost may make it False, too."""

    def remove(self, path: str) -> None:
        """Removes a file, if it is there."""


class Storage(LogEntries, Protocol):
    """What commits are read from, and made of. Raises what the storage does."""

    def held_log(self) -> AbstractContextManager[LogEntries]:
        """The folder of the log as it is now, whatever takes its place meanwhile: a new entry joins the very entries
        that were read there. Where a storage has no folders, this is the storage itself. Raises FileNotFoundError where
        there is no such folder."""

    def open(self, path: str) -> pq.ParquetFile:
        """A file of rows that is there."""

    def write(self, files: Mapping[str, bytes]) -> None:
        """Makes files, of names that nobody uses twice. They survive a power cut when this thread's next `put_new`, or
        `sync`, is over."""

    @property
    def is_synced(self) -> bool:
        """Whether commits say that they were synced before they became visible; see `durability`."""

    def sync(self, paths: Iterable[str]) -> None:
        """Makes files that others wrote survive a power cut. On an object store they do."""

    def make_durable(self, version: int) -> None:
        """Makes all versions up to this one survive a power cut, if this process has not done so before."""

    def sync_checkpoints(self) -> None:
        """Makes the log's checkpoints survive one, whoever wrote them."""

    def newest_from(self, version: int) -> int | None:
        """Return the newest version of the table, from a version that it has had; None where the log does not have that
        one any more."""


class TableStorage(Storage, Protocol):
    """All files of a table."""

    def make_folder(self, path: str) -> None:
        """Make a folder, with its parents; on an object store there is nothing to make. Raises FileNotFoundError where
        the table is gone from a local path."""

    def log_files(self) -> list[LogFile]:
        """All files of the table's log."""

    def log_paths(self) -> list[str]:
        """Their paths."""

    def files(self) -> Iterator[StoredFile]:
        """Yield all files below the table: of rows, those that versions of the past alone have, and of the log."""

    def sizes(self, paths: Sequence[str]) -> Mapping[str, int]:
        """Return the bytes of those files that are there, by their paths."""

    def rows(self, loaded: DeltaTable, where: PartitionFilter, wanted: Wanted | None = None) -> pa.Table:
        """Rows of a loaded table, of the files that may hold what `where` names; all columns unless some are wanted."""

    def column(self, paths: Sequence[str], name: str) -> pa.ChunkedArray | None:
        """A column of all rows in some files; None where one of them has none of this name, in whatever case."""


def log_file(version: int) -> str:
    """The file of a table's log that is a version."""
    return f"{LOG}/{version:020d}.json"


#: What the commitInfo of a commit of this client's says: how many lines its entry has.
LINES = "lines"


def log_entry(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """What is in it: a line of JSON for each action, each with its end, as Delta's LogStores write them. How many there
    are is said in the first that tells of the commit: an entry that was cut between two lines shows it."""
    known = list(actions)
    lines = [{"commitInfo": {**one["commitInfo"], LINES: len(known)}} if "commitInfo" in one else one for one in known]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def version_of(path: str) -> int | None:
    """The version that a file of a table's log is; None for what is no commit."""
    named = _COMMIT.fullmatch(path)
    return int(named[1]) if named else None


def find_latest_version(files: Storage, version: int) -> int | None:
    """See Storage.newest_from, where each file is asked for: a log is cut at its beginning, and has no gaps."""
    if not files.has(log_file(version)):
        return None
    step = 1
    while step:
        there = files.has(log_file(version + step))
        version, step = (version + step, 2 * step) if there else (version, step // 2)
    return version


def table_files(location: str, storage_options: Mapping[str, str] | None, *, sync: bool = True) -> TableStorage:
    """The files of the table at a location. `sync`: on a local path what is written survives a power cut."""
    place = recorded(location)
    if place.is_local:
        return LocalFiles(place, sync=sync)
    from ledger.delta_log.object_store import ObjectFiles, ObjectStore

    return ObjectFiles(ObjectStore(place.text, storage_options))


class LocalFiles:
    """On a local path, where Arrow reads by itself. `sync`: what is written survives a power cut; see `durability`."""

    def __init__(self, place: Location, *, sync: bool = True) -> None:
        self._place, self._root, self.is_synced = Path(place.text), place.text, sync
        self.durability, self._pending = durability_of(self._place), threading.local()
        self._files = arrow_fs.SubTreeFileSystem(place.text, arrow_fs.LocalFileSystem())

    def has(self, path: str) -> bool:
        return (self._place / path).exists()

    def read(self, path: str) -> bytes | None:
        try:
            return (self._place / path).read_bytes()
        except FileNotFoundError:
            return None

    def stamp(self, path: str) -> Stamp | None:
        return stamp_of(f"{self._root}/{path}")

    def open(self, path: str) -> pq.ParquetFile:
        return pq.ParquetFile(self._place / path, pre_buffer=False)

    def write(self, files: Mapping[str, bytes]) -> None:
        for path, content in files.items():
            file = self._place / path
            if not file.parent.exists():
                self.durability.make_folder(file.parent, below=self._place)
            with file.open("wb", buffering=0) as opened:
                self._fill(opened, content)
        if self.is_synced:
            self._pending.paths = [*self._unsynced(), *files]

    @contextmanager
    def held_log(self) -> Iterator[HeldLog]:
        descriptor = os.open(self._place / LOG, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield HeldLog(descriptor, self)
        finally:
            os.close(descriptor)

    def put_new(self, path: str, content: bytes) -> bool:
        with self.held_log() as log:
            return log.put_new(path, content)

    def make_log(self, below: Path | None = None) -> None:
        """Makes the folder of the table's log, with its parents. Raises FileNotFoundError where the folder `below`
        which it is to lie is gone."""
        if not (self._place / LOG).exists():
            self.durability.make_folder(self._place / LOG, below)

    def make_folder(self, path: str) -> None:
        self.durability.make_folder(self._place / path, below=self._place)

    def absolute(self, path: str) -> Path:
        """Where a file lies."""
        return self._place / path

    def write_synced(self, opened: FileIO, content: bytes) -> None:
        """Writes to a new file, which is durable then, as are those that this thread wrote before."""
        self._fill(opened, content)
        if self.is_synced:
            self.durability.sync_files(self._unsynced(), [opened.fileno()])
        self._pending.paths = []

    def _fill(self, opened: FileIO, content: bytes) -> None:
        left = memoryview(content)
        while left:
            left = left[opened.write(left) :]
        if self.is_synced:
            begin_writing(opened.fileno())

    def _unsynced(self) -> list[str]:
        """What this thread has written, for a commit that it has not made yet."""
        paths: list[str] = getattr(self._pending, "paths", [])
        return paths

    def sync(self, paths: Iterable[str]) -> None:
        if self.is_synced:
            self.durability.sync_files([*self._unsynced(), *paths])
        self._pending.paths = []

    def make_durable(self, version: int) -> None:
        if self.is_synced:
            self.durability.make_durable(version, log_file)

    def sync_checkpoints(self) -> None:
        if self.is_synced:
            self.durability.sync_checkpoints(LOG)

    def remove(self, path: str) -> None:
        (self._place / path).unlink(missing_ok=True)

    def newest_from(self, version: int) -> int | None:
        return find_latest_version(self, version)

    def log_files(self) -> list[LogFile]:
        found = []
        with os.scandir(self._place / LOG) as files:
            for file in files:
                # Others commit meanwhile, by files that are there for a moment.
                with contextlib.suppress(FileNotFoundError):
                    found.append(LogFile(f"{LOG}/{file.name}", file.stat().st_mtime))
        return found

    def log_paths(self) -> list[str]:
        return [f"{LOG}/{name}" for name in os.listdir(self._place / LOG)]  # noqa: PTH208

    def files(self) -> Iterator[StoredFile]:
        folders = [""]
        while folders:
            folder = folders.pop()
            # Upkeep removes files and folders meanwhile.
            with contextlib.suppress(FileNotFoundError), os.scandir(self._place / folder) as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(path)
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        known = entry.stat(follow_symlinks=False)
                        yield StoredFile(path, known.st_size, known.st_mtime)

    def sizes(self, paths: Sequence[str]) -> Mapping[str, int]:
        found = {}
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                found[path] = (self._place / path).stat().st_size
        return found

    def rows(self, loaded: DeltaTable, where: PartitionFilter, wanted: Wanted | None = None) -> pa.Table:
        dataset = dataset_of(loaded, self._files, where, wanted)
        return dataset.to_table() if wanted is None else dataset.to_table(list(wanted.columns), wanted.where)

    def column(self, paths: Sequence[str], name: str) -> pa.ChunkedArray | None:
        return column_of((pq.ParquetFile(self._place / path) for path in paths), name)


class HeldLog:
    """The folder of a table's log on a local path, held open. Whoever renames it, removes it or puts another one in its
    place does so beside what is read and made here."""

    def __init__(self, descriptor: int, files: LocalFiles) -> None:
        self._descriptor, self._files = descriptor, files

    def names(self) -> list[str]:
        """The names of all its files."""
        return os.listdir(self._descriptor)  # noqa: PTH208

    def has(self, path: str) -> bool:
        return self.stamp(path) is not None

    def read(self, path: str) -> bytes | None:
        try:
            descriptor = os.open(_name(path), os.O_RDONLY, dir_fd=self._descriptor)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    def stamp(self, path: str) -> Stamp | None:
        return stamp_of(_name(path), self._descriptor)

    def put_new(self, path: str, content: bytes) -> bool:
        durability, version = self._files.durability, version_of(path)
        if self._files.is_synced and version:
            durability.prepare(version - 1, log_file)
        # No context manager of our own: one that an interrupt leaves half entered ends when the descriptor is closed.
        temporary = _temporary_name()
        try:
            self._write(temporary, content)
            os.link(temporary, _name(path), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except FileExistsError:
            return False
        finally:
            self.remove(temporary)
        self._sync()
        if self._files.is_synced and version is not None:
            durability.committed(version, path, self.stamp(path))
        return True

    def replace(self, path: str, content: bytes) -> None:
        """Makes a file, or puts it in place of the one that is there, all at once. The checksum that Hadoop keeps of
        that one goes first: Spark would hold the new one against it."""
        temporary = _temporary_name()
        try:
            self._write(temporary, content)
            self.remove(f".{_name(path)}.crc")
            os.replace(temporary, _name(path), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        finally:
            self.remove(temporary)
        self._sync()

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_name(path), dir_fd=self._descriptor)

    def _write(self, name: str, content: bytes) -> None:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=self._descriptor)
        with FileIO(descriptor, "wb") as opened:
            self._files.write_synced(opened, content)

    def _sync(self) -> None:
        if self._files.is_synced:
            self._files.durability.sync_folder(self._descriptor, str(self._files.absolute(LOG)))


def _temporary_name() -> str:
    """Named as delta-rs names what it links."""
    return f"_commit_{uuid.uuid4()}.json.tmp"


def _name(path: str) -> str:
    """The name in the folder of the log of a file, of which the path below the table is given."""
    return path.removeprefix(f"{LOG}/")


def column_of(files: Iterable[pq.ParquetFile], name: str) -> pa.ChunkedArray | None:
    """See TableStorage.column."""
    chunks: list[pa.Array] = []
    for file in files:
        named = next((known for known in file.schema_arrow.names if known.lower() == name.lower()), None)
        if named is None:
            return None
        chunks += file.read([named], use_threads=False)[named].chunks
    return pa.chunked_array(chunks, None if chunks else pa.string())


def rows_of_file(file: pq.ParquetFile, schema: pa.Schema, partition: Mapping[str, Any]) -> pa.Table:
    """The rows of a file with all columns of a schema: those that it has none of are its partition's, or nothing.
    Raises ArrowInvalid, also for a text that is none: Parquet's readers take any bytes for texts."""
    there = [name for name in schema.names if name in file.schema_arrow.names]
    rows, count = file.read(there, use_threads=False), file.metadata.num_rows
    rows.validate(full=True)
    columns = [
        rows[one.name].cast(one.type)
        if one.name in there
        else pa.repeat(pa.scalar(partition.get(one.name)).cast(one.type), count)
        for one in schema
    ]
    return pa.table(columns, schema=schema)


class FileRows:
    """The rows of a table's files with all its columns, those of the partition too. No file is ever written anew, so
    what was read is kept, and what was written."""

    def __init__(self, schema: pa.Schema, partitions: Sequence[str], stored: Storage) -> None:
        self._schema, self._partitions, self._stored = schema, partitions, stored
        self._kept: OrderedDict[str, pa.Table] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        renew_in_child(self, FileRows._renew)

    def of(self, partition: Sequence[str | None], path: str) -> pa.Table:
        """The rows of a file of a partition."""
        with self._lock:
            kept = self._kept.get(path)
            if kept is not None:
                self._kept.move_to_end(path)
        return kept if kept is not None else self._read(dict(zip(self._partitions, partition)), path)

    def _renew(self) -> None:
        """Another thread of the parent may have been changing it."""
        self._lock, self._size = threading.Lock(), 0
        self._kept.clear()

    def keep(self, path: str, rows: pa.Table) -> None:
        """What is in a file, for the next reads."""
        if rows.nbytes > KEPT // 4:
            return
        with self._lock:
            try:
                self._size += _taken(rows) - _taken(self._kept.pop(path, None))
                self._kept[path] = rows
                while self._size > KEPT:
                    self._size -= _taken(self._kept.popitem(last=False)[1])
            except BaseException:
                # Interrupted in between: what is kept and its size would not fit any more.
                self._kept.clear()
                self._size = 0
                raise

    def forget(self, paths: Iterable[str]) -> None:
        """Keep no rows of files that a commit has removed: whoever still has an older version reads them again."""
        with self._lock:
            for path in paths:
                self._size -= _taken(self._kept.pop(path, None))

    def _read(self, partition: Mapping[str, str | None], path: str) -> pa.Table:
        found = rows_of_file(self._stored.open(path), self._schema, partition)
        self.keep(path, found)
        return found


def _taken(rows: pa.Table | None) -> int:
    return 0 if rows is None else rows.nbytes + TABLE_OVERHEAD
