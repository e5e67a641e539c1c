"""What the client of Delta's log takes and returns, and how it says that a commit lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from ledger.delta_log.spec import Layout, PartitionFilter
from ledger.errors import LedgerDamaged

#: How Java begins what caused an error.
CAUSED_BY = "Caused by: "
#: The column of an edit that says what to do with its row: insert, update or delete.
OPERATION = "operation"
#: The column of an edit: the revision its row must still have, or null for no such demand.
EXPECTED_REVISION = "expected_revision"


class Conflict(Exception):
    """Another writer changed what the commit relied on. Nothing was committed. But where the answer of a storage was
    lost, the commit may exist."""


class NotDirect(Conflict):
    """Only a statement of the engine can make the commit. Nothing was committed. `reason`: see `paths`."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class LogReplaced(Conflict):
    """The table's log is another one than was read: the table was made anew, or a backup was put in its place. The
    commit is not in the log."""


@dataclass(frozen=True)
class Snapshot:
    """The rows of a table's partitions `where` as of one version. `loaded` is the engine's own."""

    version: int
    where: PartitionFilter
    rows: pa.Table
    loaded: Any = None
    #: When it was read, in monotonic seconds.
    read_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Commit:
    """One commit of a table's history. `timestamp`: its writer's, in milliseconds. `path`: how a MERGE was made, see
    `paths`; empty for other commits."""

    version: int
    timestamp: int
    metadata: Mapping[str, Any]
    path: str = ""


@dataclass(frozen=True)
class StagedFile:
    """A data file below a table's root, as Delta's log tells of it: `path` from there, as the file is named.

    `modified_at` is in milliseconds. `statistics` is the text of the log: a decimal that was read as a float on its way
    would bound other values than are in the file, and readers would pass it by.
    """

    path: str
    size: int
    partition: Mapping[str, str]
    modified_at: int
    statistics: str


class DeltaTables(Protocol):
    """Some Delta tables, by their names: what is in them as of a version, and commits to them. Threads share it.

    Every method may raise StorageFailed, LedgerDamaged and ForkedProcess. A method that commits returns the version
    that it committed. It raises Conflict where another writer changed what the commit relied on. Nothing is committed
    then. But where the answer of a storage was lost, the commit may exist.
    """

    name: str

    def place(self, table: str) -> str:
        """Return where a table lies."""

    def damage(self, table: str) -> LedgerDamaged | None:
        """Return the damage of a table, if there is any. It is called after a failure, and looks at the table then."""

    def refusal(self, table: str, *, appends: bool = False) -> tuple[str, str] | None:
        """Return why the engine does not read or write the newest version of a table, and what to do about it; None: it
        does. The words are those of the error TableAltered, which verbs raise for it. `appends`: for a user that only
        reads and appends rows, to whom an append-only table will do."""

    # --- a table as a whole

    def exists(self, table: str) -> bool:
        """Return whether there is such a table."""

    def create(self, table: str) -> None:
        """Make the table, as its spec has it, if there is none. Of several that do so at once one makes it."""

    def layout(self, table: str) -> Layout:
        """Return what the table says of itself."""

    def configure(self, table: str, properties: Mapping[str, str], metadata: Mapping[str, Any]) -> int:
        """Commit further properties. Raises Conflict when the table has them, or another writer commits meanwhile."""

    # --- reads

    def version(self, table: str) -> int:
        """Return the newest version."""

    def newest_versions(self, tables: Sequence[str]) -> dict[str, int]:
        """Return the newest versions of some tables, by name, for less than `version` costs: nothing is loaded."""

    def generation(self) -> int:
        """Return how many replacements of these tables were found since they were opened: tables that were made anew,
        or a backup in their place. What is kept in memory is kept under the generation that it was read in. Asks the
        storage nothing."""

    def load(self, table: str, where: PartitionFilter) -> Snapshot:
        """Return all rows of some partitions, as of the newest version."""

    def rows(
        self,
        table: str,
        where: PartitionFilter,
        columns: Sequence[str],
        between: Mapping[str, tuple[int, int]] = ...,
        above: Mapping[str, int] = ...,
    ) -> pa.Table:
        """Return some columns of rows of some partitions.

        Args:
            table: The table.
            where: The partitions.
            columns: The columns.
            between: By column, the lowest and the highest value of the rows, both included.
            above: By column, a bound that the rows are above.

        Bounds of columns of instants are milliseconds.
        """

    def file_facts(self, table: str) -> tuple[int, pa.Table]:
        """Return the newest version, and the facts of its data files (see TableSpec), from the log alone."""

    def greatest(self, table: str, column: str) -> int | None:
        """Return the largest value of a column of numbers, None where there is none. The log tells it, and of files of
        which it does not they are read."""

    def history(self, table: str, since: int) -> list[Commit]:
        """Return the commits with a version > `since`, oldest first."""

    def transaction_version(self, table: str, application: str) -> int | None:
        """Return the newest version committed under an application id."""

    # --- commits

    def is_direct(self, table: str) -> bool:
        """Return whether rows are committed without a statement of the engine, as far as that is known without asking
        the storage."""

    def why_not_direct(self, table: str) -> tuple[str, str] | None:
        """Return why no row of a table is committed without a statement of the engine: the reason (see `paths`), and
        what it is in words; None: rows are. Looks at the newest version."""

    def statement(self, table: str, where: PartitionFilter | None, source: str) -> str:
        """Return the statement that `merge` equals, as SQL, for edits of some partitions that are in a view `source`;
        with None for partitions, the one that `add_rows` equals. It is run only where rows are not committed
        directly."""

    def merge(
        self, snapshot: Snapshot, table: str, where: PartitionFilter, edits: pa.Table, metadata: Mapping[str, Any]
    ) -> int:
        """Commit one MERGE of `edits`: the table's columns, OPERATION and EXPECTED_REVISION.

        Raises Conflict when a row that an edit names is not as the edit supposes, or when another writer committed to
        the partitions of `where` since the snapshot. A statement of Spark's checks only the rows that edits name. If
        decisions rely on other rows of a partition, each of them must edit one row that they share.
        """

    def add_rows(
        self,
        table: str,
        rows: pa.Table,
        metadata: Mapping[str, Any],
        transactions: Sequence[tuple[str, int]] = (),
        still_valid: Callable[[Any], None] | None = None,
        beside: Sequence[tuple[str, int]] = (),
    ) -> int:
        """Commit one blind append.

        Each of the `transactions` (application id, version) is committed only as the first one of its application, or
        directly after the version before; else Conflict. Those `beside` them go with the commit, whatever was before.
        `still_valid` is called with the files (`replay.Files`) of the
        version that the commit follows, and raises where it may not. NotDirect: only a statement could commit it, and
        a statement does not call that.
        """

    def mark(self, table: str, metadata: Mapping[str, Any], *transactions: tuple[str, int]) -> int:
        """Commit no rows, under transactions. Raises Conflict where the first may not be committed next, see
        `add_rows`; the others go with it, whatever was before."""

    def delete(self, table: str, predicate: str, metadata: Mapping[str, Any], generation: int | None = None) -> None:
        """Remove the rows that a SQL predicate names; cheapest when it names whole partitions by literals. With the
        `generation` in which that was decided, raise LogReplaced where that is over."""

    # --- maintenance

    def join_files(self, table: str, where: PartitionFilter, *, growing: bool = False) -> bool:
        """Make few large files of the many small ones that some partitions have, without changing a row; return whether
        that did anything. `growing`: for frequent calls, while the partitions get more files. Then files are left alone
        from a smaller size on."""

    def vacuum(self, table: str) -> None:
        """Remove files that no version within the table's retention needs."""

    def make_durable(self, table: str | None = None, version: int = -1) -> None:
        """Make a version of a table survive a power cut, and all before it; without a table, all that this process has
        seen of its tables. Costs nothing where that is so already."""


def require_generation(table: str, expected: int | None, current: int) -> None:
    """Raise LogReplaced where a commit was decided in an `expected` generation that is over; None: in whichever."""
    if expected is not None and expected != current:
        raise LogReplaced(f"the log was replaced since this commit to {table} was decided")


def require_next(transaction: tuple[str, int] | None, committed: int | None) -> None:
    """Raises Conflict when an application that has committed this version may not commit the transaction next."""
    if transaction is not None and committed not in (None, transaction[1] - 1):
        raise Conflict(f"{transaction[0]} has committed {committed}, so not {transaction[1]}")


def require_unset(table: str, properties: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Raises Conflict when a table has all of these properties already."""
    if properties.items() <= known.items():
        raise Conflict(f"{table} has these properties")


def reason(error: BaseException) -> str:
    """An error of a library's, in a line: what happened, and the first cause of it."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    said = f"{type(error).__name__}: {lines[0]}"
    if lines[1:] and lines[0].startswith("An error occurred while calling"):
        # Py4J tells what happened in the next line.
        said = lines[1].removeprefix(": ")
    # A job of Spark's that was aborted says why only far below, where Java lists the causes.
    causes = [line.strip().removeprefix(CAUSED_BY) for line in lines if line.strip().startswith(CAUSED_BY)]
    if causes and causes[-1] not in said:
        return f"{said[:400]} (because of {causes[-1][:400]})"
    return said[:400]
