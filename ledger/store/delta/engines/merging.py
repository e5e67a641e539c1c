"""MERGEs: by delta-rs's query, and of few rows written out, the files of the touched partitions giving way to one each.

That is what a query's commit says, too. But delta-rs plans and runs a query for it, 40 ms for one row where this takes
4 (2 busy cores); it reads rows once more that the decision has read already; and on an object store it makes some ten
requests where this makes 2.

A commit is a file of the log that must be new: it is made for the version after the one that was read, or not at all.
When other writers were first, it is made for the next one if they left the touched partitions as they were: the same
files, whose names nobody uses twice. Where there is no file that says nothing (a queue may have been made, deleted and
tidied up meanwhile): a query decides.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from ledger.rules.limits import MILLISECONDS
from ledger.store.delta.engines.checkpoints import is_due
from ledger.store.delta.engines.committing import REBASES, committing
from ledger.store.delta.engines.followed import Files, Followed
from ledger.store.delta.engines.loaded_tables import LISTED_AFTER, LoadedTables
from ledger.store.delta.engines.protocol import EXPECTED_REVISION, OPERATION, Conflict, Snapshot, Where
from ledger.store.delta.engines.table_files import FileRows, TableFiles, log_file
from ledger.store.delta.model.tables import FORMAT, Table

log = logging.getLogger("ledger.commits")

#: With more rows than these in what it touches a MERGE is quicker, which leaves the files alone that no edit is about.
MOST_ROWS = 100_000
_PLACE = "place"
#: Who made a commit, in the table's history.
ENGINE = "ledger"


class SmallCommits:
    """Reads of a table whose log is followed, and commits of few edits to it."""

    def __init__(self, table: Table, loaded: LoadedTables, stored: TableFiles) -> None:
        self._table, self._loaded, self._stored = table, loaded, stored
        self._followed, self._rows = Followed(table, loaded, stored), FileRows(table.schema, table.partitions, stored)

    def load(self, where: Where) -> Snapshot | None:
        """The rows of the partitions that are named; None where the table is not as the ledger makes it."""
        known = self._followed.newest()
        if known is None:
            return None
        rows = [self._rows.of(partition, path) for partition, path in known.named(where)]
        return Snapshot(known.version, where, pa.concat_tables([self._table.schema.empty_table(), *rows]), known)

    def commit(self, snapshot: Snapshot, where: Where, edits: pa.Table, metadata: Mapping[str, Any]) -> int | None:
        """Commits edits that suppose the snapshot's rows as they are (see `require_expected`); returns the version
        committed. None: only a query can do it, and nothing has happened.

        Raises Conflict when others have changed the partitions of `where`, and what the storage does.
        """
        if snapshot.loaded is None:
            return None
        version = self._rewrite(snapshot, where, edits, metadata)
        if version is not None and version % snapshot.loaded.checkpoints == 0 and is_due(self._stored, version):
            self._sum_up(version)
        return version

    def _rewrite(self, snapshot: Snapshot, where: Where, edits: pa.Table, metadata: Mapping[str, Any]) -> int | None:
        columns = list(self._table.partitions)
        touched = edits.group_by(columns, use_threads=False).aggregate([]).to_pylist() if columns else [{}]
        if not _names_no_more(where, touched):
            return None
        rows = rows_after(_of(snapshot.rows, touched), self._table, edits)
        before = [snapshot.loaded.of(_values(one)) for one in touched]
        if rows.num_rows > MOST_ROWS:
            return None
        now, written = int(time.time() * MILLISECONDS), {}
        actions = [_said(metadata, now)]
        for partition, there in zip(touched, before):
            actions += [_removed(path, size, partition, now) for path, size in there.items()]
            left = _of(rows, [partition])
            if left.num_rows:
                path = _new_path(partition)
                written[path] = _parquet(left, columns)
                actions.append(_added(path, len(written[path]), left.num_rows, partition, now))
                self._rows.keep(path, left)
        entry = "\n".join(map(json.dumps, actions)).encode()
        self._stored.write(written)
        # Who stood still meanwhile lists the log: the next version may have come, and gone with old ones.
        stood_still = time.monotonic() - snapshot.read_at > LISTED_AFTER
        latest = self._newest(listing=True) if stood_still else snapshot.loaded
        for _ in range(REBASES):
            if latest.version > snapshot.version:
                if not all(before):
                    return None
                if [latest.of(_values(one)) for one in touched] != before:
                    raise Conflict(f"others have committed to {self._table.name} since version {snapshot.version}")
            version = latest.version + 1
            if self._stored.put_new(log_file(version), entry):
                self._require_joined(version)
                self._followed.committed(latest, actions)
                return version
            latest = self._newest()
        raise Conflict(f"others committed to {self._table.name} {REBASES} times in the meantime")

    def _newest(self, *, listing: bool = False) -> Files:
        files = self._followed.newest(listing=listing)
        if files is None:
            raise Conflict(f"{self._table.name} was altered since it was read")
        return files

    def _require_joined(self, version: int) -> None:
        """Raises Conflict where the version before a commit is gone: the table was removed, or made anew, or its log
        was cut below what others committed meanwhile. Nobody reads such a commit; it is removed."""
        if not self._stored.has(log_file(version - 1)):
            self._stored.remove(log_file(version))
            self._followed.forget()
            raise Conflict(f"the log of {self._table.name} has lost version {version - 1}, which was read")

    def _sum_up(self, version: int) -> None:
        """Makes a checkpoint. The commit has landed, whatever comes of it."""
        try:
            with self._loaded.using() as loaded:
                loaded.create_checkpoint()
        except (DeltaError, OSError) as error:
            log.warning("No checkpoint of %s at version %d: %s", self._table.name, version, error)


def merge_by_query(loaded: DeltaTable, table: Table, where: Where, edits: pa.Table, metadata: Mapping[str, Any]) -> int:
    """One MERGE of edits into the partitions of `where`; returns the version committed. Raises what delta-rs does."""
    matches = [f"t.{column} = s.{column}" for column in (*table.partitions, *table.key)]
    # A table that could not be migrated lacks columns, which nothing is written to then.
    there = {field.name for field in loaded.schema().fields}
    columns = {column: f"s.{column}" for column in table.schema.names if column in there}
    changeable = {column: value for column, value in columns.items() if column not in table.partitions}
    merger = loaded.merge(
        edits.drop_columns([EXPECTED_REVISION]),
        " AND ".join([where.bounded().sql("t"), *matches]),
        source_alias="s",
        target_alias="t",
        **committing(metadata),
    )
    merger = (
        merger.when_matched_delete(f"s.{OPERATION} = 'delete'")
        .when_matched_update(changeable, predicate=f"s.{OPERATION} = 'update'")
        .when_not_matched_insert(columns, predicate=f"s.{OPERATION} = 'insert'")
    )
    merger.execute()
    committed: int = loaded.version()
    return committed


def layout_entry(loaded: DeltaTable, table: Table, properties: Mapping[str, str], metadata: Mapping[str, Any]) -> bytes:
    """The commit that gives a loaded table further properties; with a format among them also the columns that it lacks
    for it, and the description that says who may use it."""
    now, known, migrates = int(time.time() * MILLISECONDS), loaded.metadata(), FORMAT in properties
    columns = json.loads(loaded.schema().to_json())
    there = {column["name"] for column in columns["fields"]}
    wanted = json.loads(Schema.from_arrow(table.schema).to_json())
    columns["fields"] += [column for column in wanted["fields"] if migrates and column["name"] not in there]
    changed = {
        "id": known.id,
        "name": known.name,
        "description": table.description if migrates else known.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(columns),
        "partitionColumns": known.partition_columns,
        "createdTime": known.created_time,
        "configuration": {**known.configuration, **properties},
    }
    actions = [_said(metadata, now, "CHANGE LAYOUT"), {"metaData": changed}]
    return "\n".join(map(json.dumps, actions)).encode()


def rows_after(rows: pa.Table, table: Table, edits: pa.Table) -> pa.Table:
    """What a table's rows are behind edits that suppose them as they are (see `require_expected`)."""
    keys = [*table.partitions, *table.key]
    # By their places: columns of maps cannot go through a join.
    places = rows.select(keys).append_column(_PLACE, pa.array(np.arange(rows.num_rows)))
    left = rows.take(places.join(edits.select(keys), keys, join_type="left anti", use_threads=False)[_PLACE])
    written = edits.filter(pc.not_equal(edits[OPERATION], "delete")).drop_columns([OPERATION, EXPECTED_REVISION])
    return pa.concat_tables([one.select(table.schema.names).cast(table.schema) for one in (left, written)])


def _of(rows: pa.Table, partitions: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows of some partitions."""
    mine = [reduce(pc.and_, [pc.equal(rows[name], value) for name, value in one.items()]) for one in partitions if one]
    return rows.filter(reduce(pc.or_, mine)) if mine else rows


def _names_no_more(where: Where, touched: Sequence[Mapping[str, Any]]) -> bool:
    """Whether whoever commits to a partition of `where` commits to one that is touched."""
    known = {(one["queue"], one["lane"]) for one in touched if one}
    parts = ((part.queue, lane) for part in where.parts() for lane in part.lanes or [None])
    return not known or known.issuperset(parts)


def _said(metadata: Mapping[str, Any], now: int, operation: str = "MERGE") -> dict[str, Any]:
    """What the commit says of itself."""
    known = {"timestamp": now, "operation": operation, "operationParameters": {}, "engineInfo": ENGINE}
    return {"commitInfo": {**known, "userMetadata": json.dumps(metadata)}}


def _removed(path: str, size: int, partition: Mapping[str, Any], now: int) -> dict[str, Any]:
    known = {"path": path, "deletionTimestamp": now, "dataChange": True, "extendedFileMetadata": True}
    return {"remove": {**known, "partitionValues": _texts(partition), "size": size}}


def _added(path: str, size: int, count: int, partition: Mapping[str, Any], now: int) -> dict[str, Any]:
    known = {"path": path, "partitionValues": _texts(partition), "size": size, "modificationTime": now}
    return {"add": {**known, "dataChange": True, "stats": json.dumps({"numRecords": count})}}


def _new_path(partition: Mapping[str, Any]) -> str:
    """The path of a new file of a partition."""
    folder = "".join(f"{name}={value}/" for name, value in partition.items())
    return f"{folder}part-00000-{secrets.token_hex(16)}.snappy.parquet"


def _parquet(rows: pa.Table, partitions: Sequence[str]) -> bytes:
    """Rows as a file, without the columns of their partition."""
    sink = pa.BufferOutputStream()
    rows = rows.drop_columns(list(partitions))
    # Of bits there is neither a dictionary nor a smallest: nobody asks, and they are long.
    asked = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    pq.write_table(rows, sink, store_schema=False, use_dictionary=asked, write_statistics=asked)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _values(partition: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(str, partition.values()))


def _texts(partition: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in partition.items()}
