"""The files below one table, by their paths from its place: how the rows in them are read, and how new ones come there.

On an object store nothing is read through delta-rs's own file system for Arrow, which is written in Python: Arrow's
threads let go of its objects a moment after a read, and a process that ends in that moment is aborted (exit code 134,
"terminate called without an active exception").
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as arrow_fs
import pyarrow.parquet as pq
from deltalake import DeltaTable

from ledger.rules.location import Location, recorded
from ledger.store.delta.engines.pruning import Wanted, dataset_of
from ledger.store.delta.engines.where import Where

if TYPE_CHECKING:
    from ledger.store.delta.engines.object_store import ObjectStore

#: The folder of a table's log.
LOG = "_delta_log"
_COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json")
#: Up to so many bytes a file is read in one request. No file is ever written anew, so small ones are kept, too.
SMALL = 1 << 20
#: So many bytes of them.
KEPT = 64 << 20
#: What a table of few rows takes beside them, in bytes, measured.
A_TABLE = 20_000
#: So many files are written at the same time.
AT_ONCE = 8


class Stored(NamedTuple):
    """A file: its path, and when it was written, in seconds since 1970."""

    path: str
    at: float


class CommitFiles(Protocol):
    """What commits are read from, and made of. Raises what the storage does."""

    def has(self, path: str) -> bool:
        """Whether there is a file."""

    def read(self, path: str) -> bytes | None:
        """What is in a file; None: there is none."""

    def open(self, path: str) -> pq.ParquetFile:
        """A file of rows that is there."""

    def write(self, files: Mapping[str, bytes]) -> None:
        """Makes files, of names that nobody uses twice."""

    def put_new(self, path: str, content: bytes) -> bool:
        """Makes a file, all at once, in a folder that is there; False, and nothing, where there is one already. Of two
        at once one is True. On an object store an answer that is lost may make it False, too."""

    def remove(self, path: str) -> None:
        """Removes a file, if it is there."""

    def newest_from(self, version: int) -> int | None:
        """The newest version of the table, which has had this one; None where the log tells of that no more."""


class TableFiles(CommitFiles, Protocol):
    """All files of a table."""

    def log(self) -> list[Stored]:
        """All files of the table's log."""

    def log_paths(self) -> list[str]:
        """Their paths."""

    def rows(self, loaded: DeltaTable, where: Where, wanted: Wanted | None = None) -> pa.Table:
        """Rows of a loaded table, of the files that may hold what `where` names; all columns unless some are wanted."""

    def column(self, paths: Sequence[str], name: str) -> pa.ChunkedArray | None:
        """A column of all rows in some files; None where one of them has none of this name, in whatever case."""


def log_file(version: int) -> str:
    """The file of a table's log that is a version."""
    return f"{LOG}/{version:020d}.json"


def log_entry(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """What is in it: a line of JSON for each action, each with its end, as Delta's LogStores write them."""
    return "".join(f"{json.dumps(action)}\n" for action in actions).encode()


def version_of(path: str) -> int | None:
    """The version that a file of a table's log is; None for what is no commit."""
    named = _COMMIT.fullmatch(path)
    return int(named[1]) if named else None


def galloped(files: CommitFiles, version: int) -> int | None:
    """See CommitFiles.newest_from, where each file is asked for: a log is cut at its beginning, and has no gaps."""
    if not files.has(log_file(version)):
        return None
    step = 1
    while step:
        there = files.has(log_file(version + step))
        version, step = (version + step, 2 * step) if there else (version, step // 2)
    return version


def table_files(location: str, storage_options: Mapping[str, str] | None) -> TableFiles:
    """The files of the table at a location."""
    place = recorded(location)
    if place.is_local:
        return LocalFiles(place)
    from ledger.store.delta.engines.object_store import ObjectStore

    return StoredFiles(ObjectStore(place.text, storage_options))


class LocalFiles:
    """On a local path, where Arrow reads by itself."""

    def __init__(self, place: Location) -> None:
        self._place = Path(place.text)
        self._files = arrow_fs.SubTreeFileSystem(place.text, arrow_fs.LocalFileSystem())

    def has(self, path: str) -> bool:
        return (self._place / path).exists()

    def read(self, path: str) -> bytes | None:
        try:
            return (self._place / path).read_bytes()
        except FileNotFoundError:
            return None

    def open(self, path: str) -> pq.ParquetFile:
        return pq.ParquetFile(self._place / path, pre_buffer=False)

    def write(self, files: Mapping[str, bytes]) -> None:
        for path, content in files.items():
            file = self._place / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    def put_new(self, path: str, content: bytes) -> bool:
        file = self._place / path
        # Named as delta-rs names what it links.
        written = file.with_name(f"_commit_{uuid.uuid4()}.json.tmp")
        try:
            written.write_bytes(content)
            os.link(written, file)
        except FileExistsError:
            return False
        finally:
            written.unlink(missing_ok=True)
        return True

    def remove(self, path: str) -> None:
        (self._place / path).unlink(missing_ok=True)

    def newest_from(self, version: int) -> int | None:
        return galloped(self, version)

    def log(self) -> list[Stored]:
        found = []
        with os.scandir(self._place / LOG) as files:
            for file in files:
                # Others commit meanwhile, by files that are there for a moment.
                with contextlib.suppress(FileNotFoundError):
                    found.append(Stored(f"{LOG}/{file.name}", file.stat().st_mtime))
        return found

    def log_paths(self) -> list[str]:
        return [f"{LOG}/{name}" for name in os.listdir(self._place / LOG)]  # noqa: PTH208

    def rows(self, loaded: DeltaTable, where: Where, wanted: Wanted | None = None) -> pa.Table:
        dataset = dataset_of(loaded, self._files, where, wanted)
        return dataset.to_table() if wanted is None else dataset.to_table(list(wanted.columns), wanted.where)

    def column(self, paths: Sequence[str], name: str) -> pa.ChunkedArray | None:
        return column_of((pq.ParquetFile(self._place / path) for path in paths), name)


def column_of(files: Iterable[pq.ParquetFile], name: str) -> pa.ChunkedArray | None:
    """See TableFiles.column."""
    chunks: list[pa.Array] = []
    for file in files:
        named = next((known for known in file.schema_arrow.names if known.lower() == name.lower()), None)
        if named is None:
            return None
        chunks += file.read([named], use_threads=False)[named].chunks
    return pa.chunked_array(chunks, None if chunks else pa.string())


def rows_of_file(file: pq.ParquetFile, schema: pa.Schema, partition: Mapping[str, Any]) -> pa.Table:
    """The rows of a file with all columns of a schema: those that it has none of are its partition's, or nothing."""
    there = [name for name in schema.names if name in file.schema_arrow.names]
    rows, count = file.read(there, use_threads=False), file.metadata.num_rows
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

    def __init__(self, schema: pa.Schema, partitions: Sequence[str], stored: CommitFiles) -> None:
        self._schema, self._partitions, self._stored = schema, partitions, stored
        self._kept: OrderedDict[str, pa.Table] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def of(self, partition: Sequence[str | None], path: str) -> pa.Table:
        """The rows of a file of a partition."""
        with self._lock:
            kept = self._kept.get(path)
            if kept is not None:
                self._kept.move_to_end(path)
        return kept if kept is not None else self._read(dict(zip(self._partitions, partition)), path)

    def keep(self, path: str, rows: pa.Table) -> None:
        """What is in a file, for the next reads."""
        if rows.nbytes > KEPT // 4:
            return
        with self._lock:
            self._size += _taken(rows) - _taken(self._kept.pop(path, None))
            self._kept[path] = rows
            while self._size > KEPT:
                self._size -= _taken(self._kept.popitem(last=False)[1])

    def _read(self, partition: Mapping[str, str | None], path: str) -> pa.Table:
        found = rows_of_file(self._stored.open(path), self._schema, partition)
        self.keep(path, found)
        return found


def _taken(rows: pa.Table | None) -> int:
    return 0 if rows is None else rows.nbytes + A_TABLE


class Parts(io.RawIOBase):
    """A file of an object store, of which each read is one request."""

    def __init__(self, store: ObjectStore, path: str, size: int) -> None:
        self._store, self._path, self._size, self._at = store, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        length = left if size < 0 else min(size, left)
        content = self._store.part(self._path, self._at, length) if length else b""
        self._at += length
        return content


class StoredFiles:
    """On an object store: small files in one request, of larger ones what is needed."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def has(self, path: str) -> bool:
        return self._store.exists(path)

    def read(self, path: str) -> bytes | None:
        return self._store.get(path)

    def write(self, files: Mapping[str, bytes]) -> None:
        # A put with a condition may be refused for nothing, and say so of a file that is not there.
        if len(files) == 1:
            self._store.put(*next(iter(files.items())))
        else:
            with ThreadPoolExecutor(AT_ONCE) as threads:
                # Each is asked for when it is its turn: it may be made then.
                list(threads.map(lambda path: self._store.put(path, files[path]), files))

    def put_new(self, path: str, content: bytes) -> bool:
        return self._store.put_new(path, content)

    def remove(self, path: str) -> None:
        self._store.delete(path)

    def newest_from(self, version: int) -> int | None:
        # One request says what stands behind a name.
        listed = map(version_of, self._store.paths(LOG, log_file(version)))
        return max((one for one in listed if one is not None), default=version)

    def log(self) -> list[Stored]:
        return [Stored(path, at) for path, at in self._store.written(LOG)]

    def log_paths(self) -> list[str]:
        return list(self._store.paths(LOG))

    def rows(self, loaded: DeltaTable, where: Where, wanted: Wanted | None = None) -> pa.Table:
        # Nothing is read through this file system: the dataset says which files there are, and what is in them.
        dataset = dataset_of(loaded, arrow_fs.LocalFileSystem(), where, wanted)
        wanted = wanted or Wanted(dataset.schema.names)
        schema = pa.schema([dataset.schema.field(name) for name in dict.fromkeys((*wanted.columns, *wanted.asks))])
        parts = [self._rows_of(fragment, schema, wanted.where) for fragment in dataset.get_fragments(wanted.where)]
        rows = pa.concat_tables(parts) if parts else schema.empty_table()
        return rows.select(list(wanted.columns))

    def column(self, paths: Sequence[str], name: str) -> pa.ChunkedArray | None:
        return column_of(map(self.open, paths), name)

    def _rows_of(self, fragment: Any, schema: pa.Schema, where: Any) -> pa.Table:
        """The rows of one file, with the columns of its partition."""
        partition = pads.get_partition_keys(fragment.partition_expression)
        whole = rows_of_file(self.open(fragment.path), schema, partition)
        return whole if where is None else whole.filter(where)

    def open(self, path: str) -> pq.ParquetFile:
        with self._lock:
            kept = self._kept.get(path)
        if kept is None:
            kept, size = self._store.beginning(path, SMALL)
            if size > len(kept):
                # Without buffering ahead all is read in this thread: Arrow's own would hold on to the file.
                return pq.ParquetFile(pa.PythonFile(Parts(self._store, path, size), "r"), pre_buffer=False)
            self._keep(path, kept)
        return pq.ParquetFile(pa.BufferReader(kept), pre_buffer=False)

    def _keep(self, path: str, content: bytes) -> None:
        if len(content) > SMALL:
            return
        with self._lock:
            self._size += len(content) - len(self._kept.pop(path, b""))
            self._kept[path] = content
            while self._size > KEPT:
                self._size -= len(self._kept.popitem(last=False)[1])
