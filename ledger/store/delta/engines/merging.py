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
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ledger.rules.limits import MILLISECONDS
from ledger.store.delta.engines.committing import REBASES, committing
from ledger.store.delta.engines.log_gaps import without_gaps
from ledger.store.delta.engines.protocol import EXPECTED_REVISION, OPERATION, Conflict, Where
from ledger.store.delta.engines.publishing import demands_of
from ledger.store.delta.engines.table_files import TableFiles, log_file
from ledger.store.delta.model.tables import Table

log = logging.getLogger("ledger.commits")

#: With more rows than these in what it touches a MERGE is quicker, which leaves the files alone that no edit is about.
MOST_ROWS = 100_000
#: The protocol (reader, writer) that the ledger's tables are made with. Later ones ask more of a writer than it does.
PROTOCOL = (1, 2)
#: Names that are the same in a log as on a storage, where others are escaped.
_PLAIN = re.compile(r"[A-Za-z0-9_.=/-]+")
_PLACE = "place"
#: The property that says after how many commits there is a checkpoint.
CHECKPOINTS = "delta.checkpointInterval"
#: Who made a commit, in the table's history.
ENGINE = "ledger"


def is_plain(loaded: DeltaTable, table: Table) -> bool:
    """Whether rows need nothing but their columns to be in a table."""
    known, fields, properties = loaded.protocol(), loaded.schema().fields, loaded.metadata().configuration
    return (
        (known.min_reader_version, known.min_writer_version) == PROTOCOL
        and [field.name for field in fields] == table.schema.names
        and not any(field.metadata for field in fields)
        and not demands_of(loaded)
        and properties.get("delta.appendOnly", "false") == "false"
    )


class LogMoved(Conflict):
    """The log that a table was loaded from is not the table's any more."""


class Rewriting:
    """Commits of edits to a loaded table, whose files are `files`."""

    def __init__(self, loaded: DeltaTable, table: Table, files: TableFiles) -> None:
        self._loaded, self._table, self._stored = loaded, table, files

    def commit(self, read: pa.Table, where: Where, edits: pa.Table, metadata: Mapping[str, Any]) -> int | None:
        """Commits edits of the partitions whose rows were `read`, in the version that is loaded, when they suppose
        them as they are (see `require_expected`); returns the version committed. None: only a query can do it, the
        table is loaded as it was, and nothing has happened.

        Raises Conflict when others have changed the partitions of `where`, and what delta-rs does.
        """
        partitions = list(self._table.partitions)
        touched = edits.group_by(partitions, use_threads=False).aggregate([]).to_pylist() if partitions else [{}]
        if not _names_no_more(where, touched) or not is_plain(self._loaded, self._table):
            return None
        rows, before = rows_after(_of(read, touched), self._table, edits), self._files(touched)
        if before is None or rows.num_rows > MOST_ROWS:
            return None
        now, written = int(time.time() * MILLISECONDS), {}
        actions = [_said(metadata, now)]
        for partition, there in zip(touched, before):
            actions += [_removed(path, size, partition, now) for path, size in there.items()]
            left = _of(rows, [partition])
            if left.num_rows:
                path = _new_path(partition)
                written[path] = _parquet(left, partitions)
                actions.append(_added(path, len(written[path]), left.num_rows, partition, now))
        entry = "\n".join(map(json.dumps, actions)).encode()
        self._stored.write(written)
        for _ in range(REBASES):
            version = self._loaded.version() + 1
            if self._stored.put_new(log_file(version), entry):
                self._require_joined(version)
                self._sum_up(version)
                return version
            if not all(before):
                return None
            without_gaps(self._loaded.update_incremental)
            if self._files(touched) != before or not is_plain(self._loaded, self._table):
                raise Conflict(f"version {version} of {self._table.name} was committed by others")
        raise Conflict(f"others committed to {self._table.name} {REBASES} times in the meantime")

    def _files(self, partitions: Sequence[Mapping[str, Any]]) -> list[dict[str, int]] | None:
        """The files of each partition with their sizes, as the log names them; None where a name may be another one on
        the storage."""
        actions = pa.table(self._loaded.get_add_actions(flatten=True))
        files = []
        for partition in partitions:
            # Of no files there are no columns of partitions.
            mine = _of(actions, [partition], "partition.") if actions.num_rows else actions
            files.append(dict(zip(mine["path"].to_pylist(), mine["size_bytes"].to_pylist())))
        return files if all(map(_PLAIN.fullmatch, (path for paths in files for path in paths))) else None

    def _require_joined(self, version: int) -> None:
        """Raises LogMoved where the version before a commit is gone: the table was removed, or made anew, or its log
        was cut below what others committed meanwhile. Nobody reads such a commit; it is removed."""
        if not self._stored.has(log_file(version - 1)):
            self._stored.remove(log_file(version))
            raise LogMoved(f"the log of {self._table.name} has lost version {version - 1}, which was read")

    def _sum_up(self, version: int) -> None:
        """Makes a checkpoint where the table's properties want one. The commit has landed, whatever comes of it."""
        if version % int(self._loaded.metadata().configuration.get(CHECKPOINTS, self._table.properties[CHECKPOINTS])):
            return
        try:
            without_gaps(self._loaded.update_incremental)
            self._loaded.create_checkpoint()
        except (DeltaError, OSError) as error:
            log.warning("No checkpoint of %s at version %d: %s", self._table.name, version, error)


def merge_by_query(loaded: DeltaTable, table: Table, where: Where, edits: pa.Table, metadata: Mapping[str, Any]) -> int:
    """One MERGE of edits into the partitions of `where`; returns the version committed. Raises what delta-rs does."""
    matches = [f"t.{column} = s.{column}" for column in (*table.partitions, *table.key)]
    columns = {column: f"s.{column}" for column in table.schema.names}
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


def rows_after(rows: pa.Table, table: Table, edits: pa.Table) -> pa.Table:
    """What a table's rows are behind edits that suppose them as they are (see `require_expected`)."""
    keys = [*table.partitions, *table.key]
    # By their places: columns of maps cannot go through a join.
    places = rows.select(keys).append_column(_PLACE, pa.array(np.arange(rows.num_rows)))
    left = rows.take(places.join(edits.select(keys), keys, join_type="left anti", use_threads=False)[_PLACE])
    written = edits.filter(pc.not_equal(edits[OPERATION], "delete")).drop_columns([OPERATION, EXPECTED_REVISION])
    return pa.concat_tables([one.select(table.schema.names).cast(table.schema) for one in (left, written)])


def _of(rows: pa.Table, partitions: Sequence[Mapping[str, Any]], prefix: str = "") -> pa.Table:
    """The rows of some partitions; `prefix`: what stands before the names of their columns."""
    mine = [
        reduce(pc.and_, [pc.equal(rows[f"{prefix}{name}"], value) for name, value in one.items()])
        for one in partitions
        if one
    ]
    return rows.filter(reduce(pc.or_, mine)) if mine else rows


def _names_no_more(where: Where, touched: Sequence[Mapping[str, Any]]) -> bool:
    """Whether whoever commits to a partition of `where` commits to one that is touched."""
    known = {(one["queue"], one["lane"]) for one in touched if one}
    parts = ((part.queue, lane) for part in where.parts() for lane in part.lanes or [None])
    return not known or known.issuperset(parts)


def _said(metadata: Mapping[str, Any], now: int) -> dict[str, Any]:
    """What the commit says of itself."""
    known = {"timestamp": now, "operation": "MERGE", "operationParameters": {}, "engineInfo": ENGINE}
    return {"commitInfo": {**known, "userMetadata": json.dumps(metadata)}}


def _removed(path: str, size: int, partition: Mapping[str, Any], now: int) -> dict[str, Any]:
    known = {"path": path, "deletionTimestamp": now, "dataChange": True, "extendedFileMetadata": True}
    return {"remove": {**known, "partitionValues": _values(partition), "size": size}}


def _added(path: str, size: int, count: int, partition: Mapping[str, Any], now: int) -> dict[str, Any]:
    known = {"path": path, "partitionValues": _values(partition), "size": size, "modificationTime": now}
    return {"add": {**known, "dataChange": True, "stats": json.dumps({"numRecords": count})}}


def _new_path(partition: Mapping[str, Any]) -> str:
    """The path of a new file of a partition."""
    folder = "".join(f"{name}={value}/" for name, value in partition.items())
    return f"{folder}part-00000-{secrets.token_hex(16)}.snappy.parquet"


def _parquet(rows: pa.Table, partitions: Sequence[str]) -> bytes:
    """Rows as a file, without the columns of their partition."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows.drop_columns(list(partitions)), sink, store_schema=False)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _values(partition: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: str(value) for name, value in partition.items()}
