"""The contract of this Delta client: descriptions of tables, calls, results, and errors.

An *application* is an id under which a writer numbers its transactions (Delta's `txn`). A table is *altered* if it
differs from its spec.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from ledger.errors import LedgerDamaged

#: A table's property, in commits.
CHECKPOINT_INTERVAL = "delta.checkpointInterval"
#: Delta's defaults of the next two properties.
COMMIT_DAYS, FILE_DAYS = 30, 7
LOG_RETENTION, FILE_RETENTION = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
_INTERVAL = re.compile(r"(?:interval )?(\d+) (second|minute|hour|day|week)s?")
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}


class Kept(NamedTuple):
    """A table's retention, in seconds."""

    log_retention: int
    deleted_file_retention: int


def read_retention(properties: Mapping[str, str]) -> Kept:
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

    def shorten(self: Filter) -> Filter:
        """Return the filter, or a shorter one that covers it: engines cannot plan very long predicates."""

    def sql(self, alias: str = "") -> str:
        """Return the filter as a SQL predicate on columns of `alias`."""

    def covers(self, *values: Any) -> bool:
        """Return whether the filter names a whole partition, given by its columns' values or their texts."""

    def partitions(self, columns: Sequence[str]) -> list[Partition] | None:
        """Return the named partitions, if the filter names values for each of these columns; else None."""


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
    """A column of ordinals. No two rows of a partition may have the same ordinal.

    `join_files` repairs rows with the same ordinal. It sorts the files' rows by `column`, then by `earliest`, and keeps
    the first row of each ordinal. Rows equal to this row are dropped. Others get new ordinals, from 0, in the partition
    that `new_partition` returns for the old partition's values.
    """

    column: str
    earliest: str
    new_partition: Callable[[Mapping[str, Any]], dict[str, Any]]


class StagedFolders(NamedTuple):
    """Folders below a table. One commit publishes the files of a folder.

    Attributes:
        folder_of: Returns the folder that a path is in; None: the path is in none.
        application: Returns the application id of the folder's transaction in that commit.
        published: The version of that transaction.
    """

    folder_of: Callable[[str], str | None]
    application: Callable[[str], str]
    published: int


@dataclass(frozen=True)
class TableSpec:
    """The description of a table. `key` has the columns that identify a row in its partition.

    Raises ValueError for a column whose type does not fit its use.
    """

    name: str
    schema: pa.Schema
    partitions: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    #: Direct appends and joins (see `log`) write statistics of these columns. Empty: the engine makes each append.
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
    #: The message of LedgerDamaged if edits insert two rows with one key; None: raise ValueError.
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


CAUSED_BY = "Caused by: "
#: The column of an edit with its operation: insert, update or delete.
OPERATION = "operation"
#: The column of an edit with the revision that its row must still have; null: any.
EXPECTED_REVISION = "expected_revision"


class Conflict(Exception):
    """The table is not as the commit supposes, or other writers were first too often.

    The commit may exist nevertheless, if a storage's answer was lost, or the log was cut during the commit.
    """


class CommittedBefore(Conflict):
    """An earlier commit has the transaction id. Nothing was committed."""


class NotDirect(Conflict):
    """A statement of the engine has to make the commit. Nothing was committed. `reason`: see `statements`."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class LogReplaced(Conflict):
    """The table was made anew, or a backup took its place. The commit is not valid, but the new log may have it."""


@dataclass(frozen=True)
class Snapshot:
    version: int
    where: PartitionFilter
    rows: pa.Table
    #: The files that were read (`replay.Files`); None: the table is altered.
    loaded: Any = None
    #: When the read ended, in monotonic seconds.
    read_at: float = field(default_factory=time.monotonic)


class Seen(NamedTuple):
    """A version of a table that a caller has read, and when that read began, in monotonic seconds."""

    version: int
    at: float


def nothing_late() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Commit:
    """One commit of a table's history.

    `timestamp` is in milliseconds, by the writer's clock (through Spark: the time of the entry's file). `path` tells
    whether a MERGE was direct or a statement (see `statements`). For other commits it is empty.
    """

    version: int
    timestamp: int
    metadata: Mapping[str, Any]
    path: str = ""


@dataclass(frozen=True)
class StagedFile:
    """A data file, as Delta's log describes it. `path` begins at the table's root, and has no escapes.

    `modified_at` is in milliseconds. `statistics` is the log's text, unparsed, because decimals must not become floats.
    """

    path: str
    size: int
    partition: Mapping[str, str]
    modified_at: int
    statistics: str


class DeltaTables(Protocol):
    """Delta tables by name. Threads share the object.

    Methods that reach the storage may raise StorageFailed, LedgerDamaged, TableAltered and ForkedProcess. A method that
    commits may raise Conflict. `merge` and `add_rows` return the version that they committed. But if others commit at
    the same time, `configure` and `mark` may return a later version, and so may Spark's `add_rows` with several
    transactions.
    """

    name: str

    def place(self, table: str) -> str:
        """Return the location of a table."""

    def damage(self, table: str) -> LedgerDamaged | None:
        """Return the damage of a table; None: none was found. The call reads the table, so make it after a failure."""

    def refusal(self, table: str, *, appends: bool = False) -> tuple[str, str] | None:
        """Return why a table's newest version is not read or written, and what to do, in TableAltered's words; None:
        no reason is known.

        `appends`: the caller only reads and appends rows, so an append-only table will do.
        """

    # --- a table as a whole

    def exists(self, table: str) -> bool:
        """Return whether the table exists."""

    def create(self, table: str) -> None:
        """Make the table by its spec, if it does not exist. Of several calls at once, one makes the table."""

    def layout(self, table: str) -> Layout:
        """Return the table's description and properties."""

    def configure(self, table: str, properties: Mapping[str, str], metadata: Mapping[str, Any]) -> int:
        """Commit further properties.

        Raises Conflict if the table has all of them already, and perhaps if another writer commits meanwhile.
        """

    # --- reads

    def version(self, table: str) -> int:
        """Return the newest version."""

    def newest_versions(self, tables: Sequence[str]) -> dict[str, int]:
        """Return the newest versions of some tables, by name. Mostly cheaper than `version`."""

    def generation(self) -> int:
        """Return how many replacements of these tables were found since they were opened, from memory."""

    def load(self, table: str, where: PartitionFilter) -> Snapshot:
        """Return all rows of some partitions, as of the newest version.

        On an altered table, rows of other partitions may be among them (see `PartitionFilter.shorten`).
        """

    def rows(
        self,
        table: str,
        where: PartitionFilter,
        columns: Sequence[str],
        between: Mapping[str, tuple[int, int]] = ...,
        above: Mapping[str, int] = ...,
    ) -> pa.Table:
        """Return some columns of rows of some partitions.

        `between` has, by column, the lowest and the highest value of the rows. The rows have greater values than
        `above`, by column. Bounds of instants are milliseconds.
        """

    def file_facts(self, table: str, at_least: int | None = None) -> tuple[int, pa.Table]:
        """Return the newest version, and the facts of its data files (see TableSpec), from the log alone.

        With `at_least`, a version that the caller has just read, any version from this one on will do.
        """

    def files_above(self, table: str, value: str, column: str, bound: int) -> dict[str, int] | None:
        """Return the files that may hold rows above `bound` in a column: sizes in bytes, by path below the table's
        folder.

        Only partitions with `value` in their first column are looked at. A bound of instants is in milliseconds.
        Returns None if the client does not know the files' facts.
        """

    def greatest(self, table: str, column: str) -> int | None:
        """Return the largest value of a column of numbers; None: it has no value. Files without statistics are read."""

    def history(self, table: str, since: int) -> list[Commit]:
        """Return the commits with a version > `since` that the log still has, oldest first."""

    def transaction_version(self, table: str, application: str) -> int | None:
        """Return the version that an application committed last; None: it has committed none."""

    # --- commits

    def is_direct(self, table: str) -> bool:
        """Return whether direct commits of rows are known to be possible. The call makes no request."""

    def why_not_direct(self, table: str) -> tuple[str, str] | None:
        """Return why only statements commit rows to a table: a reason of `statements`, and a text for people.

        Returns None if direct commits do so, too.
        """

    def statement(self, table: str, where: PartitionFilter | None, source: str) -> str:
        """Return, as SQL, the statement that does the same as `merge`, for edits in a view `source`.

        Without partitions (None), the statement does the same as `add_rows`.
        """

    def merge(
        self,
        snapshot: Snapshot,
        table: str,
        where: PartitionFilter,
        edits: pa.Table,
        metadata: Mapping[str, Any],
        late: Callable[[], Mapping[str, Any]] = ...,
    ) -> int:
        """Commit one MERGE of `edits`: the table's columns, OPERATION and EXPECTED_REVISION. An edit is about one row.

        `late` returns further metadata. It is called before the commit, perhaps twice, and perhaps in another thread.

        Raises Conflict if a row is not as its edit supposes, or if another writer committed to the partitions of
        `where` since the snapshot. But a statement of Spark checks only the rows that edits name. If several decisions
        rely on other rows of a partition, all of them must edit one common row. Raises also what
        `rewrite.require_expected` raises.
        """

    def add_rows(
        self,
        table: str,
        rows: pa.Table,
        metadata: Mapping[str, Any],
        transactions: Sequence[tuple[str, int]] = (),
        still_valid: Callable[[Any], None] | None = None,
        beside: Sequence[tuple[str, int]] = (),
        seen: Seen | None = None,
    ) -> int:
        """Commit one append.

        Args:
            transactions: Each (application id, version) must be the first one of its application, or have the
                application's last version plus one. Otherwise Conflict is raised.
            still_valid: Gets the files (`replay.Files`) of the version that the commit follows, and raises if the
                commit may not follow it. If only a statement could make the commit, NotDirect is raised. None: the
                append relies on no row.
            beside: Transactions that are committed without a check.
            seen: A version that the caller has read. An append without transactions first tries to follow this version,
                or a newer one in memory.
        """

    def mark(self, table: str, metadata: Mapping[str, Any], *transactions: tuple[str, int]) -> int:
        """Commit transactions without rows. Only the first one is checked as in `add_rows`."""

    def delete(self, table: str, predicate: str, metadata: Mapping[str, Any], generation: int | None = None) -> None:
        """Remove the rows that a SQL predicate names: cheapest if it names whole partitions by literals.

        Raises LogReplaced if the delete was decided in a `generation` that is over.
        """

    # --- maintenance

    def join_files(self, table: str, where: PartitionFilter, *, growing: bool = False) -> bool:
        """Join the many small files of some partitions into few large ones. Return whether any were joined.

        Only rows that share an ordinal change (see Ordinals). `growing`: rows still arrive there, so join only smaller
        files. Through delta-rs, an altered table stays as it is.
        """

    def vacuum(self, table: str) -> None:
        """Remove data files that no version within the table's retention needs, and old entries of the log.

        Through delta-rs, checkpoints that nobody needs are removed, too.
        """

    def make_durable(self, table: str | None = None, version: int = -1) -> None:
        """Make a version of a table, and all before it, survive a power cut, on a local path with the setting `sync`.

        Without a table, do so for the newest version of each table that this process has seen.
        """


def require_generation(table: str, expected: int | None, current: int) -> None:
    if expected is not None and expected != current:
        raise LogReplaced(f"the log was replaced since this commit to {table} was decided")


def require_next(transaction: tuple[str, int] | None, committed: int | None) -> None:
    if transaction is not None and committed not in (None, transaction[1] - 1):
        raise Conflict(f"{transaction[0]} committed {committed} last, so it cannot commit {transaction[1]} now")


def require_unset(table: str, properties: Mapping[str, str], known: Mapping[str, str]) -> None:
    if properties.items() <= known.items():
        raise Conflict(f"{table} has these properties already")


def reason(error: BaseException) -> str:
    """Return a library's error as one line: the message and the root cause, each of at most 400 characters."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    message = f"{type(error).__name__}: {lines[0]}"
    if lines[1:] and lines[0].startswith("An error occurred while calling"):
        message = lines[1].removeprefix(": ")
    # An aborted Spark job names its reason only where Java lists the causes.
    causes = [line.strip().removeprefix(CAUSED_BY) for line in lines if line.strip().startswith(CAUSED_BY)]
    if causes and causes[-1] not in message:
        return f"{message[:400]} (because of {causes[-1][:400]})"
    return message[:400]
