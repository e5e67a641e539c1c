"""The log of a table as Spark's Delta reads it: for commits that are written out where delta-rs cannot reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ledger.delta_log.file_statistics import FILES, FileStatistics
from ledger.delta_log.followed import PROTOCOL, Files, Partition, checkpoints_of
from ledger.delta_log.hadoop_files import HadoopFiles
from ledger.delta_log.log_identity import Generations
from ledger.delta_log.merging import SmallCommits
from ledger.delta_log.pruning import PLAIN_PATH
from ledger.delta_log.spark_tables import jvm_of
from ledger.delta_log.table_damage import LogTail
from ledger.delta_log.table_files import CommitFiles, LocalFiles
from ledger.rules.location import recorded
from ledger.store.delta.model.tables import TABLES, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def small_commits(
    locations: Mapping[str, str],
    files: Mapping[str, CommitFiles],
    session: Callable[[], SparkSession],
    state: Callable[[str], Any],
    *failures: type[Exception],
) -> dict[str, SmallCommits]:
    """By name, the small commits to some tables, which lie at these locations and have these files. The other arguments
    are those of ReplayOfSpark, and what Spark raises."""
    generations = Generations()
    return {
        name: SmallCommits(
            table,
            ReplayOfSpark(table, session, state, files[name], LogTail(name, locations[name])),
            files[name],
            *failures,
            generations=generations,
        )
        for name, table in TABLES.items()
        if name in files
    }


def files_at(location: str, session: Callable[[], SparkSession], *, sync: bool = True) -> CommitFiles:
    """The files of a table: on a local path without the JVM. `sync`: what is written survives a power cut."""
    place = recorded(location)
    return LocalFiles(place, sync=sync) if place.is_local else HadoopFiles(location, session, sync=sync)


class ReplayOfSpark:
    """Of one of the ledger's tables. `session` returns the thread's, `state` Delta's own snapshot of the newest version
    of a table, and `stored` has the table's files."""

    def __init__(
        self,
        table: Table,
        session: Callable[[], SparkSession],
        state: Callable[[str], Any],
        stored: CommitFiles,
        tail: LogTail | None = None,
    ) -> None:
        self._table, self._session, self._state, self._stored, self._tail = table, session, state, stored, tail

    def files(self) -> Files | None:
        from pyspark.sql import DataFrame

        state = self._state(self._table.name)
        if self._tail is not None:
            self._tail.require(int(state.version()))
        if not self._is_plain(state):
            return None
        columns = [f"partitionValues['{name}']" for name in self._table.partitions]
        rows = DataFrame(state.allFiles().toDF(), self._session()).selectExpr("path", "size", *columns).collect()
        by_partition: dict[Partition, dict[str, int]] = {}
        for path, size, *values in rows:
            if not PLAIN_PATH.fullmatch(path):
                return None
            by_partition.setdefault(tuple(values), {})[path] = size
        statistics = statistics_of(state, self._session()) if self._table.name == "messages" else None
        checkpoints = checkpoints_of(self._configuration(state), self._table)
        table_id = str(state.metadata().id())
        return Files(int(state.version()), by_partition, checkpoints, statistics, table_id=table_id)

    def transaction(self, application: str) -> tuple[int, int | None]:
        state = self._state(self._table.name)
        found = state.transactions().get(application)
        return int(state.version()), int(found.get()) if found.isDefined() else None

    def checkpoint(self) -> None:
        none = jvm_of(self._session()).scala.Option.empty()
        state = self._state(self._table.name)
        state.deltaLog().checkpoint(state, none)
        self._stored.sync_checkpoints()

    def _is_plain(self, state: Any) -> bool:
        """Whether rows need nothing but their columns to be in the table; as `followed.is_plain`."""
        protocol, fields, configuration = state.protocol(), state.schema().fields(), self._configuration(state)
        return (
            (protocol.minReaderVersion(), protocol.minWriterVersion()) == PROTOCOL
            and {field.name() for field in fields} == set(self._table.schema.names)
            and all(field.nullable() and field.metadata().json() == "{}" for field in fields)
            and not any(name.startswith("delta.constraints.") for name in configuration)
            and configuration.get("delta.appendOnly", "false") == "false"
        )

    def _configuration(self, state: Any) -> dict[str, str]:
        java = jvm_of(self._session()).scala.jdk.javaapi.CollectionConverters
        return dict(java.asJava(state.metadata().configuration()))


def statistics_of(state: Any, session: SparkSession) -> FileStatistics:
    """What the log tells of each file of `messages`, in a snapshot of Delta's. Of a file with a deletion vector it does
    not tell which messages are left."""
    from pyspark.sql import DataFrame

    values = "STRUCT<seq: BIGINT, sent_at: TIMESTAMP, available_at: TIMESTAMP>"
    known = f"from_json(stats, 'numRecords BIGINT, minValues {values}, maxValues {values}') AS known"
    files = DataFrame(state.allFiles().toDF(), session).selectExpr("path", "partitionValues", "deletionVector", known)
    rows = files.selectExpr(
        "path",
        "partitionValues['queue'] AS queue",
        "CAST(partitionValues['lane'] AS INT) AS lane",
        "partitionValues['segment'] AS segment",
        "IF(deletionVector IS NULL, known.numRecords, NULL) AS messages",
        "known.minValues.seq AS first_seq",
        "known.maxValues.seq AS last_seq",
        "unix_millis(known.minValues.sent_at) AS first_sent_at",
        "unix_millis(known.maxValues.sent_at) AS last_sent_at",
        "unix_millis(known.minValues.available_at) AS first_available_at",
        "unix_millis(known.maxValues.available_at) AS last_available_at",
    )
    return FileStatistics(rows.toArrow().cast(FILES))
