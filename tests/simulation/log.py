"""Delta's tables in memory: lists of commits over immutable Arrow data, and who may commit beside whom.

A state maps a partition to its files. A commit removes files and adds files, as in Delta's log; one that began on an
older version is checked against every commit since (`Table.commit`), and rebased over those that do not matter to it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from ledger.delta_log.protocol import Conflict
from ledger.store.delta.backups import VERSIONS
from ledger.store.delta.model.tables import TABLES, Where
from ledger.store.delta.verbs.receipts import FILLS

Partition = tuple[Any, ...]
#: A file system writes what nobody syncs by itself, so many milliseconds later.
UNSYNCED = 30_000


class File:
    """One data file: immutable rows of one partition, all columns of the table included."""

    __slots__ = ("_keys", "_statistics", "rows")

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self._keys: list[tuple[Any, ...]] | None = None
        self._statistics: dict[str, Any] = {}

    def keys(self, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """What a MERGE finds each row by."""
        if self._keys is None:
            self._keys = keys_of(self.rows, columns)
        return self._keys

    def bounds(self, column: str) -> tuple[Any, Any]:
        """The least and the greatest value of a column, as the log's statistics have them; instants as microseconds."""
        if column not in self._statistics:
            values = self.rows[column]
            values = values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
            known = [value for value in values.to_pylist() if value is not None]
            self._statistics[column] = (min(known), max(known)) if known else (None, None)
        return self._statistics[column]


State = Mapping[Partition, tuple[File, ...]]


class NewestFiles:
    """The files of a state of `messages`, as `segment_ends` asks for them."""

    def __init__(self, state: State) -> None:
        self._state, self.statistics = state, self

    def of(self, partition: tuple[str, str, str]) -> tuple[File, ...]:
        """The files of a partition, whose values are texts as in the log."""
        queue, lane, segment = partition
        return self._state.get((queue, int(lane), segment), ())

    def find_last_ordinal(self, segment: str) -> int | None:
        """The last ordinal in a segment."""
        files = [file for partition, files in self._state.items() if partition[2] == segment for file in files]
        return max((file.bounds("seq")[1] for file in files), default=None)


@dataclass(frozen=True)
class Change:
    """One commit: what it removed and added, by partition, and the state that it left."""

    version: int
    timestamp: int
    metadata: Mapping[str, Any]
    removed: Sequence[tuple[Partition, File]]
    added: Sequence[tuple[Partition, File]]
    transaction: tuple[str, int] | None
    state: State
    #: It read nothing: the appends.
    blind: bool = False
    #: It changed rows, and did not only put them into other files.
    data: bool = True
    #: Whoever committed, for the judge.
    actor: Any = None
    #: The properties of the table that it set.
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Table:
    """One Delta table."""

    schema: pa.Schema
    partitions: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    identifier: str = ""
    changes: list[Change] = field(default_factory=list)
    transactions: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    #: All versions up to this one survive a power cut.
    durable: int = -1

    def __post_init__(self) -> None:
        if not self.changes:
            self.changes.append(Change(0, 0, {}, (), (), None, {}))
        self.durable = self.version

    @property
    def version(self) -> int:
        return self.changes[-1].version

    @property
    def first(self) -> int:
        """The version that the log begins with: that of a restored table is no 0."""
        return self.changes[0].version

    @property
    def properties(self) -> dict[str, str]:
        """Those that commits have set."""
        return {name: value for change in self.changes for name, value in change.properties.items()}

    def state(self, version: int) -> State:
        return self.changes[version - self.first].state

    def since(self, version: int) -> list[Change]:
        """The commits behind a version."""
        return self.changes[max(0, version + 1 - self.first) :]

    def restored(self, identifier: str, beyond: int, timestamp: int) -> Table:
        """What a backup of this version becomes in the place of a table whose newest version is `beyond`: another table
        of the same rows, see `backups`. It knows of no fill of receipts."""
        version = (max(self.version, beyond) // VERSIONS + 1) * VERSIONS
        said = {"verb": "backup", "at": timestamp, "owner": "", "events": []}
        change = Change(version, timestamp, said, (), (), None, self.changes[-1].state)
        known = {
            name: [(version, versions[-1][1])]
            for name, versions in self.transactions.items()
            if versions and not name.startswith(FILLS)
        }
        return Table(self.schema, self.partitions, self.key, identifier, [change], known)

    def make_durable(self, version: int) -> None:
        """Syncs the versions up to this one: one folder names them all."""
        self.durable = max(self.durable, min(version, self.version))

    def cut(self, version: int) -> None:
        """Loses the commits after a version."""
        del self.changes[version + 1 - self.first :]
        self.durable = version
        for name, known in self.transactions.items():
            self.transactions[name] = [one for one in known if one[0] <= version]

    def transaction_version(self, application: str, version: int) -> int | None:
        """The newest version committed under an application id, as of a version of the table."""
        known = [number for at, number in self.transactions.get(application, ()) if at <= version]
        return known[-1] if known else None

    def copy(self) -> Table:
        """The same history, to be carried on apart."""
        known = {name: list(versions) for name, versions in self.transactions.items()}
        return Table(self.schema, self.partitions, self.key, self.identifier, list(self.changes), known)

    def commit(
        self,
        base: int,
        removed: Sequence[tuple[Partition, File]],
        added: Sequence[tuple[Partition, File]],
        *,
        metadata: Mapping[str, Any],
        timestamp: int,
        reads: Callable[[Partition], bool] | None,
        blind_appends_matter: bool,
        transactions: Sequence[tuple[str, int]] = (),
        data: bool = True,
        actor: Any = None,
        also: Sequence[tuple[str, int]] = (),
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Commits what was decided on version `base`, on top of the newest. Raises Conflict, as Delta does:

        when a later commit added files to, or removed files from, a partition that was read (None: nothing was read);
        removed a file that this one removes; or has the application id of one of the `transactions`.
        """
        mine = {id(file) for _, file in removed}
        for application, _ in transactions:
            if any(at > base for at, _ in self.transactions.get(application, ())):
                raise Conflict(f"transaction {application} was committed behind version {base}")
        for winner in self.since(base):
            if properties and winner.properties:
                raise Conflict(f"version {winner.version} set properties, too")
            if any(id(file) in mine for _, file in winner.removed):
                raise Conflict(f"version {winner.version} removed a file that this commit removes")
            if reads is None:
                continue
            counts = winner.data and data and (blind_appends_matter or not winner.blind)
            if counts and any(reads(partition) for partition, _ in winner.added):
                raise Conflict(f"version {winner.version} added files that this commit should have read")
            if any(reads(partition) for partition, _ in winner.removed):
                raise Conflict(f"version {winner.version} removed files that this commit read")
        state = dict(self.changes[-1].state)
        for partition, file in removed:
            left = tuple(one for one in state[partition] if one is not file)
            if left:
                state[partition] = left
            else:
                del state[partition]
        for partition, file in added:
            state[partition] = (*state.get(partition, ()), file)
        version = self.version + 1
        blind = reads is None and not removed
        change = Change(
            version,
            timestamp,
            metadata,
            removed,
            added,
            next(iter(transactions), None),
            state,
            blind,
            data,
            actor,
            properties or {},
        )
        self.changes.append(change)
        for application, number in (*transactions, *also):
            self.transactions.setdefault(application, []).append((version, number))
        return version


class Era(NamedTuple):
    """A ledger that lay in the storage, from its first to its last point: as it was in the beginning and in the end."""

    began: int
    before: Storage
    ended: float
    after: Storage


class Storage:
    """What all engines of one ledger share: its tables, the output tables, the storage's clock, and who listens."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        #: Whether somebody has removed the ledger, and put no other one in its place yet.
        self.is_gone = False
        self.tables = {name: Table(known.schema, known.partitions, known.key) for name, known in TABLES.items()}
        self.outputs: dict[str, Table] = {}

    def cut_power(self, dice: random.Random) -> None:
        """Loses what the file system may lose: of each table, apart from the others, any number of the newest commits
        that nobody has synced. The bytes of a commit are synced before others can see it, so none is torn."""
        until = self.clock() - UNSYNCED
        for table in (*self.tables.values(), *self.outputs.values()):
            kept = max((one.version for one in table.changes if one.timestamp <= until), default=0)
            table.cut(dice.randint(max(kept, table.durable), table.version))

    def restored(self, replaced: Storage, name: str) -> Storage:
        """The ledger that a backup, which this is, becomes in the place of another one."""
        other = Storage(self.clock)
        other.tables = {
            table: known.restored(f"{name} {table}", replaced.tables[table].version, self.clock())
            for table, known in self.tables.items()
        }
        return other

    def copy(self, clock: Callable[[], int]) -> Storage:
        """The same tables, to be carried on apart."""
        other = Storage(clock)
        other.tables = {name: table.copy() for name, table in self.tables.items()}
        other.outputs = {name: table.copy() for name, table in self.outputs.items()}
        return other


def keys_of(rows: pa.Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Some columns of each row as tuples."""
    return list(zip(*(rows[name].to_pylist() for name in columns)))


def split(rows: pa.Table, partitions: Sequence[str]) -> list[tuple[Partition, pa.Table]]:
    """Rows by the partition that they belong to."""
    if not partitions:
        return [((), rows)] if rows.num_rows else []
    places: dict[Partition, list[int]] = {}
    for at, key in enumerate(keys_of(rows, partitions)):
        places.setdefault(key, []).append(at)
    if len(places) == 1:
        return [(next(iter(places)), rows)]
    return [(key, rows.take(pa.array(at))) for key, at in places.items()]


def reading(where: Where, partitions: Sequence[str]) -> Callable[[Partition], bool]:
    """Whether a partition is one that `where` names."""
    asked = {"queue": where.queue, "lane": where.lanes, "segment": where.segments}
    bounds = [
        (at, {asked[name]} if name == "queue" else set(asked[name]))
        for at, name in enumerate(partitions)
        if asked.get(name) is not None
    ]
    also = reading(where.also, partitions) if where.also is not None else None

    def named(partition: Partition) -> bool:
        return all(partition[at] in wanted for at, wanted in bounds) or (also is not None and also(partition))

    return named


def rows_of(files: Iterable[File], schema: pa.Schema) -> pa.Table:
    """The rows of some files as one table."""
    tables = [file.rows for file in files]
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables) if tables else schema.empty_table()
