"""The columns of output tables, read and changed by delta-rs; which they are to be: `rules.output_columns`.

Columns are widened by one commit that writes the table's rows anew. Only Spark can change a type in place, and many
readers do not read a table whose types Spark changed. Each stored value is compared with its cast back. The commit
stands right on the version that was read: a commit of others between the two makes it fail, and it is tried again from
their version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, TableFeatures, write_deltalake

from ledger.delta_log import local_commits
from ledger.delta_log.delta_rs_commits import conflicts, demands_of, odd_path, properties
from ledger.delta_log.protocol import Conflict
from ledger.delta_log.storage import LocalFiles, TableStorage
from ledger.errors import OutputNotWritten
from ledger.rules.column_types import has_local_time_in_map
from ledger.rules.output_columns import Columns, ColumnsAsked, ColumnsDiffer, columns_of, properties_of
from ledger.store.delta.model.exact_casts import fitted

#: A table of more bytes is not written anew beside a write; and how often that is tried beside other writers.
WIDENED_BYTES, TRIES = 1 << 30, 5
#: Properties of tables whose rows are not to be written anew.
KEPT = ("delta.appendOnly", "delta.enableChangeDataFeed", "delta.enableDeletionVectors", "delta.columnMapping.mode")


@contextmanager
def columns_differ(location: object) -> Iterator[None]:
    """Turn ColumnsDiffer into OutputNotWritten."""
    try:
        yield
    except ColumnsDiffer as error:
        raise OutputNotWritten(location, str(error)) from None


def schema_of(loaded: DeltaTable) -> dict[str, Any]:
    """Return a table's columns as its log writes them."""
    found: dict[str, Any] = json.loads(loaded.schema().to_json())
    return found


def columns_for(loaded: DeltaTable, rows: dict[str, Any], asked: ColumnsAsked) -> Columns:
    """Return the columns that a table has once rows with such columns are in. Raises ColumnsDiffer."""
    return columns_of(schema_of(loaded), rows, loaded.metadata().configuration, asked)


def create(location: str, columns: Columns, options: dict[str, str] | None, files: TableStorage) -> None:
    """Make a table, empty, if there is none. `files`: where it is to lie."""
    make = partial(
        DeltaTable.create,
        schema=Schema.from_json(json.dumps(columns.schema)),
        mode="ignore",
        configuration=properties_of(columns),
        # Version 0 or none: of several that do so at once one is first.
        commit_properties=CommitProperties(max_commit_retries=0),
        raise_if_key_not_exists=False,
    )
    if isinstance(files, LocalFiles):
        local_commits.create(files, make)
    else:
        make(location, storage_options=options)


def add(loaded: DeltaTable, columns: Columns) -> None:
    """Add the columns that a table lacks, in a commit of its own."""
    for tried in range(TRIES):
        # Another writer may have added the same ones.
        there = {one["name"].lower() for one in schema_of(loaded)["fields"]}
        fields = [one for one in columns.schema["fields"] if one["name"].lower() not in there]
        if not fields:
            return
        try:
            with conflicts():
                if any(has_local_time_in_map(one["type"]) for one in fields) and not _has_local_times(loaded):
                    loaded.alter.add_feature(
                        TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True
                    )
                loaded.alter.add_columns(Schema.from_json(json.dumps({"type": "struct", "fields": fields})).fields)
            return
        except Conflict:
            if tried + 1 == TRIES:
                raise
            loaded.update_incremental()


def _has_local_times(loaded: DeltaTable) -> bool:
    return "timestampNtz" in (loaded.protocol().writer_features or ())


def widen(loaded: DeltaTable, columns: Columns) -> None:
    """Write a table anew with the types of `columns`, in one commit. Raises ColumnsDiffer for a table that cannot be
    written anew here, or has a value that would be changed: it says which command does it."""
    for tried in range(TRIES):
        _require_plain(loaded, columns)
        # What the rows add is added by their own commit.
        names = {one["name"] for one in schema_of(loaded)["fields"]}
        schema = {**columns.schema, "fields": [one for one in columns.schema["fields"] if one["name"] in names]}
        if schema == schema_of(loaded):
            return
        batches = loaded.to_pyarrow_dataset().to_batches()
        made = fitted(loaded.to_pyarrow_dataset().schema.empty_table(), schema).schema
        rows = (batch for one in batches for batch in fitted(pa.Table.from_batches([one]), schema).to_batches())
        try:
            with conflicts():
                write_deltalake(
                    loaded,
                    pa.RecordBatchReader.from_batches(made, rows),
                    mode="overwrite",
                    schema_mode="overwrite",
                    commit_properties=properties({"verb": "widen", "columns": list(columns.retyped)}, rebases=0),
                )
            return
        except Conflict:
            if tried + 1 == TRIES:
                raise
            loaded.update_incremental()


def _require_plain(loaded: DeltaTable, columns: Columns) -> None:
    names = ", ".join(columns.retyped)
    configuration = loaded.metadata().configuration
    size = sum(pa.table(loaded.get_add_actions())["size_bytes"].to_pylist())
    why = [f"its property {name}" for name in KEPT if configuration.get(name, "false").lower() not in ("false", "none")]
    why += [f"what it asks of {name}" for name in demands_of(loaded)]
    why += [f"its partitions by {name}" for name in loaded.metadata().partition_columns]
    odd = odd_path(loaded)
    why += [] if odd is None else [f"the path of its file {odd}, which delta-rs would write in another way"]
    why += [f"its {size:,} bytes, of at most {WIDENED_BYTES:,}"] * (size > WIDENED_BYTES)
    if why:
        raise ColumnsDiffer(
            f"the columns {names} are not widened here because of {why[0]}: write the table anew with Spark, "
            'spark.table(...).withColumn(...).write.mode("overwrite").option("overwriteSchema", True)'
        )
