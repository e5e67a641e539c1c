"""DeltaTables with delta-rs as the engine, without a JVM. Most reads and commits are direct (see `log`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from ledger.delta_log.alterations import TableRefusal, find_refusal, find_refusal_at
from ledger.delta_log.damage import LogTail, damage_causing_failure
from ledger.delta_log.data_files import FileStatistics, find_listed_column
from ledger.delta_log.delta_rs_commits import (
    LoadedTables,
    add_missing_columns,
    begin_log,
    catch_up,
    commit_nothing,
    conflicts,
    demands_of_staging,
    layout_entry,
    list_newest_version,
    make_commit_arguments,
    make_copy_commit_arguments,
    opened,
    properties,
    publish,
    require_plain,
    require_staged,
    run_merge,
)
from ledger.delta_log.failures import advise_nothing, translate_storage_errors
from ledger.delta_log.history import Generations, ReadMetadata, history, parse_metadata, retry_while_gap
from ledger.delta_log.join import Joining
from ledger.delta_log.local_commits import (
    append_rows,
    can_commit_here,
    commit_files,
    commit_on_copy,
    create,
    delete_rows,
    put_next,
    require_each_next,
)
from ledger.delta_log.log import DirectTable
from ledger.delta_log.maintenance import find_unneeded_checkpoints, find_unneeded_files
from ledger.delta_log.protocol import (
    Commit,
    Conflict,
    Layout,
    LogReplaced,
    NotDirect,
    PartitionFilter,
    Seen,
    Snapshot,
    StagedFile,
    TableSpec,
    nothing_late,
    read_retention,
    require_generation,
    require_next,
    require_unset,
)
from ledger.delta_log.reading import NOTHING, filter_wanted_rows, plan_wanted_rows
from ledger.delta_log.replay import DeltaRsReplay, Files, LatestVersions
from ledger.delta_log.rewrite import require_expected
from ledger.delta_log.statements import SOURCE_VIEW, Paths, append_statement, no_purpose, plain_merge
from ledger.delta_log.storage import AT_ONCE, LocalFiles, TableStorage, table_files
from ledger.errors import LedgerDamaged, StorageFailed, TableAltered
from ledger.rules.location import recorded
from ledger.runtime import threads
from ledger.runtime.threads import map_at_once

log = logging.getLogger("ledger.upkeep")


@translate_storage_errors(DeltaError, also=("stage", "stage_folder", "publish"))
class DeltaRsTables:
    """DeltaTables through delta-rs. Threads may share the object: a loaded table belongs to one thread at a time."""

    name = "delta-rs"

    def __init__(
        self,
        specs: Mapping[str, TableSpec],
        locations: Mapping[str, str],
        storage_options: Mapping[str, str] | None = None,
        *,
        sync: bool = True,
        by_statement: bool = False,
        read_metadata: ReadMetadata = parse_metadata,
        purpose_of: Callable[[Mapping[str, Any]], str] = no_purpose,
        advise: Callable[[StorageFailed], str] = advise_nothing,
    ) -> None:
        """`sync`: on a local path, commits survive a power cut. `by_statement`: only statements of delta-rs commit
        rows."""
        self.advise = advise
        self._specs, self._read_metadata, self.paths = specs, read_metadata, Paths(self.name, purpose_of)
        self._storage_options, self._sync = dict(storage_options or {}) or None, sync
        self.locations = dict(locations)
        self._files = {table: self._open_storage(place) for table, place in self.locations.items()}
        generations = self._generations = Generations()
        self._loaded = {
            table: LoadedTables(
                partial(opened, location, self._storage_options),
                self._files[table],
                check=LogTail(table, location).require,
                generations=generations,
            )
            for table, location in locations.items()
        }
        replays = {name: DeltaRsReplay(specs[name], loaded, self._files[name]) for name, loaded in self._loaded.items()}
        self._direct = {
            name: DirectTable(
                specs[name],
                replay,
                self._files[name],
                DeltaError,
                generations=generations,
                by_statement=by_statement,
            )
            for name, replay in replays.items()
        }
        local = all(recorded(place).is_local for place in self.locations.values())
        logs = {table: direct.writer.followed for table, direct in self._direct.items()}
        self._latest = LatestVersions(self._files, logs, self._list_newest_version, at_once=not local)

    def place(self, table: str) -> str:
        return self.locations[table]

    def damage(self, table: str) -> LedgerDamaged | None:
        return damage_causing_failure(table, self.locations[table], self._storage_options)

    def alteration(self, table: str) -> TableRefusal | None:
        return find_refusal_at(table, self.locations[table], self._storage_options, self._specs[table].schema.names)

    def refusal(self, table: str, *, appends: bool = False) -> TableRefusal | None:
        if self._direct[table].writer.followed.newest() is not None:
            return None
        with self._using(table) as loaded:
            return self._refusal(table, loaded, appends=appends)

    def _refusal(self, table: str, loaded: DeltaTable, *, appends: bool) -> TableRefusal | None:
        return find_refusal(table, self.locations[table], loaded, self._specs[table].schema.names, appends=appends)

    def _require_written(self, table: str, loaded: DeltaTable, *, appends: bool) -> None:
        """Raise TableAltered for a table that is refused. A table whose log the client follows is not checked."""
        is_plain = self._direct[table].writer.followed.seen() is not None
        why = None if is_plain else self._refusal(table, loaded, appends=appends)
        if why is not None:
            raise TableAltered(self.locations[table], *why)

    def create(self, table: str) -> None:
        if not self.exists(table):
            spec = self._specs[table]
            layout = spec.layout(recorded(self.locations[table]).scheme)
            make = partial(
                DeltaTable.create,
                schema=spec.schema,
                mode="ignore",
                partition_by=list(spec.partitions),
                configuration=dict(layout.properties),
                description=layout.description,
                # A retry would make the table once more, after commits of others.
                commit_properties=CommitProperties(max_commit_retries=0),
                raise_if_key_not_exists=False,
            )
            files = self._files[table]
            if isinstance(files, LocalFiles):
                create(files, make)
            else:
                make(self.locations[table], storage_options=self._storage_options)

    def layout(self, table: str) -> Layout:
        with self._using(table) as loaded:
            loaded_metadata = loaded.metadata()
            return Layout(loaded_metadata.description, loaded_metadata.configuration)

    def configure(self, table: str, properties: Mapping[str, str], metadata: Mapping[str, Any]) -> int:
        with self._committing(table) as loaded, conflicts():
            require_unset(table, properties, loaded.metadata().configuration)
            entry = layout_entry(loaded, properties, metadata)
            with self._files[table].held_log() as held:
                is_first = put_next(held, loaded.version() + 1, entry)
            if not is_first:
                raise Conflict(f"version {loaded.version() + 1} of {table} was committed by others")
            catch_up(loaded, self._files[table])
            return loaded.version()

    def exists(self, table: str) -> bool:
        threads.require_own("delta-rs")
        return DeltaTable.is_deltatable(self.locations[table], self._storage_options)

    def version(self, table: str) -> int:
        latest = self._direct[table].writer.followed.newest()
        if latest is not None:
            return latest.version
        with self._using(table) as loaded:
            return loaded.version()

    def generation(self) -> int:
        return self._generations.current

    def newest_versions(self, tables: Sequence[str]) -> dict[str, int]:
        return self._latest.of(tables)

    def _list_newest_version(self, table: str) -> int:
        listed = list_newest_version(self._files[table])
        return self.version(table) if listed is None else listed

    def load(self, table: str, where: PartitionFilter) -> Snapshot:
        snapshot = self._direct[table].load(where)
        if snapshot is not None:
            return snapshot
        with self._using(table) as loaded:
            rows = self._files[table].rows(loaded, where)
            self._require_written(table, loaded, appends=True)
            # Leave out columns that somebody has added.
            return Snapshot(loaded.version(), where, rows.select(self._specs[table].schema.names))

    def merge(
        self,
        snapshot: Snapshot,
        table: str,
        where: PartitionFilter,
        edits: pa.Table,
        metadata: Mapping[str, Any],
        late: Callable[[], Mapping[str, Any]] = nothing_late,
    ) -> int:
        require_expected(snapshot, self._specs[table], edits)
        return self.paths.commit(
            table,
            metadata,
            partial(self._direct[table].merge, snapshot, where, edits, metadata, late),
            lambda why: self._merge_by_statement(snapshot, table, where, edits, {**metadata, **late()}, why),
        )

    def _merge_by_statement(
        self,
        snapshot: Snapshot,
        table: str,
        where: PartitionFilter,
        edits: pa.Table,
        metadata: Mapping[str, Any],
        reason: str,
    ) -> int:
        """Commit edits, which `require_expected` has accepted, as one MERGE that delta-rs runs."""
        if threads.is_inherited("delta-rs") and self.version(table) > snapshot.version:
            # A forked child cannot run delta-rs. After Conflict the caller decides again on the newest version.
            raise Conflict(f"others have committed to {table} since version {snapshot.version}")
        threads.require_own("delta-rs")
        statement, place = plain_merge(self._specs[table], where), self.locations[table]
        self.paths.log_statement(table, metadata, reason, statement.sql(place, SOURCE_VIEW), edits.num_rows)
        direct, files, began = self._direct[table], self._files[table], time.monotonic()
        if isinstance(files, LocalFiles) and snapshot.loaded is not None:
            direct.require_same(snapshot)
            run = partial(run_merge, merge=statement, edits=edits, commit=make_copy_commit_arguments(metadata))
            with conflicts():
                tried, actions = commit_on_copy(files, run, snapshot.version)
            return direct.land_statement(snapshot, where, actions, tried, began)
        with direct.writer.guarding(), conflicts():
            direct.require_same(snapshot)
            options = self._storage_options
            loaded = retry_while_gap(partial(DeltaTable, place, snapshot.version, storage_options=options))
            self._require_written(table, loaded, appends=False)
            run_merge(loaded, statement, edits, make_commit_arguments(metadata))
            return loaded.version()

    def add_rows(
        self,
        table: str,
        rows: pa.Table,
        metadata: Mapping[str, Any],
        transactions: Sequence[tuple[str, int]] = (),
        still_valid: Callable[[Files], None] | None = None,
        beside: Sequence[tuple[str, int]] = (),
        seen: Seen | None = None,
    ) -> int:
        directly = partial(self._direct[table].append, rows, metadata, transactions, still_valid, beside, seen)
        by_statement = partial(self._append_by_statement, table, rows, metadata, transactions, still_valid, beside)
        return self.paths.commit(table, metadata, directly, by_statement)

    def _append_by_statement(
        self,
        table: str,
        rows: pa.Table,
        metadata: Mapping[str, Any],
        transactions: Sequence[tuple[str, int]],
        still_valid: Callable[[Files], None] | None,
        beside: Sequence[tuple[str, int]],
        reason: str,
    ) -> int:
        if still_valid is not None:
            raise NotDirect(reason)
        self.paths.log_statement(table, metadata, reason, self.statement(table, None, SOURCE_VIEW), rows.num_rows)
        with self._committing(table) as loaded:
            require_each_next(loaded, transactions)
            rows, files = add_missing_columns(loaded, rows), self._files[table]
            with conflicts():
                if isinstance(files, LocalFiles) and can_commit_here(loaded, files):
                    each_next = partial(require_each_next, transactions=transactions)
                    return append_rows(loaded, files, rows, metadata, [*transactions, *beside], each_next)
                write_deltalake(loaded, rows, mode="append", **make_commit_arguments(metadata, *transactions, *beside))
            return loaded.version()

    def is_direct(self, table: str) -> bool:
        return self._direct[table].is_known()

    def why_not_direct(self, table: str) -> tuple[str, str] | None:
        return self._direct[table].why_not()

    def statement(self, table: str, where: PartitionFilter | None, source: str) -> str:
        spec, place = self._specs[table], self.locations[table]
        return append_statement(spec, place, source) if where is None else plain_merge(spec, where).sql(place, source)

    def mark(self, table: str, metadata: Mapping[str, Any], *transactions: tuple[str, int]) -> int:
        with self._committing(table) as loaded:
            files, first = self._files[table], transactions[0]
            require_next(first, loaded.transaction_version(first[0]))
            if isinstance(files, LocalFiles) and can_commit_here(loaded, files):
                each_next = partial(require_each_next, transactions=[first])
                return commit_files(loaded, files, [], metadata, transactions, each_next)
            commit_nothing(loaded, properties(metadata, *transactions))
            catch_up(loaded, files)
            files.make_durable(loaded.version())
            return loaded.version()

    def stage(self, table: str, folder: str, schema: pa.Schema, partitions: Sequence[str], now: int) -> str:
        location = f"{self.locations[table]}/{folder}"
        with self._using(table) as loaded:
            require_plain(loaded)
        demands = demands_of_staging(schema, partitions, self._specs[table].statistics)
        begin_log(self._open_storage(location), demands, now, below=self._files[table])
        return location

    def stage_folder(self, table: str, folder: str) -> None:
        with self._using(table) as loaded:
            require_plain(loaded)
        self._files[table].make_folder(folder)

    def publish(
        self,
        table: str,
        files: Sequence[StagedFile],
        metadata: Mapping[str, Any],
        *transactions: tuple[str, int] | None,
    ) -> int:
        with self._committing(table) as loaded:
            stored, carried = self._files[table], [txn for txn in transactions if txn is not None]
            require_each_next(loaded, carried)
            require_staged(self.locations[table], stored, files)
            if isinstance(stored, LocalFiles) and can_commit_here(loaded, stored):
                require_plain(loaded)
                each_next = partial(require_each_next, transactions=carried)
                return commit_files(loaded, stored, files, metadata, carried, each_next)
            with conflicts():
                publish(loaded, files, self._specs[table].partitions, **make_commit_arguments(metadata, *carried))
            catch_up(loaded, stored)
            return loaded.version()

    def file_facts(self, table: str, at_least: int | None = None) -> tuple[int, pa.Table]:
        latest = self._direct[table].writer.followed.at_least(at_least)
        if latest is not None and latest.statistics is not None:
            return latest.version, latest.statistics.table
        with self._using(table) as loaded:
            actions = pa.table(loaded.get_add_actions(flatten=True))
            return loaded.version(), FileStatistics.listed(actions, self._specs[table]).table

    def rows(
        self,
        table: str,
        where: PartitionFilter,
        columns: Sequence[str],
        between: Mapping[str, tuple[int, int]] = NOTHING,
        above: Mapping[str, int] = NOTHING,
    ) -> pa.Table:
        wanted = plan_wanted_rows(self._specs[table], where, columns, between, above)
        direct = self._direct[table]
        # A forked child that cannot read through delta-rs reads whole files.
        is_forked = threads.is_inherited("delta-rs")
        near = direct.read_all_rows(where) if is_forked else direct.read_small_rows(where, above)
        if near is not None:
            return filter_wanted_rows(near, wanted)
        with self._using(table) as loaded:
            return self._files[table].rows(loaded, where, wanted)

    def delete(self, table: str, predicate: str, metadata: Mapping[str, Any], generation: int | None = None) -> None:
        with self._committing(table) as loaded, conflicts():
            require_generation(table, generation, self._generations.current)
            delete_rows(loaded, self._files[table], predicate, metadata, self._specs[table].independent_by)

    def files_above(self, table: str, value: str, column: str, bound: int) -> dict[str, int] | None:
        return self._direct[table].files_above(value, column, bound)

    def greatest(self, table: str, column: str) -> int | None:
        with self._using(table) as loaded:
            actions = pa.table(loaded.get_add_actions(flatten=True))
        if not actions.num_rows:
            return None
        listed = find_listed_column(actions, f"max.{column}")
        paths_without_maximum = actions.filter(pc.is_null(listed))["path"].to_pylist()
        # The log lacks the maximum of files that a direct commit of edits has added.
        columns_read = [self._files[table].column([unquote(path)], column) for path in paths_without_maximum]
        maxima = [pc.max(values).as_py() for values in (listed, *columns_read) if values is not None]
        return max((maximum for maximum in maxima if maximum is not None), default=None)

    def history(self, table: str, since: int) -> list[Commit]:
        def kept_for() -> float:
            return read_retention(self.layout(table).properties).log_retention

        newest = self.version(table)
        return history(self._files[table], max(since, -1), newest, table, self._read_metadata, kept_for)

    def make_durable(self, table: str | None = None, version: int = -1) -> None:
        self._latest.make_durable(table, version)

    def transaction_version(self, table: str, application: str) -> int | None:
        return self._direct[table].writer.transaction_version(application)

    def join_files(self, table: str, where: PartitionFilter, *, growing: bool = False) -> bool:
        joined = Joining(self._specs[table], self._direct[table]).join(where, growing=growing)
        if joined is None:
            log.info("the table %s was altered: only an upkeep through Spark joins its small files", table)
        return bool(joined)

    def vacuum(self, table: str) -> None:
        files, followed, since = self._files[table], self._direct[table].writer.followed, time.time()
        before = followed.newest()
        with self._using(table) as loaded:
            # delta-rs itself would make two commits to remove the files.
            gone = find_unneeded_files(loaded, since, self._specs[table].staged)
            # Before a file is removed, make the files that replace it durable.
            files.make_durable(loaded.version())
            files.sync_checkpoints()
            loaded.cleanup_metadata()
        # Another log in this log's place may need files of the same names.
        if before is not None and not followed.is_same(before):
            raise LogReplaced(f"{table} was replaced while its unneeded files were looked for")
        map_at_once(files.remove, (*gone, *find_unneeded_checkpoints(files.log_files())), AT_ONCE)

    def _open_storage(self, location: str) -> TableStorage:
        return table_files(location, self._storage_options, sync=self._sync)

    def _using(self, table: str) -> AbstractContextManager[DeltaTable]:
        return self._loaded[table].using()

    @contextmanager
    def _committing(self, table: str) -> Iterator[DeltaTable]:
        """Return a context for one commit. Raises TableAltered if appends to the table are refused."""
        with self._direct[table].writer.guarding(), self._using(table) as loaded:
            self._require_written(table, loaded, appends=True)
            yield loaded
