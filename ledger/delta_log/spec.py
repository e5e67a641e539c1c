"""Descriptions of a table for the client: TableSpec and its parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

#: In commits.
CHECKPOINT_INTERVAL = "delta.checkpointInterval"
#: Delta's defaults.
COMMIT_DAYS, FILE_DAYS = 30, 7
LOG_RETENTION, FILE_RETENTION = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
_INTERVAL = re.compile(r"(?:interval )?(\d+) (second|minute|hour|day|week)s?")
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}


class Kept(NamedTuple):
    """In seconds."""

    log_retention: int
    deleted_file_retention: int


def kept_by(properties: Mapping[str, str]) -> Kept:
    """Return the retention in a table's properties. Delta's defaults replace what is missing or not understood."""
    log, files = interval_seconds(properties.get(LOG_RETENTION)), interval_seconds(properties.get(FILE_RETENTION))
    day = _SECONDS["day"]
    return Kept(COMMIT_DAYS * day if log is None else log, FILE_DAYS * day if files is None else files)


def interval_seconds(interval: str | None) -> int | None:
    """Return the seconds of an interval in Delta's properties; None: it is not understood."""
    matched = _INTERVAL.fullmatch(interval or "")
    return None if matched is None else int(matched[1]) * _SECONDS[matched[2]]


PARTITION_TYPES = (pa.types.is_string, pa.types.is_integer, pa.types.is_date, pa.types.is_boolean)
STATISTICS_TYPES = (pa.types.is_string, pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp)
FACT_TYPES = (pa.types.is_string, pa.types.is_integer)
#: The values of a partition's columns, as text.
Partition = tuple[str | None, ...]
Filter = TypeVar("Filter", bound="PartitionFilter")


class Layout(NamedTuple):
    description: str | None
    properties: Mapping[str, str]


class PartitionFilter(Protocol):
    def alternatives(self) -> Sequence[Mapping[str, Sequence[Any]]]:
        """Return the values that the filter names, by partition column, as alternatives.

        A partition is named if it has one of the values in each column of one alternative.
        """

    def bounded(self: Filter) -> Filter:
        """Return the filter, or a shorter one that covers it: engines cannot plan very long predicates."""

    def sql(self, alias: str = "") -> str:
        """Return the filter as a SQL predicate on columns of `alias`."""

    def covers(self, *values: Any) -> bool:
        """Return whether the filter names a whole partition, given by its columns' values or their texts."""

    def partitions(self, columns: Sequence[str]) -> list[Partition] | None:
        """Return the partitions one by one, if the filter names values for each of these columns; else None."""


class Fact(NamedTuple):
    """A fact that the log has about each data file. Facts about instants are in milliseconds.

    `source` is "partition" (the partition's `column`), "min" or "max" (of a `column`), "rows" (their number), or "size"
    (in bytes).
    """

    name: str
    type: pa.DataType
    source: str
    column: str = ""
    is_instant: bool = False


class Ordinals(NamedTuple):
    """A column of ordinals. No two rows of a partition may share one.

    A join of files repairs rows that do. It sorts the files' rows by `column`, then by `earliest`, and keeps the first
    row of each ordinal. Rows equal to it are dropped. Others get new ordinals, from 0, in the partition that
    `new_partition` returns for the old one's values.
    """

    column: str
    earliest: str
    new_partition: Callable[[Mapping[str, Any]], dict[str, Any]]


class StagedFolders(NamedTuple):
    """Folders below a table. One commit publishes the files of a folder.

    Attributes:
        folder_of: Returns the folder that a path is in; None: it is in no such folder.
        application: Returns the application id of the folder's transaction in that commit.
        published: The version of that transaction.
    """

    folder_of: Callable[[str], str | None]
    application: Callable[[str], str]
    published: int


@dataclass(frozen=True)
class TableSpec:
    """The description of a table. `key` has the columns that identify a row in its partition.

    Raises ValueError for columns that the client cannot write as Delta's protocol has them.
    """

    name: str
    schema: pa.Schema
    partitions: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    #: The columns of the statistics of direct appends and joins. Empty: statements make all appends.
    statistics: tuple[str, ...] = ()
    #: A row that has a value in one of these columns is settled: see `rewrite`.
    final_columns: tuple[str, ...] = ()
    #: A row with one of these values, by column, is never settled.
    still_changing: Mapping[str, Any] | None = None
    facts: tuple[Fact, ...] = ()
    #: None: the table's files are never joined.
    ordinals: Ordinals | None = None
    #: The folders whose files `publish` commits.
    staged: StagedFolders | None = None
    #: Partition columns. On a local path, a delete by delta-rs does not conflict with commits to partitions with other
    #: values in these columns (unless somebody altered the table).
    independent_by: tuple[str, ...] = ()
    #: The error LedgerDamaged for edits that insert two rows with one key; None: raise ValueError.
    duplicate_error: str | None = None

    def __post_init__(self) -> None:
        for use, columns, types in (
            ("partitioned by", self.partitions, PARTITION_TYPES),
            ("asked for statistics of", self.statistics, STATISTICS_TYPES),
        ):
            for name in columns:
                kind = self.schema.field(name).type
                if not any(is_one(kind) for is_one in types):
                    raise ValueError(f"{self.name} cannot be {use} {name}, which is {kind}: leave the column out")
        for fact in self.facts:
            if not any(is_one(fact.type) for is_one in FACT_TYPES):
                raise ValueError(f"the fact {fact.name} of {self.name} cannot be {fact.type}: take a text or integers")
        last = self.partitions[-1:]
        if self.ordinals is not None and not any(pa.types.is_string(self.schema.field(name).type) for name in last):
            raise ValueError(f"{self.name} has ordinals: the last column that it is partitioned by must be a text")

    @cached_property
    def nothing(self) -> pa.Table:
        return self.schema.empty_table()

    def require_partition(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if value is None or value == "":
                what = "null" if value is None else "an empty text, which Delta reads as null"
                raise ValueError(f"a row of {self.name} has {what} in {name}, which the table is partitioned by")

    @property
    def properties(self) -> Mapping[str, str]:
        return {CHECKPOINT_INTERVAL: "50"}

    def layout(self, scheme: str) -> Layout:
        return Layout(None, self.properties)
