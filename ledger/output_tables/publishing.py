"""The publishing of files to output tables by delta-rs. `rules.publishable` says which tables accept files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ledger.delta_log.damage import require_whole_log
from ledger.delta_log.delta_rs_commits import (
    REBASES,
    add_files,
    begin_log,
    catch_up,
    conflicts,
    first_commit,
    opened,
    properties,
    read_demands,
    require_staged,
)
from ledger.delta_log.local_commits import commit_files
from ledger.delta_log.protocol import Conflict, StagedFile
from ledger.delta_log.storage import LocalFiles, TableStorage, log_file, table_files
from ledger.errors import OutputUnreadable
from ledger.output_tables.protocol import Target, require_same
from ledger.output_tables.schemas import add, columns_differ
from ledger.output_tables.widening import why_not_widened, widen
from ledger.rules.output_columns import Columns
from ledger.rules.publishable import Demands
from ledger.runtime import forks


class DeltaRsOutputs:
    def __init__(self, storage_options: dict[str, str] | None, *, sync: bool = True) -> None:
        self.storage_options, self._sync = storage_options, sync

    def look(self, location: str) -> Target | None:
        loaded = self._open(location)
        return None if loaded is None else target_of(loaded)

    def make(self, location: str, demands: Demands, now: int) -> None:
        files = self._files(location)
        if isinstance(files, LocalFiles):
            files.make_log()
        files.put_new(log_file(0), first_commit(demands, now))

    def evolve(self, location: str, target: Target, columns: Columns) -> None:
        loaded = self._open(location)
        if loaded is None:
            raise OutputUnreadable(location, "the table is gone", gone=True)
        with columns_differ(location):
            if columns.retyped:
                # The table's types may be wider by now than those of `columns`.
                require_same(target, target_of(loaded))
                widen(loaded, columns, location, self._files(location), self.storage_options)
            if columns.added:
                add(loaded, columns)
        self._files(location).make_durable(loaded.version())

    def why_not_widened(self, location: str) -> str | None:
        loaded = self._open(location)
        return None if loaded is None else why_not_widened(loaded)

    def stage(self, location: str, demands: Demands, now: int) -> None:
        begin_log(self._files(location), demands, now)

    def column(self, location: str, paths: Sequence[str], name: str) -> Any:
        return self._files(location).column(paths, name)

    def publish(
        self,
        location: str,
        target: Target,
        files: Sequence[StagedFile],
        transaction: tuple[str, int],
        metadata: Mapping[str, Any],
        schema: str | None = None,
    ) -> None:
        """See OutputPublishing. On a local path, the commit also gives the table the columns of `schema`, if given.

        In an object store the caller has added the columns by an earlier commit.
        """
        loaded = self._open(location)
        if loaded is None:
            raise OutputUnreadable(location, "the table is gone", gone=True)
        stored = self._files(location)
        if isinstance(stored, LocalFiles):

            def still_valid(now: DeltaTable) -> None:
                require_uncommitted(now, transaction[0])
                require_same(target, target_of(now))
                require_staged(location, stored, files)

            commit_files(loaded, stored, files, metadata, [transaction], still_valid, schema=schema, cleans_log=True)
            return
        # Each try commits directly after the version that was looked at, or fails. delta-rs's own retries would ignore
        # commits that demand more of rows, and fail after commits that demand nothing (DELETE).
        commit_properties = properties(metadata, transaction, rebases=0)
        for tried in range(REBASES):
            require_uncommitted(loaded, transaction[0])
            require_same(target, target_of(loaded))
            require_staged(location, stored, files)
            try:
                with conflicts():
                    add_files(loaded, files, target.demands.partitions, commit_properties=commit_properties)
                return
            except Conflict:
                looked_at = loaded.version()
                catch_up(loaded, stored)
                # Without another commit the next try would fail in the same way.
                if tried + 1 == REBASES or loaded.version() == looked_at:
                    raise

    def _files(self, location: str) -> TableStorage:
        return table_files(location, self.storage_options, sync=self._sync)

    def _open(self, location: str) -> DeltaTable | None:
        return loaded_output(location, self.storage_options)


def loaded_output(location: str, storage_options: dict[str, str] | None) -> DeltaTable | None:
    """Return a table as of its newest version; None if there is none.

    Raises Flawed for a damaged log on a local path, and ForkedProcess.
    """
    forks.require_own("delta-rs")
    if not DeltaTable.is_deltatable(location, storage_options):
        return None
    try:
        loaded = opened(location, storage_options)
    except DeltaError:
        require_whole_log(location, None)
        raise
    require_whole_log(location, loaded.version())
    return loaded


def require_uncommitted(loaded: DeltaTable, application: str) -> None:
    if loaded.transaction_version(application) is not None:
        raise Conflict(f"{application} was committed before")


def target_of(loaded: DeltaTable) -> Target:
    return Target(str(loaded.metadata().id), read_demands(loaded))
