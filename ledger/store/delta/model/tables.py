"""The five tables of a ledger: columns, partitions, properties and formats; and the partitions that a call names.

A table's property FORMAT has its format number. The table's description has the lowest number that a release must know
to use the table. Both numbers come from `Table.format`. Release 0.1.0 writes format 1 of every table. A release that
changes the columns, partitions or properties of a table must raise the property's number. If earlier releases would
misread the new layout, the release must also raise the description's number. A release that raises only the property's
number must first give `Table` a field for each number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ledger.delta_log.protocol import (
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
from ledger.delta_log.statements import INSTANT as INSTANT
from ledger.delta_log.statements import literal
from ledger.errors import LedgerTooNew
from ledger.rules import message_id as ids
from ledger.rules import staging
from ledger.rules.location import S3
from ledger.rules.message import STORED, Kind
from ledger.rules.visibility import Record

#: The property with a table's format number.
FORMAT = "ledger.format"
#: The property of `queues` that names the only engine that may commit. Ledgers on S3 have it, because Spark's commits
#: are not safe on S3.
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
        # Older tables have another order of these columns.
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
        ("deleted_at", INSTANT),  # on the head row of lane 0: when the queue was last purged; only set if
        # purges of the queue have an interval
        ("origin_queue", pa.string()),  # the queue that messages were moved from
        ("moved_to", pa.string()),  # the queue that messages were moved to, on the rows of the queue that they left
        ("enqueued_at", INSTANT),  # when a move restarted the retention
        ("writing_to", pa.string()),  # the Delta table to which the receiver began to write its output,
        ("write_id", pa.string()),  # and its transaction, which decides whether the messages are done
        ("revision", pa.int64()),  # on the head row: counts the lane's commits
        (BITS, WORDS),  # null: the row is about all of the run, see `message_runs`
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

#: The names of two instants that are stored with a queue's attributes, in milliseconds.
EXPIRED_BEFORE, EXPIRY_NOTED_AT = "ExpiredBefore", "ExpiryNotedAt"
#: A table's description begins with these words. The format number follows.
NEEDED = "ledger format"
HEAD = ""
RECORD_COLUMNS = Record._fields
INSTANT_COLUMNS = tuple(name for name in RECORD_COLUMNS if name.endswith("_at"))


def instant_column(milliseconds: Iterable[int | None]) -> pa.Array:
    return pa.array([None if m is None else m * 1_000 for m in milliseconds], INSTANT)


@dataclass(frozen=True)
class Table(TableSpec):
    """One of the ledger's tables: see TableSpec."""

    #: The number of the property FORMAT and of the description: see the module's docstring.
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
    """Return the partition of a new segment. It takes messages of `partition` whose ordinal an earlier message has."""
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
    "Two messages of the table messages have the same place (segment and seq): under an earlier release a process and "
    "its fork both assigned it. Run upkeep (Ledger.upkeep or jobs/upkeep.py), which gives the later message a new "
    "place: nothing is lost"
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
            # A delete from `messages` names segments. A delete from `visibility` names a queue.
            independent_by=("queue", "lane", "segment"),
        ),
        Table(
            "visibility",
            VISIBILITY,
            ("queue", "lane"),
            ("segment", "first_seq"),
            statistics=("segment", "first_seq", "last_seq"),
            final_columns=("deleted_at", "moved_to"),
            # A purge writes its instant to the `deleted_at` of a head row, which still changes later.
            still_changing={"segment": HEAD},
            independent_by=("queue",),
            duplicate_error=TWO_MESSAGES,
        ),
        Table("receipts", RECEIPTS, ("queue", "day"), independent_by=("queue",)),
        Table("tasks", TASKS, (), ("task",)),
    )
}


def require_readable(table: Table, layout: Layout) -> None:
    """Raise LedgerTooNew if a table's description asks for a format that this release does not know."""
    described = layout.description or ""
    needed = described.removeprefix(f"{NEEDED} ")
    # A later release may write a format that is no number.
    if needed != described and not (needed.isdecimal() and int(needed) <= table.format):
        raise LedgerTooNew(
            f"The table {table.name} needs a release that knows format {needed}, but this release knows formats up to "
            f"{table.format}. Upgrade the package, or open the ledger with the release that wrote the table"
        )


#: The maximum number of `parts` and segments in a predicate, and of its `alternatives`.
MOST_NAMED, MOST_ALTERNATIVES = 1_000, 20


@dataclass(frozen=True)
class Where:
    """Partitions, named by literals.

    Only such a predicate limits which commits of other writers Delta takes for conflicts.
    """

    queue: str | None = None
    lanes: tuple[int, ...] | None = None
    segments: tuple[str, ...] | None = None
    #: Further partitions, such as those of the queue to which messages move.
    also: Where | None = None

    def parts(self) -> list[Where]:
        parts: list[Where] = []
        part: Where | None = self
        while part is not None:
            parts.append(replace(part, also=None))
            part = part.also
        return parts

    def alternatives(self) -> list[dict[str, tuple[Any, ...]]]:
        """See PartitionFilter. Parts with equal lanes and segments become one alternative, with all their queues."""
        queues: dict[Any, list[str | None]] = {}
        for part in self.parts():
            queues.setdefault((part.lanes, part.segments), []).append(part.queue)
        alternatives = []
        for (lanes, segments), named in queues.items():
            values_by_column = {
                "queue": None if None in named else sort_distinct(named),
                "lane": lanes,
                "segment": segments,
            }
            alternatives.append({column: values for column, values in values_by_column.items() if values is not None})
        return alternatives

    def shorten(self) -> Where:
        """Return this filter, or a wider one: the planning of a long predicate may overflow the stack."""
        parts, alternatives = self.parts(), self.alternatives()
        named = sum(len(alternative.get("segment", ())) for alternative in alternatives)
        if len(alternatives) <= MOST_ALTERNATIVES and len(parts) + named <= MOST_NAMED:
            return self
        all_lanes = [part.lanes for part in parts if part.lanes is not None]
        lanes = (
            sort_distinct(lane for part_lanes in all_lanes for lane in part_lanes)
            if len(all_lanes) == len(parts)
            else None
        )
        if len(parts) > MOST_NAMED:
            return Where(None, lanes)
        wide = Where(parts[0].queue, lanes)
        for part in parts[1:]:
            wide = Where(part.queue, lanes, also=wide)
        return wide

    def sql(self, alias: str = "") -> str:
        prefix = f"{alias}." if alias else ""
        conditions = []
        for alternative in self.alternatives():
            parts = [f"{prefix}{column} {_match_values(column, values)}" for column, values in alternative.items()]
            conditions.append(" AND ".join(parts) or "true")
        return (
            conditions[0] if len(conditions) == 1 else f"({' OR '.join(f'({condition})' for condition in conditions)})"
        )

    def partitions(self, columns: Sequence[str]) -> list[tuple[str | None, ...]] | None:
        """See PartitionFilter."""
        partitions: dict[tuple[str | None, ...], None] = {}
        part: Where | None = self
        while part is not None:
            if part.queue is None or part.lanes is None:
                return None
            if "segment" not in columns:
                partitions.update(dict.fromkeys((part.queue, str(lane)) for lane in part.lanes))
            elif part.segments is None:
                return None
            else:
                partitions.update(
                    dict.fromkeys((part.queue, str(lane), segment) for lane in part.lanes for segment in part.segments)
                )
            part = part.also
        return list(partitions)

    def covers(self, queue: str | None = None, lane: int | str | None = None, segment: str | None = None) -> bool:
        """See PartitionFilter. This runs for every partition of a ledger, so it makes no lists."""
        if isinstance(lane, str):
            # `receipts` has days in place of lanes, and no filter names days.
            lane = int(lane) if lane.isdecimal() else None
        part: Where | None = self
        while part is not None:
            in_lane = part.queue in (None, queue) and (part.lanes is None or lane in part.lanes)
            if in_lane and (part.segments is None or segment in part.segments):
                return True
            part = part.also
        return False


def _match_values(column: str, values: Sequence[Any]) -> str:
    literals = [literal(value) if isinstance(value, str) else str(value) for value in values]
    return f"= {literals[0]}" if len(literals) == 1 and column == "queue" else f"IN ({', '.join(literals)})"


def sort_distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(set(values)))
