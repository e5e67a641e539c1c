"""The five tables of a ledger: their columns, partitions, properties, and specs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ledger.delta_log.spec import (
    COMMIT_DAYS,
    FILE_DAYS,
    FILE_RETENTION,
    LOG_RETENTION,
    Fact,
    Layout,
    Ordinals,
    StagedFolders,
    TableSpec,
)
from ledger.delta_log.values import INSTANT as INSTANT
from ledger.rules import message_id as ids
from ledger.rules import staging
from ledger.rules.message_fields import STORED, Kind
from ledger.rules.state import Record
from ledger.rules.storage import S3

#: The property with a table's format, see `model/formats.py`.
FORMAT = "ledger.format"
#: The property of `queues` that names the engine which commits. Ledgers on S3 have it, because Spark's commits are not
#: safe there.
COMMITS = "ledger.commits"

QUEUES = pa.schema(
    [
        ("queue", pa.string()),  # the id: the name, -, and 8 random hexadecimal digits
        ("name", pa.string()),
        ("attributes", pa.map_(pa.string(), pa.string())),
        ("tags", pa.map_(pa.string(), pa.string())),
        ("created_at", INSTANT),
        ("modified_at", INSTANT),
        ("revision", pa.int64()),  # a change commits only on the revision that it read
    ]
)

MESSAGE_ATTRIBUTE = pa.struct(
    [
        ("data_type", pa.string()),
        ("string_value", pa.string()),
        ("binary_value", pa.binary()),
    ]
)
TYPES = {
    Kind.TEXT: pa.string(),
    Kind.NUMBER: pa.int64(),
    Kind.INSTANT: INSTANT,
    Kind.ATTRIBUTES: pa.map_(pa.string(), MESSAGE_ATTRIBUTE),
}
MESSAGES = pa.schema(
    [
        ("queue", pa.string()),
        ("lane", pa.int32()),
        ("segment", pa.string()),
        ("seq", pa.int64()),  # the ordinal in the segment
        # Older tables have them in another order.
        *((field.column, TYPES[field.kind]) for field in STORED),
    ]
)

BITS, WORDS = "bits", pa.list_(pa.field("element", pa.int64()))
VISIBILITY = pa.schema(
    [
        ("queue", pa.string()),
        ("lane", pa.int32()),
        ("segment", pa.string()),  # '' on the lane's head row
        ("first_seq", pa.int64()),  # a row is about a run of neighbouring messages, both ends included,
        ("last_seq", pa.int64()),  # or about those of its messages that have a bit in `bits`;
        # no two rows are about one message; a message without a row was never received
        ("receipt_id", pa.string()),
        ("attempt_id", pa.string()),
        ("receive_count", pa.int32()),
        ("first_received_at", INSTANT),
        ("received_at", INSTANT),
        ("visible_at", INSTANT),
        ("released_at", INSTANT),
        ("deleted_at", INSTANT),  # on the head row of lane 0: when the queue was last purged, if recorded
        ("origin_queue", pa.string()),  # the queue that messages were moved from
        ("moved_to", pa.string()),  # the queue that messages were moved to, on the rows of the queue that they left
        ("enqueued_at", INSTANT),  # when a move restarted the retention
        ("writing_to", pa.string()),  # the Delta table to which the receiver began to write its output,
        ("write_id", pa.string()),  # and its transaction, which decides whether the messages are done
        ("revision", pa.int64()),  # on the head row: counts the lane's commits
        (BITS, WORDS),  # null: the row is about all of the run, see `run_sets`
    ]
)

RECEIPTS = pa.schema(
    [
        ("queue", pa.string()),
        ("day", pa.date32()),
        ("version", pa.int64()),  # of `visibility`: the commit of the event, and a claim's fencing token
        ("at", INSTANT),
        ("event", pa.string()),  # granted, granted again, extended, released, postponed, parked, deleted, expired,
        # locked, purged, moved, arrived, restored, writing, clock repaired
        ("receipt_id", pa.string()),
        ("attempt_id", pa.string()),
        ("messages", pa.int64()),
        ("visible_at", INSTANT),
        ("owner", pa.string()),
        ("reason", pa.string()),  # the caller's
    ]
)

TASKS = pa.schema(
    [
        ("task", pa.string()),  # the id of a message move task
        ("source", pa.string()),  # the id of the dead-letter queue
        ("destination", pa.string()),  # the name of a queue; null: where each message came from
        ("rate", pa.int64()),  # messages a second; null: all at once
        ("started_at", INSTANT),
        ("updated_at", INSTANT),
        ("to_move", pa.int64()),
        ("moved", pa.int64()),
        ("status", pa.string()),  # RUNNING, COMPLETED, CANCELLED, FAILED
        ("failure", pa.string()),
        ("revision", pa.int64()),  # a change commits only on the revision that it read
    ]
)

#: Stored with a queue's attributes, in milliseconds.
EXPIRED_BEFORE, EXPIRY_NOTED_AT = "ExpiredBefore", "ExpiryNotedAt"
#: Begins a table's description. The format that a release must know follows.
NEEDED = "ledger format"
HEAD = ""
RECORD_COLUMNS = Record._fields
INSTANT_COLUMNS = tuple(name for name in RECORD_COLUMNS if name.endswith("_at"))


def instant_column(milliseconds: Iterable[int | None]) -> pa.Array:
    return pa.array([None if m is None else m * 1_000 for m in milliseconds], INSTANT)


@dataclass(frozen=True)
class Table(TableSpec):
    """One of the ledger's tables: see TableSpec."""

    #: See `model/formats.py`.
    format: int = 1

    @property
    def description(self) -> str:
        return f"{NEEDED} {self.format}"

    @property
    def properties(self) -> dict[str, str]:
        return {
            "delta.checkpointInterval": "50",
            "delta.enableDeletionVectors": "false",
            LOG_RETENTION: f"interval {COMMIT_DAYS} days",
            FILE_RETENTION: f"interval {FILE_DAYS} days",
            **(
                {"delta.dataSkippingStatsColumns": ",".join(self.statistics)}
                if self.statistics
                else {"delta.dataSkippingNumIndexedCols": "32"}
            ),
            FORMAT: str(self.format),
        }

    def layout(self, scheme: str) -> Layout:
        """See TableSpec. On S3 the layout of `queues` records that only delta-rs commits to the ledger."""
        records_engine = self.name == "queues" and scheme in S3
        return Layout(self.description, {**self.properties, **({COMMITS: "delta-rs"} if records_engine else {})})


def _new_segment(partition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the partition of a new segment, for messages whose ordinals `partition` has twice."""
    return {**partition, "segment": ids.segment(ids.new_send_key(), 0)}


#: The facts that the log shows of each file of `messages`. Instants are in milliseconds.
FACTS = (
    Fact("queue", pa.string(), "partition", "queue"),
    Fact("lane", pa.int32(), "partition", "lane"),
    Fact("segment", pa.string(), "partition", "segment"),
    Fact("messages", pa.int64(), "rows"),
    Fact("first_seq", pa.int64(), "min", "seq"),
    Fact("last_seq", pa.int64(), "max", "seq"),
    Fact("first_sent_at", pa.int64(), "min", "sent_at", is_instant=True),
    Fact("last_sent_at", pa.int64(), "max", "sent_at", is_instant=True),
    Fact("first_available_at", pa.int64(), "min", "available_at", is_instant=True),
    Fact("last_available_at", pa.int64(), "max", "available_at", is_instant=True),
    Fact("last_number", pa.int64(), "max", "sequence_number"),
    Fact("bytes", pa.int64(), "size"),
)
SEGMENT_FILES = pa.schema([(fact.name, fact.type) for fact in FACTS])
TWO_MESSAGES = (
    "Two messages of the table messages have one place, because two processes gave it out (a fork under an earlier "
    "release). Run upkeep (Ledger.upkeep or jobs/upkeep.py), which gives the later message a place of its own: "
    "nothing is lost"
)


TABLES = {
    table.name: table
    for table in (
        Table("queues", QUEUES, (), ("name",)),
        Table(
            "messages",
            MESSAGES,
            ("queue", "lane", "segment"),
            statistics=("seq", *(field.column for field in STORED if field.has_statistics)),
            facts=FACTS,
            ordinals=Ordinals("seq", "sent_at", _new_segment),
            staged=StagedFolders(staging.folder_of, staging.application, staging.PUBLISHED),
            # A delete from `messages` removes whole segments' messages, one from `visibility` a queue or surplus head
            # rows.
            independent_by=("queue", "lane", "segment"),
        ),
        Table(
            "visibility",
            VISIBILITY,
            ("queue", "lane"),
            ("segment", "first_seq"),
            statistics=("segment", "first_seq", "last_seq"),
            final_columns=("deleted_at", "moved_to"),
            # A purge writes its time to the `deleted_at` of a head row, which still changes.
            still_changing={"segment": HEAD},
            independent_by=("queue",),
            duplicate_error=TWO_MESSAGES,
        ),
        Table("receipts", RECEIPTS, ("queue", "day"), independent_by=("queue",)),
        Table("tasks", TASKS, (), ("task",)),
    )
}
