"""A table's log as Spark reads it, where Spark is the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledger.delta_log.damage import LogTail
from ledger.delta_log.file_facts import FileStatistics, schema_of_facts
from ledger.delta_log.hadoop import HadoopFiles
from ledger.delta_log.history import Generations
from ledger.delta_log.local_commits import write_checkpoint
from ledger.delta_log.log import DirectTable
from ledger.delta_log.reading import PLAIN_PATH
from ledger.delta_log.replay import ESCAPED, Altered, Files, checkpoints_of, require_plain
from ledger.delta_log.spark_sessions import jvm_of
from ledger.delta_log.spec import Fact, Partition, TableSpec
from ledger.delta_log.storage import LocalFiles, Storage
from ledger.rules.location import recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        checkpoints = checkpoints_of(self._configuration(state), self._table)
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
