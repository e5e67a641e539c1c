"""MERGEs: by delta-rs's query, and of few rows written out, files of the touched partitions giving way to new ones.

That is what a query's commit says, too. But delta-rs plans and runs a query for it, 40 ms for one row where this takes
4 (2 busy cores); it reads rows once more that the decision has read already; and on an object store it makes some ten
requests where this makes 2.

A commit is a file of the log that must be new: it is made for the version after the one that was read, or not at all.
When other writers were first, it is made for the next one if they left the touched partitions as they were: the same
files, whose names nobody uses twice. Where there is no file that says nothing (rows may have come and gone meanwhile):
a query decides.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from ledger.delta_log.committing import committing
from ledger.delta_log.distinct_rows import distinct
from ledger.delta_log.followed import Files, Replay
from ledger.delta_log.log_identity import Generations
from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION, Conflict, LogReplaced, NotDirect, Snapshot
from ledger.delta_log.publishing import metadata_action
from ledger.delta_log.regrouping import Regrouped, regrouped
from ledger.delta_log.spec import Partition, PartitionFilter, TableSpec
from ledger.delta_log.table_files import CommitFiles, log_entry
from ledger.delta_log.written_out import AddedFile, Commit, Log, RemovedFile, new_path, said
from ledger.rules.limits import MILLISECONDS

#: With more rows than these in what it touches a MERGE is quicker, which leaves the files alone that no edit is about.
MOST_ROWS = 100_000


class SmallCommits:
    """Reads of a table whose log is followed, and commits of few edits to it."""

    def __init__(
        self,
        table: TableSpec,
        replay: Replay,
        stored: CommitFiles,
        *failures: type[Exception],
        generations: Generations | None = None,
    ) -> None:
        """`failures`: what the engine raises that replays the log. `generations`: of the table's ledger."""
        self._table = table
        #: What is appended to the table beside it needs the same.
        self.log = Log(table, replay, stored, *failures, generations=generations)
        self.rows = self.log.rows

    def load(self, where: PartitionFilter) -> Snapshot | None:
        """The rows of the partitions that are named; None where the table is not as the ledger makes it."""
        known = self.log.followed.newest()
        if known is None:
            return None
        rows = [self.rows.of(partition, path) for partition, path in known.named(where, self._table.partitions)]
        return Snapshot(known.version, where, pa.concat_tables([self._table.nothing, *rows]), known)

    def commit(
        self, snapshot: Snapshot, where: PartitionFilter, edits: pa.Table, metadata: Mapping[str, Any]
    ) -> int | None:
        """Commits edits that suppose the snapshot's rows as they are (see `require_expected`); returns the version
        committed. None: only a query can do it, and nothing has happened.

        Raises Conflict when others have changed the partitions of `where`, and what the storage does.
        """
        if snapshot.loaded is None:
            return None
        columns = list(self._table.partitions)
        touched = distinct(edits, columns) if columns else [{}]
        if columns and not _names_no_more(where.partitions(columns), touched):
            return None
        read = snapshot.loaded
        before = [read.of(_values(one)) for one in touched]
        mine = [edits] if len(touched) == 1 else [of_partitions(edits, [one]) for one in touched]
        after = [self._regrouped(*one) for one in zip(touched, before, mine)]
        if sum(rows.num_rows for one in after for rows in one.written) > MOST_ROWS:
            return None
        adds, removes = list[AddedFile](), list[RemovedFile]()
        for partition, files, one in zip(touched, before, after):
            adds += [AddedFile(new_path(partition), partition, rows) for rows in one.written]
            removes += [RemovedFile(path, files[path], partition) for path in one.gone]

        def still_valid(latest: Files) -> None:
            if latest.generation != read.generation:
                raise LogReplaced(f"{self._table.name} was replaced since version {snapshot.version}, which was read")
            if latest.version > snapshot.version:
                if not all(before):
                    raise NotDirect(f"a partition of {self._table.name} had no files, which tells nothing")
                if [latest.of(_values(one)) for one in touched] != before:
                    raise Conflict(f"others have committed to {self._table.name} since version {snapshot.version}")

        try:
            commit = Commit("MERGE", metadata, adds, removes)
            return self.log.commit(commit, still_valid, on=read, read_at=snapshot.read_at)
        except NotDirect:
            return None

    def require_same(self, snapshot: Snapshot) -> None:
        """Raises LogReplaced where the table's log is not the one any more that a snapshot was read from."""
        if snapshot.loaded is not None and not self.log.followed.is_same(snapshot.loaded):
            self.log.followed.forget()
            raise LogReplaced(f"{self._table.name} was replaced since version {snapshot.version}, which was read")

    def _regrouped(self, partition: Mapping[str, Any], files: Iterable[str], edits: pa.Table) -> Regrouped:
        rows = {path: self.rows.of(_values(partition), path) for path in files}
        return regrouped(rows, edits, self._table)


def merge_by_query(
    loaded: DeltaTable, table: TableSpec, where: PartitionFilter, edits: pa.Table, metadata: Mapping[str, Any]
) -> int:
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


def layout_entry(loaded: DeltaTable, properties: Mapping[str, str], metadata: Mapping[str, Any]) -> bytes:
    """Return the commit that gives a loaded table further properties."""
    now, known = int(time.time() * MILLISECONDS), loaded.metadata()
    changed = metadata_action(
        loaded, loaded.schema().to_json(), {**known.configuration, **properties}, known.description
    )
    return log_entry([said("SET TBLPROPERTIES", metadata, now), changed])


def of_partitions(rows: pa.Table, partitions: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows of some partitions."""
    mine = [reduce(pc.and_, [pc.equal(rows[name], value) for name, value in one.items()]) for one in partitions if one]
    return rows.filter(reduce(pc.or_, mine)) if mine else rows


def _names_no_more(named: Sequence[Partition] | None, touched: Sequence[Mapping[str, Any]]) -> bool:
    """Whether whoever commits to a partition that is named commits to one that is touched."""
    return named is not None and {_values(one) for one in touched}.issuperset(named)


def _values(partition: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(str, partition.values()))
