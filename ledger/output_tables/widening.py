"""Wider columns of an output table: delta-rs writes the table's rows anew, and one commit replaces the files.

Only Spark can change a type in place, and many readers do not read such a table. A stored value that the new type does
not hold exactly is an error.
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
from pyarrow.dataset import ParquetReadOptions

from ledger.delta_log.delta_rs_commits import add_actions, conflicts, demands_of, odd_path, properties, read_demands
from ledger.delta_log.protocol import StagedFile
from ledger.delta_log.storage import TableStorage
from ledger.output_tables.exact_casts import fitted
from ledger.output_tables.files_aside import Bounds, RowsAside, corrected, exact_bounds, together
from ledger.output_tables.schemas import schema_of
from ledger.rules.output_columns import Columns, ColumnsDiffer

log = logging.getLogger("ledger.output")
#: A larger table is not written anew for the rows of a write.
WIDENED_BYTES = 1 << 30
KEPT = ("delta.appendOnly", "delta.enableChangeDataFeed", "delta.enableDeletionVectors", "delta.columnMapping.mode")


def widen(
    loaded: DeltaTable, columns: Columns, location: str, stored: TableStorage, options: dict[str, str] | None
) -> None:
    """Write a table anew with the types of `columns`, which were found for the `loaded` version.

    Raises:
        ColumnsDiffer: The table is not written anew here, or a value would change.
        Conflict: Others committed after that version. They may have widened the columns further.
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
            arrow_schema = fitted(self._dataset.schema.empty_table(), self._schema).schema
            with self._refused():
                written = aside.write(pa.RecordBatchReader.from_batches(arrow_schema, self._batches()))
            files = [corrected(one, self._bounds, self._schema) for one in written]
        except BaseException:
            aside.remove()
            raise
        aside.settle()
        return files

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._dataset.to_batches():
            try:
                rows = fitted(pa.Table.from_batches([batch]), self._schema)
            except ColumnsDiffer as error:
                self._different = error
                raise
            self._bounds = together(self._bounds, exact_bounds(rows))
            yield from rows.to_batches()

    @contextmanager
    def _refused(self) -> Iterator[None]:
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
    why += [f"what it asks of {name}" for name in demands_of(loaded)]
    why += [f"its partitions by {name}" for name in loaded.metadata().partition_columns]
    odd = odd_path(loaded)
    why += [] if odd is None else [f"the path of its file {odd}, which delta-rs would write in another way"]
    why += [f"its {size:,} bytes, of at most {WIDENED_BYTES:,}"] * (size > WIDENED_BYTES)
    return why[0] if why else None


def _require_plain(loaded: DeltaTable, columns: Columns) -> None:
    why = why_not_widened(loaded)
    if why is not None:
        raise ColumnsDiffer(
            f"the columns {', '.join(columns.retyped)} are not widened here because of {why}: write the table anew "
            'with Spark, spark.table(...).withColumn(...).write.mode("overwrite").option("overwriteSchema", True)'
        )
