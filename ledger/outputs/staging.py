"""The staged rows of an output: Spark writes them into a folder below the table, and one commit publishes them.

Published files stay in their folder. VACUUM removes the files of a writer that died, usually when they are 7 days old.
So a writer that began more than two days ago does not publish. VACUUM skips folders whose names begin with _, so this
folder's name does not.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledger.delta_log.protocol import StagedFile
from ledger.delta_log.storage import log_file
from ledger.errors import StorageFailed
from ledger.output_tables.files_aside import staged_file
from ledger.outputs.named_messages import Named, named_by_column, named_by_ids
from ledger.place import absent_folders, remove_empty
from ledger.rules import staging
from ledger.rules.publishable import FOLDER, Demands
from ledger.rules.storage import for_spark
from ledger.store.delta.commit.folders import Folders, folders_below
from ledger.store.delta.dataframes.evaluation import stored_in_microseconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.output_tables.protocol import OutputPublishing

#: Up to this many rows, the driver itself reads the column that names messages, in some 40 bytes of memory an id.
MOST_BY_DRIVER = 8_000_000
#: Writers that died leave logs, which no VACUUM removes. This many of the newest folders older than two days are
#: searched.
TIDIED_WRITES = 20


class StagedRows:
    """The rows of one write, in a folder below the table. The table need not exist yet.

    `settle`, `remove` and `tidy` ignore errors of the storage: files that stay do no harm.
    """

    def __init__(self, publishing: OutputPublishing, spark: SparkSession, location: str, now: int) -> None:
        self._publishing, self._spark, self._now = publishing, spark, now
        self._name = staging.new_folder(now)
        self._place = f"{location.rstrip('/')}/{FOLDER}/{self._name}"
        self._made = absent_folders(f"{location.rstrip('/')}/{FOLDER}")
        writes = folders_below(f"{location.rstrip('/')}/{FOLDER}", spark, publishing.storage_options or {})
        assert writes is not None
        self._writes: Folders = writes
        self.files: list[StagedFile] = []

    def write(self, rows: DataFrame, demands: Demands, metadata: Mapping[str, Any]) -> None:
        """Compute the rows once, and write them into the folder as files that meet the demands.

        Raises StorageFailed if this process does not see the files, or if Spark changed the folder's columns or
        protocol.
        """
        self._publishing.stage(self._place, demands, self._now)
        writer = rows.write.format("delta").mode("append").option("userMetadata", json.dumps(metadata))
        with stored_in_microseconds(rows):
            writer.save(for_spark(self._place))
        log = self._writes.read(f"{self._name}/{log_file(1)}")
        if log is None:
            # Without a row Delta may commit nothing.
            if self._writes.read(f"{self._name}/{log_file(0)}") is None:
                raise StorageFailed(self._place, "this process does not see the files that Spark wrote there", "write")
            return
        entries = [json.loads(line) for line in log.split("\n") if line]
        if any("metaData" in entry or "protocol" in entry for entry in entries):
            raise StorageFailed(self._place, "Spark gave the rows another schema than the table's", "write")
        self.files = [staged_file(self._name, entry["add"]) for entry in entries if "add" in entry]

    @property
    def count(self) -> int | None:
        counts = [json.loads(file.statistics).get("numRecords") for file in self.files]
        return None if None in counts else sum(filter(None, counts))

    def named(self, column: str, queue: str) -> Named:
        """Return which messages a column of the written rows names."""
        named = self._by_driver(column)
        if named is None:
            written = self._spark.read.format("delta").load(for_spark(self._place))
            named = named_by_column(written, column, queue)
        return named

    def _by_driver(self, column: str) -> Named | None:
        paths = [file.path.removeprefix(f"{FOLDER}/{self._name}/") for file in self.files]
        count = self.count
        if count is None or count > MOST_BY_DRIVER:
            return None
        try:
            values = self._publishing.column(self._place, paths, column)
        except (OSError, StorageFailed, pa.ArrowException):
            # Spark wrote the files, so let Spark read them.
            return None
        return None if values is None or not _is_text(values.type) else named_by_ids(values)

    def is_too_old(self, now: int) -> bool:
        """Return whether a VACUUM may soon remove the files."""
        return staging.is_abandoned(self._name, now)

    def settle(self) -> None:
        with contextlib.suppress(StorageFailed):
            self._writes.remove(f"{self._name}/_delta_log")

    def remove(self) -> None:
        """Remove the folder, and empty folders above it that this write made.

        Call it only if nobody publishes the rows.
        """
        with contextlib.suppress(StorageFailed):
            self._writes.remove(self._name)
            remove_empty(self._made)

    def tidy(self) -> None:
        """Remove the logs that dead writers left."""
        with contextlib.suppress(StorageFailed):
            old = [name for name in self._writes.names() if staging.is_abandoned(name, self._now)]
            for name in old[-TIDIED_WRITES:]:
                if self._writes.read(f"{name}/{log_file(0)}") is not None:
                    self._writes.remove(f"{name}/_delta_log")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
