"""The contract of the client: its calls, their results, and its errors.

An *application* is an id under which a writer numbers its transactions (Delta's `txn`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ledger.delta_log.spec import Layout, PartitionFilter
from ledger.errors import LedgerDamaged

#: The beginning of a cause in Java's error messages.
CAUSED_BY = "Caused by: "
#: The column of an edit with its operation: insert, update or delete.
OPERATION = "operation"
#: The column of an edit with the revision that its row must still have; null: any.
EXPECTED_REVISION = "expected_revision"


class Conflict(Exception):
    """The table is not as the commit supposes, or other writers were first too often.

    Mostly nothing was committed. But the commit may exist, for example if a storage's answer was lost, or if the log
    was cut during the commit.
    """


class NotDirect(Conflict):
    """A statement of the engine has to make the commit. Nothing was committed. `reason`: see `paths`."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class LogReplaced(Conflict):
    """The table's log is no longer the log that was read. The commit is not valid.

    The table was made anew, or a backup was put in its place. If the table was replaced during the commit, the new log
    may have the commit.
    """


@dataclass(frozen=True)
class Snapshot:
    """The rows of a table's partitions `where` as of one version."""

    version: int
    where: PartitionFilter
    rows: pa.Table
    #: The files that were read (`replay.Files`); None: the table is altered (`replay.Altered`).
    loaded: Any = None
    #: When the read ended, in monotonic seconds.
    read_at: float = field(default_factory=time.monotonic)


class Seen(NamedTuple):
    """A version of a table that a caller has read, and when that read began, in monotonic seconds."""

    version: int
    at: float


def nothing_late() -> Mapping[str, Any]:
    """Return no further metadata."""
    return {}


@dataclass(frozen=True)
class Commit:
    """One commit of a table's history.

    `timestamp` is by the writer's clock (through Spark: the time of the entry's file), in milliseconds. `path` says how
    a MERGE was made: directly or by a statement (see `paths`). It is empty for other commits.
    """

    version: int
    timestamp: int
    metadata: Mapping[str, Any]
    path: str = ""


@dataclass(frozen=True)
class StagedFile:
    """A data file below a table's root, as Delta's log describes it. `path` begins at the root, and has no escapes.

    `modified_at` is in milliseconds. `statistics` is the text of the log, unparsed, because decimals must not become
    floats.
    """

    path: str
    size: int
    partition: Mapping[str, str]
    modified_at: int
    statistics: str


class DeltaTables(Protocol):
    """Some Delta tables by name: their content as of a version, and commits to them. Threads share the object.

    Methods that reach the storage may raise StorageFailed, LedgerDamaged, TableAltered and ForkedProcess. A method that
    commits may raise Conflict. `merge` and `add_rows` return the version that they committed. If others commit at the
    same time, `configure`, `mark`, and `add_rows` of several transactions by Spark, may return a later version.
    """

    name: str

    def place(self, table: str) -> str:
        """Return the location of a table."""

    def damage(self, table: str) -> LedgerDamaged | None:
        """Return the damage of a table; None: none was found. The call reads the table, so make it after a failure."""

    def refusal(self, table: str, *, appends: bool = False) -> tuple[str, str] | None:
        """Return why the newest version of a table is not read or written, and what to do; None: no reason is known.

        The error TableAltered has the same words. `appends`: the caller only reads and appends rows, so an append-only
        table is not refused.
        """

    # --- a table as a whole

    def exists(self, table: str) -> bool:
        """Return whether the table exists."""

    def create(self, table: str) -> None:
        """Make the table by its spec, if it does not exist. Of several calls at once, one makes the table."""

    def layout(self, table: str) -> Layout:
        """Return the table's description and properties."""

    def configure(self, table: str, properties: Mapping[str, str], metadata: Mapping[str, Any]) -> int:
        """Commit further properties. Raises Conflict if the table has all of them already. May raise Conflict, too, if
        another writer commits meanwhile."""

    # --- reads

    def version(self, table: str) -> int:
        """Return the newest version."""

    def newest_versions(self, tables: Sequence[str]) -> dict[str, int]:
        """Return the newest versions of some tables, by name. Mostly this loads nothing, and costs less than
        `version`."""

    def generation(self) -> int:
        """Return how many replacements of these tables were found since they were opened.

        A replaced table was made anew, or has a backup in its place. This call makes no request.
        """

    def load(self, table: str, where: PartitionFilter) -> Snapshot:
        """Return all rows of some partitions, as of the newest version. On an altered table, there may be rows of other
        partitions among them (see `PartitionFilter.bounded`)."""

    def rows(
        self,
        table: str,
        where: PartitionFilter,
        columns: Sequence[str],
        between: Mapping[str, tuple[int, int]] = ...,
        above: Mapping[str, int] = ...,
    ) -> pa.Table:
        """Return some columns of rows of some partitions.

        `between` has, by column, the lowest and the highest value of the rows, both included. `above` has, by column, a
        bound: the rows have greater values. Bounds of columns of instants are milliseconds.
        """

    def file_facts(self, table: str, at_least: int | None = None) -> tuple[int, pa.Table]:
        """Return the newest version, and the facts of its data files (see TableSpec), from the log alone.

        `at_least` is a version that the caller has just read. With it, the facts may be of this version or of a newer
        one, and mostly nothing is requested.
        """

    def files_above(self, table: str, value: str, column: str, bound: int) -> dict[str, int] | None:
        """Return the files that may hold rows with more than `bound` in a column: their sizes in bytes, by their paths
        below the table's folder.

        Only partitions with `value` in their first column count. A bound of a column of instants is in milliseconds.
        Returns None if the client does not know the newest version's files, or their facts.
        """

    def greatest(self, table: str, column: str) -> int | None:
        """Return the largest value of a column of numbers; None: there is none. Files without statistics are read."""

    def history(self, table: str, since: int) -> list[Commit]:
        """Return the commits with a version > `since` that the log still has, oldest first."""

    def transaction_version(self, table: str, application: str) -> int | None:
        """Return the version that an application id committed last; None: it has committed none."""

    # --- commits

    def is_direct(self, table: str) -> bool:
        """Return whether the client is known to commit rows directly. The call makes no request."""

    def why_not_direct(self, table: str) -> tuple[str, str] | None:
        """Return why only statements of the engine commit rows to a table's newest version; None: the client does.

        The result is the reason (see `paths`) and its words.
        """

    def statement(self, table: str, where: PartitionFilter | None, source: str) -> str:
        """Return, as SQL, the statement that does the same as `merge`, for edits of some partitions in a view `source`.

        Without partitions (None), return the statement that does the same as `add_rows`.
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
        """Commit one MERGE of `edits`, which have the table's columns, OPERATION and EXPECTED_REVISION. An edit
        inserts, updates or deletes one row.

        `late` returns further metadata of the commit. The client calls `late` before the commit, perhaps twice, and
        perhaps in another thread.

        Raises Conflict if a row that an edit names is not as the edit supposes. Raises Conflict also if another writer
        committed to the partitions of `where` since the snapshot. But a statement of Spark checks only the rows that
        edits name. If several decisions rely on other rows of a partition, all of them must edit one common row.
        Raises also what `rewrite.require_expected` raises.
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
        """Commit one append. Without `still_valid`, the append relies on no row of the table.

        If the caller has `seen` a version, an append without transactions first tries to follow this version, or a
        newer one in memory.

        Each of the `transactions` (application id, version) must be the first one of its application, or have the
        application's last version plus one. Otherwise Conflict is raised. The transactions in `beside` are committed
        without this check.

        `still_valid` gets the files (`replay.Files`) of the version that the commit follows, and raises if the commit
        may not follow it. If `still_valid` is given, and only a statement could make the commit, NotDirect is raised.
        """

    def mark(self, table: str, metadata: Mapping[str, Any], *transactions: tuple[str, int]) -> int:
        """Commit transactions without rows. Raises Conflict if the first one may not be committed next (see
        `add_rows`). The others are committed without this check."""

    def delete(self, table: str, predicate: str, metadata: Mapping[str, Any], generation: int | None = None) -> None:
        """Remove the rows that a SQL predicate names: cheapest if it names whole partitions by literals.

        Raises LogReplaced if the delete was decided in a `generation` that is over.
        """

    # --- maintenance

    def join_files(self, table: str, where: PartitionFilter, *, growing: bool = False) -> bool:
        """Join the many small files of some partitions into few large ones. Return whether any were joined.

        Only rows that share an ordinal change (see `spec.Ordinals`).

        `growing`: for frequent calls, while the partitions get more files. Smaller files then count as large, and stay
        as they are. Through delta-rs, an altered table stays as it is.
        """

    def vacuum(self, table: str) -> None:
        """Remove data files that no version within the table's retention needs, old entries of the log, and through
        delta-rs checkpoints that nobody needs."""

    def make_durable(self, table: str | None = None, version: int = -1) -> None:
        """Make a version of a table, and all before it, survive a power cut.

        Without a table, do so for the newest version that this process has seen of each table. Elsewhere than on a
        local path with the setting `sync`, do nothing.
        """


def require_generation(table: str, expected: int | None, current: int) -> None:
    """Raise LogReplaced if a commit was decided in an `expected` generation (None: any) that is not the `current`
    one."""
    if expected is not None and expected != current:
        raise LogReplaced(f"the log was replaced since this commit to {table} was decided")


def require_next(transaction: tuple[str, int] | None, committed: int | None) -> None:
    """Raise Conflict if an application whose last version is `committed` may not commit the transaction next."""
    if transaction is not None and committed not in (None, transaction[1] - 1):
        raise Conflict(f"{transaction[0]} has committed {committed}, so not {transaction[1]}")


def require_unset(table: str, properties: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Raise Conflict if a table has all of these properties already."""
    if properties.items() <= known.items():
        raise Conflict(f"{table} has these properties already")


def reason(error: BaseException) -> str:
    """Return a library's error as one line: the message, and the root cause. Both are cut off at 400 characters."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    message = f"{type(error).__name__}: {lines[0]}"
    if lines[1:] and lines[0].startswith("An error occurred while calling"):
        # This is an error of Py4J: the message is in the next line.
        message = lines[1].removeprefix(": ")
    # An aborted Spark job names its reason only where Java lists the causes.
    causes = [line.strip().removeprefix(CAUSED_BY) for line in lines if line.strip().startswith(CAUSED_BY)]
    if causes and causes[-1] not in message:
        return f"{message[:400]} (because of {causes[-1][:400]})"
    return message[:400]
