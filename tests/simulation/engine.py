"""The third engine, for tests: the tables in memory, by the rules of delta-rs or by those of Spark.

What the two promise in common, and where they differ, is pinned by the engines' own tests in tests/delta, which run on
this one, too. `at` is told of every call before it does anything, and again between what a call reads and what it
commits: there a scheduler lets others go first, or ends the call with one of FAULTS.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.failures import translate_storage_errors
from ledger.delta_log.protocol import (
    Commit,
    CommittedBefore,
    Conflict,
    Layout,
    LogReplaced,
    Seen,
    Snapshot,
    require_generation,
    require_next,
)
from ledger.errors import OutputUnreadable, StorageFailed
from ledger.output_tables.protocol import OutputLog, unreadable
from ledger.rules.output_columns import ColumnsAsked
from ledger.store.delta.engine import SegmentEnd, require_ends, require_expected
from ledger.store.delta.model.tables import INSTANT, SEGMENT_FILES, TABLES, Where
from tests.simulation.log import Change, File, NewestFiles, Partition, Storage, Table, keys_of, reading, rows_of, split
from tests.simulation.merging import merged
from tests.simulation.predicates import Whatever, compiled

RULES = ("delta-rs", "spark")
#: The methods whose storage errors become errors of the ledger, as those of the real engines do.
METHODS = (
    *("newest_versions", "refusal"),
    *("create", "layout", "configure"),
    *("exists", "version", "load", "merge", "append", "mark", "files", "messages", "delete", "greatest"),
    "history",
    *("transaction_version", "compact", "vacuum", "make_durable"),
)


class Fault(Enum):
    """What may become of a commit beside success."""

    REFUSED = "nothing landed, and the client is told of a conflict"
    CONFLICT = "it landed, and the client is told of a conflict"
    LOST = "it landed, and the client gets an error that says nothing"
    NEVER = "nothing landed, and the client gets an error that says nothing"
    UNSEEN = "this process cannot see the table now"


class AnswerLost(OSError):
    """The storage did not answer: what was asked of it happened, or not."""


def nobody(call: str) -> Fault | None:
    """Lets every call go through."""
    return None


class Known(NamedTuple):
    """What a process knows of a table's log: the table's id, and the newest commit that it has seen, in which
    generation."""

    identifier: str
    change: Change
    generation: int

    def is_in(self, table: Table) -> bool:
        """Whether a table's log is the one that was seen: it has the very entry."""
        at = self.change.version - table.first
        there = 0 <= at < len(table.changes) and table.changes[at] is self.change
        return there and table.identifier == self.identifier


@translate_storage_errors(methods=METHODS, default="messages")
class SimulatedEngine:
    """Engine on a Storage. Threads may share it."""

    def __init__(
        self, storage: Storage, rules: str = "delta-rs", at: Callable[[str], Fault | None] = nobody, actor: Any = None
    ) -> None:
        self.name, self.storage, self._at, self._actor = rules, storage, at, actor or (lambda: None)
        self._spark = rules == "spark"
        #: By table, the newest version that this process has looked at.
        self._seen: dict[str, int] = {}
        #: The same, to tell whether the log is another one by now; and how often it was (see Tables.generation).
        self._known: dict[str, Known] = {}
        self._generation = 0

    @staticmethod
    def place(table: str) -> str:
        """Where a table lies: nowhere that can be listed."""
        return f"memory://simulated/{table}"

    @staticmethod
    def refusal(table: str, *, appends: bool = False) -> None:
        """Return why a table is refused: it is not, as nobody alters one here."""

    @staticmethod
    def alteration(table: str) -> None:
        """Return what somebody gave a table: nothing, as nobody alters one here."""

    @staticmethod
    def damage(table: str) -> None:
        """Return the damage behind a failure: there is none, failures are planned here."""

    @staticmethod
    def advise(failed: StorageFailed) -> str:
        """Return no advice: a planned failure has none."""
        return ""

    def generation(self) -> int:
        return self._generation

    def create(self, table: str) -> None:
        self._at("create")

    def layout(self, table: str) -> Layout:
        return Layout(TABLES[table].description, {**TABLES[table].properties, **self._tables()[table].properties})

    def configure(self, table: str, properties: Mapping[str, str], metadata: Mapping[str, Any]) -> int:
        known, _ = self._look(table)
        return self._commit(table, known, known.version, [], [], metadata, None, data=False, properties=properties)

    def exists(self, table: str) -> bool:
        return not self.storage.is_gone and table in self.storage.tables

    def version(self, table: str) -> int:
        self._at(f"version {table}")
        version = self._look(table)[0].version
        self._at(f"versioned {table}")
        return version

    def newest_versions(self, tables: Sequence[str]) -> dict[str, int]:
        # Nothing is decided by it: no point of a schedule.
        return {table: self._tables()[table].version for table in tables}

    def load(self, table: str, where: Where) -> Snapshot:
        self._at(f"load {table}")
        known, seen = self._look(table)
        version, state = known.version, known.changes[-1].state
        if known.partitions:
            named = reading(where, known.partitions)
            files = [file for partition, files in state.items() if named(partition) for file in files]
        else:
            files = [file for files in state.values() for file in files]
        snapshot = Snapshot(version, where, rows_of(files, known.schema), seen)
        self._at(f"loaded {table}")
        return snapshot

    def merge(
        self,
        snapshot: Snapshot,
        table: str,
        where: Where,
        edits: pa.Table,
        metadata: Mapping[str, Any],
        late: Callable[[], Mapping[str, Any]] = dict,
    ) -> int:
        metadata = {**metadata, **late()}
        self._at(f"merge {table}")
        require_expected(snapshot, table, edits)
        self._require_same(table, snapshot)
        known, seen = self._look(table)
        if known.version > snapshot.version and seen.generation != snapshot.loaded.generation:
            raise LogReplaced(f"{table} was replaced since version {snapshot.version}, which was read")
        base = known.version if self._spark else snapshot.version
        named = reading(where, known.partitions)
        removed, added = merged(known, known.state(base), named, edits, checked=self._spark)
        return self._commit(table, known, base, removed, added, metadata, named, is_synced=False)

    def extends_segments(self) -> bool:
        return True

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
        self._at(f"append {table}")
        known, seen = self._look(table)
        require_generation(table, generation, seen.generation)
        base = known.version
        for one in transactions:
            require_next(one, known.transaction_version(one[0], base))
        if self._spark:
            # The statement looks for the newest version itself. What it finds committed there it leaves out.
            self._at(f"write {table}")
            base = known.version
            for one in transactions:
                committed = known.transaction_version(one[0], base)
                if committed is not None and committed >= one[1]:
                    raise CommittedBefore("nothing was committed: an earlier commit has this transaction id")
        added = [(partition, File(part)) for partition, part in split(rows, known.partitions)]
        with_it: dict[str, Any] = {"also": beside, "ends": ends, "is_synced": False}
        version = self._commit(table, known, base, [], added, metadata, None, transactions, **with_it)
        return version if self._spark else self.version(table)

    def mark(self, table: str, metadata: Mapping[str, Any], *transactions: tuple[str, int]) -> int:
        self._at(f"mark {table}")
        known, _ = self._look(table)
        base = known.version
        first, *also = transactions
        require_next(first, known.transaction_version(first[0], base))
        return self._commit(table, known, base, [], [], metadata, None, [first], also=also)

    def files(self, at_least: int | None = None) -> tuple[int, pa.Table]:
        self._at("files")
        known, _ = self._look("messages")
        version = known.version
        rows = [
            [*partition, file.rows.num_rows, *file.bounds("seq")]
            + [instant // 1_000 for name in ("sent_at", "available_at") for instant in file.bounds(name)]
            + [None, file.rows.nbytes]
            for partition, files in known.changes[-1].state.items()
            for file in files
        ]
        columns = zip(*rows) if rows else [[] for _ in SEGMENT_FILES]
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, SEGMENT_FILES)]
        self._at("listed")
        return version, pa.table(arrays, schema=SEGMENT_FILES)

    def messages(
        self,
        where: Where,
        columns: Sequence[str],
        first_seq: int | None = None,
        last_seq: int | None = None,
        sent_after: int | None = None,
        numbered_after: int | None = None,
    ) -> pa.Table:
        self._at("messages")
        known, _ = self._look("messages")
        named = reading(where, known.partitions)
        files = [
            file
            for partition, files in known.changes[-1].state.items()
            if named(partition)
            for file in files
            if first_seq is None or (file.bounds("seq")[0] <= last_seq and file.bounds("seq")[1] >= first_seq)
        ]
        rows = rows_of(files, known.schema)
        if first_seq is not None and rows.num_rows:
            rows = rows.filter((pc.field("seq") >= first_seq) & (pc.field("seq") <= last_seq))
        if sent_after is not None and rows.num_rows:
            rows = rows.filter(pc.field("sent_at") > pa.scalar(sent_after * 1_000, pa.int64()).cast(INSTANT))
        if numbered_after is not None and rows.num_rows:
            rows = rows.filter(pc.field("sequence_number") > numbered_after)
        return rows.select(list(columns))

    def delete(self, table: str, predicate: str, metadata: Mapping[str, Any], generation: int | None = None) -> None:
        self._at(f"delete {table}")
        known, seen = self._look(table)
        require_generation(table, generation, seen.generation)
        asked, names = compiled(predicate)
        columns, base, removed, added = sorted({*names, *known.partitions}), known.version, [], []

        def named(partition: Partition) -> bool:
            return asked({**dict.fromkeys(columns, Whatever()), **dict(zip(known.partitions, partition))})

        for partition, files in known.state(base).items():
            for file in files if named(partition) else ():
                gone = [asked(dict(zip(columns, row))) for row in keys_of(file.rows, columns)]
                if any(gone):
                    removed.append((partition, file))
                if any(gone) and not all(gone):
                    added.append((partition, File(file.rows.filter(pa.array([not one for one in gone])))))
        if removed:
            self._commit(table, known, base, removed, added, metadata, named)

    def greatest(self, table: str, column: str) -> int | None:
        self._at(f"greatest {table}")
        state = self._tables()[table].changes[-1].state
        return max((file.bounds(column)[1] for files in state.values() for file in files), default=None)

    def history(self, table: str, since: int) -> list[Commit]:
        self._at(f"history {table}")
        later = self._tables()[table].since(since)
        return [Commit(change.version, change.timestamp, dict(change.metadata)) for change in later]

    def transaction_version(self, table: str, application: str) -> int | None:
        self._at(f"transaction_version {table}")
        known, _ = self._look(table)
        return known.transaction_version(application, known.version)

    def make_durable(self, table: str | None = None, version: int = -1) -> None:
        # Between a commit and this call others have had their turn: no point of its own.
        for name, until in list(self._seen.items()) if table is None else [(table, version)]:
            self._tables()[name].make_durable(until)

    def make_output_durable(self, location: str, version: int) -> None:
        """As `make_durable`, for an output table."""
        self.storage.outputs[location].make_durable(version)

    def _tables(self) -> Mapping[str, Table]:
        """The tables of the ledger that lies in the storage. Raises FileNotFoundError where there is none."""
        if self.storage.is_gone:
            raise FileNotFoundError("there is no such folder")
        return self.storage.tables

    def _look(self, table: str) -> tuple[Table, Known]:
        """A table of the ledger, as of now. Ends the generation where its log is not the one that was seen."""
        known, before = self._tables()[table], self._known.get(table)
        if before is not None and before.generation == self._generation and not before.is_in(known):
            self._generation += 1
        seen = self._known[table] = Known(known.identifier, known.changes[-1], self._generation)
        self._seen[table] = known.version
        return known, seen

    def _require_same(self, table: str, snapshot: Snapshot) -> None:
        """Raises LogReplaced where a table's log is another one than a snapshot was read from."""
        if not snapshot.loaded.is_in(self._tables()[table]):
            raise LogReplaced(f"{table} was replaced since version {snapshot.version}, which was read")

    def read_output_log(self, location: str, application: str) -> OutputLog:
        known = self._output(location, self._at("output_log"))
        return OutputLog(known.identifier, known.version, known.transaction_version(application, known.version))

    def fence_output(self, location: str, application: str, version: int) -> None:
        known = self._output(location, self._at("fence_output"))
        with unreadable(location):
            self._append_output(known, [], application, version, {"verb": "fence"})

    def arrow_outputs(self) -> SimulatedEngine:
        return self

    def output_publishing(self, location: str) -> None:
        """None: nothing is written by Spark."""

    def publishing(self) -> None:
        return None

    def prepare_output(self, location: str, rows: pa.Table, asked: ColumnsAsked, alone: Any) -> pa.Table:
        """Makes such a table, empty, if there is none. All rows have its columns."""
        self._at("prepare_output")
        self.storage.outputs.setdefault(location, Table(rows.schema, identifier=f"table {len(self.storage.outputs)}"))
        return rows

    def append_output(
        self,
        location: str,
        rows: pa.Table,
        application: str,
        version: int,
        metadata: Mapping[str, Any],
        asked: ColumnsAsked,
    ) -> None:
        """Appends rows to a table that is none of the ledger's. Raises Conflict, and whatever delta-rs does."""
        known = self._output(location, self._at("append_output"))
        self._append_output(known, [((), File(rows))] if rows.num_rows else [], application, version, metadata)

    def _append_output(
        self,
        known: Table,
        added: list[tuple[Partition, File]],
        application: str,
        version: int,
        metadata: Mapping[str, Any],
    ) -> None:
        base = known.version
        if known.transaction_version(application, base) is not None:
            raise CommittedBefore(f"{application} was committed before")
        self._commit("output", known, base, [], added, metadata, None, [(application, version)])

    def _output(self, location: str, fault: Fault | None) -> Table:
        known = self.storage.outputs.get(location)
        if known is None or fault is Fault.UNSEEN:
            raise OutputUnreadable(location, "there is no Delta table, or this process cannot see it", gone=True)
        return known

    def compact(self, where: Where, *, growing: bool = False) -> bool:
        self._at("compact messages")
        known, _ = self._look("messages")
        named, base, removed, added = reading(where, known.partitions), known.version, [], []
        for partition, files in known.state(base).items():
            if named(partition) and len(files) > 1:
                removed += [(partition, file) for file in files]
                added.append((partition, File(rows_of(files, known.schema).combine_chunks())))
        if removed:
            self._commit("messages", known, base, removed, added, {}, None, data=False)
        return bool(removed)

    def vacuum(self, table: str) -> None:
        self._at(f"vacuum {table}")

    def _commit(
        self,
        name: str,
        table: Table,
        base: int,
        removed: list[tuple[Partition, File]],
        added: list[tuple[Partition, File]],
        metadata: Mapping[str, Any],
        reads: Callable[[Partition], bool] | None,
        transactions: Sequence[tuple[str, int]] = (),
        data: bool = True,
        also: Sequence[tuple[str, int]] = (),
        ends: Sequence[SegmentEnd] = (),
        properties: Mapping[str, str] | None = None,
        is_synced: bool = True,
    ) -> int:
        """`is_synced`: the engine syncs the commit before it returns. Else its caller does."""
        fault = self._at(f"commit {name}")
        if fault is Fault.REFUSED:
            raise Conflict("somebody else was first, it seems")
        if fault is Fault.NEVER:
            raise AnswerLost("the storage did not answer, and did nothing")
        if name != "output" and self._tables()[name] is not table:
            raise LogReplaced(f"{name} was replaced since it was read")
        require_ends(NewestFiles(table.changes[-1].state), ends)
        # Written and read as text, as in the log: nothing that a writer still holds is shared with a reader.
        said = json.loads(json.dumps(metadata))
        version = table.commit(
            base,
            removed,
            added,
            metadata=said,
            timestamp=self.storage.clock(),
            reads=reads,
            blind_appends_matter=not self._spark,
            transactions=transactions,
            data=data,
            also=also,
            properties=properties,
            actor=self._actor(),
        )
        if fault is Fault.CONFLICT:
            raise Conflict("somebody else was first, it seems")
        if fault is Fault.LOST:
            raise AnswerLost("the storage did not answer")
        self._at(f"committed {name}")
        if is_synced:
            table.make_durable(version)
        return version
