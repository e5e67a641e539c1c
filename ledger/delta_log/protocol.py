"""The seam between the store and the two engines that commit to its tables. Nothing above it knows which one runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ledger.delta_log.where import Where
from ledger.errors import LedgerDamaged
from ledger.store.delta.model.formats import Layout

#: How Java begins what caused an error.
CAUSED_BY = "Caused by: "
#: The column of an edit that says what to do with its row: insert, update or delete.
OPERATION = "operation"
#: The column of an edit: the revision its row must still have, or null for no such demand.
EXPECTED_REVISION = "expected_revision"


class Conflict(Exception):
    """Another writer changed what the commit relied on. Nothing was committed, as far as the engine knows."""


class SegmentTaken(Conflict):
    """A segment does not end where its writer left it, or nobody can tell: its writer must begin another one."""


class SegmentEnd(NamedTuple):
    """A segment of `messages`, by its partition, and the last ordinal that its writer knows in it; None: it is new."""

    queue: str
    lane: int
    segment: str
    last: int | None


class LogReplaced(Conflict):
    """The table's log is another one than was read: the table was made anew, or a backup was put in its place. The
    commit is not in the log."""


@dataclass(frozen=True)
class Snapshot:
    """The rows of a table's partitions `where` as of one version. `loaded` is the engine's own."""

    version: int
    where: Where
    rows: pa.Table
    loaded: Any = None
    #: When it was read, in monotonic seconds.
    read_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Commit:
    """One commit of a table's history."""

    version: int
    timestamp: int
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class StagedFile:
    """A data file below a table's root, as Delta's log tells of it: `path` from there, as the file is named.

    `statistics` is the text of the log: a decimal that was read as a float on its way would bound other values than
    are in the file, and readers would pass it by.
    """

    path: str
    size: int
    partition: Mapping[str, str]
    modified_at: int
    statistics: str


class Tables(Protocol):
    """The ledger's own tables: what is in them as of a version, and commits to them. They go by name."""

    def place(self, table: str) -> str:
        """Where a table lies."""

    def damage(self, table: str) -> LedgerDamaged | None:
        """Return the damage of a table, if there is any; it is looked for once the table could not be used."""

    def version(self, table: str) -> int:
        """The newest version."""

    def newest_versions(self, tables: Sequence[str]) -> dict[str, int]:
        """By name; for less than what `version` costs, as nothing is loaded."""

    def generation(self) -> int:
        """How often these tables were found to be replaced, by tables made anew or a backup, since they were opened.
        What is kept of the tables counts for the generation that it was read in. Asks the storage nothing."""

    def load(self, table: str, where: Where) -> Snapshot:
        """The rows of some partitions."""

    def merge(self, snapshot: Snapshot, table: str, where: Where, edits: pa.Table, metadata: Mapping[str, Any]) -> int:
        """One MERGE of `edits` (the table's columns, OPERATION, EXPECTED_REVISION); returns the version committed.

        Raises Conflict when a row named by an edit is not as the edit supposes, or when another writer committed to
        the partitions of `where` since the snapshot.
        """

    def append(
        self,
        table: str,
        rows: pa.Table,
        metadata: Mapping[str, Any],
        transaction: tuple[str, int] | None,
        ends: Sequence[SegmentEnd] = (),
    ) -> int:
        """One blind append. With a transaction (application id, version) it is committed only as the first one of its
        application, or directly after the version before; else Conflict. It is committed only where the segments of
        `messages` that it extends end as `ends` says; else SegmentTaken."""

    def extends_segments(self) -> bool:
        """Whether `append` can extend a segment, or raises SegmentTaken for any that is not new: as far as it is known
        without asking the storage."""

    def mark(self, table: str, metadata: Mapping[str, Any], *transactions: tuple[str, int]) -> int:
        """One commit of no rows under transactions, each an application id and a version. Raises Conflict where the
        first may not be committed next, see `append`; what else there is goes with it, whatever was before."""

    def delete(self, table: str, predicate: str, metadata: Mapping[str, Any]) -> None:
        """Removes the rows that a SQL predicate names; cheapest when it names whole partitions by literals."""

    def compact(self, where: Where, *, growing: bool = False) -> bool:
        """Makes few large files of the many small ones that some partitions of `messages` have, without changing a row;
        whether it did. `growing`: they get more of them, and it is done again and again."""

    def greatest(self, table: str, column: str) -> int | None:
        """The largest value of a column, from the log alone; None for an empty table."""

    def history(self, table: str, since: int) -> list[Commit]:
        """The commits with a version > `since`, oldest first."""

    def transaction_version(self, table: str, application: str) -> int | None:
        """The newest version committed under an application id."""

    def make_durable(self, table: str | None = None, version: int = -1) -> None:
        """Makes a version of a table survive a power cut, and all before it; without a table, all that this process has
        seen of its tables. Costs nothing where that is so already."""


class Publishing(Tables, Protocol):
    """What an engine has that commits files where others have written them, below one of the ledger's tables."""

    def stage(self, table: str, folder: str, schema: pa.Schema, partitions: Sequence[str], now: int) -> str:
        """Makes a table for the files of one send, in a folder of a table's; returns where it lies."""

    def publish(
        self,
        table: str,
        files: Sequence[StagedFile],
        metadata: Mapping[str, Any],
        *transactions: tuple[str, int] | None,
    ) -> int:
        """One commit that adds files which lie below a table already; returns its version. Raises Conflict where any of
        the transactions may not be committed next, see `append`."""


class MessageFiles(Protocol):
    """The files of `messages`, and what is in them."""

    def version(self, table: str) -> int:
        """The newest version."""

    def generation(self) -> int:
        """See Tables.generation."""

    def files(self) -> tuple[int, pa.Table]:
        """The version and the data files of `messages` as SEGMENT_FILES, from the log alone."""

    def messages(
        self,
        where: Where,
        columns: Sequence[str],
        first_seq: int | None = None,
        last_seq: int | None = None,
        sent_after: int | None = None,
    ) -> pa.Table:
        """Columns of the messages of some partitions, optionally of the ordinals from first_seq to last_seq, and of
        those sent after an instant."""


class Engine(Tables, MessageFiles, Protocol):
    """An engine: all that it does for a store, and what is done to a table as a whole."""

    name: str

    def publishing(self) -> Publishing | None:
        """What publishes files; None where Spark has to commit what it writes."""

    def create(self, table: str) -> None:
        """Makes the table if it does not exist yet."""

    def layout(self, table: str) -> Layout:
        """What the table says of itself."""

    def configure(self, table: str, properties: Mapping[str, str], metadata: Mapping[str, Any]) -> int:
        """Sets properties of the table in one commit; with a format among them it also gets the columns of this release
        that it lacks, and its description. Returns the version. Raises Conflict when another writer has set them, or
        commits at the same time."""

    def exists(self, table: str) -> bool:
        """Whether there is such a table."""

    def vacuum(self, table: str) -> None:
        """Removes files that no version within the retention needs."""


def require_next(transaction: tuple[str, int] | None, committed: int | None) -> None:
    """Raises Conflict when an application that has committed this version may not commit the transaction next."""
    if transaction is not None and committed not in (None, transaction[1] - 1):
        raise Conflict(f"{transaction[0]} has committed {committed}, so not {transaction[1]}")


def require_unset(table: str, properties: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Raises Conflict when a table has all of these properties already."""
    if properties.items() <= known.items():
        raise Conflict(f"{table} has these properties")


#: What the log says about each data file of `messages`. Instants in milliseconds.
SEGMENT_FILES = pa.schema(
    [
        ("queue", pa.string()),
        ("lane", pa.int32()),
        ("segment", pa.string()),
        ("messages", pa.int64()),
        ("first_seq", pa.int64()),
        ("last_seq", pa.int64()),
        ("first_sent_at", pa.int64()),
        ("last_sent_at", pa.int64()),
        ("first_available_at", pa.int64()),
        ("last_available_at", pa.int64()),
    ]
)


def reason(error: BaseException) -> str:
    """An error of a library's, in a line: what happened, and the first cause of it."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    said = f"{type(error).__name__}: {lines[0]}"
    if lines[1:] and lines[0].startswith("An error occurred while calling"):
        # Py4J tells what happened in the line behind.
        said = lines[1].removeprefix(": ")
    # A job of Spark's that was aborted says why only far below, where Java lists the causes.
    causes = [line.strip().removeprefix(CAUSED_BY) for line in lines if line.strip().startswith(CAUSED_BY)]
    if causes and causes[-1] not in said:
        return f"{said[:400]} (because of {causes[-1][:400]})"
    return said[:400]
