"""MERGEs: by delta-rs's query, and of few rows written out, files of the touched partitions giving way to new ones.

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
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema

from ledger.delta_log.committing import REBASES, committing
from ledger.delta_log.distinct_rows import distinct
from ledger.delta_log.followed import Replay
from ledger.delta_log.loaded_tables import LISTED_AFTER
from ledger.delta_log.log_identity import Generations
from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION, Conflict, LogReplaced, Snapshot
from ledger.delta_log.publishing import metadata_action
from ledger.delta_log.regrouping import Regrouped, regrouped
from ledger.delta_log.table_files import CommitFiles, FileRows, log_entry
from ledger.delta_log.where import Where
from ledger.delta_log.written_out import Action, Log, added, new_path, parquet, removed, said
from ledger.rules.limits import MILLISECONDS
from ledger.store.delta.model.tables import FORMAT, Table

#: With more rows than these in what it touches a MERGE is quicker, which leaves the files alone that no edit is about.
MOST_ROWS = 100_000


class SmallCommits:
    """Reads of a table whose log is followed, and commits of few edits to it."""

    def __init__(
        self,
        table: Table,
        replay: Replay,
        stored: CommitFiles,
        *failures: type[Exception],
        generations: Generations | None = None,
    ) -> None:
        """`failures`: what the engine raises that replays the log. `generations`: of the table's ledger."""
        self._table = table
        #: What is appended to the table beside it needs the same.
        self.log = Log(table, replay, stored, *failures, generations=generations)
        self.rows = FileRows(table.schema, table.partitions, stored)

    def load(self, where: Where) -> Snapshot | None:
        """The rows of the partitions that are named; None where the table is not as the ledger makes it."""
        known = self.log.followed.newest()
        if known is None:
            return None
        rows = [self.rows.of(partition, path) for partition, path in known.named(where)]
        return Snapshot(known.version, where, pa.concat_tables([self._table.nothing, *rows]), known)

    def commit(self, snapshot: Snapshot, where: Where, edits: pa.Table, metadata: Mapping[str, Any]) -> int | None:
        """Commits edits that suppose the snapshot's rows as they are (see `require_expected`); returns the version
        committed. None: only a query can do it, and nothing has happened.

        Raises Conflict when others have changed the partitions of `where`, and what the storage does.
        """
        if snapshot.loaded is None:
            return None
        columns = list(self._table.partitions)
        touched = distinct(edits, columns) if columns else [{}]
        if not _names_no_more(where, touched):
            return None
        before = [snapshot.loaded.of(_values(one)) for one in touched]
        mine = [edits] if len(touched) == 1 else [of_partitions(edits, [one]) for one in touched]
        after = [self._regrouped(*one) for one in zip(touched, before, mine)]
        if sum(rows.num_rows for one in after for rows in one.written) > MOST_ROWS:
            return None
        new = [[(new_path(partition), rows) for rows in one.written] for partition, one in zip(touched, after)]
        written = {path: parquet(rows, columns) for parts in new for path, rows in parts}
        for path, rows in (one for parts in new for one in parts):
            self.rows.keep(path, rows)
        there = self.log.write(written)
        # Who stood still meanwhile lists the log: the next version may have come, and gone with old ones.
        stood_still = time.monotonic() - snapshot.read_at > LISTED_AFTER
        latest = self.log.newest(listing=True) if stood_still else snapshot.loaded
        # As late as can be: from this time on the files that go are kept for the versions that have them.
        now = int(time.time() * MILLISECONDS)
        actions: list[Action] = [said("MERGE", metadata, now)]
        for partition, files, one, parts in zip(touched, before, after, new):
            actions += [removed(path, files[path], partition, now) for path in one.gone]
            actions += [added(path, len(written[path]), rows, partition, now) for path, rows in parts]
        for _ in range(REBASES):
            if latest.generation != snapshot.loaded.generation:
                raise LogReplaced(f"{self._table.name} was replaced since version {snapshot.version}, which was read")
            if latest.version > snapshot.version:
                if not all(before):
                    return None
                if [latest.of(_values(one)) for one in touched] != before:
                    raise Conflict(f"others have committed to {self._table.name} since version {snapshot.version}")
            version = self.log.put(latest, actions, there)
            if version is not None:
                return version
            latest = self.log.newest()
        raise Conflict(f"others committed to {self._table.name} {REBASES} times in the meantime")

    def require_same(self, snapshot: Snapshot) -> None:
        """Raises LogReplaced where the table's log is not the one any more that a snapshot was read from."""
        if snapshot.loaded is not None and not self.log.followed.is_same(snapshot.loaded):
            self.log.followed.forget()
            raise LogReplaced(f"{self._table.name} was replaced since version {snapshot.version}, which was read")

    def _regrouped(self, partition: Mapping[str, Any], files: Iterable[str], edits: pa.Table) -> Regrouped:
        rows = {path: self.rows.of(_values(partition), path) for path in files}
        return regrouped(rows, edits, self._table)


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
    description = table.description if migrates else known.description
    changed = metadata_action(loaded, json.dumps(columns), {**known.configuration, **properties}, description)
    return log_entry([said("CHANGE LAYOUT", metadata, now), changed])


def of_partitions(rows: pa.Table, partitions: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows of some partitions."""
    mine = [reduce(pc.and_, [pc.equal(rows[name], value) for name, value in one.items()]) for one in partitions if one]
    return rows.filter(reduce(pc.or_, mine)) if mine else rows


def _names_no_more(where: Where, touched: Sequence[Mapping[str, Any]]) -> bool:
    """Whether whoever commits to a partition of `where` commits to one that is touched."""
    known = {(one["queue"], one["lane"]) for one in touched if one}
    parts = ((part.queue, lane) for part in where.parts() for lane in part.lanes or [None])
    return not known or known.issuperset(parts)


def _values(partition: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(str, partition.values()))
