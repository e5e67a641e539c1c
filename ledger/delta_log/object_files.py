"""The files below one table on an object store: small files in one request, of larger ones what is needed.

Nothing is read through delta-rs's own file system for Arrow, which is written in Python: Arrow's threads let go of its
objects a moment after a read, and a process that ends in that moment is aborted (exit code 134, "terminate called
without an active exception").
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as arrow_fs
import pyarrow.parquet as pq
from deltalake import DeltaTable

from ledger.delta_log.pruning import Wanted, dataset_of
from ledger.delta_log.spec import PartitionFilter
from ledger.delta_log.table_files import (
    AT_ONCE,
    KEPT,
    LOG,
    SMALL,
    Stamp,
    Stored,
    column_of,
    log_file,
    rows_of_file,
    version_of,
)
from ledger.threads import map_at_once

if TYPE_CHECKING:
    from ledger.delta_log.object_store import ObjectStore


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

    #: What an object store has answered survives.
    is_synced = False

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def has(self, path: str) -> bool:
        return self._store.exists(path)

    def read(self, path: str) -> bytes | None:
        return self._store.get(path)

    def stamp(self, path: str) -> Stamp | None:
        return ()

    def write(self, files: Mapping[str, bytes]) -> None:
        # A put with a condition may be refused for nothing, and say so of a file that is not there.
        if len(files) == 1:
            self._store.put(*next(iter(files.items())))
        else:
            # Each is asked for when it is its turn: it may be made then.
            map_at_once(lambda path: self._store.put(path, files[path]), files, AT_ONCE)

    def put_new(self, path: str, content: bytes) -> bool:
        return self._store.put_new(path, content)

    def remove(self, path: str) -> None:
        self._store.delete(path)

    def sync(self, paths: Iterable[str]) -> None:
        pass

    def make_durable(self, version: int) -> None:
        pass

    def sync_checkpoints(self) -> None:
        pass

    def newest_from(self, version: int) -> int | None:
        # One request says what stands behind a name.
        listed = map(version_of, self._store.paths(LOG, log_file(version)))
        return max((one for one in listed if one is not None), default=version)

    def log(self) -> list[Stored]:
        return [Stored(path, at) for path, at in self._store.written(LOG)]

    def log_paths(self) -> list[str]:
        return list(self._store.paths(LOG))

    def sizes(self, paths: Sequence[str]) -> Mapping[str, int]:
        asked = set(paths)
        return {path: size for path, size in self._store.sizes() if path in asked} if asked else {}

    def rows(self, loaded: DeltaTable, where: PartitionFilter, wanted: Wanted | None = None) -> pa.Table:
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
            try:
                self._size += len(content) - len(self._kept.pop(path, b""))
                self._kept[path] = content
                while self._size > KEPT:
                    self._size -= len(self._kept.popitem(last=False)[1])
            except BaseException:
                # Interrupted in between: what is kept and its size would not fit any more.
                self._kept.clear()
                self._size = 0
                raise
