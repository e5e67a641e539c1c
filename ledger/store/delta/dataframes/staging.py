"""A bulk send where delta-rs commits: Spark writes the files, and one commit publishes them; see rules.staging."""

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
from ledger.store.delta.dataframes.task_staging import TaskStaging
from ledger.store.delta.engine import Publishing
from ledger.store.delta.verbs.staged_sends import Publisher, end_of, settle, staged_folders
from ledger.store.protocol import QueueRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.store.delta.verbs.store import DeltaStore

#: What Spark's session may say so that Delta tells nothing of a file but its size.
STATISTICS = "spark.databricks.delta.stats.collect"
ORDINAL = pa.field("ordinal", pa.int64())


class Staging:
    """Writes rows with Spark, beside everybody else, and has them published."""

    #: Whether it looks, between the write and the commit, at which rows were written (`Placed.require_same`).
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
        """It takes all."""

    def takes_unplaced(self, frame: DataFrame) -> bool:
        """Whether tasks can write a DataFrame's rows without Spark's writer, as far as it is known."""
        return self._tasks.is_able(frame)

    def turn(self, queue: QueueRecord, losses: int) -> AbstractContextManager[None]:
        """A context in which a send may decide and write: alone only when it has lost to others too often."""
        return self._transactions.turn("messages", queue.id, losses) if self._is_alone(losses) else nullcontext()

    def write(self, placed: Placed, transaction: tuple[str, int] | None, losses: int, clock: Clock) -> bool:
        """Files, and one commit that names them; False when another send under the transaction was first, or the files
        were given up meanwhile: then nothing was sent. Raises QueueDoesNotExist when the queue was deleted meanwhile.

        What was not published is removed, unless nobody can tell whether it was: that is left to upkeep.
        """
        folder, publisher, published = staging.new_folder(placed.at), None, False
        try:
            try:
                files = self.write_files(placed, folder)
            except StorageFailed:
                # Whoever gave the folder up has removed it, perhaps while tasks wrote there.
                if self._is_given_up(folder, clock):
                    return False
                raise
            if self._is_given_up(folder, clock):
                return False
            # It may have been deleted, or made anew, while Spark wrote.
            self._store.require_queue(placed.queue)
            if files:
                operation = secrets.token_hex(8)
                metadata = self._transactions.metadata(operation, "send", placed.queue.id, placed.at, [], losses)
                admit = partial(self._admit, placed.queue, files, clock)
                publisher = Publisher(self._transactions, self._engine, folder, files, admit)
                turn = partial(self._turn_to_publish, placed, self._is_alone(losses))
                published = publisher.publish(metadata, transaction, turn, self._transactions.attempts("send"))
            return published or not files
        finally:
            if published:
                settle(self._folders, folder)
            elif publisher is None or not publisher.undecided:
                with contextlib.suppress(StorageFailed):
                    self._folders.remove(folder)

    def _admit(self, queue: QueueRecord, files: list[StagedFile], clock: Clock) -> tuple[str, int] | None:
        """Raise OverLimit where the queue has no room for what is staged; else return the transaction that goes with
        it."""
        counted = self._store.quotas.next_send(queue)
        if counted is not None:
            rows = sum(json.loads(file.statistics)["numRecords"] for file in files)
            self._store.quotas.require_room(queue, rows, clock)
        return counted

    def write_files(self, placed: Placed, folder: str) -> list[StagedFile]:
        """Write the rows, by whichever path can; return the files."""
        tried = placed.unplaced is not None and self._tasks.is_able(placed.unplaced.rows)
        if placed.unplaced is not None and tried:
            files = self._tasks.stage(placed, placed.unplaced, folder)
            if files is not None:
                return files
        files = self._written_by_spark(placed, folder)
        self._require_written(folder, files)
        if tried:
            self._tasks.note_unable()
        return files

    def _written_by_spark(self, placed: Placed, folder: str) -> list[StagedFile]:
        """Write the rows with Spark's writer; return the files.

        Spark parts rows that are sorted by their segments anyway. To sort others for that would take longer than all
        the rest: those of a task fill one file after the other.
        """
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
        """Whether upkeep has given a folder up, or will. It says so before it removes anything: so where a file was
        missing for that, it has said so by now. Files of that age a vacuum may remove, too."""
        return end_of(self._engine, folder) is not None or staging.is_abandoned(folder, clock())

    def _require_written(self, folder: str, files: list[StagedFile]) -> None:
        """Raises StorageFailed where no file may mean that this process does not see what Spark wrote."""
        if not files and self._folders.read(f"{folder}/{log_file(0)}") is None:
            place = f"{self._engine.place('messages')}/{staging.FOLDER}/{folder}"
            raise StorageFailed(
                place, "what Spark wrote there is not seen here (does a path mean another place?)", "send"
            )

    def _turn_to_publish(self, placed: Placed, alone: bool, losses: int) -> AbstractContextManager[None]:
        if alone:
            return nullcontext()
        return self._transactions.turn("messages", placed.queue.id if placed.in_order else None, losses)

    def _is_alone(self, losses: int) -> bool:
        return losses >= self._most_losses


def staged_files(placed: Placed, folder: str, folders: Folders) -> list[StagedFile]:
    """The files of rows that were written to a folder, as the log there tells of them, by their places in `messages`.

    Raises InvalidParameterValue when it does not tell enough, StorageFailed.
    """
    # Without any row Delta commits nothing.
    log = folders.read(f"{folder}/{log_file(1)}") or ""
    added = [entry["add"] for entry in map(json.loads, filter(None, log.split("\n"))) if "add" in entry]
    return [_file(placed, f"{staging.FOLDER}/{folder}", add) for add in added]


def _file(placed: Placed, folder: str, add: Mapping[str, Any]) -> StagedFile:
    known = json.loads(add.get("stats") or "{}")
    lowest, highest = (
        {**add["partitionValues"], **known.get(values, {})}.get(ORDINAL.name) for values in ("minValues", "maxValues")
    )
    if lowest is None or "numRecords" not in known:
        raise InvalidParameterValue(
            STATISTICS, "false", "A send needs the statistics of its files", "Nothing was sent. Set it to true."
        )
    if lowest != highest:
        raise StorageFailed(folder, "Spark wrote messages of several segments into one file", "send")
    statistics = {name: _without_ordinal(values) for name, values in known.items()}
    path = f"{folder}/{add['path']}"
    return StagedFile(path, add["size"], placed.partition(int(lowest)), add["modificationTime"], json.dumps(statistics))


def _without_ordinal(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    return {name: value for name, value in values.items() if name != ORDINAL.name}
