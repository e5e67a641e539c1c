"""Where the rows of a send go: which segment and ordinal each has, and what stands in its columns."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.errors import InvalidParameterValue, LedgerError
from ledger.rules import message_id as ids
from ledger.rules.attributes import is_fifo
from ledger.rules.message_attributes import SENDER
from ledger.rules.message_fields import STORED
from ledger.settings import Settings
from ledger.store.delta.dataframes import columns
from ledger.store.delta.dataframes.bulk_rows import full_disk, refusal
from ledger.store.delta.model.tables import MESSAGES, TABLES
from ledger.store.protocol import QueueRecord

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: monotonically_increasing_id counts the rows of a task from 0 in its lower bits, the task in those above.
TASK_SHIFT = 33
TOO_MANY_SEGMENTS = "ledger: a send has too many segments"
#: The columns of rows that are ready to be written, behind `ordinal`: what a file itself holds.
IN_FILES = [field for field in MESSAGES if field.name not in TABLES["messages"].partitions]


@dataclass(frozen=True)
class Unplaced:
    """Rows of a send to a standard queue, before tasks check their bodies and place them: the columns of files that the
    user's rows decide, without those that are null in every row.

    `bodies_at`: where the user's rows have their bodies, in words. `delay`: of all of them, in milliseconds; None: they
    have a column delay_seconds.
    """

    rows: DataFrame
    bodies_at: str
    delay: int | None


@dataclass(frozen=True)
class Placed:
    """Rows that are ready to be written, at the instant `at`.

    `rows` returns them, with `ordinal`, that of their segment in the send, and the columns IN_FILES. It plans them only
    where Spark's writer is to write them. The send's `key` names its segments, which lie in one lane after the other
    from `first_lane` on.

    `in_order`: sorted by ordinal within a task, which then has several; else each task fills one after the other.
    `absent`: columns that are null in every row. Files need not have them: to write them takes time for each row.
    `require_same`: is called behind the write and before the commit; raises where other rows were written than known.
    `unplaced`: the same rows for tasks that write files themselves (`task_staging`); None: only Spark can write them.
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
        """How many lanes there are."""
        return int(self.queue.attributes["Lanes"])

    def partition(self, ordinal: int) -> dict[str, str]:
        """The partition of `messages` that a segment lies in, as Delta's log has it."""
        lane = (ordinal + self.first_lane) % self.lanes
        return {"queue": self.queue.id, "lane": str(lane), "segment": ids.segment(self.key, ordinal)}

    def messages(self) -> DataFrame:
        """The rows with the columns of `messages`; twin of `partition`."""
        from pyspark.sql import functions as F

        ordinal = F.col("ordinal")
        return self.rows().select(
            F.lit(self.queue.id).alias("queue"),
            ((ordinal + F.lit(self.first_lane)) % F.lit(self.lanes)).cast("int").alias("lane"),
            columns.segment_of_send(self.key, ordinal).alias("segment"),
            *(field.name for field in IN_FILES),
        )


def absent_columns(queue: QueueRecord, given: Collection[str], sender: str | None) -> frozenset[str]:
    """The columns of IN_FILES that are null in every row of a DataFrame that is sent, which has the columns given."""
    in_order = {"message_group_id", "message_deduplication_id", "sequence_number"}
    never = in_order if is_fifo(queue.attributes) else set()
    # What is given is written even where it must be null: what Spark need not write it does not look at either.
    unsaid = {"sequence_number"} | {field.column for field in STORED if field.is_given and field.name not in given}
    return frozenset(unsaid - never - {"body"} - ({"message_attributes"} if sender is not None else set()))


def rows_of_a_file(settings: Settings) -> int:
    """Every file of a send but a task's last has so many rows, and every segment so many files: no file is of two."""
    return min(settings.messages_per_file, settings.messages_per_segment)


def rows_of_a_segment(settings: Settings) -> int:
    """See rows_of_a_file."""
    in_file = rows_of_a_file(settings)
    return settings.messages_per_segment // in_file * in_file


def by_task(rows: DataFrame, tasks: int, settings: Settings) -> DataFrame:
    """The rows with `ordinal` and `seq`: every task fills segments of its own."""
    from pyspark.sql import functions as F

    per_segment = rows_of_a_segment(settings)
    row = F.col("place").bitwiseAND(F.lit((1 << TASK_SHIFT) - 1))
    task = F.shiftrightunsigned(F.col("place"), TASK_SHIFT)
    ordinal = F.floor(row / F.lit(per_segment)).cast("bigint") * F.lit(tasks) + task
    # Beyond the bound names would run into those of other sends.
    too_many = F.raise_error(F.lit(TOO_MANY_SEGMENTS)).cast("bigint")
    return (
        rows.coalesce(tasks)
        .select("*", F.monotonically_increasing_id().alias("place"))
        .withColumn("ordinal", F.when(ordinal < ids.ORDINAL_BOUND, ordinal).otherwise(too_many))
        .withColumn("seq", row % F.lit(per_segment))
    )


def refused(error: Exception, queue: QueueRecord, settings: Settings, place: str) -> LedgerError | None:
    """What a failed send was refused for, or that the disk of its rows is full; None when it failed otherwise. `place`:
    where it wrote them."""
    if TOO_MANY_SEGMENTS in str(error):
        return too_many_segments(settings)
    return full_disk(error, place) or refusal(error, queue.attributes)


def too_many_segments(settings: Settings) -> InvalidParameterValue:
    """Return the error about a send with more segments than names can number."""
    return InvalidParameterValue(
        "messages_per_segment",
        settings.messages_per_segment,
        f"The send would have more than {ids.ORDINAL_BOUND} segments",
        "Nothing was sent. Raise the setting, or repartition the DataFrame evenly.",
    )


def with_columns(placed: DataFrame, at: int, sender: str | None, sequence_number: Column | None = None) -> DataFrame:
    """Rows that have `ordinal`, `seq` and the columns of bulk_rows.message_columns, as `Placed` wants them."""
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
            there = name in placed.columns
            values[field.name] = F.col(name) if there else F.lit(None).cast(from_arrow_type(field.type))
    return placed.select("ordinal", *(values[field.name].alias(field.name) for field in IN_FILES))


def for_tasks(rows: DataFrame, absent: Collection[str], sender: str | None, *, has_delays: bool) -> DataFrame:
    """Return the rows of bulk_rows.message_columns, bodies unchecked, as `Unplaced` wants them. `has_delays`: they do
    not all have the queue's delay."""
    from pyspark.sql import functions as F

    attributes = F.col("message_attributes") if sender is None else _with_sender(rows, sender)
    there = [field for field in STORED if field.is_given and field.column not in absent]
    columns = [(attributes if one.name == "message_attributes" else F.col(one.name)).alias(one.column) for one in there]
    return rows.select(*columns, *(["delay_seconds"] if has_delays else []))


def _with_sender(rows: DataFrame, sender: str) -> Column:
    """The column of attributes, and the sender among them."""
    from pyspark.sql import functions as F

    own = F.coalesce("message_attributes", F.expr("map()").cast(rows.schema["message_attributes"].dataType))
    fields = F.struct(
        F.lit("String").alias("data_type"),
        F.lit(sender).alias("string_value"),
        F.lit(None).cast("binary").alias("binary_value"),
    )
    return F.map_concat(own, F.create_map(F.lit(SENDER), fields))
