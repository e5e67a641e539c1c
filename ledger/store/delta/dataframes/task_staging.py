"""Bulk sends whose tasks write the files in their Python workers.

With small bodies, Spark's writer takes two to three times the processor time: docs/explanation/cost-of-a-send.md.

Spark's writer writes the files in five cases. Callers see no difference, but the files store instants in another form:

- a FIFO queue, whose rows are shuffled and numbered in order;
- a session of Spark Connect, which does not say what its executors are;
- a session whose Arrow batches may have more bytes than MOST_OF_A_BATCH;
- an object store that only the driver can open, by a role or a profile;
- an application whose executors lack the driver's Python, a package, memory, or access to the object store. Only a try
  shows this. Then Spark's writer writes this send, and if it succeeds, all later ones of the application.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledger.delta_log.data_files import LONG, ROW_GROUP
from ledger.delta_log.failures import message_of
from ledger.delta_log.protocol import StagedFile
from ledger.delta_log.spark_sessions import has_jvm, jvm_of, parallelism
from ledger.errors import StorageFailed
from ledger.output_tables.row_errors import is_of_function
from ledger.rules import message_id as ids
from ledger.rules import staging
from ledger.rules.location import recorded
from ledger.rules.storage import OBJECT_STORES
from ledger.store.delta.dataframes import task_files
from ledger.store.delta.dataframes.bulk_rows import refused_row
from ledger.store.delta.dataframes.column_casts import SHOWN_CHARACTERS
from ledger.store.delta.dataframes.placed_rows import (
    IN_FILES,
    Placed,
    Unplaced,
    refused,
    rows_of_a_file,
    rows_of_a_segment,
    too_many_segments,
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
from ledger.store.delta.model.tables import TABLES

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
            rows = _with_column_between_coalesces(unplaced.rows).coalesce(tasks)
            written = rows.mapInArrow(_by_value(task_files).writing(job), task_files.ANSWER)
            self._store.transactions.step("staging")
            answers = written.collect()
        except Exception as error:
            raise self._failure(error, placed, unplaced, job) from None
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
        opened = ObjectStore(self._place.text, options).opened_with()
        return None if opened is None else Objects(*opened, below)

    def _failure(self, error: Exception, placed: Placed, unplaced: Unplaced, job: SendJob) -> Exception:
        """Return the error of a send that failed in its tasks: ExecutorsUnable if Spark's writer may succeed."""
        text, place = str(error), self._engine.place("messages")
        _, token, rest = text.partition(job.token)
        kind, *values = rest.split("|")
        if token and kind == REFUSES:
            field, bound, value = values[:3]
            return refused_row(field, bound, unplaced.bodies_at, value, placed.queue.attributes)
        if token and kind == MANY_SEGMENTS:
            return too_many_segments(self._store.settings)
        if token and kind == STORAGE_FAILS and self._place.is_local:
            return StorageFailed(place, bytes.fromhex(values[0]).decode("utf-8", "replace"), "send")
        if not token and not (is_of_function(error) and _UNABLE.search(text)):
            return refused(error, placed.queue, self._store.settings, place) or error
        return ExecutorsUnable(bytes.fromhex(values[0]).decode("utf-8", "replace") if token else message_of(error))

    def note_unable(self, why: ExecutorsUnable) -> None:
        """Let Spark's writer write the application's later sends.

        Call this only after it has written these rows. Otherwise a user's function may be the cause.
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


def _with_column_between_coalesces(rows: DataFrame) -> DataFrame:
    """Keep the user's `coalesce` and ours apart by a column that is not deterministic.

    Spark would merge the two, and perhaps change the rows' order.
    """
    from pyspark.sql import functions as F

    return rows.withColumn("ledger_task", F.spark_partition_id())


def _by_value(module: Any) -> Any:
    """Let Spark's pickles contain a module's code, not only names."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
