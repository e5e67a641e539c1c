"""Files that Spark has written, published by delta-rs in one commit, where they lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction

from ledger.delta_log.protocol import StagedFile
from ledger.delta_log.table_files import AT_ONCE, CommitFiles
from ledger.errors import StorageFailed
from ledger.rules.publishable import PROTOCOL_OF_NEW, Demands
from ledger.threads import map_at_once

#: The property that names the columns of which Delta collects statistics.
STATISTICS = "delta.dataSkippingStatsColumns"
#: What Spark's writer of Parquet takes from a table's properties: row groups of 32 MB, as they are compressed. It looks
#: at the bytes that it holds from the first row on, where else it waits for 100 rows, which may be 100 MB.
BOUNDED = {
    "parquet.block.size": str(32 << 20),
    **{
        f"parquet.{part}.size.row.check.{bound}": rows
        for part in ("block", "page")
        for bound, rows in (("min", "1"), ("max", "100"))
    },
}


def require_staged(location: str, stored: CommitFiles, files: Sequence[StagedFile]) -> None:
    """Raises StorageFailed where one of the files that are to be published at a location is gone: the table could not
    be read any more. A VACUUM removes them that keeps files for no longer than they are on their way, and whoever
    replaces the table."""
    found = map_at_once(stored.has, (one.path for one in files), AT_ONCE)
    if not all(found):
        gone = files[found.index(False)].path
        raise StorageFailed(
            location,
            f"{gone}, which was to be published, was removed, perhaps by VACUUM or with a table that was replaced",
            "write",
        )


def demands_of_staging(schema: pa.Schema, partitions: Sequence[str], statistics: Sequence[str]) -> Demands:
    """Return the demands of a table for files that are published later; what tables are by default in the session that
    writes it matters not. It has statistics of these columns, as far as it has them, and of its own first one."""
    told = [schema.names[0], *(name for name in statistics if name in schema.names)]
    properties = {STATISTICS: ",".join(told), **BOUNDED}
    return Demands(PROTOCOL_OF_NEW, Schema.from_arrow(schema).to_json(), tuple(partitions), properties)


def publish(loaded: DeltaTable, files: Iterable[StagedFile], partitions: Sequence[str], **commit: Any) -> None:
    """One commit that adds files to a table; `commit`: how it is made, see `committing`. Raises what delta-rs does, and
    StorageFailed for a table that asks more of a row than to have its columns: whoever wrote the files knew of nothing.
    """
    require_plain(loaded)
    add_files(loaded, files, partitions, **commit)


def add_files(loaded: DeltaTable, files: Iterable[StagedFile], partitions: Sequence[str], **commit: Any) -> None:
    """One commit that adds files which keep to all that a table asks for. Raises what delta-rs does."""
    actions: list[Any] = [
        AddAction(one.path, one.size, one.partition, one.modified_at, True, one.statistics) for one in files
    ]
    loaded.create_write_transaction(actions, "append", loaded.schema(), list(partitions), **commit)


def demands_of(loaded: DeltaTable) -> list[str]:
    """What a table asks of its rows beyond their columns: its constraints, columns that may not be null or are made by
    Delta, by their names."""
    asked = [name for name in loaded.metadata().configuration if name.startswith("delta.constraints.")]
    for field in loaded.schema().fields:
        if not field.nullable or any(name.startswith("delta.") for name in field.metadata):
            asked.append(field.name)
    return asked


def read_demands(loaded: DeltaTable) -> Demands:
    """Return what a loaded table asks of its rows and files."""
    protocol, metadata = loaded.protocol(), loaded.metadata()
    known: dict[str, Any] = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
    }
    for name, features in (("readerFeatures", protocol.reader_features), ("writerFeatures", protocol.writer_features)):
        if features is not None:
            known[name] = sorted(features)
    return Demands(known, loaded.schema().to_json(), tuple(metadata.partition_columns), metadata.configuration)


def metadata_action(
    loaded: DeltaTable, schema: str, configuration: Mapping[str, str], description: str | None
) -> dict[str, Any]:
    """Return the action that gives a loaded table these columns, properties and description, and leaves all else."""
    known = loaded.metadata()
    changed = {
        "id": known.id,
        "name": known.name,
        "description": description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": known.partition_columns,
        "createdTime": known.created_time,
        "configuration": dict(configuration),
    }
    return {"metaData": changed}


def require_plain(loaded: DeltaTable) -> None:
    """Raises StorageFailed for a table with constraints, or with columns that may not be null or are made by Delta."""
    asked = demands_of(loaded)
    if asked:
        raise StorageFailed(
            loaded.table_uri, f"it was changed, and a bulk send cannot keep to {', '.join(asked)}", "send"
        )
