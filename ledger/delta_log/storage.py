"""The files below one table. Paths are relative to the table's folder.

LocalFiles here and ObjectFiles in `object_store` implement TableStorage. HadoopFiles in `spark_replay` implements
Storage for files that only Spark's JVM reaches.
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
from ledger.delta_log.protocol import PartitionFilter
from ledger.delta_log.reading import Wanted, dataset_of
from ledger.rules.location import Location, recorded
from ledger.runtime.threads import renew_in_child

LOG = "_delta_log"
_COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json")
#: A stamp distinguishes a file from a later one in its place. On a local path: the file's number on the disk, its time
#: of change and its size. (): the storage has no stamps.
Stamp = tuple[int, ...]
#: A data file of at most this many bytes is read in one request from an object store, and kept in memory: a file that
#: is written again under its path has the same rows.
SMALL = 1 << 20
#: The most bytes that one ObjectFiles or one FileRows keeps in memory.
KEPT = 64 << 20
#: The bytes that a small Arrow table takes besides its rows (measured).
TABLE_OVERHEAD = 20_000
#: The most requests for single files at the same time.
AT_ONCE = 8


class LogFile(NamedTuple):
    """`at` is in seconds since 1970."""

    path: str
    at: float


class StoredFile(NamedTuple):
    """`at` is in seconds since 1970."""

    path: str
    bytes: int
    at: float


class LogEntries(Protocol):
    """The entries of a table's log. The methods raise what the storage raises."""

    def has(self, path: str) -> bool:
        """Return whether a file exists."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, if it exists."""

    def stamp(self, path: str) -> Stamp | None:
        """Return the stamp of a file, if it exists. Without stamps, return () for any file, and make no request."""

    def put_new(self, path: str, content: bytes) -> bool:
        """Make a whole file, in a folder that exists. Return False, and do nothing, if the file exists.

        If calls run at once, at most one returns True. On an object store False may also mean that an answer was lost.
        """

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""


class Storage(LogEntries, Protocol):
    """The files that commits read and make."""

    def held_log(self) -> AbstractContextManager[LogEntries]:
        """Return a context with the log's current folder, even if another folder takes its place meanwhile.

        On a local path, raises FileNotFoundError if there is no folder. Elsewhere the context has the storage itself.
        """

    def open(self, path: str) -> pq.ParquetFile:
        """Open an existing Parquet file."""

    def write(self, files: Mapping[str, bytes]) -> None:
        """Make files with names that nobody uses twice.

        Synced writes survive a power cut at the latest after this thread's next `put_new` or `sync`.
        """

    @property
    def is_synced(self) -> bool:
        """Whether commits have the mark that they were synced before they became visible (see `durability`)."""

    def sync(self, paths: Iterable[str]) -> None:
        """Make files that others wrote survive a power cut, on a local path if writes are synced. Else do nothing."""

    def make_durable(self, version: int) -> None:
        """Make all versions up to `version` survive a power cut, where `sync` has an effect."""

    def sync_checkpoints(self) -> None:
        """Make the log's checkpoints survive a power cut, where `sync` has an effect."""

    def find_newest_from(self, version: int) -> int | None:
        """Return the newest version, by a search from a version that existed; None: that version is gone.

        On an object store, the call does not check whether that version is gone.
        """


class TableStorage(Storage, Protocol):
    def make_folder(self, path: str) -> None:
        """Make a folder, with its parents, on a local path. Raises FileNotFoundError if the table is gone."""

    def log_files(self) -> list[LogFile]:
        """Return the files of the log."""

    def log_paths(self) -> list[str]:
        """Return the paths of the files of the log."""

    def files(self) -> Iterator[StoredFile]:
        """Yield all files below the table, also those of past versions and of the log."""

    def sizes(self, paths: Sequence[str]) -> Mapping[str, int]:
        """Return the sizes in bytes of the files that exist, by path."""

    def rows(self, loaded: DeltaTable, where: PartitionFilter, wanted: Wanted | None = None) -> pa.Table:
        """Return rows of a loaded table, from the files that may hold what `where` names.

        Without `wanted`, return all columns, and perhaps rows of more partitions (see `PartitionFilter.shorten`).
        """

    def column(self, paths: Sequence[str], name: str) -> pa.ChunkedArray | None:
        """Return a column (its name in any case) of all rows in some files; None: one of the files lacks it."""


def log_file(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


LINES = "lines"


def log_entry(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Return an entry. LINES in its `commitInfo` shows whether it was cut between two lines."""
    all_actions = list(actions)
    lines = [
        {"commitInfo": {**action["commitInfo"], LINES: len(all_actions)}} if "commitInfo" in action else action
        for action in all_actions
    ]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def version_of(path: str) -> int | None:
    matched = _COMMIT.fullmatch(path)
    return int(matched[1]) if matched else None


def find_latest_version(files: Storage, version: int) -> int | None:
    """Return what `Storage.find_newest_from` returns. A log is cut only at its beginning, so it has no gaps."""
    if not files.has(log_file(version)):
        return None
    step = 1
    while step:
        exists = files.has(log_file(version + step))
        version, step = (version + step, 2 * step) if exists else (version, step // 2)
    return version


def table_files(location: str, storage_options: Mapping[str, str] | None, *, sync: bool = True) -> TableStorage:
    place = recorded(location)
    if place.is_local:
        return LocalFiles(place, sync=sync)
    from ledger.delta_log.object_store import ObjectFiles, ObjectStore

    return ObjectFiles(ObjectStore(place.text, storage_options))


class LocalFiles:
    """Files on a local path. `sync`: what this client writes survives a power cut (see `durability`)."""

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
            self._pending.paths = [*self._list_unsynced(), *files]

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
        if not (self._place / LOG).exists():
            self.durability.make_folder(self._place / LOG, below)

    def make_folder(self, path: str) -> None:
        self.durability.make_folder(self._place / path, below=self._place)

    def absolute(self, path: str) -> Path:
        return self._place / path

    def write_synced(self, opened: FileIO, content: bytes) -> None:
        """Write to a new file. If writes are synced, make this thread's earlier files durable, too."""
        self._fill(opened, content)
        if self.is_synced:
            self.durability.sync_files(self._list_unsynced(), [opened.fileno()])
        self._pending.paths = []

    def _fill(self, opened: FileIO, content: bytes) -> None:
        left = memoryview(content)
        while left:
            left = left[opened.write(left) :]
        if self.is_synced:
            begin_writing(opened.fileno())

    def _list_unsynced(self) -> list[str]:
        paths: list[str] = getattr(self._pending, "paths", [])
        return paths

    def sync(self, paths: Iterable[str]) -> None:
        if self.is_synced:
            self.durability.sync_files([*self._list_unsynced(), *paths])
        self._pending.paths = []

    def make_durable(self, version: int) -> None:
        if self.is_synced:
            self.durability.make_durable(version, log_file)

    def sync_checkpoints(self) -> None:
        if self.is_synced:
            self.durability.sync_checkpoints(LOG)

    def remove(self, path: str) -> None:
        (self._place / path).unlink(missing_ok=True)

    def find_newest_from(self, version: int) -> int | None:
        return find_latest_version(self, version)

    def log_files(self) -> list[LogFile]:
        log_files = []
        with os.scandir(self._place / LOG) as files:
            for file in files:
                # Another writer's temporary file may be gone by now.
                with contextlib.suppress(FileNotFoundError):
                    log_files.append(LogFile(f"{LOG}/{file.name}", file.stat().st_mtime))
        return log_files

    def log_paths(self) -> list[str]:
        return [f"{LOG}/{name}" for name in os.listdir(self._place / LOG)]  # noqa: PTH208

    def files(self) -> Iterator[StoredFile]:
        folders = [""]
        while folders:
            folder = folders.pop()
            with contextlib.suppress(FileNotFoundError), os.scandir(self._place / folder) as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(path)
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        yield StoredFile(path, status.st_size, status.st_mtime)

    def sizes(self, paths: Sequence[str]) -> Mapping[str, int]:
        size_by_path = {}
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                size_by_path[path] = (self._place / path).stat().st_size
        return size_by_path

    def rows(self, loaded: DeltaTable, where: PartitionFilter, wanted: Wanted | None = None) -> pa.Table:
        dataset = dataset_of(loaded, self._files, where, wanted)
        return dataset.to_table() if wanted is None else dataset.to_table(list(wanted.columns), wanted.where)

    def column(self, paths: Sequence[str], name: str) -> pa.ChunkedArray | None:
        return column_of((pq.ParquetFile(self._place / path) for path in paths), name)


class HeldLog:
    """The folder of a table's log on a local path, held open.

    If another folder takes its place, this object still reads and writes the held one. In a removed folder it makes no
    file.
    """

    def __init__(self, descriptor: int, files: LocalFiles) -> None:
        self._descriptor, self._files = descriptor, files

    def names(self) -> list[str]:
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
        # Not by a context manager: after an interrupt, it might clean up when the descriptor is closed already.
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
        """Put a whole file under a name, in one step, also in place of another file.

        Hadoop's checksum of the other file is removed: Spark would compare the new file with it.
        """
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
    return f"_commit_{uuid.uuid4()}.json.tmp"


def _name(path: str) -> str:
    return path.removeprefix(f"{LOG}/")


def column_of(files: Iterable[pq.ParquetFile], name: str) -> pa.ChunkedArray | None:
    chunks: list[pa.Array] = []
    for file in files:
        named = next((column for column in file.schema_arrow.names if column.lower() == name.lower()), None)
        if named is None:
            return None
        chunks += file.read([named], use_threads=False)[named].chunks
    return pa.chunked_array(chunks, None if chunks else pa.string())


def rows_of_file(file: pq.ParquetFile, schema: pa.Schema, partition: Mapping[str, Any]) -> pa.Table:
    """Return the rows of a file. A column that the file lacks has its partition's value or null.

    Raises what Arrow raises for damaged bytes or invalid text.
    """
    columns_in_file = [name for name in schema.names if name in file.schema_arrow.names]
    rows, count = file.read(columns_in_file, use_threads=False), file.metadata.num_rows
    rows.validate(full=True)
    columns = [
        rows[field.name].cast(field.type)
        if field.name in columns_in_file
        else pa.repeat(pa.scalar(partition.get(field.name)).cast(field.type), count)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


class FileRows:
    """The rows of data files, with all columns of the table. Up to KEPT bytes are kept in memory."""

    def __init__(self, schema: pa.Schema, partitions: Sequence[str], stored: Storage) -> None:
        self._schema, self._partitions, self._stored = schema, partitions, stored
        self._kept: OrderedDict[str, pa.Table] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        renew_in_child(self, FileRows._renew)

    def of(self, partition: Sequence[str | None], path: str) -> pa.Table:
        with self._lock:
            kept = self._kept.get(path)
            if kept is not None:
                self._kept.move_to_end(path)
        return kept if kept is not None else self._read(dict(zip(self._partitions, partition)), path)

    def _renew(self) -> None:
        """Forget all rows: another thread of the parent may have been changing them."""
        self._lock, self._size = threading.Lock(), 0
        self._kept.clear()

    def keep(self, path: str, rows: pa.Table) -> None:
        if rows.nbytes > KEPT // 4:
            return
        with self._lock:
            try:
                self._size += _estimate_bytes(rows) - _estimate_bytes(self._kept.pop(path, None))
                self._kept[path] = rows
                while self._size > KEPT:
                    self._size -= _estimate_bytes(self._kept.popitem(last=False)[1])
            except BaseException:
                # After an interrupt, the kept content and `_size` may not match.
                self._kept.clear()
                self._size = 0
                raise

    def forget(self, paths: Iterable[str]) -> None:
        with self._lock:
            for path in paths:
                self._size -= _estimate_bytes(self._kept.pop(path, None))

    def _read(self, partition: Mapping[str, str | None], path: str) -> pa.Table:
        rows = rows_of_file(self._stored.open(path), self._schema, partition)
        self.keep(path, rows)
        return rows


def _estimate_bytes(rows: pa.Table | None) -> int:
    return 0 if rows is None else rows.nbytes + TABLE_OVERHEAD
