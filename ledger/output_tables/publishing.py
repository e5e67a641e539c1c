"""The publishing of files to output tables by delta-rs, and the widening of a table's columns.

Only Spark can change a type in place, and many readers do not read the table then. So `widen` writes the table anew. A
stored value that the new type does not hold exactly is an error.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from pyarrow.dataset import ParquetReadOptions

from ledger.delta_log.damage import require_whole_log
from ledger.delta_log.delta_rs_commits import (
    REBASES,
    add_actions,
    add_files,
    begin_log,
    catch_up,
    conflicts,
    find_odd_path,
    list_constraints,
    make_first_commit,
    opened,
    properties,
    read_demands,
    require_staged,
)
from ledger.delta_log.local_commits import commit_files
from ledger.delta_log.protocol import CommittedBefore, Conflict, StagedFile
from ledger.delta_log.storage import LocalFiles, TableStorage, log_file, table_files
from ledger.errors import OutputUnreadable
from ledger.output_tables.exact_casts import fit_columns
from ledger.output_tables.files_aside import Bounds, RowsAside, correct_file, exact_bounds, join_bounds
from ledger.output_tables.protocol import Target, require_same
from ledger.output_tables.schemas import add, schema_of, translating_column_errors
from ledger.rules.output_columns import Columns, ColumnsDiffer
from ledger.rules.publishable import Demands
from ledger.runtime import threads

log = logging.getLogger("ledger.output")
#: A larger table is not written anew for the rows of a write.
WIDENED_BYTES = 1 << 30
#: Properties of tables that are not written anew.
KEPT = ("delta.appendOnly", "delta.enableChangeDataFeed", "delta.enableDeletionVectors", "delta.columnMapping.mode")


def widen(
    loaded: DeltaTable, columns: Columns, location: str, stored: TableStorage, options: dict[str, str] | None
) -> None:
    """Write a table anew with the types of `columns`, which were found for the `loaded` version.

    Raises:
        ColumnsDiffer: The table is of a kind that is not written anew, or a value would change.
        Conflict: Others committed after that version, and may have widened the columns further.
    """
    _require_plain(loaded, columns)
    names = {one["name"] for one in schema_of(loaded)["fields"]}
    schema = {**columns.schema, "fields": [one for one in columns.schema["fields"] if one["name"] in names]}
    files = _Rewritten(loaded, schema, columns.retyped).files(location, options)
    commit_properties = properties({"verb": "widen", "columns": list(columns.retyped)}, rebases=0)
    # The commit removes the table's old files. So the new files must survive a power cut first.
    stored.sync([one.path for one in files])
    with conflicts():
        new_schema = Schema.from_json(json.dumps(schema))
        loaded.create_write_transaction(
            add_actions(files), "overwrite", new_schema, [], commit_properties=commit_properties
        )
    loaded.update_incremental()
    log.info("%s was written anew: its columns %s are wider now", location, ", ".join(columns.retyped))


class _Rewritten:
    def __init__(self, loaded: DeltaTable, schema: Mapping[str, Any], retyped: Sequence[str]) -> None:
        # Spark's instants may be INT96. In nanoseconds of 64 bits some instants would change.
        options = ParquetReadOptions(coerce_int96_timestamp_unit="us")
        self._dataset = loaded.to_pyarrow_dataset(parquet_read_options=options)
        self._demands = replace(read_demands(loaded), schema=json.dumps(schema))
        self._schema, self._retyped = schema, ", ".join(retyped)
        self._bounds: Bounds = {}
        self._different: ColumnsDiffer | None = None

    def files(self, location: str, options: dict[str, str] | None) -> list[StagedFile]:
        aside = RowsAside(location, options, self._demands)
        try:
            arrow_schema = fit_columns(self._dataset.schema.empty_table(), self._schema).schema
            with self._translating_difference():
                written = aside.write(pa.RecordBatchReader.from_batches(arrow_schema, self._batches()))
            files = [correct_file(one, self._bounds, self._schema) for one in written]
        except BaseException:
            aside.remove()
            raise
        aside.settle()
        return files

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._dataset.to_batches():
            try:
                rows = fit_columns(pa.Table.from_batches([batch]), self._schema)
            except ColumnsDiffer as error:
                self._different = error
                raise
            self._bounds = join_bounds(self._bounds, exact_bounds(rows))
            yield from rows.to_batches()

    @contextmanager
    def _translating_difference(self) -> Iterator[None]:
        """Raise ColumnsDiffer for a value that would change, in place of delta-rs's error."""
        try:
            yield
        except Exception:
            if self._different is None:
                raise
            difference = str(self._different).partition("; ")[0]
            fix = "leave the column as it is, and cast it in the rows"
            raise ColumnsDiffer(f"{self._retyped} cannot be widened: of the stored rows, {difference}; {fix}") from None


def why_not_widened(loaded: DeltaTable) -> str | None:
    """Return why this module does not write a table anew, in words that can follow "because of"."""
    configuration = loaded.metadata().configuration
    size = sum(pa.table(loaded.get_add_actions())["size_bytes"].to_pylist())
    why = [f"its property {name}" for name in KEPT if configuration.get(name, "false").lower() not in ("false", "none")]
    why += [f"what it asks of {name}" for name in list_constraints(loaded)]
    why += [f"its partitions by {name}" for name in loaded.metadata().partition_columns]
    odd = find_odd_path(loaded)
    why += [] if odd is None else [f"the path of its file {odd}, which delta-rs would write in another way"]
    why += [f"its {size:,} bytes (at most {WIDENED_BYTES:,} are rewritten)"] * (size > WIDENED_BYTES)
    return why[0] if why else None


def _require_plain(loaded: DeltaTable, columns: Columns) -> None:
    why = why_not_widened(loaded)
    if why is not None:
        raise ColumnsDiffer(
            f"the columns {', '.join(columns.retyped)} are not widened here because of {why}: write the table anew "
            'with Spark, spark.table(...).withColumn(...).write.mode("overwrite").option("overwriteSchema", True)'
        )


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
        files.put_new(log_file(0), make_first_commit(demands, now))

    def evolve(self, location: str, target: Target, columns: Columns) -> None:
        loaded = self._open(location)
        if loaded is None:
            raise OutputUnreadable(location, "the table is gone", gone=True)
        with translating_column_errors(location):
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
        return load_output(location, self.storage_options)


def load_output(location: str, storage_options: dict[str, str] | None) -> DeltaTable | None:
    """Return a table as of its newest version; None if there is none.

    Raises Flawed for a damaged log on a local path, and ForkedProcess.
    """
    threads.require_own("delta-rs")
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
        raise CommittedBefore(f"{application} was committed before")


def target_of(loaded: DeltaTable) -> Target:
    return Target(str(loaded.metadata().id), read_demands(loaded))
