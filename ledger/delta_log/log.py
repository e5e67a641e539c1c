"""Direct commits: the client writes rows into new files, and makes the entry of the log that names these files.

On an object store, delta-rs makes some ten requests to commit edits. A direct commit of one new file makes 3.

**Why this is safe.** An entry is a file that must not exist yet. If another writer was first, the client tries the
version after the newest one. Edits replace files, so they commit only if the touched partitions still have the same
files. Names of files are never used twice, so the same files have the same rows. A partition without files proves
nothing: files may have come and gone. So if another writer was first, a statement makes the edits of this partition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from ledger.delta_log.data_files import (
    APPENDED,
    FILE,
    Action,
    Encoded,
    add_action,
    commit_info,
    new_path,
    remove_action,
    split_rows,
    txn_action,
)
from ledger.delta_log.delta_rs_commits import LISTED_AFTER, REBASES
from ledger.delta_log.durability import mark_synced
from ledger.delta_log.history import MISSING, Generations, make_damage_error
from ledger.delta_log.maintenance import is_due
from ledger.delta_log.protocol import (
    Conflict,
    LogReplaced,
    NotDirect,
    Partition,
    PartitionFilter,
    Seen,
    Snapshot,
    TableSpec,
    nothing_late,
    require_next,
)
from ledger.delta_log.replay import Files, LogFollower, Replay
from ledger.delta_log.rewrite import Rewrite, filter_partitions, list_distinct_rows, plan_rewrite
from ledger.delta_log.statements import (
    ALTERED,
    LARGE,
    NEW_PARTITION,
    REASONS,
    REWRITTEN,
    SETTING,
    STATISTICS,
    WIDER,
    partition_text,
)
from ledger.delta_log.storage import SMALL, FileRows, LocalFiles, Storage, log_entry, log_file
from ledger.errors import ForkedProcess
from ledger.rules.limits import MILLISECONDS
from ledger.runtime.threads import map_at_once

log = logging.getLogger("ledger.commits")
#: The most rows, also of rewritten files, that a direct commit of edits writes. For more, a statement is quicker.
MOST_ROWS = 100_000
MOST_SMALL = 8 * SMALL
MOST_PARTITIONS = 16


class AddedFile(NamedTuple):
    path: str
    partition: Mapping[str, Any]
    rows: pa.Table


class RemovedFile(NamedTuple):
    path: str
    size: int
    partition: Mapping[str, Any]


class NewCommit(NamedTuple):
    """A commit to make.

    Attributes:
        transactions: Each must be the next one of its application.
        beside: Transactions that are not checked.
        is_change: Whether the commit changes rows, and not only files.
        late: Returns further metadata.
    """

    operation: str
    metadata: Mapping[str, Any]
    adds: Sequence[AddedFile] = ()
    removes: Sequence[RemovedFile] = ()
    transactions: Sequence[tuple[str, int]] = ()
    beside: Sequence[tuple[str, int]] = ()
    is_change: bool = True
    with_statistics: bool = False
    late: Callable[[], Mapping[str, Any]] = nothing_late


class WrittenByEngine(Mapping[str, bytes]):
    """Paths of files that an engine wrote. A look-up of a content raises Conflict: the client cannot write the file
    again."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)

    def __getitem__(self, path: str) -> bytes:
        raise Conflict(f"{path}, which a statement wrote, was removed before a commit named it")

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


class WrittenFiles(NamedTuple):
    """The files of a commit, by path. `at`: when their writing began, in monotonic seconds."""

    files: Mapping[str, bytes]
    at: float
    generation: int


class LogWriter:
    def __init__(
        self,
        table: TableSpec,
        replay: Replay,
        stored: Storage,
        *failures: type[Exception],
        generations: Generations | None = None,
    ) -> None:
        self._table, self.replay, self._stored = table, replay, stored
        self._failures: tuple[type[Exception], ...] = (*failures, OSError, ForkedProcess)
        self.followed = LogFollower(table, replay, stored, generations=generations)
        self.rows = FileRows(table.schema, table.partitions, stored)

    def newest(self, *, listing: bool = False) -> Files:
        return self._require_plain(self.followed.newest(listing=listing))

    def _require_plain(self, files: Files | None) -> Files:
        if files is None:
            raise Conflict(f"{self._table.name} was altered since it was read")
        return files

    def transaction_version(self, application: str) -> int | None:
        return self._last_of(application)[1]

    def newest_before(self, transaction: tuple[str, int]) -> Files:
        files, committed = self._last_of(transaction[0])
        require_next(transaction, committed)
        return self._require_plain(files)

    def _newest_before_each(self, transactions: Sequence[tuple[str, int]]) -> Files:
        while True:
            newest = [self.newest_before(transaction) for transaction in transactions]
            if len({files.version for files in newest}) == 1:
                return newest[0]

    def _last_of(self, application: str) -> tuple[Files | None, int | None]:
        """Return the files of the newest version (None: the table is altered), and what an application committed by
        then."""
        latest = self.followed.newest()
        while latest is not None:
            last = latest.transactions.last(application, latest.version, self.replay.transaction)
            if last.table_version == latest.version:
                return latest, last.committed
            latest = self.followed.newest()
            if latest is not None and latest.version < last.table_version:
                # Entries before the version that the engine has seen were removed.
                latest = self.followed.newest(listing=True)
        return None, self.replay.transaction(application)[1]

    def commit(
        self,
        commit: NewCommit,
        still_valid: Callable[[Files], None],
        *,
        on: Files | None = None,
        read_at: float | None = None,
    ) -> int:
        """Commit a decision of the caller, and return the version.

        Args:
            still_valid: Looks at the version before the commit. Raises, mostly Conflict, if the commit may not follow
                it.
            on: The version that the decision was made on; None: take the newest version.
            read_at: When that version was read, in monotonic seconds. After LISTED_AFTER seconds, the log is listed
                anew.

        Raises:
            Conflict: A transaction may not be committed next, the table is altered, its log was cut meanwhile, or
                others committed REBASES times meanwhile.
            LogReplaced: The log is no longer the log that was read.
            LedgerDamaged: Only a checkpoint has the newest version.
        """
        generation, at = self.followed.generation(), time.monotonic()
        files, late = self._write_with_late_metadata(commit)
        if read_at is not None and time.monotonic() - read_at > LISTED_AFTER:
            on = self.newest(listing=True)
        # Take the time late: removed files are kept for readers of older versions from this time on.
        actions = self._actions(commit, late, files.sizes, int(time.time() * MILLISECONDS))
        return self.land(
            actions, WrittenFiles(files, at, generation), still_valid, on=on, transactions=commit.transactions
        )

    def land(
        self,
        actions: Sequence[Action],
        written: WrittenFiles,
        still_valid: Callable[[Files], None],
        *,
        on: Files | None = None,
        transactions: Sequence[tuple[str, int]] = (),
    ) -> int:
        """Commit actions that name the `written` files: see `commit`. If `on` is given, the first try checks no
        transactions."""
        for _ in range(REBASES):
            if on is None:
                on = self._newest_before_each(transactions) if transactions else self.newest()
            if on.generation != written.generation:
                raise LogReplaced(f"{self._table.name} was replaced since the rows of a commit were written")
            still_valid(on)
            version = self._try_commit(on, actions, written)
            if version is not None:
                return version
            on = None
        raise Conflict(f"others committed to {self._table.name} {REBASES} times in the meantime")

    def _actions(self, commit: NewCommit, late: Mapping[str, Any], sizes: Mapping[str, int], now: int) -> list[Action]:
        parameters = APPENDED if commit.operation == "WRITE" else REWRITTEN
        actions = [commit_info(commit.operation, {**commit.metadata, **late}, now, parameters)]
        actions += [txn_action(transaction, now) for transaction in (*commit.transactions, *commit.beside)]
        named = self._table.statistics if commit.with_statistics else ()
        for path, size, partition in commit.removes:
            actions.append(remove_action(path, size, partition, now, is_change=commit.is_change))
        for path, partition, rows in commit.adds:
            actions.append(add_action(path, sizes[path], rows, partition, now, named, is_change=commit.is_change))
        return actions

    def _write_with_late_metadata(self, commit: NewCommit) -> tuple[Encoded, Mapping[str, Any]]:
        """Elsewhere than on a local path, requests take time: look up the late metadata during the writes."""
        if isinstance(self._stored, LocalFiles) or commit.late is nothing_late:
            return self._write(commit), commit.late()
        calls: list[Callable[[], Any]] = [partial(self._write, commit), commit.late]
        files, late = map_at_once(lambda call: call(), calls, len(calls))
        return files, late

    def _write(self, commit: NewCommit) -> Encoded:
        files = Encoded({added.path: added.rows for added in commit.adds}, self._table.partitions)
        self._stored.write(files)
        for path, _, rows in commit.adds:
            self.rows.keep(path, rows)
        return files

    def _try_commit(self, latest: Files, actions: Sequence[Action], written: WrittenFiles) -> int | None:
        """Return the version of the commit; None: another writer was first."""
        self._require_there(written)
        version = latest.version + 1
        entry = log_entry(mark_synced(actions) if self._stored.is_synced else actions)
        try:
            with self._stored.held_log() as held:
                # Check the log if this costs no request.
                if not self.followed.may_be_same(latest, held):
                    raise self._make_replaced_error(latest)
                # If an object store's answer was lost, the entry may exist with this content: then the commit has
                # landed. A second entry could add files again that others have joined since.
                if not held.put_new(log_file(version), entry) and held.read(log_file(version)) != entry:
                    return None
        except FileNotFoundError as gone:
            raise self._make_replaced_error(latest) from gone
        self._verify_reachable(latest, entry, written)
        self._require_there(written)
        self.followed.committed(latest, actions, entry)
        self.rows.forget(action["remove"]["path"] for action in actions if "remove" in action)
        if version % latest.checkpoints == 0 and is_due(self._stored, version):
            self._checkpoint(version)
        return version

    def _require_there(self, written: WrittenFiles) -> None:
        """Write files again that are gone: Spark's VACUUM removes old files that no commit names yet."""
        if time.monotonic() - written.at > LISTED_AFTER:
            gone = {path: written.files[path] for path in written.files if not self._stored.has(path)}
            self._stored.write(gone)
            self._stored.sync(gone)

    def _verify_reachable(self, latest: Files, entry: bytes, written: WrittenFiles) -> None:
        """Raise LogReplaced or Conflict if the version before a commit is not the one that was read.

        If that version is gone, a `written` file in the table proves that the commit landed. If the log goes on
        without such a file, nothing proves it: raise Conflict. Otherwise remove the commit's entry.
        """
        if self.followed.is_same(latest):
            return
        before, entry_file = log_file(latest.version), log_file(latest.version + 1)
        if self._stored.has(before):
            # Others may have committed after this commit by now: keep it.
            self.followed.forget()
            raise LogReplaced(
                f"{self._table.name} was replaced during a commit, which is now version {latest.version + 1} of the "
                "new log and may not belong there"
            )
        newest = self._list_anew()
        paths_there = (
            {path for files in newest.by_partition.values() for path in files} if newest is not None else set()
        )
        if not paths_there.isdisjoint(written.files):
            # Old entries were removed after the commit.
            return
        goes_on = newest is not None and newest.generation == latest.generation and newest.version >= latest.version
        if goes_on or self._stored.read(entry_file) != entry:
            # The commit may have landed, and others may have removed its files since.
            raise Conflict(f"the log of {self._table.name} was cut after version {latest.version}")
        self._stored.remove(entry_file)
        # If the version before is back, others may have read this commit meanwhile: restore it.
        if self._stored.has(before):
            self._stored.put_new(entry_file, entry)
        raise self._make_replaced_error(latest)

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Return a context for one commit of the engine. It raises LogReplaced if another log is in place
        afterwards."""
        before = self.followed.newest()
        yield
        if before is None or self.followed.is_same(before):
            return
        following, before_file = log_file(before.version + 1), log_file(before.version)
        if self._stored.has(before_file) or not self._stored.has(following):
            raise self._make_replaced_error(before)

    def _make_replaced_error(self, latest: Files) -> LogReplaced:
        """Return the error about a log that has lost a version.

        Raises LedgerDamaged if only a checkpoint has this version, and it is the newest: no commit can follow it.
        """
        self.followed.forget()
        if latest.entry is None:
            newest = self.followed.newest()
            if newest is not None and newest.version == latest.version and newest.entry is None:
                raise make_damage_error(self._table.name, latest.version, MISSING)
        return LogReplaced(f"the log of {self._table.name} has lost version {latest.version}, which was read")

    def _list_anew(self) -> Files | None:
        self.followed.forget()
        try:
            return self.followed.newest()
        except self._failures:
            return None

    def _checkpoint(self, version: int) -> None:
        """Make a checkpoint. Log errors only: the commit has landed."""
        try:
            self.replay.checkpoint(version)
        except self._failures as error:
            # The next process makes the checkpoint that a forked child cannot make.
            level = logging.INFO if isinstance(error, ForkedProcess) else logging.WARNING
            log.log(level, "No checkpoint of %s at version %d: %s", self._table.name, version, error)


def _accept_any(files: Files) -> None:
    """Accept any version."""


class DirectTable:
    def __init__(
        self,
        table: TableSpec,
        replay: Replay,
        stored: Storage,
        *failures: type[Exception],
        generations: Generations | None = None,
        by_statement: bool = False,
    ) -> None:
        """`failures` are the errors of the engine. `by_statement`: only statements commit rows."""
        self._table, self._by_statement = table, by_statement
        self.writer = LogWriter(table, replay, stored, *failures, generations=generations)
        self.rows = self.writer.rows

    def is_known(self) -> bool:
        return not self._by_statement and self.writer.followed.seen() is not None

    def why_not(self) -> tuple[str, str] | None:
        if self._by_statement:
            return SETTING, REASONS[SETTING]
        if self.writer.followed.newest() is None:
            return ALTERED, self.writer.followed.altered()
        return None

    def load(self, where: PartitionFilter) -> Snapshot | None:
        latest = self.writer.followed.newest()
        if latest is None:
            return None
        rows = [self.rows.of(partition, path) for partition, path in latest.named(where, self._table.partitions)]
        return Snapshot(latest.version, where, pa.concat_tables([self._table.nothing, *rows]), latest)

    def merge(
        self,
        snapshot: Snapshot,
        where: PartitionFilter,
        edits: pa.Table,
        metadata: Mapping[str, Any],
        late: Callable[[], Mapping[str, Any]] = nothing_late,
    ) -> int:
        """Commit edits that have passed `require_expected`, and return the version.

        Raises NotDirect if a statement has to commit the edits, Conflict if others have changed the partitions of
        `where`, and what `LogWriter.commit` raises.
        """
        if self._by_statement:
            raise NotDirect(SETTING)
        if snapshot.loaded is None:
            raise NotDirect(ALTERED)
        columns = list(self._table.partitions)
        touched = list_distinct_rows(edits, columns) if columns else [{}]
        if columns and not _all_named_are_touched(where.partitions(columns), touched):
            raise NotDirect(WIDER)
        read = snapshot.loaded
        before = [read.of(_values_of(partition)) for partition in touched]
        edits_of = [edits] if len(touched) == 1 else [filter_partitions(edits, [partition]) for partition in touched]
        rewrites = [self._plan_rewrite(*planned) for planned in zip(touched, before, edits_of)]
        if sum(rows.num_rows for rewrite in rewrites for rows in rewrite.written) > MOST_ROWS:
            raise NotDirect(LARGE)
        adds, removes = list[AddedFile](), list[RemovedFile]()
        for partition, files, rewrite in zip(touched, before, rewrites):
            adds += [AddedFile(new_path(partition), partition, rows) for rows in rewrite.written]
            removes += [RemovedFile(path, files[path], partition) for path in rewrite.gone]

        def still_valid(latest: Files) -> None:
            self._require_generation(latest, snapshot)
            if latest.version > snapshot.version:
                if not all(before):
                    raise NotDirect(NEW_PARTITION, f"a partition of {self._table.name} had no files")
                if [latest.of(_values_of(partition)) for partition in touched] != before:
                    raise Conflict(f"others have committed to {self._table.name} since version {snapshot.version}")

        commit = NewCommit("MERGE", metadata, adds, removes, late=late)
        return self.writer.commit(commit, still_valid, on=read, read_at=snapshot.read_at)

    def land_statement(
        self, snapshot: Snapshot, where: PartitionFilter, actions: Sequence[Action], tried: int, began: float
    ) -> int:
        """Commit the actions of a MERGE that an engine ran on a copy of the log; return the version.

        Args:
            snapshot: The rows that the edits were decided on, of a table that is not altered.
            where: The partitions that the MERGE relies on.
            tried: The actions' version in the copy. The engine has looked for conflicts with all earlier versions.
            began: When the MERGE was begun, in monotonic seconds.

        Raises Conflict also if others may have changed these partitions.
        """
        read, columns = snapshot.loaded, self._table.partitions
        named = where.partitions(columns) if columns else [()]

        def still_valid(latest: Files) -> None:
            self._require_generation(latest, snapshot)
            if named is not None and any(latest.of(partition) != read.of(partition) for partition in named):
                raise Conflict(f"others have committed to {self._table.name} since version {snapshot.version}")
            # Files show no change of a partition without files, or of one that `where` does not name. The engine has
            # looked at such partitions only before `tried`.
            if latest.version >= tried and (named is None or not all(map(read.of, named))):
                raise Conflict(f"others have committed to {self._table.name} while a statement was run")

        written = WrittenByEngine(action["add"]["path"] for action in actions if "add" in action)
        return self.writer.land(actions, WrittenFiles(written, began, read.generation), still_valid)

    def _require_generation(self, latest: Files, snapshot: Snapshot) -> None:
        if latest.generation != snapshot.loaded.generation:
            raise LogReplaced(f"{self._table.name} was replaced since version {snapshot.version}, which was read")

    def append(
        self,
        rows: pa.Table,
        metadata: Mapping[str, Any],
        transactions: Sequence[tuple[str, int]],
        still_valid: Callable[[Files], None] | None,
        beside: Sequence[tuple[str, int]] = (),
        seen: Seen | None = None,
    ) -> int:
        """Commit rows under transactions (see `DeltaTables.add_rows`), and return the version.

        Raises NotDirect if a statement has to commit the rows, and ValueError for null or an empty text in a partition
        column.
        """
        if self._by_statement:
            raise NotDirect(SETTING)
        if not self._table.statistics:
            raise NotDirect(STATISTICS)
        latest = self.writer.followed.at_least(None if seen is None else seen.version)
        if latest is None:
            raise NotDirect(ALTERED)
        partitions = list_distinct_rows(rows, self._table.partitions) if self._table.partitions else [{}]
        for partition in partitions:
            self._table.require_partition(partition)
        of_partition = [
            (partition, filter_partitions(rows, [partition]) if len(partitions) > 1 else rows)
            for partition in partitions
        ]
        adds = [
            AddedFile(new_path(partition), partition, part)
            for partition, partition_rows in of_partition
            for part in split_rows(partition_rows, FILE)
        ]
        commit = NewCommit("WRITE", metadata, adds, (), transactions, beside, with_statistics=True)
        if seen is None or transactions:
            return self.writer.commit(commit, still_valid or _accept_any)
        return self.writer.commit(commit, still_valid or _accept_any, on=latest, read_at=seen.at)

    def read_small_rows(self, where: PartitionFilter, above: Mapping[str, int]) -> pa.Table | None:
        """Return the rows of some partitions, if these are few and their files are small; else None.

        If `where` has only one value of the first column, and `above` has one bound, any number of partitions will do.
        Then only files that may hold rows above this bound are read.
        """
        latest = self.writer.followed.newest() if self._table.statistics else None
        files = None if latest is None else self._files_of(latest, where, above)
        if files is None or any(size >= SMALL for _, _, size in files):
            return None
        if sum(size for _, _, size in files) > MOST_SMALL:
            return None
        rows = [self.rows.of(partition, path) for partition, path, _ in files]
        return pa.concat_tables([self._table.nothing, *rows])

    def read_all_rows(self, where: PartitionFilter) -> pa.Table | None:
        latest = self.writer.followed.newest() if self._table.statistics else None
        if latest is None:
            return None
        named = latest.named(where, self._table.partitions)
        return pa.concat_tables([self._table.nothing, *(self.rows.of(*file) for file in named)])

    def _files_of(
        self, latest: Files, where: PartitionFilter, above: Mapping[str, int]
    ) -> list[tuple[Partition, str, int]] | None:
        """Return the partitions, paths and sizes of the files that `read_small_rows` reads; None: too many, or
        unknown."""
        columns = self._table.partitions
        first, *others = where.alternatives()
        if columns and not others and first.keys() == {columns[0]} and len(first[columns[0]]) == 1 and len(above) == 1:
            if latest.statistics is None:
                return None
            ((column, bound),) = above.items()
            recent = latest.statistics.above(first[columns[0]][0], column, bound)
            return [(partition, path, latest.of(partition)[path]) for partition, path in recent]
        if others or sum(map(len, first.values())) > MOST_PARTITIONS + len(columns):
            return None
        named = where.partitions(columns)
        if named is None or len(named) > MOST_PARTITIONS:
            return None
        return [(values, path, size) for values in named for path, size in latest.of(values).items()]

    def files_above(self, value: str, column: str, bound: int) -> dict[str, int] | None:
        latest = self.writer.followed.newest() if self._table.statistics else None
        if latest is None or latest.statistics is None:
            return None
        return {path: latest.of(at)[path] for at, path in latest.statistics.above(value, column, bound)}

    def require_same(self, snapshot: Snapshot) -> None:
        if snapshot.loaded is not None and not self.writer.followed.is_same(snapshot.loaded):
            self.writer.followed.forget()
            raise LogReplaced(f"{self._table.name} was replaced since version {snapshot.version}, which was read")

    def _plan_rewrite(self, partition: Mapping[str, Any], files: Iterable[str], edits: pa.Table) -> Rewrite:
        rows = {path: self.rows.of(_values_of(partition), path) for path in files}
        return plan_rewrite(rows, edits, self._table)


def _all_named_are_touched(named: Sequence[Partition] | None, touched: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether all partitions that edits rely on are touched: `merge` looks for conflicts only in touched
    ones."""
    return named is not None and {_values_of(partition) for partition in touched}.issuperset(named)


def _values_of(partition: Mapping[str, Any]) -> Partition:
    return tuple(map(partition_text, partition.values()))
