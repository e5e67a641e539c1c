"""MERGEs: by delta-rs's query, and of few rows written out, the files of the touched partitions giving way to one each.

That is what a query's commit says, too. But delta-rs plans and runs a query for it, 40 ms for one row where this takes
7 (2 busy cores), and it reads rows once more that the decision has read already.

A commit is made for the version after the one that was read, or not at all. When other writers were first, it is made
for the next one if they left the touched partitions as they were: the same files, whose names nobody uses twice. Where
there is no file that says nothing (a queue may have been made, deleted and tidied up meanwhile): a query decides.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from ledger.rules.limits import MILLISECONDS
from ledger.store.delta.engines.committing import REBASES, committing
from ledger.store.delta.engines.log_gaps import without_gaps
from ledger.store.delta.engines.protocol import EXPECTED_REVISION, OPERATION, Conflict, Where
from ledger.store.delta.model.tables import Table

#: With more rows than these in what it touches a MERGE is quicker, which leaves the files alone that no edit is about.
MOST_ROWS = 100_000
#: The protocol (reader, writer) that the ledger's tables are made with. Later ones ask more of a writer than it does.
PROTOCOL = (1, 2)
#: Names that are the same in a log as on a storage, where others are escaped.
_PLAIN = re.compile(r"[A-Za-z0-9_.=/-]+")
_PLACE = "place"
#: How delta-rs says that a version was committed by somebody else, when it may not try a later one.
TAKEN = ("Failed to commit transaction: ", "Tried committing existing table version")


def is_plain(loaded: DeltaTable, table: Table) -> bool:
    """Whether rows need nothing but their columns to be in a table."""
    known, fields = loaded.protocol(), loaded.schema().fields
    return (
        (known.min_reader_version, known.min_writer_version) == PROTOCOL
        and [field.name for field in fields] == table.schema.names
        and all(field.nullable and not field.metadata for field in fields)
        and not any(name.startswith("delta.constraints.") for name in loaded.metadata().configuration)
    )


class Rewriting:
    """Commits of edits to a loaded table; `write(path, data)` makes a file below it."""

    def __init__(self, loaded: DeltaTable, table: Table, write: Callable[[str, bytes], None]) -> None:
        self._loaded, self._table, self._write = loaded, table, write
        # As delta-rs begins the URIs of files; its table_uri ends with a /.
        self._place = loaded.table_uri.removeprefix("file://")

    def commit(self, read: pa.Table, where: Where, edits: pa.Table, metadata: Mapping[str, Any]) -> int | None:
        """Commits edits of the partitions whose rows were `read`, in the version that is loaded, when they suppose
        them as they are (see `require_expected`); returns the version committed. None: only a query can do it, the
        table is loaded as it was, and nothing has happened.

        Raises Conflict when others have changed the partitions of `where`, and what delta-rs does.
        """
        partitions = list(self._table.partitions)
        touched = edits.group_by(partitions, use_threads=False).aggregate([]).to_pylist() if partitions else [{}]
        rows = rows_after(_of(read, touched), self._table, edits)
        before = self._files(touched)
        is_small = before is not None and rows.num_rows <= MOST_ROWS and _names_no_more(where, touched)
        if before is None or not is_small or not is_plain(self._loaded, self._table):
            return None
        now = int(time.time() * MILLISECONDS)
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(path, True, now, None, _values(partition))
            for partition, paths in zip(touched, before)
            for path in paths
        ]
        actions += [add for partition in touched for add in self._added(partition, _of(rows, [partition]), now)]
        for _ in range(REBASES):
            version = self._loaded.version() + 1
            try:
                self._loaded.create_write_transaction(
                    actions,
                    "append",
                    self._loaded.schema(),
                    list(self._table.partitions),
                    **committing(metadata, rebases=0),
                )
            except CommitFailedError as lost:
                if not str(lost).startswith(TAKEN):
                    raise
                if not all(before):
                    return None
                without_gaps(self._loaded.update_incremental)
                if self._files(touched) != before or not is_plain(self._loaded, self._table):
                    raise Conflict(str(lost)) from lost
            else:
                without_gaps(self._loaded.update_incremental)
                return version
        raise Conflict(f"others committed to {self._table.name} {REBASES} times in the meantime")

    def _files(self, partitions: Sequence[Mapping[str, Any]]) -> list[list[str]] | None:
        """The files of each partition, as the log names them; None where their names in the log may be other ones."""
        files = []
        for partition in partitions:
            wanted = [(name, "=", str(value)) for name, value in partition.items()]
            uris = sorted(self._loaded.file_uris(file_pruning_predicate=wanted or None))
            if not all(uri.startswith(self._place) and _PLAIN.fullmatch(uri, len(self._place)) for uri in uris):
                return None
            files.append([uri.removeprefix(self._place) for uri in uris])
        return files

    def _added(self, partition: Mapping[str, Any], rows: pa.Table, now: int) -> list[AddAction]:
        """The file of a partition's rows; none when there are none."""
        if not rows.num_rows:
            return []
        folder = "".join(f"{name}={value}/" for name, value in partition.items())
        path, sink = f"{folder}part-00000-{secrets.token_hex(16)}.snappy.parquet", pa.BufferOutputStream()
        pq.write_table(rows.drop_columns(list(partition)), sink, store_schema=False)
        data = sink.getvalue().to_pybytes()
        self._write(path, data)
        said = json.dumps({"numRecords": rows.num_rows})
        return [AddAction(path, len(data), _values(partition), now, True, said)]


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
    places = rows.select(keys).append_column(_PLACE, pa.array(range(rows.num_rows), pa.int64()))
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


def _values(partition: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: str(value) for name, value in partition.items()}
