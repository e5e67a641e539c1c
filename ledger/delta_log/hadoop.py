"""Files of one table that only Spark's JVM can reach.

Delta's LogStore puts a new entry into the log, and replaces no existing one. On HDFS with `sync`, a rename does the
same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError

from ledger.delta_log.spark_sessions import jvm_of
from ledger.delta_log.storage import LogEntries, Stamp, find_latest_version
from ledger.rules.location import recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_MISSING, TAKEN = "java.io.FileNotFoundException", "java.nio.file.FileAlreadyExistsException"
TAKEN_ON_HADOOP = "org.apache.hadoop.fs.FileAlreadyExistsException"
HDFS = "hdfs"


class HadoopFiles:
    """Storage of the table at a location. `session` returns the thread's session.

    `sync`: on HDFS the data nodes have a direct commit's files on their disks before others can see it.
    """

    #: The mark of `durability` is for local paths.
    is_synced = False

    def __init__(self, location: str, session: Callable[[], SparkSession], *, sync: bool = True) -> None:
        self._location, self._session, self._sync = location, session, sync

    def has(self, path: str) -> bool:
        return bool(self._system().exists(self._path(path)))

    def read(self, path: str) -> bytes | None:
        try:
            stream = self._system().open(self._path(path))
        except Py4JJavaError as error:
            if _is(error, FILE_MISSING):
                return None
            raise
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def stamp(self, path: str) -> Stamp | None:
        return ()

    def open(self, path: str) -> pq.ParquetFile:
        content = self.read(path)
        if content is None:
            raise FileNotFoundError(f"{self._location}/{path}")
        return pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)

    def write(self, files: Mapping[str, bytes]) -> None:
        for path, content in files.items():
            self._write(self._path(path), content)

    def _write(self, path: Any, content: bytes) -> None:
        stream = self._system().create(path, False)
        try:
            stream.write(content)
            if self._sync:
                stream.hsync()
        finally:
            stream.close()

    def held_log(self) -> AbstractContextManager[LogEntries]:
        return nullcontext(self)

    def put_new(self, path: str, content: bytes) -> bool:
        return self._put_synced(path, content) if self._sync and self._is_hdfs() else self._put(path, content)

    def _is_hdfs(self) -> bool:
        return recorded(self._location).scheme == HDFS

    def _put_synced(self, path: str, content: bytes) -> bool:
        jvm = jvm_of(self._session())
        written = self._path(f"{path.rpartition('/')[0]}/.{uuid.uuid4()}.tmp")
        context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(written.toUri(), self._conf())
        try:
            self._write(written, content)
            rename = jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename")
            context.rename(written, self._path(path), jvm.java.lang.reflect.Array.newInstance(rename, 0))
        except Py4JJavaError as error:
            if _is(error, TAKEN_ON_HADOOP):
                return False
            raise
        finally:
            self._system().delete(written, False)
        return True

    def _put(self, path: str, content: bytes) -> bool:
        session = self._session()
        jvm, java = jvm_of(session), session._jsparkSession
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java, self._location)
        lines = jvm.scala.jdk.javaapi.CollectionConverters.asScala(content.decode().rstrip("\n").split("\n")).iterator()
        try:
            log.store().write(self._path(path), lines, False, log.newDeltaHadoopConf())
        except Py4JJavaError as error:
            if _is(error, TAKEN):
                return False
            raise
        return True

    def remove(self, path: str) -> None:
        self._system().delete(self._path(path), False)

    def sync(self, paths: Iterable[str]) -> None:
        """Do nothing: a closed file of HDFS cannot be synced any more."""

    def make_durable(self, version: int) -> None:
        """Do nothing, like `sync`."""

    def sync_checkpoints(self) -> None:
        """Do nothing, like `sync`."""

    def newest_from(self, version: int) -> int | None:
        return find_latest_version(self, version)

    def _path(self, path: str) -> Any:
        return jvm_of(self._session()).org.apache.hadoop.fs.Path(f"{self._location}/{path}")

    def _system(self) -> Any:
        return self._path("").getFileSystem(self._conf())

    def _conf(self) -> Any:
        return self._session()._jsparkSession.sessionState().newHadoopConf()


def _is(error: Py4JJavaError, kind: str) -> bool:
    return str(error.java_exception.getClass().getName()) == kind
