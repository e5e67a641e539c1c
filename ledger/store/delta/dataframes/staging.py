"""Bulk sends where delta-rs commits: tasks stage files, and one commit publishes them.

With small bodies, Spark's writer takes two to three times the processor time: docs/explanation/cost-of-a-send.md.

Spark's writer stores instants in another form, which callers do not see. It writes the files for:

- a FIFO queue, whose rows are shuffled and numbered in order;
- a session of Spark Connect, which does not say what its executors are;
- a session whose Arrow batches may have more bytes than MOST_OF_A_BATCH;
- an object store that only the driver can open, by a role or a profile;
- an application whose executors lack the driver's Python, a package, memory, or access to the object store. Only a try
  shows this. Then Spark's writer writes this send, and if it succeeds, all later ones of the application.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledger.clock import Clock
from ledger.delta_log.data_files import LONG, ROW_GROUP
from ledger.delta_log.failures import message_of
from ledger.delta_log.protocol import StagedFile
from ledger.delta_log.spark_sessions import has_jvm, jvm_of, parallelism
from ledger.delta_log.storage import log_file
from ledger.errors import InvalidParameterValue, StorageFailed
from ledger.output_tables.row_errors import is_of_function
from ledger.rules import message_id as ids
from ledger.rules import staging
from ledger.rules.location import OBJECT_STORES, name_for_spark, recorded
from ledger.store.delta.commit.folders import Folders
from ledger.store.delta.dataframes import task_files
from ledger.store.delta.dataframes.bulk_rows import make_row_refusal
from ledger.store.delta.dataframes.column_casts import SHOWN_CHARACTERS
from ledger.store.delta.dataframes.placed_rows import (
    IN_FILES,
    Placed,
    Unplaced,
    explain_send_failure,
    make_segments_error,
    rows_of_a_file,
    rows_of_a_segment,
)
from ledger.store.delta.dataframes.task_files import (
    MANY_SEGMENTS,
    REFUSES,
    STORAGE_FAILS,
    Folder,
    Objects,
    SendJob,
    Written,
)
from ledger.store.delta.engine import Publishing
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.verbs.staged_sends import Publisher, find_end, open_staged_folders, remove_folder_log
from ledger.store.protocol import QueueRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.store.delta.engine import Publishing
    from ledger.store.delta.verbs.store import DeltaStore


log = logging.getLogger("ledger.verbs")

#: In bytes (Spark's default is 64 MB). Larger batches could take more memory than an executor has apart from its JVM.
MOST_OF_A_BATCH = 256 << 20
BATCHES, BYTES_OF_A_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch", "64m"
#: Errors of executors without the right Python or package, or without memory.
_UNABLE = re.compile(
    r"ModuleNotFoundError|ImportError|PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION|PYTHON_VERSION_MISMATCH"
    r"|Cannot run program|Python worker (exited unexpectedly|failed to connect)|MemoryError"
)
unable_applications = set[str]()


class ExecutorsUnable(Exception):
    """The executors cannot write files in Python."""


class TaskStaging:
    def __init__(self, store: DeltaStore, engine: Publishing, spark: SparkSession) -> None:
        self._store, self._engine, self._spark = store, engine, spark
        self._place = recorded(engine.place("messages"))

    def is_able(self, frame: DataFrame) -> bool:
        """Return whether tasks can write a DataFrame's rows, as far as this process knows."""
        if not (has_jvm(self._spark) and has_jvm(frame.sparkSession)) or self._application in unable_applications:
            return False
        bound = frame.sparkSession.conf.get(BATCHES, BYTES_OF_A_BATCH)
        if jvm_of(self._spark).org.apache.spark.network.util.JavaUtils.byteStringAsBytes(bound) > MOST_OF_A_BATCH:
            return False
        return self._place.is_local or self._objects("") is not None

    def stage(self, placed: Placed, unplaced: Unplaced, folder: str) -> list[StagedFile]:
        """Write rows into a new folder, and return the files.

        Raises ExecutorsUnable, the errors of a send about its rows, and StorageFailed.
        """
        below = f"{staging.FOLDER}/{folder}"
        self._engine.stage_folder("messages", below)
        place = self._folder(below)
        if place is None:
            raise ExecutorsUnable("only the driver can open the object store")
        tasks = parallelism(self._spark)
        job = self._job(placed, unplaced, place, tasks)
        try:
            rows = _add_separating_column(unplaced.rows).coalesce(tasks)
            written = rows.mapInArrow(_pickle_by_value(task_files).make_task_function(job), task_files.ANSWER)
            self._store.transactions.step("staging")
            answers = written.collect()
        except Exception as error:
            raise self._explain_failure(error, placed, unplaced, job) from None
        if placed.require_same is not None:
            placed.require_same()
        files = [Written(*values) for answer in answers for values in json.loads(answer.files)]
        self._require_visible(below, files)
        return [
            StagedFile(
                f"{below}/{file.name}", file.size, placed.partition(file.ordinal), file.modified_at, file.statistics
            )
            for file in files
        ]

    @property
    def _application(self) -> str:
        return str(self._spark.sparkContext.applicationId)

    def _job(self, placed: Placed, unplaced: Unplaced, place: Folder | Objects, tasks: int) -> SendJob:
        schema = pa.schema([field for field in IN_FILES if field.name not in placed.absent])
        settings = self._store.settings
        return SendJob(
            token=f"ledger {secrets.token_hex(16)}:",
            place=place,
            schema=schema,
            statistics=tuple(name for name in TABLES["messages"].statistics if name in schema.names),
            tasks=tasks,
            most_segments=ids.ORDINAL_BOUND,
            rows_per_segment=rows_of_a_segment(settings),
            rows_per_file=rows_of_a_file(settings),
            row_group_bytes=ROW_GROUP,
            long=LONG,
            most_bytes=int(placed.queue.attributes["MaximumMessageSize"]),
            most_shown=SHOWN_CHARACTERS + 1,
            sent_at=placed.at,
            delay=unplaced.delay,
        )

    def _folder(self, below: str) -> Folder | Objects | None:
        return Folder(f"{self._place.text}/{below}") if self._place.is_local else self._objects(below)

    def _objects(self, below: str) -> Objects | None:
        from ledger.delta_log.object_store import ObjectStore

        options = self._store.storage_options
        if options is None or self._place.scheme not in OBJECT_STORES:
            return None
        opened = ObjectStore(self._place.text, options).describe_opening()
        return None if opened is None else Objects(*opened, below)

    def _explain_failure(self, error: Exception, placed: Placed, unplaced: Unplaced, job: SendJob) -> Exception:
        """Return the error of a send that failed in its tasks: ExecutorsUnable if Spark's writer may succeed."""
        text, place = str(error), self._engine.place("messages")
        _, token, rest = text.partition(job.token)
        kind, *values = rest.split("|")
        if token and kind == REFUSES:
            field, bound, value = values[:3]
            return make_row_refusal(field, bound, unplaced.bodies_at, value, placed.queue.attributes)
        if token and kind == MANY_SEGMENTS:
            return make_segments_error(self._store.settings)
        if token and kind == STORAGE_FAILS and self._place.is_local:
            return StorageFailed(place, bytes.fromhex(values[0]).decode("utf-8", "replace"), "send")
        if not token and not (is_of_function(error) and _UNABLE.search(text)):
            return explain_send_failure(error, placed.queue, self._store.settings, place) or error
        return ExecutorsUnable(bytes.fromhex(values[0]).decode("utf-8", "replace") if token else message_of(error))

    def note_unable(self, why: ExecutorsUnable) -> None:
        """Let Spark's writer write the application's later sends.

        Call this only after Spark's writer has written the same rows. Otherwise a user's function may be the cause.
        """
        unable_applications.add(self._application)
        log.warning(
            "the executors of %s cannot write a send's files in Python, so Spark's slower writer does: %s",
            self._application,
            why,
        )

    def _require_visible(self, below: str, files: Iterable[Written]) -> None:
        """Raise StorageFailed if this process does not see a task's file: on another machine, a local path is another
        place."""
        if not self._place.is_local:
            return
        for written in files:
            file = Path(self._place.text, below, written.name)
            if not file.exists() or file.stat().st_size != written.size:
                bound = "this process does not see what a task wrote there (does a path mean another place?)"
                raise StorageFailed(str(file), bound, "send")


def _add_separating_column(rows: DataFrame) -> DataFrame:
    """Keep the user's `coalesce` and ours apart by a column that is not deterministic.

    Spark would merge the two, and perhaps change the rows' order.
    """
    from pyspark.sql import functions as F

    return rows.withColumn("ledger_task", F.spark_partition_id())


def _pickle_by_value(module: Any) -> Any:
    """Let Spark's pickles contain a module's code, not only names."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


#: If this setting is false, Delta's log has no statistics of files.
STATISTICS = "spark.databricks.delta.stats.collect"
ORDINAL = pa.field("ordinal", pa.int64())


class Staging:
    """Writes rows with Spark, beside other senders, and publishes the files."""

    #: See `Placed.require_same`.
    compares_rows = True

    def __init__(self, store: DeltaStore, engine: Publishing, spark: SparkSession) -> None:
        self._store, self._transactions, self._engine = store, store.transactions, engine
        folders = open_staged_folders(store)
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

        Return False, with nothing sent, if another send under the transaction id was first, or if the files are given
        up. Raises QueueDoesNotExist.
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

        Spark may have written for long, so the queue is read anew. Raises OverLimit and QueueDoesNotExist.
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
        files = self._write_by_spark(placed, folder)
        self._require_written(folder, files)
        if why_not is not None:
            self._tasks.note_unable(why_not)
        return files

    def _write_by_spark(self, placed: Placed, folder: str) -> list[StagedFile]:
        """Write with Spark's writer. It partitions only rows of a FIFO queue, which are sorted by segment."""
        partitions = [ORDINAL.name] if placed.in_order else []
        schema = pa.schema([ORDINAL, *(field for field in IN_FILES if field.name not in placed.absent)])
        place = self._engine.stage("messages", f"{staging.FOLDER}/{folder}", schema, partitions, placed.at)
        writer = (
            placed.rows().select(schema.names).write.format("delta").mode("append").option("optimizeWrite", "false")
        )
        self._transactions.step("staging")
        try:
            writer.option("maxRecordsPerFile", str(rows_of_a_file(self._store.settings))).save(name_for_spark(place))
        except Exception as error:
            raise explain_send_failure(error, placed.queue, self._store.settings, place) or error from None
        if placed.require_same is not None:
            placed.require_same()
        return list_staged_files(placed, folder, self._folders)

    def _is_given_up(self, folder: str, clock: Clock) -> bool:
        """Return whether a folder has ended (`find_end`), or is old enough for upkeep or a vacuum to remove its files.

        Upkeep records the end before it removes a file.
        """
        return find_end(self._engine, folder) is not None or staging.is_abandoned(folder, clock())

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


def list_staged_files(placed: Placed, folder: str, folders: Folders) -> list[StagedFile]:
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
