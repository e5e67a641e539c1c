"""Rows for an output table: written by Spark into a folder below it, to be published where they lie; see
`rules.publishable`, and `rules.staging` for the same with bulk sends.

What was published stays in its folder, which is the table's like every other. What its writer left, because it died,
VACUUM removes as it does any writer's files that no version names: the folder's name does not begin with _. Before it
publishes, a writer looks whether it began so long ago that a VACUUM of the usual 7 days may be near: then it gives up.
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

#: Up to so many rows the driver itself reads the column that names messages, which takes some 40 bytes each.
MOST_BY_DRIVER = 8_000_000
#: So many of the writes that died, the latest, are looked at for logs that no VACUUM removes.
LOOKED_AT = 20


class StagedRows:
    """The rows of one write, in a folder of their own below a table that need not be there yet."""

    def __init__(self, publishing: OutputPublishing, spark: SparkSession, location: str, now: int) -> None:
        self._publishing, self._spark, self._now = publishing, spark, now
        self._name = staging.new_folder(now)
        self._place = f"{location.rstrip('/')}/{FOLDER}/{self._name}"
        self._made = absent_folders(f"{location.rstrip('/')}/{FOLDER}")
        writes = folders_below(f"{location.rstrip('/')}/{FOLDER}", spark, publishing.storage_options or {})
        assert writes is not None
        self._writes: Folders = writes
        self.files: list[StagedFile] = []

    def write(self, rows: DataFrame, demands: Demands, said: Mapping[str, Any]) -> None:
        """Computes the rows, once, and writes them as a table with these demands would have them; the commit there says
        `said`. Raises what Spark
        does, and StorageFailed where what it wrote is not seen here, or is of other columns than were asked for."""
        self._publishing.stage(self._place, demands, self._now)
        writer = rows.write.format("delta").mode("append").option("userMetadata", json.dumps(said))
        with stored_in_microseconds(rows):
            writer.save(for_spark(self._place))
        log = self._writes.read(f"{self._name}/{log_file(1)}")
        if log is None:
            # Without a row Delta may commit nothing.
            if self._writes.read(f"{self._name}/{log_file(0)}") is None:
                raise StorageFailed(self._place, "what was written there is not seen here", "write")
            return
        entries = [json.loads(line) for line in log.split("\n") if line]
        if any("metaData" in entry or "protocol" in entry for entry in entries):
            raise StorageFailed(self._place, "Spark gave the rows another schema than the table's", "write")
        self.files = [staged_file(self._name, entry["add"]) for entry in entries if "add" in entry]

    @property
    def count(self) -> int | None:
        """How many rows there are; None where Spark did not count them."""
        counts = [json.loads(one.statistics).get("numRecords") for one in self.files]
        return None if None in counts else sum(filter(None, counts))

    def named(self, column: str, queue: str) -> Named:
        """Which messages a column of the rows names: of those that were written, which nobody computes again."""
        found = self._by_driver(column)
        if found is None:
            written = self._spark.read.format("delta").load(for_spark(self._place))
            found = named_by_column(written, column, queue)
        return found

    def _by_driver(self, column: str) -> Named | None:
        paths = [one.path.removeprefix(f"{FOLDER}/{self._name}/") for one in self.files]
        count = self.count
        if count is None or count > MOST_BY_DRIVER:
            return None
        try:
            values = self._publishing.column(self._place, paths, column)
        except (OSError, StorageFailed, pa.ArrowException):
            # Spark can read what it wrote.
            return None
        return None if values is None or not _is_text(values.type) else named_by_ids(values)

    def is_too_old(self, now: int) -> bool:
        """Whether it began so long ago that its files may be removed by a VACUUM."""
        return staging.is_abandoned(self._name, now)

    def settle(self) -> None:
        """Removes what nobody needs once it is published: the log of a table of its own."""
        with contextlib.suppress(StorageFailed):
            self._writes.remove(f"{self._name}/_delta_log")

    def remove(self) -> None:
        """Removes it all, once it is certain that it never is published; and the folders that were made for it."""
        with contextlib.suppress(StorageFailed):
            self._writes.remove(self._name)
            remove_empty(self._made)

    def tidy(self) -> None:
        """Removes the logs of writes that died: VACUUM removes their files, and looks into no log."""
        with contextlib.suppress(StorageFailed):
            old = [name for name in self._writes.names() if staging.is_abandoned(name, self._now)]
            for name in old[-LOOKED_AT:]:
                if self._writes.read(f"{name}/{log_file(0)}") is not None:
                    self._writes.remove(f"{name}/_delta_log")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
