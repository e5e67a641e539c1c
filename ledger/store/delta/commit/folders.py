"""The folders of staged files below a table."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ledger.delta_log.failures import translating_errors
from ledger.delta_log.spark_sessions import jvm_of
from ledger.rules.location import OBJECT_STORES, recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ledger.delta_log.object_store import ObjectStore


class Folders(Protocol):
    """The folders below one place. A missing place counts as empty. The methods raise StorageFailed."""

    def names(self) -> list[str]:
        """Return the names of the folders."""

    def read(self, path: str) -> str | None:
        """Return the text of a file, or None if the file does not exist."""

    def has_files(self, path: str) -> bool:
        """Return whether a folder holds a file, at any depth, whose name begins with neither . nor _."""

    def remove(self, path: str) -> None:
        """Remove a folder and its content."""


def folders_below(
    location: str, spark: SparkSession | None, storage_options: Mapping[str, str] | None
) -> Folders | None:
    """Return the folders below a place, or None if this process cannot list the place."""
    place = recorded(location)
    if place.is_local:
        return LocalFolders(place.text)
    if storage_options is not None and place.scheme in OBJECT_STORES:
        from ledger.delta_log.object_store import ObjectStore

        return FoldersOfObjects(ObjectStore(place.text, storage_options))
    return None if spark is None else FoldersOfSpark(place.text, spark)


class LocalFolders:
    def __init__(self, place: str) -> None:
        self._place = place

    def names(self) -> list[str]:
        with translating_errors(self._place):
            try:
                return sorted(entry.name for entry in os.scandir(self._place) if entry.is_dir(follow_symlinks=False))
            except FileNotFoundError:
                return []

    def read(self, path: str) -> str | None:
        with translating_errors(self._place):
            file = Path(self._place, path)
            return file.read_text(encoding="utf-8") if file.exists() else None

    def has_files(self, path: str) -> bool:
        with translating_errors(self._place):
            folder = Path(self._place, path)
            tree = os.walk(folder, onerror=_raise) if folder.exists() else ()
            return any(not _is_hidden(name) for _, _, names in tree for name in names)

    def remove(self, path: str) -> None:
        with translating_errors(self._place):
            try:
                shutil.rmtree(Path(self._place, path))
            except FileNotFoundError:
                return


class FoldersOfObjects:
    def __init__(self, files: ObjectStore) -> None:
        self._files = files
        self.names, self.remove = files.names, files.remove_folder

    def read(self, path: str) -> str | None:
        content = self._files.get(path)
        return None if content is None else content.decode()

    def has_files(self, path: str) -> bool:
        return any(not _is_hidden(file_path.rpartition("/")[2]) for file_path in self._files.paths(path))


class FoldersOfSpark:
    def __init__(self, place: str, spark: SparkSession) -> None:
        self._place, self._spark, self._jvm = place, spark, jvm_of(spark)

    @cached_property
    def _files(self) -> Any:
        return self._path("").getFileSystem(self._spark._jsparkSession.sessionState().newHadoopConf())

    def names(self) -> list[str]:
        with self._naming_errors():
            if not self._files.exists(self._path("")):
                return []
            return sorted(s.getPath().getName() for s in self._files.listStatus(self._path("")) if s.isDirectory())

    def read(self, path: str) -> str | None:
        with self._naming_errors():
            if not self._files.exists(self._path(path)):
                return None
            stream = self._files.open(self._path(path))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def has_files(self, path: str) -> bool:
        with self._naming_errors():
            if not self._files.exists(self._path(path)):
                return False
            files = self._files.listFiles(self._path(path), True)
            while files.hasNext():
                if not _is_hidden(files.next().getPath().getName()):
                    return True
            return False

    def remove(self, path: str) -> None:
        with self._naming_errors():
            self._files.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._place}/{path}".rstrip("/"))

    def _naming_errors(self) -> Any:
        from py4j.protocol import Py4JJavaError

        return translating_errors(self._place, Py4JJavaError)


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _raise(error: OSError) -> None:
    # A folder that cannot be listed must not count as empty.
    raise error
