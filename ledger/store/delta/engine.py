"""The seam between the store and the two engines that commit to its tables, and the metadata of its commits.

**Ends of segments.** Two processes may take themselves for the one writer of an open segment: a fork and its parent, or
a machine that was resumed twice from a snapshot. They give out the same ordinals. Therefore an append names the last
ordinal that its writer knows, and commits only if the log agrees. The first writer to commit continues the segment, and
the other begins a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ledger.delta_log import rewrite as log_edits
from ledger.delta_log.history import parse_metadata
from ledger.delta_log.protocol import (
    Commit,
    Conflict,
    DeltaTables,
    Layout,
    NotDirect,
    Seen,
    Snapshot,
    StagedFile,
    require_generation,
)
from ledger.delta_log.replay import Files
from ledger.delta_log.statements import Paths
from ledger.errors import LedgerDamaged
from ledger.store.delta.model.tables import TABLES, Where

#: Each commit has `operation`. A commit with events also has `queue`, `at` and `owner`.
_FIELD_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("operation", "verb", "queue"), str),
    **{"at": int, "events": list, "read": dict, "losses": int},
}


def ledger_metadata_in(text: str | None) -> dict[str, Any]:
    """Return the metadata of a ledger's commit, or an empty dict for another writer's commit."""
    metadata = parse_metadata(text)
    return metadata if _is_ours(metadata) else {}


def verb_of(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("verb", ""))


def is_of_upkeep(metadata: Mapping[str, Any]) -> bool:
    """Return whether a commit is upkeep's, or has no verb, as an engine's VACUUM."""
    return str(metadata.get("verb", "upkeep")) == "upkeep"


def losses_in(metadata: Mapping[str, Any]) -> int:
    return int(metadata.get("losses", 0))


def _is_ours(metadata: Mapping[str, Any]) -> bool:
    has_events = bool(metadata.get("events"))
    return (
        "operation" in metadata
        and all(isinstance(metadata[name], kind) for name, kind in _FIELD_TYPES.items() if name in metadata)
        and all(isinstance(version, int) for version in metadata.get("read", {}).values())
        and (not has_events or {"queue", "at", "owner"} <= metadata.keys())
    )


class SegmentTaken(Conflict):
    """A segment's end is unknown, or not where its writer left it. The writer must begin another segment."""


class SegmentEnd(NamedTuple):
    """A segment of `messages`, and the last ordinal that its writer knows in it (None: the segment is new)."""

    queue: str
    lane: int
    segment: str
    last: int | None


class Tables(Protocol):
    """The ledger's own tables, by name."""

    def place(self, table: str) -> str:
        """Return the location of a table."""

    def damage(self, table: str) -> LedgerDamaged | None:
        """Return a table's damage, or None. This reads the table: call it only after a failure."""

    def version(self, table: str) -> int:
        """Return the newest version."""

    def newest_versions(self, tables: Sequence[str]) -> dict[str, int]:
        """Return the newest versions by table, mostly without loading the log, unlike `version`."""

    def generation(self) -> int:
        """Return, without reading the storage, how often other tables were found in the place of these since they were
        opened.

        What a process knows of the tables is valid only in the generation in which it was read.
        """

    def load(self, table: str, where: Where) -> Snapshot:
        """Return the rows of some partitions, as of the newest version."""

    def merge(
        self,
        snapshot: Snapshot,
        table: str,
        where: Where,
        edits: pa.Table,
        metadata: Mapping[str, Any],
        late: Callable[[], Mapping[str, Any]] = ...,
    ) -> int:
        """Commit one MERGE of `edits` (the table's columns, OPERATION, EXPECTED_REVISION), and return the version.

        `late` returns further metadata. It is called before the commit, perhaps in another thread.

        Raises:
            Conflict: A row is not as an edit supposes, or another writer committed to the partitions of `where` since
                the snapshot. A statement of Spark checks only the rows that edits name.
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
        seen: Seen | None = None,
    ) -> int:
        """Commit one blind append, and return the version.

        Args:
            transactions: Pairs of application id and version. Raises Conflict unless each is the application's first,
                or directly follows its last version.
            ends: The expected ends of segments. Raises SegmentTaken for any other end.
            generation: The generation of the decision. If it is over, raises LogReplaced.
            beside: Further transactions, which are not checked.
            seen: A version that the caller has just read. An append without transactions tries to follow it first.
        """

    def extends_segments(self) -> bool:
        """Return, without reading the storage, whether `append` can extend a segment, or raises SegmentTaken."""

    def mark(self, table: str, metadata: Mapping[str, Any], *transactions: tuple[str, int]) -> int:
        """Commit transactions without rows, and return the version. Only the first is checked, as in `append`."""

    def delete(self, table: str, predicate: str, metadata: Mapping[str, Any], generation: int | None = None) -> None:
        """Remove the rows that a SQL predicate names. Predicates with literals for whole partitions are cheapest.

        Raises LogReplaced if `generation`, that of the decision, is over.
        """

    def compact(self, where: Where, *, growing: bool = False) -> bool:
        """Join small files of some partitions of `messages`, and return whether any were joined.

        Only rows that share an ordinal change (`delta_log.protocol.Ordinals`). With `growing`, for partitions that
        still get files, joins only smaller files.
        """

    def greatest(self, table: str, column: str) -> int | None:
        """Return the largest value of a column, or None. Reads the files for which the log lacks it."""

    def history(self, table: str, since: int) -> list[Commit]:
        """Return the commits with a version > `since` that the log still has, oldest first."""

    def transaction_version(self, table: str, application: str) -> int | None:
        """Return the version that was last committed under an application id, or None."""

    def make_durable(self, table: str | None = None, version: int = -1) -> None:
        """Make a version of a table, and all before it, survive a power cut; without a table, all that this process has
        seen. A repeated call costs next to nothing."""


class Publishing(Tables, Protocol):
    """An engine that can commit files that others have written below a table."""

    def stage(self, table: str, folder: str, schema: pa.Schema, partitions: Sequence[str], now: int) -> str:
        """Make a Delta table for the files of one send below `table`, and return its location."""

    def stage_folder(self, table: str, folder: str) -> None:
        """Make a folder below a table for files that tasks write."""

    def publish(
        self,
        table: str,
        files: Sequence[StagedFile],
        metadata: Mapping[str, Any],
        *transactions: tuple[str, int] | None,
    ) -> int:
        """Commit files that are below a table already, and return the version.

        Raises Conflict as `append` does. None in place of a transaction is ignored.
        """


class MessageFiles(Protocol):
    """The files of `messages`, and the messages in them."""

    def version(self, table: str) -> int:
        """Return the newest version."""

    def generation(self) -> int:
        """See Tables.generation."""

    def files(self, at_least: int | None = None) -> tuple[int, pa.Table]:
        """Return the version and the data files of `messages` as SEGMENT_FILES, from the log alone.

        With `at_least`, a version that the caller has just read, looks for no newer version.
        """

    def files_sent_after(self, queue: str, instant: int) -> dict[str, int] | None:
        """Return the files that may have messages sent to a queue after an instant, as sizes in bytes by path below the
        table.

        Return None if the log does not show them.
        """

    def messages(
        self,
        where: Where,
        columns: Sequence[str],
        first_seq: int | None = None,
        last_seq: int | None = None,
        sent_after: int | None = None,
        numbered_after: int | None = None,
    ) -> pa.Table:
        """Return columns of the messages of some partitions.

        Args:
            first_seq: The first ordinal. Give it together with `last_seq`.
            last_seq: The last ordinal.
            sent_after: An instant before all `sent_at`.
            numbered_after: A number below all sequence numbers.
        """


class Engine(Tables, MessageFiles, Protocol):
    """All that an engine does for a store."""

    name: str
    #: Counts this process's commits of rows, by the path that they took: directly, or by a statement of the engine.
    paths: Paths

    def why_not_direct(self, table: str) -> tuple[str, str] | None:
        """Return why rows of a table are committed only by statements, as a reason (`delta_log.statements`) and a text.

        Return None if they are committed directly. The newest version of the table decides.
        """

    def refusal(self, table: str, *, appends: bool = False) -> tuple[str, str] | None:
        """Return the reason and the advice of TableAltered, or None if the engine reads and writes the table.

        With `appends`, the caller only reads and appends, so an append-only table is not refused.
        """

    def statement(self, table: str, where: Where | None, source: str) -> str:
        """Return the SQL of `merge`, or of `append` if `where` is None, when rows cannot be committed directly.

        The view `source` has the edits, and `where` names their partitions.
        """

    def publishing(self) -> Publishing | None:
        """Return the publisher of files, or None if Spark itself commits what it wrote."""

    def create(self, table: str) -> None:
        """Make the table if it does not exist yet."""

    def layout(self, table: str) -> Layout:
        """Return the description and the properties of the table."""

    def configure(self, table: str, properties: Mapping[str, str], metadata: Mapping[str, Any]) -> int:
        """Set properties of the table in one commit, and return the version.

        If a format is among them, the table also gets this release's description and missing columns. Raises Conflict
        if the table has these properties already, or if another writer commits meanwhile.
        """

    def exists(self, table: str) -> bool:
        """Return whether the table exists."""

    def vacuum(self, table: str) -> None:
        """Remove files that no version within the retention needs, and old entries of the log."""


class LedgerTables(DeltaTables):
    def files(self, at_least: int | None = None) -> tuple[int, pa.Table]:
        return self.file_facts("messages", at_least)

    def files_sent_after(self, queue: str, instant: int) -> dict[str, int] | None:
        return self.files_above("messages", queue, "sent_at", instant)

    def messages(
        self,
        where: Where,
        columns: Sequence[str],
        first_seq: int | None = None,
        last_seq: int | None = None,
        sent_after: int | None = None,
        numbered_after: int | None = None,
    ) -> pa.Table:
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
        seen: Seen | None = None,
    ) -> int:
        def require_valid(files: Files) -> None:
            require_generation(table, generation, files.generation)
            require_ends(files, ends)

        try:
            is_asked = bool(ends) or generation is not None
            check = require_valid if is_asked else None
            return self.add_rows(table, rows, metadata, transactions, check, beside, seen)
        except NotDirect:
            require_new(ends)
            if generation is not None:
                self.version(table)
                require_generation(table, generation, self.generation())
            return self.add_rows(table, rows, metadata, transactions, None, beside)

    def extends_segments(self) -> bool:
        return self.is_direct("messages")

    def compact(self, where: Where, *, growing: bool = False) -> bool:
        return self.join_files("messages", where, growing=growing)


def require_expected(snapshot: Snapshot, table: str, edits: pa.Table) -> None:
    """See `delta_log.rewrite.require_expected`."""
    log_edits.require_expected(snapshot, TABLES[table], edits)


def require_ends(files: Files, ends: Sequence[SegmentEnd]) -> None:
    """Raise SegmentTaken if a segment does not end where its writer left it."""
    for end in ends:
        segment_files = files.of((end.queue, str(end.lane), end.segment))
        last = (
            files.statistics.find_last_ordinal(end.segment) if segment_files and files.statistics is not None else None
        )
        # Files without statistics do not show their last ordinal.
        if last != end.last or (segment_files and last is None):
            raise SegmentTaken(f"the segment {end.segment} ends at {last}, and this writer left it at {end.last}")


def require_new(ends: Sequence[SegmentEnd]) -> None:
    """Raise SegmentTaken if an append extends a segment, whose end a statement cannot check."""
    for end in ends:
        if end.last is not None:
            raise SegmentTaken(f"a statement must append here, and cannot check where the segment {end.segment} ends")
