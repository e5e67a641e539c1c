"""The files below one table where only Spark's JVM can reach them: read and made through Hadoop, and entries of the log
through Delta's LogStore for the storage, which knows how to make one that must be new."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError

from ledger.store.delta.engines.spark_tables import jvm_of
from ledger.store.delta.engines.table_files import galloped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What Java raises for a file that is not there, and for one that is.
MISSING, TAKEN = "java.io.FileNotFoundException", "java.nio.file.FileAlreadyExistsException"


class HadoopFiles:
    """CommitFiles of the table at a location. `session` returns the thread's."""

    def __init__(self, location: str, session: Callable[[], SparkSession]) -> None:
        self._location, self._session = location, session

    def has(self, path: str) -> bool:
        return bool(self._system().exists(self._path(path)))

    def read(self, path: str) -> bytes | None:
        try:
            stream = self._system().open(self._path(path))
        except Py4JJavaError as error:
            if _is(error, MISSING):
                return None
            raise
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def open(self, path: str) -> pq.ParquetFile:
        content = self.read(path)
        if content is None:
            raise FileNotFoundError(f"{self._location}/{path}")
        return pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)

    def write(self, files: Mapping[str, bytes]) -> None:
        for path, content in files.items():
            stream = self._system().create(self._path(path), False)
            try:
                stream.write(content)
            finally:
                stream.close()

    def put_new(self, path: str, content: bytes) -> bool:
        session = self._session()
        jvm, java = jvm_of(session), session._jsparkSession
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java, self._location)
        lines = jvm.scala.jdk.javaapi.CollectionConverters.asScala(content.decode().splitlines()).iterator()
        try:
            log.store().write(self._path(path), lines, False, log.newDeltaHadoopConf())
        except Py4JJavaError as error:
            if _is(error, TAKEN):
                return False
            raise
        return True

    def remove(self, path: str) -> None:
        self._system().delete(self._path(path), False)

    def newest_from(self, version: int) -> int | None:
        return galloped(self, version)

    def _path(self, path: str) -> Any:
        return jvm_of(self._session()).org.apache.hadoop.fs.Path(f"{self._location}/{path}")

    def _system(self) -> Any:
        session = self._session()
        return self._path("").getFileSystem(session._jsparkSession.sessionState().newHadoopConf())


def _is(error: Py4JJavaError, kind: str) -> bool:
    return str(error.java_exception.getClass().getName()) == kind
