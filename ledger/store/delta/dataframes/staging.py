"""Bulk sends where delta-rs commits: Spark stages files, and one commit publishes them (see `rules.staging`)."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledger.clock import Clock
from ledger.delta_log.protocol import StagedFile
from ledger.delta_log.storage import log_file
from ledger.errors import InvalidParameterValue, StorageFailed
from ledger.rules import staging
from ledger.rules.storage import for_spark
from ledger.store.delta.commit.folders import Folders
from ledger.store.delta.dataframes.placed_rows import IN_FILES, Placed, refused, rows_of_a_file
from ledger.store.delta.dataframes.task_staging import ExecutorsUnable, TaskStaging
from ledger.store.delta.engine import Publishing
from ledger.store.delta.verbs.staged_sends import Publisher, end_of, remove_folder_log, staged_folders
from ledger.store.protocol import QueueRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.store.delta.verbs.store import DeltaStore

#: If false, Delta's log has no statistics of files.
STATISTICS = "spark.databricks.delta.stats.collect"
ORDINAL = pa.field("ordinal", pa.int64())


class Staging:
    """Writes rows with Spark, beside other senders, and publishes the files."""

    #: See `Placed`.
    compares_rows = True

    def __init__(self, store: DeltaStore, engine: Publishing, spark: SparkSession) -> None:
        self._store, self._transactions, self._engine = store, store.transactions, engine
        folders = staged_folders(store)
        assert folders is not None
        self._folders: Folders = folders
        self._most_losses = store.settings.losses_before_waiting
        self._tasks = TaskStaging(store, engine, spark)

    @staticmethod
    def require_takes(queue: QueueRecord) -> None:
        """Do nothing: every queue takes a staged send."""

    def takes_unplaced(self, frame: DataFrame) -> bool:
        """Return whether tasks can write a DataFrame's rows, as far as this process knows."""
        return self._tasks.is_able(frame)

    def turn(self, queue: QueueRecord, losses: int) -> AbstractContextManager[None]:
        """Return a context in which a send decides and writes: a turn only from `losses_before_waiting` losses on."""
        return self._transactions.turn("messages", queue.id, losses) if self._is_alone(losses) else nullcontext()

    def write(self, placed: Placed, transaction: tuple[str, int] | None, losses: int, clock: Clock) -> bool:
        """Write files, and publish them with one commit. Without rows, commit nothing.

        Return False, with nothing sent, if another send under the transaction was first, or if the files are given up.
        Raises QueueDoesNotExist.
        """
        folder, publisher, published = staging.new_folder(placed.at), None, False
        try:
            try:
                files = self.write_files(placed, folder)
            except StorageFailed:
                # Upkeep may have removed the folder while tasks wrote.
                if self._is_given_up(folder, clock):
                    return False
                raise
            if self._is_given_up(folder, clock):
                return False
            if files:
                operation = secrets.token_hex(8)
                metadata = self._transactions.metadata(operation, "send", placed.queue.id, placed.at, [], losses)
                admit = partial(self._admit, placed.queue, files, clock)
                publisher = Publisher(self._transactions, self._engine, folder, files, admit)
                turn = partial(self._turn_to_publish, placed, self._is_alone(losses))
                published = publisher.publish(metadata, transaction, turn, self._transactions.attempts("send"))
            if not files:
                # All rows may have been duplicates of other sends, which must survive a power cut.
                self._engine.make_durable()
            return published or not files
        finally:
            if published:
                remove_folder_log(self._folders, folder)
            elif publisher is None or not publisher.undecided:
                with contextlib.suppress(StorageFailed):
                    self._folders.remove(folder)

    def _admit(self, queue: QueueRecord, files: list[StagedFile], clock: Clock) -> tuple[str, int] | None:
        """Return the transaction that counts this send to a queue with a bound, or None.

        Spark may have written for long, so the queue's bound of now counts. Raises OverLimit and QueueDoesNotExist.
        """
        current = self._store.current_queue(queue)
        counting = self._store.quotas.next_send(current)
        if counting is not None:
            rows = sum(json.loads(file.statistics)["numRecords"] for file in files)
            self._store.quotas.require_room(current, rows, lambda: sum(file.size for file in files), clock)
        return counting

    def write_files(self, placed: Placed, folder: str) -> list[StagedFile]:
        why_not = None
        if placed.unplaced is not None and self._tasks.is_able(placed.unplaced.rows):
            try:
                return self._tasks.stage(placed, placed.unplaced, folder)
            except ExecutorsUnable as unable:
                why_not = unable
        files = self._written_by_spark(placed, folder)
        self._require_written(folder, files)
        if why_not is not None:
            self._tasks.note_unable(why_not)
        return files

    def _written_by_spark(self, placed: Placed, folder: str) -> list[StagedFile]:
        """Write with Spark's writer. Only rows of a FIFO queue, which are sorted by segment already, are partitioned by
        it."""
        partitions = [ORDINAL.name] if placed.in_order else []
        schema = pa.schema([ORDINAL, *(field for field in IN_FILES if field.name not in placed.absent)])
        place = self._engine.stage("messages", f"{staging.FOLDER}/{folder}", schema, partitions, placed.at)
        writer = (
            placed.rows().select(schema.names).write.format("delta").mode("append").option("optimizeWrite", "false")
        )
        self._transactions.step("staging")
        try:
            writer.option("maxRecordsPerFile", str(rows_of_a_file(self._store.settings))).save(for_spark(place))
        except Exception as error:
            raise refused(error, placed.queue, self._store.settings, place) or error from None
        if placed.require_same is not None:
            placed.require_same()
        return staged_files(placed, folder, self._folders)

    def _is_given_up(self, folder: str, clock: Clock) -> bool:
        """Return whether a folder has ended (`end_of`), or is old enough for upkeep or a vacuum to remove its files.

        Upkeep records the end before it removes a file.
        """
        return end_of(self._engine, folder) is not None or staging.is_abandoned(folder, clock())

    def _require_written(self, folder: str, files: list[StagedFile]) -> None:
        """Raise StorageFailed if this process sees neither Spark's files nor the folder's log."""
        if not files and self._folders.read(f"{folder}/{log_file(0)}") is None:
            place = f"{self._engine.place('messages')}/{staging.FOLDER}/{folder}"
            raise StorageFailed(
                place, "this process does not see what Spark wrote there (does a path mean another place?)", "send"
            )

    def _turn_to_publish(self, placed: Placed, alone: bool, losses: int) -> AbstractContextManager[None]:
        if alone:
            return nullcontext()
        return self._transactions.turn("messages", placed.queue.id if placed.in_order else None, losses)

    def _is_alone(self, losses: int) -> bool:
        return losses >= self._most_losses


def staged_files(placed: Placed, folder: str, folders: Folders) -> list[StagedFile]:
    """Return the files that Spark wrote to a folder, from the folder's log.

    Raises InvalidParameterValue if the log has no statistics of a file, and StorageFailed.
    """
    # For a frame without rows, Delta commits nothing after version 0.
    log = folders.read(f"{folder}/{log_file(1)}") or ""
    added = [entry["add"] for entry in map(json.loads, filter(None, log.split("\n"))) if "add" in entry]
    return [_file(placed, f"{staging.FOLDER}/{folder}", add) for add in added]


def _file(placed: Placed, folder: str, add: Mapping[str, Any]) -> StagedFile:
    recorded = json.loads(add.get("stats") or "{}")
    lowest, highest = (
        {**add["partitionValues"], **recorded.get(values, {})}.get(ORDINAL.name)
        for values in ("minValues", "maxValues")
    )
    if lowest is None or "numRecords" not in recorded:
        raise InvalidParameterValue(
            STATISTICS, "false", "A send needs the statistics of its files", "Nothing was sent. Set it to true."
        )
    if lowest != highest:
        raise StorageFailed(folder, "Spark wrote messages of several segments into one file", "send")
    statistics = {name: _without_ordinal(values) for name, values in recorded.items()}
    path = f"{folder}/{add['path']}"
    return StagedFile(path, add["size"], placed.partition(int(lowest)), add["modificationTime"], json.dumps(statistics))


def _without_ordinal(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    return {name: value for name, value in values.items() if name != ORDINAL.name}
