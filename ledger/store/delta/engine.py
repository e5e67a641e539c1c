"""The seam between the store and the two engines that commit to its tables. Nothing above it knows which one runs.

**Ends of segments.** A segment has one writer, which numbers its messages. But a writer may be there twice without
knowing: in a forked process and its parent, or in a snapshot of a machine that was resumed twice. Both would give out
the same ordinals. So an append names the last ordinal that its writer knows, and commits only while the log tells the
same: the first of the two goes on, and the other one begins a new segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ledger.delta_log import rewrite as log_edits
from ledger.delta_log.failures import translate_storage_errors
from ledger.delta_log.paths import Paths
from ledger.delta_log.protocol import (
    Commit,
    Conflict,
    DeltaTables,
    NotDirect,
    Snapshot,
    StagedFile,
    require_generation,
)
from ledger.delta_log.replay import Files
from ledger.delta_log.spec import Layout
from ledger.errors import LedgerDamaged
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.model.where import Where


class SegmentTaken(Conflict):
    """A segment does not end where its writer left it, or nobody can tell: its writer must begin another one."""


class SegmentEnd(NamedTuple):
    """A segment of `messages`, by its partition, and the last ordinal that its writer knows in it; None: it is new."""

    queue: str
    lane: int
    segment: str
    last: int | None


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
        transactions: Sequence[tuple[str, int]] = (),
        ends: Sequence[SegmentEnd] = (),
        generation: int | None = None,
        beside: Sequence[tuple[str, int]] = (),
    ) -> int:
        """One blind append. Each of the `transactions` (application id, version) is committed only as the first one of
        its application, or directly after the version before; else Conflict. Those `beside` them go with the commit,
        whatever was before. It is committed only where the segments of `messages` that it extends end as `ends` says;
        else SegmentTaken. With the `generation` in which its rows were decided, LogReplaced where that is over."""

    def extends_segments(self) -> bool:
        """Whether `append` can extend a segment, or raises SegmentTaken for any that is not new: as far as it is known
        without asking the storage."""

    def mark(self, table: str, metadata: Mapping[str, Any], *transactions: tuple[str, int]) -> int:
        """One commit of no rows under transactions, each an application id and a version. Raises Conflict where the
        first may not be committed next, see `append`; what else there is goes with it, whatever was before."""

    def delete(self, table: str, predicate: str, metadata: Mapping[str, Any], generation: int | None = None) -> None:
        """Removes the rows that a SQL predicate names; cheapest when it names whole partitions by literals. With the
        `generation` in which that was decided, raises LogReplaced where that is over."""

    def compact(self, where: Where, *, growing: bool = False) -> bool:
        """Makes few large files of the many small ones that some partitions of `messages` have, without changing a row;
        whether it did. `growing`: they get more of them, and it is done again and again."""

    def greatest(self, table: str, column: str) -> int | None:
        """Return the largest value of a column, from the log alone; of an empty table return None."""

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

    def stage_folder(self, table: str, folder: str) -> None:
        """Makes a folder below a table for files that tasks write; nobody reads it as a table."""

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
        numbered_after: int | None = None,
    ) -> pa.Table:
        """Columns of the messages of some partitions, optionally of the ordinals from first_seq to last_seq, of those
        sent after an instant, or of those of a FIFO queue behind a sequence number."""


class Engine(Tables, MessageFiles, Protocol):
    """An engine: all that it does for a store, and what is done to a table as a whole."""

    name: str
    #: Counts the commits of rows that this process made, by the path that they took.
    paths: Paths

    def why_not_direct(self, table: str) -> tuple[str, str] | None:
        """Return why no row of a table is committed without a statement of the engine: the reason (see
        `delta_log.paths`), and what it is in words; None: rows are. Looks at the newest version."""

    def refusal(self, table: str, *, appends: bool = False) -> tuple[str, str] | None:
        """Return why the engine does not read or write a table any more, and what to do about it, in the words of the
        error TableAltered. Return None where the engine does both.

        Args:
            table: The table's name.
            appends: The caller only reads and appends rows.
        """

    def statement(self, table: str, where: Where | None, source: str) -> str:
        """Return the statement that `merge` is, as SQL, for edits of some partitions that are in a view `source`; with
        None for partitions, that which `append` is. It is run only where rows are not committed directly."""

    def publishing(self) -> Publishing | None:
        """Return the part of the engine that publishes files. Return None where Spark commits what it has written."""

    def create(self, table: str) -> None:
        """Makes the table if it does not exist yet."""

    def layout(self, table: str) -> Layout:
        """Return the description and the properties of the table."""

    def configure(self, table: str, properties: Mapping[str, str], metadata: Mapping[str, Any]) -> int:
        """Sets properties of the table in one commit; with a format among them it also gets the columns of this release
        that it lacks, and its description. Returns the version. Raises Conflict when another writer has set them, or
        commits at the same time."""

    def exists(self, table: str) -> bool:
        """Whether there is such a table."""

    def vacuum(self, table: str) -> None:
        """Removes files that no version within the retention needs."""


#: The methods of an engine that reach the storage.
METHODS = (
    "newest_versions",
    "refusal",
    *("create", "layout", "configure"),
    *("exists", "version", "load", "merge", "append", "mark", "files", "messages", "delete", "greatest"),
    "history",
    *("transaction_version", "compact", "vacuum", "make_durable"),
)
#: See `delta_log.failures`. Methods that name no table are about `messages`.
names_failures = partial(translate_storage_errors, methods=METHODS, default="messages")


class LedgerTables(DeltaTables):
    """What an engine does for the ledger's tables beyond DeltaTables, by means of that."""

    def files(self) -> tuple[int, pa.Table]:
        """See MessageFiles."""
        return self.file_facts("messages")

    def messages(
        self,
        where: Where,
        columns: Sequence[str],
        first_seq: int | None = None,
        last_seq: int | None = None,
        sent_after: int | None = None,
        numbered_after: int | None = None,
    ) -> pa.Table:
        """See MessageFiles."""
        between = {} if first_seq is None or last_seq is None else {"seq": (first_seq, last_seq)}
        bounds = {"sent_at": sent_after, "sequence_number": numbered_after}
        above = {name: bound for name, bound in bounds.items() if bound is not None}
        return self.rows("messages", where, columns, between, above)

    def append(
        self,
        table: str,
        rows: pa.Table,
        metadata: Mapping[str, Any],
        transactions: Sequence[tuple[str, int]] = (),
        ends: Sequence[SegmentEnd] = (),
        generation: int | None = None,
        beside: Sequence[tuple[str, int]] = (),
    ) -> int:
        """See Tables."""

        def require_valid(files: Files) -> None:
            require_generation(table, generation, files.generation)
            require_ends(files, ends)

        try:
            is_asked = bool(ends) or generation is not None
            return self.add_rows(table, rows, metadata, transactions, require_valid if is_asked else None, beside)
        except NotDirect:
            require_new(ends)
            if generation is not None:
                self.version(table)
                require_generation(table, generation, self.generation())
            return self.add_rows(table, rows, metadata, transactions, None, beside)

    def extends_segments(self) -> bool:
        """See Tables."""
        return self.is_direct("messages")

    def compact(self, where: Where, *, growing: bool = False) -> bool:
        """See Tables."""
        return self.join_files("messages", where, growing=growing)


def require_expected(snapshot: Snapshot, table: str, edits: pa.Table) -> None:
    """See `delta_log.edits`, for one of the ledger's tables by its name."""
    log_edits.require_expected(snapshot, TABLES[table], edits)


def require_ends(files: Files, ends: Sequence[SegmentEnd]) -> None:
    """Raises SegmentTaken where the newest files of `messages` do not end as the writer of a segment knows them."""
    for end in ends:
        there = files.of((end.queue, str(end.lane), end.segment))
        last = files.statistics.last_ordinal(end.segment) if there and files.statistics is not None else None
        # Of files without statistics nobody knows where they end.
        if last != end.last or (there and last is None):
            raise SegmentTaken(f"the segment {end.segment} ends at {last}, and this writer left it at {end.last}")


def require_new(ends: Sequence[SegmentEnd]) -> None:
    """Raises SegmentTaken where an append extends a segment: for engines' queries, which do not look at its end."""
    for end in ends:
        if end.last is not None:
            raise SegmentTaken(f"nobody looks where the segment {end.segment} ends: the table was altered")
