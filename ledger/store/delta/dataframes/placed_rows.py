"""The segment, the place in the segment, and the column values of a send's rows.

An `ordinal` is here the number of a segment in the send, and a `seq` the number of a message in its segment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.errors import InvalidParameterValue, LedgerError
from ledger.rules import message_id as ids
from ledger.rules.attributes import is_fifo
from ledger.rules.message import STORED
from ledger.rules.message_attributes import SENDER
from ledger.settings import Settings
from ledger.store.delta.dataframes import columns
from ledger.store.delta.dataframes.bulk_rows import explain_row_failure, find_disk_failure
from ledger.store.delta.model.tables import MESSAGES, TABLES
from ledger.store.protocol import QueueRecord

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: monotonically_increasing_id has the row's number in its task below these bits, and the task's number above.
TASK_SHIFT = 33
TOO_MANY_SEGMENTS = "ledger: a send has too many segments"
#: The columns of a data file of `messages`: all but the partition columns.
IN_FILES = [field for field in MESSAGES if field.name not in TABLES["messages"].partitions]


@dataclass(frozen=True)
class Unplaced:
    """Rows of a send to a standard queue, before tasks check their bodies and place them.

    `rows` has the data files' columns that come from the user's rows and are not null in all of them. `bodies_at` says
    where these rows have bodies. `delay` is in milliseconds (None: see the column delay_seconds).
    """

    rows: DataFrame
    bodies_at: str
    delay: int | None


@dataclass(frozen=True)
class Placed:
    """Rows of a send that are ready to be written.

    `rows`: returns the rows with IN_FILES and `ordinal`, for Spark's writer.
    `key`: makes the segments' names, with their ordinals.
    `at`: the instant of the send, in milliseconds.
    `first_lane`: the lane of the first segment. Each further segment is in the next lane.
    `in_order`: the rows are for a FIFO queue: a task may have several segments, sorted by ordinal.
    `absent`: columns that are null in every row.
    `require_same`: raises, before the commit, if the written rows are not the counted rows.
    `unplaced`: the same rows for tasks that write files themselves (None: tasks cannot).
    """

    rows: Callable[[], DataFrame]
    queue: QueueRecord
    key: str
    at: int
    first_lane: int = 0
    in_order: bool = False
    absent: frozenset[str] = frozenset()
    require_same: Callable[[], None] | None = None
    unplaced: Unplaced | None = None

    @property
    def lanes(self) -> int:
        return int(self.queue.attributes["Lanes"])

    def partition(self, ordinal: int) -> dict[str, str]:
        lane = (ordinal + self.first_lane) % self.lanes
        return {"queue": self.queue.id, "lane": str(lane), "segment": ids.segment(self.key, ordinal)}

    def messages(self) -> DataFrame:
        """Twin of `partition`."""
        from pyspark.sql import functions as F

        ordinal = F.col("ordinal")
        return self.rows().select(
            F.lit(self.queue.id).alias("queue"),
            ((ordinal + F.lit(self.first_lane)) % F.lit(self.lanes)).cast("int").alias("lane"),
            columns.segment_of_send(self.key, ordinal).alias("segment"),
            *(field.name for field in IN_FILES),
        )


def absent_columns(queue: QueueRecord, frame_columns: Collection[str], sender: str | None) -> frozenset[str]:
    """Return the columns of IN_FILES that are null in every row of a DataFrame with these columns."""
    in_order = {"message_group_id", "message_deduplication_id", "sequence_number"}
    never_absent = in_order if is_fifo(queue.attributes) else set()
    # Spark checks only the columns that it writes, so a given column is written even if it must be null.
    not_given = {"sequence_number"} | {
        field.column for field in STORED if field.is_given and field.name not in frame_columns
    }
    return frozenset(not_given - never_absent - {"body"} - ({"message_attributes"} if sender is not None else set()))


def rows_of_a_file(settings: Settings) -> int:
    """Return the number of rows in a full file of a send.

    Only a task's last file (in a FIFO queue, a segment's) may have fewer. A full segment has whole files.
    """
    return min(settings.messages_per_file, settings.messages_per_segment)


def rows_of_a_segment(settings: Settings) -> int:
    in_file = rows_of_a_file(settings)
    return settings.messages_per_segment // in_file * in_file


def place_by_task(rows: DataFrame, tasks: int, settings: Settings) -> DataFrame:
    """Return the rows with `ordinal` and `seq`. Every task fills segments of its own."""
    from pyspark.sql import functions as F

    per_segment = rows_of_a_segment(settings)
    row = F.col("place").bitwiseAND(F.lit((1 << TASK_SHIFT) - 1))
    task = F.shiftrightunsigned(F.col("place"), TASK_SHIFT)
    ordinal = F.floor(row / F.lit(per_segment)).cast("bigint") * F.lit(tasks) + task
    # Beyond the bound, a segment's name could be that of another segment.
    too_many = F.raise_error(F.lit(TOO_MANY_SEGMENTS)).cast("bigint")
    return (
        rows.coalesce(tasks)
        .select("*", F.monotonically_increasing_id().alias("place"))
        .withColumn("ordinal", F.when(ordinal < ids.ORDINAL_BOUND, ordinal).otherwise(too_many))
        .withColumn("seq", row % F.lit(per_segment))
    )


def explain_send_failure(error: Exception, queue: QueueRecord, settings: Settings, place: str) -> LedgerError | None:
    """Return the error of a send to `place` for a known cause, or None."""
    if TOO_MANY_SEGMENTS in str(error):
        return make_segments_error(settings)
    return find_disk_failure(error, place) or explain_row_failure(error, queue.attributes)


def make_segments_error(settings: Settings) -> InvalidParameterValue:
    return InvalidParameterValue(
        "messages_per_segment",
        settings.messages_per_segment,
        f"The send would have more than {ids.ORDINAL_BOUND} segments",
        "Nothing was sent. Raise the setting, or repartition the DataFrame evenly.",
    )


def add_message_columns(
    placed: DataFrame, at: int, sender: str | None, sequence_number: Column | None = None
) -> DataFrame:
    """Return the rows of `Placed`, from rows of message_columns with `ordinal` and `seq`."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_type

    values = {
        "sent_at": F.expr(columns.instant_literal(at)),
        "available_at": F.expr(f"timestamp_millis({at} + delay_seconds * 1000)"),
    }
    if sequence_number is not None:
        values["sequence_number"] = sequence_number
    if sender is not None:
        values["message_attributes"] = _with_sender(placed, sender)
    names = {field.column: field.name for field in STORED}
    for field in IN_FILES:
        if field.name not in values:
            name = names.get(field.name, field.name)
            is_present = name in placed.columns
            values[field.name] = F.col(name) if is_present else F.lit(None).cast(from_arrow_type(field.type))
    return placed.select("ordinal", *(values[field.name].alias(field.name) for field in IN_FILES))


def prepare_for_tasks(rows: DataFrame, absent: Collection[str], sender: str | None, *, has_delays: bool) -> DataFrame:
    """Return the rows of `Unplaced`, from rows of message_columns with unchecked bodies."""
    from pyspark.sql import functions as F

    attributes = F.col("message_attributes") if sender is None else _with_sender(rows, sender)
    present_fields = [field for field in STORED if field.is_given and field.column not in absent]
    values = [
        (attributes if field.name == "message_attributes" else F.col(field.name)).alias(field.column)
        for field in present_fields
    ]
    return rows.select(*values, *(["delay_seconds"] if has_delays else []))


def _with_sender(rows: DataFrame, sender: str) -> Column:
    from pyspark.sql import functions as F

    given_attributes = F.coalesce(
        "message_attributes", F.expr("map()").cast(rows.schema["message_attributes"].dataType)
    )
    sender_attribute = F.struct(
        F.lit("String").alias("data_type"),
        F.lit(sender).alias("string_value"),
        F.lit(None).cast("binary").alias("binary_value"),
    )
    return F.map_concat(given_attributes, F.create_map(F.lit(SENDER), sender_attribute))
