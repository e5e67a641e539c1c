"""The same operations by three writers: the client, delta-rs's own statements, and Spark's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from ledger.delta_log.by_spark import SparkTables
from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION, TableSpec
from tests.delta_log.tables import Places, edits_of, opened, rows_of

Edit = tuple[str, Mapping[str, Any]]


class ByClient:
    """What is tested; `spark`: over Spark's engine instead of delta-rs's."""

    def __init__(self, table: TableSpec, location: str, spark: Any = None) -> None:
        self._table, self._name = table, table.name
        if spark is None:
            self.tables = opened(Path(location).parent, table, locations={self._name: location})
        else:
            self.tables = SparkTables({self._name: table}, spark, {self._name: location}, sync=False)

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.tables.add_rows(self._name, rows_of(self._table, rows), {})

    def merge(self, where: Places, edits: Sequence[Edit]) -> None:
        snapshot = self.tables.load(self._name, where)
        self.tables.merge(snapshot, self._name, where, edits_of(self._table, edits), {})

    def delete(self, predicate: str) -> None:
        self.tables.delete(self._name, predicate, {})

    def optimize(self, where: Places) -> None:
        self.tables.join_files(self._name, where)


def _matching(table: TableSpec) -> str:
    return " AND ".join(f"t.{name} = s.{name}" for name in (*table.partitions, *table.key))


class ByDeltaRs:
    """delta-rs's own MERGE, DELETE and OPTIMIZE."""

    def __init__(self, table: TableSpec, location: str) -> None:
        self._table, self._location = table, location

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        write_deltalake(self._location, rows_of(self._table, rows), mode="append")

    def merge(self, where: Places, edits: Sequence[Edit]) -> None:
        source = edits_of(self._table, edits).drop_columns([EXPECTED_REVISION])
        merger = DeltaTable(self._location).merge(source, _matching(self._table), source_alias="s", target_alias="t")
        columns = {name: f"s.{name}" for name in self._table.schema.names}
        (
            merger.when_matched_delete(f"s.{OPERATION} = 'delete'")
            .when_matched_update(columns, predicate=f"s.{OPERATION} = 'update'")
            .when_not_matched_insert(columns, predicate=f"s.{OPERATION} = 'insert'")
            .execute()
        )

    def delete(self, predicate: str) -> None:
        DeltaTable(self._location).delete(predicate)

    def optimize(self, where: Places) -> None:
        DeltaTable(self._location).optimize.compact()


class BySpark:
    """Spark's own MERGE, DELETE and OPTIMIZE."""

    def __init__(self, table: TableSpec, location: str, spark: Any) -> None:
        self._table, self._spark, self._named = table, spark, f"delta.`{location}`"

    def _frame(self, rows: pa.Table) -> Any:
        return self._spark.createDataFrame(rows.combine_chunks())

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        location = self._named.split("`")[1]
        self._frame(rows_of(self._table, rows)).write.format("delta").mode("append").save(location)

    def merge(self, where: Places, edits: Sequence[Edit]) -> None:
        self._frame(edits_of(self._table, edits)).createOrReplaceTempView("edits")
        names = self._table.schema.names
        self._spark.sql(f"""
            MERGE INTO {self._named} AS t USING edits AS s ON {_matching(self._table)}
            WHEN MATCHED AND s.{OPERATION} = 'delete' THEN DELETE
            WHEN MATCHED THEN UPDATE SET {", ".join(f"{name} = s.{name}" for name in names)}
            WHEN NOT MATCHED THEN INSERT ({", ".join(names)}) VALUES ({", ".join(f"s.{name}" for name in names)})
        """)
        self._spark.catalog.dropTempView("edits")

    def delete(self, predicate: str) -> None:
        self._spark.sql(f"DELETE FROM {self._named} WHERE {predicate}")

    def optimize(self, where: Places) -> None:
        self._spark.sql(f"OPTIMIZE {self._named}")
