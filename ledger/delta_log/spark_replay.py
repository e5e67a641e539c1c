"""A table's log and files as Spark reads them, where Spark is the engine.

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

from ledger.delta_log.damage import LogTail
from ledger.delta_log.data_files import FileStatistics, schema_of_facts
from ledger.delta_log.history import Generations
from ledger.delta_log.local_commits import write_checkpoint
from ledger.delta_log.log import DirectTable
from ledger.delta_log.protocol import Fact, Partition, TableSpec
from ledger.delta_log.reading import PLAIN_PATH
from ledger.delta_log.replay import ESCAPED, Altered, Files, read_checkpoint_interval, require_plain
from ledger.delta_log.spark_sessions import jvm_of
from ledger.delta_log.storage import LocalFiles, LogEntries, Stamp, Storage, find_latest_version
from ledger.rules.location import recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_MISSING, TAKEN = "java.io.FileNotFoundException", "java.nio.file.FileAlreadyExistsException"
TAKEN_ON_HADOOP = "org.apache.hadoop.fs.FileAlreadyExistsException"
HDFS = "hdfs"


class HadoopFiles:
    """Storage of the table at a location.

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

    def find_newest_from(self, version: int) -> int | None:
        return find_latest_version(self, version)

    def _path(self, path: str) -> Any:
        return jvm_of(self._session()).org.apache.hadoop.fs.Path(f"{self._location}/{path}")

    def _system(self) -> Any:
        return self._path("").getFileSystem(self._conf())

    def _conf(self) -> Any:
        return self._session()._jsparkSession.sessionState().newHadoopConf()


def _is(error: Py4JJavaError, kind: str) -> bool:
    return str(error.java_exception.getClass().getName()) == kind


def direct_tables(
    specs: Mapping[str, TableSpec],
    locations: Mapping[str, str],
    files: Mapping[str, Storage],
    session: Callable[[], SparkSession],
    state: Callable[[str], Any],
    *failures: type[Exception],
    by_statement: bool,
) -> dict[str, DirectTable]:
    generations = Generations()
    return {
        name: DirectTable(
            table,
            SparkReplay(table, session, state, files[name], LogTail(name, locations[name])),
            files[name],
            *failures,
            generations=generations,
            by_statement=by_statement,
        )
        for name, table in specs.items()
    }


def files_at(location: str, session: Callable[[], SparkSession], *, sync: bool = True) -> Storage:
    place = recorded(location)
    return LocalFiles(place, sync=sync) if place.is_local else HadoopFiles(location, session, sync=sync)


class SparkReplay:
    """A replay of one of the ledger's tables by Spark.

    `session` returns the thread's session. `state` returns Delta's own snapshot of a table's newest version. `tail`
    checks the entries after the last checkpoint.
    """

    def __init__(
        self,
        table: TableSpec,
        session: Callable[[], SparkSession],
        state: Callable[[str], Any],
        stored: Storage,
        tail: LogTail | None = None,
    ) -> None:
        self._table, self._session, self._state, self._stored, self._tail = table, session, state, stored, tail

    def files(self) -> Files:
        from pyspark.sql import DataFrame

        state = self._state(self._table.name)
        if self._tail is not None:
            self._tail.require(int(state.version()))
        self._require_plain(state)
        columns = [f"partitionValues['{name}']" for name in self._table.partitions]
        rows = DataFrame(state.allFiles().toDF(), self._session()).selectExpr("path", "size", *columns).collect()
        by_partition: dict[Partition, dict[str, int]] = {}
        for path, size, *values in rows:
            if not PLAIN_PATH.fullmatch(path):
                raise Altered(ESCAPED)
            by_partition.setdefault(tuple(values), {})[path] = size
        statistics = statistics_of(state, self._session(), self._table) if self._table.facts else None
        checkpoints = read_checkpoint_interval(self._configuration(state), self._table)
        table_id = str(state.metadata().id())
        return Files(int(state.version()), by_partition, checkpoints, statistics, table_id=table_id)

    def transaction(self, application: str) -> tuple[int, int | None]:
        state = self._state(self._table.name)
        committed = state.transactions().get(application)
        return int(state.version()), int(committed.get()) if committed.isDefined() else None

    def checkpoint(self, version: int) -> None:
        if isinstance(self._stored, LocalFiles):
            write_checkpoint(self._stored, version)
            return
        none = jvm_of(self._session()).scala.Option.empty()
        state = self._state(self._table.name)
        state.deltaLog().checkpoint(state, none)

    def _require_plain(self, state: Any) -> None:
        protocol, fields, configuration = state.protocol(), state.schema().fields(), self._configuration(state)
        asking = [name for name in configuration if name.startswith("delta.constraints.")]
        asking += [field.name() for field in fields if not field.nullable() or field.metadata().json() != "{}"]
        require_plain(
            self._table,
            (protocol.minReaderVersion(), protocol.minWriterVersion()),
            filter(None, str(protocol.readerAndWriterFeatureNames().mkString(",")).split(",")),
            {field.name() for field in fields},
            asking,
            configuration,
        )

    def _configuration(self, state: Any) -> dict[str, str]:
        java = jvm_of(self._session()).scala.jdk.javaapi.CollectionConverters
        return dict(java.asJava(state.metadata().configuration()))


def statistics_of(state: Any, session: SparkSession, table: TableSpec) -> FileStatistics:
    """Return the log's facts of each file. For a file with a deletion vector, the number of rows is null."""
    from pyspark.sql import DataFrame

    bounded = dict.fromkeys(fact.column for fact in table.facts if fact.source in ("min", "max"))
    values = f"STRUCT<{', '.join(f'{name}: {_sql_type(table.schema.field(name).type)}' for name in bounded)}>"
    parsed_stats = f"from_json(stats, 'numRecords BIGINT, minValues {values}, maxValues {values}') AS known"
    files = DataFrame(state.allFiles().toDF(), session).selectExpr(
        "path", "size", "partitionValues", "deletionVector", parsed_stats
    )
    rows = files.selectExpr("path", *(f"{_sql_of(fact)} AS {fact.name}" for fact in table.facts))
    return FileStatistics(table, rows.toArrow().cast(schema_of_facts(table)))


def _sql_of(fact: Fact) -> str:
    if fact.source == "rows":
        return "IF(deletionVector IS NULL, known.numRecords, NULL)"
    if fact.source == "size":
        return "size"
    if fact.source == "partition":
        return f"CAST(partitionValues['{fact.column}'] AS {_sql_type(fact.type)})"
    value = f"known.{fact.source}Values.{fact.column}"
    return f"unix_millis({value})" if fact.is_instant else value


def _sql_type(kind: pa.DataType) -> str:
    from pyspark.sql.pandas.types import from_arrow_type

    return str(from_arrow_type(kind).simpleString())
