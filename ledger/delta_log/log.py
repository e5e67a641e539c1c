"""Direct commits: the client itself writes rows into new files, and makes the entry of the log that names the files.

`LogWriter.land` has the one loop that makes such commits. `DirectTable` reads rows, and commits edits and appends. An
append adds files. Edits replace files of the partitions that they touch. `join` commits joined files through the same
loop.

A direct commit saves the engine's query. An append by this module takes 3 ms, and by delta-rs 12 ms or more (both of 2
cores busy). On an object store, delta-rs makes some ten requests to commit edits. A direct commit of one new file makes
3: it puts the file, puts the entry, and reads the entry before.

An entry is a file that must not exist yet. The client makes the entry of the version after the version that was read.
If another writer was first, the client tries the version after the newest one. For edits it does so only if the touched
partitions still have the same files. Names of files are never used twice, so the same files have the same rows. A
partition without files proves nothing: files may have come and gone meanwhile. If another writer was first, a statement
of the engine makes edits of such a partition.

An *altered* table differs from its spec (`replay.Altered`): the client makes no direct commits to it. `replay` explains
*applications*, `history` *generations*, and `file_facts` the facts of files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from ledger.delta_log.actions import APPENDED, Action, add_action, commit_info, remove_action, txn_action
from ledger.delta_log.data_files import FILE, Encoded, new_path, split_rows
from ledger.delta_log.delta_rs_commits import LISTED_AFTER, REBASES
from ledger.delta_log.durability import with_mark
from ledger.delta_log.history import MISSING, Generations, damaged
from ledger.delta_log.maintenance import is_due
from ledger.delta_log.paths import ALTERED, LARGE, NEW_PARTITION, REASONS, REWRITTEN, SETTING, STATISTICS, WIDER
from ledger.delta_log.protocol import (
    Conflict,
    LogReplaced,
    NotDirect,
    Seen,
    Snapshot,
    nothing_late,
    require_next,
)
from ledger.delta_log.replay import Files, LogFollower, Replay
from ledger.delta_log.rewrite import Rewrite, distinct, filter_partitions, plan_rewrite
from ledger.delta_log.spec import Partition, PartitionFilter, TableSpec
from ledger.delta_log.storage import SMALL, FileRows, LocalFiles, Storage, log_entry, log_file
from ledger.delta_log.values import partition_text
from ledger.errors import ForkedProcess
from ledger.rules.limits import MILLISECONDS
from ledger.runtime.threads import map_at_once

log = logging.getLogger("ledger.commits")
#: The most rows that a direct commit of edits may write, rows of rewritten files included. For more rows, a statement
#: is quicker.
MOST_ROWS = 100_000
#: `DirectTable.small_rows` reads only files below SMALL bytes, and at most MOST_SMALL bytes in a call.
MOST_SMALL = 8 * SMALL
#: The most partitions that a call of `small_rows` may name one by one.
MOST_PARTITIONS = 16


class AddedFile(NamedTuple):
    """Rows that become a file of a partition."""

    path: str
    partition: Mapping[str, Any]
    rows: pa.Table


class RemovedFile(NamedTuple):
    """A file of a partition that a commit removes from the table."""

    path: str
    size: int
    partition: Mapping[str, Any]


class NewCommit(NamedTuple):
    """A commit to make: the files that it adds and removes, its transactions, and its metadata.

    `is_change`: the commit changes rows, and not only files. `with_statistics`: the log gets each new file's smallest
    and greatest value of the columns `TableSpec.statistics`.
    """

    operation: str
    metadata: Mapping[str, Any]
    adds: Sequence[AddedFile] = ()
    removes: Sequence[RemovedFile] = ()
    #: Each transaction must be the next one of its application. `beside` has transactions that are not checked.
    transactions: Sequence[tuple[str, int]] = ()
    beside: Sequence[tuple[str, int]] = ()
    is_change: bool = True
    with_statistics: bool = False
    #: Returns further metadata. On a local path it is called after the files were written, elsewhere during the writes.
    late: Callable[[], Mapping[str, Any]] = nothing_late


class WrittenByEngine(Mapping[str, bytes]):
    """The paths of files that an engine has written. A look-up of a content raises Conflict: the client cannot write
    such a file again."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)

    def __getitem__(self, path: str) -> bytes:
        raise Conflict(f"{path}, which a statement wrote, was removed before a commit named it")

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


class WrittenFiles(NamedTuple):
    """The files of a commit, by path. Their writing began `at` a time (monotonic seconds), in a `generation` of the
    tables."""

    files: Mapping[str, bytes]
    at: float
    generation: int


class LogWriter:
    """Follows the log of a table, and adds entries to it."""

    def __init__(
        self,
        table: TableSpec,
        replay: Replay,
        stored: Storage,
        *failures: type[Exception],
        generations: Generations | None = None,
    ) -> None:
        """`failures` are the errors that the engine raises. `generations` counts the replacements of the ledger's
        tables."""
        self._table, self.replay, self._stored = table, replay, stored
        self._failures: tuple[type[Exception], ...] = (*failures, OSError, ForkedProcess)
        self.followed = LogFollower(table, replay, stored, generations=generations)
        self.rows = FileRows(table.schema, table.partitions, stored)

    def newest(self, *, listing: bool = False) -> Files:
        """Return the files of the newest version. Raises Conflict if the table is altered."""
        return self._require_plain(self.followed.newest(listing=listing))

    def _require_plain(self, files: Files | None) -> Files:
        if files is None:
            raise Conflict(f"{self._table.name} was altered since it was read")
        return files

    def transaction_version(self, application: str) -> int | None:
        """Return the version that an application id committed last; None: it has committed none."""
        return self._last_of(application)[1]

    def newest_before(self, transaction: tuple[str, int]) -> Files:
        """Return the files of the newest version, if a transaction may be committed next.

        Raises Conflict if the transaction may not be committed next, or if the table is altered.
        """
        files, committed = self._last_of(transaction[0])
        require_next(transaction, committed)
        return self._require_plain(files)

    def _newest_before_each(self, transactions: Sequence[tuple[str, int]]) -> Files:
        """Return the files of the newest version, after which each of the transactions may be committed."""
        while True:
            newest = [self.newest_before(transaction) for transaction in transactions]
            if len({files.version for files in newest}) == 1:
                return newest[0]

    def _last_of(self, application: str) -> tuple[Files | None, int | None]:
        """Return the files of the newest version (None: the table is altered), and the version that an application has
        committed by then."""
        latest = self.followed.newest()
        while latest is not None:
            last = latest.transactions.last(application, latest.version, self.replay.transaction)
            if last.table_version == latest.version:
                return latest, last.committed
            latest = self.followed.newest()
            if latest is not None and latest.version < last.table_version:
                # The engine has seen a later version than the client can reach: entries between them were removed.
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

        `still_valid` looks at a version, and the commit becomes the next one. If another writer is first, `still_valid`
        looks at the newest version.

        Args:
            commit: The files to add and remove, and the commit's metadata. Each of its transactions must be the first
                one of its application, or come directly after the application's last version.
            still_valid: Raises if the commit may not follow a version: mostly Conflict.
            on: The version that the decision was made on; None: take the newest version.
            read_at: When that version was read, in monotonic seconds. If this is more than LISTED_AFTER seconds ago,
                the log is listed, and the newest version takes the place of `on`.

        Raises:
            Conflict: A transaction may not be committed next, the table is altered, its log was cut meanwhile, or
                others committed REBASES times meanwhile.
            LogReplaced: The log is no longer the log that was read.
            LedgerDamaged: Only a checkpoint has the newest version (see `_replaced`).
            Errors of `still_valid` and of the storage.
        """
        generation, at = self.followed.generation(), time.monotonic()
        files, late = self._write_with_late_metadata(commit)
        if read_at is not None and time.monotonic() - read_at > LISTED_AFTER:
            on = self.newest(listing=True)
        # Take the time as late as possible: after it, removed files are kept for readers of older versions.
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
        """Commit actions that name the `written` files, and return the version.

        Raises Conflict if one of the `transactions` may not be committed next. (If `on` is given, the first try does
        not check this.) The other arguments and errors are those of `commit`.
        """
        for _ in range(REBASES):
            if on is None:
                on = self._newest_before_each(transactions) if transactions else self.newest()
            if on.generation != written.generation:
                # The written files belong to the replaced table.
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
        """Write the files that a commit is to name, and return them with the commit's late metadata.

        Elsewhere than on a local path, each request takes time. There the late metadata is looked up meanwhile.
        """
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
        """Commit actions that name the `written` files as the version after `latest`, and return that version.

        Returns None, and commits nothing, if another writer was first. Raises LogReplaced, Conflict or LedgerDamaged,
        as `commit` does.
        """
        self._require_there(written)
        version = latest.version + 1
        entry = log_entry(with_mark(actions) if self._stored.is_synced else actions)
        try:
            with self._stored.held_log() as held:
                # Check the log if this costs no request. On a local path, the new entry goes into the checked folder.
                if not self.followed.may_be_same(latest, held):
                    raise self._replaced(latest)
                # If an object store's answer was lost, the entry may exist already, with this very content: the commit
                # has landed. A second entry could add files again that others have joined since.
                if not held.put_new(log_file(version), entry) and held.read(log_file(version)) != entry:
                    return None
        except FileNotFoundError as gone:
            raise self._replaced(latest) from gone
        self._verify_reachable(latest, entry, written)
        self._require_there(written)
        self.followed.committed(latest, actions, entry)
        # Rows of removed files would only take memory.
        self.rows.forget(action["remove"]["path"] for action in actions if "remove" in action)
        if version % latest.checkpoints == 0 and is_due(self._stored, version):
            self._checkpoint(version)
        return version

    def _require_there(self, written: WrittenFiles) -> None:
        """Write files again that are gone, if the files' writing began more than LISTED_AFTER seconds ago. Raises
        Conflict for a file that an engine wrote.

        Spark's VACUUM removes old files that no commit names yet.
        """
        if time.monotonic() - written.at > LISTED_AFTER:
            gone = {path: written.files[path] for path in written.files if not self._stored.has(path)}
            self._stored.write(gone)
            self._stored.sync(gone)

    def _verify_reachable(self, latest: Files, entry: bytes, written: WrittenFiles) -> None:
        """Raise LogReplaced if the version before a commit is not the one that was read.

        If that version is gone, look at the table. If it has one of the `written` files, the commit has landed: return.
        If the log goes on, or has lost the commit's entry, nothing shows whether the commit landed: raise Conflict.
        Otherwise remove the commit's entry.
        """
        if self.followed.is_same(latest):
            return
        before, entry_file = log_file(latest.version), log_file(latest.version + 1)
        if self._stored.has(before):
            # Others may have read the commit by now, and committed after it: keep it.
            self.followed.forget()
            raise LogReplaced(
                f"{self._table.name} was replaced during a commit, which is now version {latest.version + 1} of the "
                "new log and may not belong there"
            )
        newest = self._listed_anew()
        paths_there = (
            {path for files in newest.by_partition.values() for path in files} if newest is not None else set()
        )
        if not paths_there.isdisjoint(written.files):
            # The commit has landed, and then old entries were removed.
            return
        goes_on = newest is not None and newest.generation == latest.generation and newest.version >= latest.version
        if goes_on or self._stored.read(entry_file) != entry:
            # The commit may have landed, and others may have removed its files since.
            raise Conflict(f"the log of {self._table.name} was cut after version {latest.version}")
        self._stored.remove(entry_file)
        # If the version before is back by now, others may have read this commit: restore the commit.
        if self._stored.has(before):
            self._stored.put_new(entry_file, entry)
        raise self._replaced(latest)

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Return a context for one commit that the engine makes by itself.

        Raises LogReplaced if another log is in place after the commit. The log of an altered table is not compared.
        """
        before = self.followed.newest()
        yield
        if before is None or self.followed.is_same(before):
            return
        following, before_file = log_file(before.version + 1), log_file(before.version)
        if self._stored.has(before_file) or not self._stored.has(following):
            raise self._replaced(before)

    def _replaced(self, latest: Files) -> LogReplaced:
        """Return the error about a log that has lost a version.

        Raises LedgerDamaged if the lost version is the newest one, and only a checkpoint has it: no commit can follow
        such a version.
        """
        self.followed.forget()
        if latest.entry is None:
            newest = self.followed.newest()
            if newest is not None and newest.version == latest.version and newest.entry is None:
                raise damaged(self._table.name, latest.version, MISSING)
        return LogReplaced(f"the log of {self._table.name} has lost version {latest.version}, which was read")

    def _listed_anew(self) -> Files | None:
        """Return the files of the newest version, by a listing; None: the table cannot be read, or is altered."""
        self.followed.forget()
        try:
            return self.followed.newest()
        except self._failures:
            return None

    def _checkpoint(self, version: int) -> None:
        """Make a checkpoint. An error of the storage or the engine is logged and not raised: the commit has landed."""
        try:
            self.replay.checkpoint(version)
        except self._failures as error:
            # A forked child leaves the checkpoint to the next process that can make one.
            level = logging.INFO if isinstance(error, ForkedProcess) else logging.WARNING
            log.log(level, "No checkpoint of %s at version %d: %s", self._table.name, version, error)


def _always(files: Files) -> None:
    """Accept any version: the append relies on nothing in the table."""


class DirectTable:
    """Reads a table by following its log, and commits edits and appends to it without a statement of an engine."""

    def __init__(
        self,
        table: TableSpec,
        replay: Replay,
        stored: Storage,
        *failures: type[Exception],
        generations: Generations | None = None,
        by_statement: bool = False,
    ) -> None:
        """`failures` are the errors of the engine that replays the log. `generations` counts the replacements of the
        ledger's tables. `by_statement`: only statements commit rows.
        """
        self._table, self._by_statement = table, by_statement
        #: The writer also makes other direct commits to this table (see `join`).
        self.writer = LogWriter(table, replay, stored, *failures, generations=generations)
        self.rows = self.writer.rows

    def is_known(self) -> bool:
        """See DeltaTables.is_direct."""
        return not self._by_statement and self.writer.followed.seen() is not None

    def why_not(self) -> tuple[str, str] | None:
        """Return why rows are not committed directly to the newest version, as a reason and its words; None: they
        are."""
        if self._by_statement:
            return SETTING, REASONS[SETTING]
        if self.writer.followed.newest() is None:
            return ALTERED, self.writer.followed.altered()
        return None

    def load(self, where: PartitionFilter) -> Snapshot | None:
        """Return the rows of the partitions that `where` names; None: the table is altered."""
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
        """Commit edits, and return the version. The caller has checked that the snapshot's rows are as the edits
        suppose (`require_expected`).

        Raises NotDirect if a statement has to commit the edits. Raises Conflict if others have changed the partitions
        of `where`. Raises what `LogWriter.commit` raises.
        """
        if self._by_statement:
            raise NotDirect(SETTING)
        if snapshot.loaded is None:
            raise NotDirect(ALTERED)
        columns = list(self._table.partitions)
        touched = distinct(edits, columns) if columns else [{}]
        if columns and not _all_named_are_touched(where.partitions(columns), touched):
            raise NotDirect(WIDER)
        read = snapshot.loaded
        before = [read.of(_values_of(partition)) for partition in touched]
        edits_of = [edits] if len(touched) == 1 else [filter_partitions(edits, [partition]) for partition in touched]
        rewrites = [self._plan_rewrite(*one) for one in zip(touched, before, edits_of)]
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
                if [latest.of(_values_of(one)) for one in touched] != before:
                    raise Conflict(f"others have committed to {self._table.name} since version {snapshot.version}")

        commit = NewCommit("MERGE", metadata, adds, removes, late=late)
        return self.writer.commit(commit, still_valid, on=read, read_at=snapshot.read_at)

    def land_statement(
        self, snapshot: Snapshot, where: PartitionFilter, actions: Sequence[Action], tried: int, began: float
    ) -> int:
        """Commit the result of a MERGE that an engine ran on a copy of the log; return the version.

        Args:
            snapshot: The rows that the edits were decided on, of a table that is not altered.
            where: The partitions that the MERGE relies on.
            actions: The actions that the engine made.
            tried: The version of these actions in the copy. The engine has looked for conflicts with all earlier
                versions.
            began: When the MERGE was begun, in monotonic seconds.

        Raises Conflict if others have changed these partitions, or may have done so. Raises what `LogWriter.commit`
        raises.
        """
        read, columns = snapshot.loaded, self._table.partitions
        named = where.partitions(columns) if columns else [()]

        def still_valid(latest: Files) -> None:
            self._require_generation(latest, snapshot)
            if named is not None and any(latest.of(partition) != read.of(partition) for partition in named):
                raise Conflict(f"others have committed to {self._table.name} since version {snapshot.version}")
            # If a partition has no files, or `where` does not name its partitions one by one, two versions cannot be
            # compared. Others may have changed such partitions after the versions that the engine looked at.
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

        Raises NotDirect if a statement has to commit the rows. Raises ValueError if a row has null or an empty text in
        a partition column. Raises what `LogWriter.commit` raises.
        """
        if self._by_statement:
            raise NotDirect(SETTING)
        if not self._table.statistics:
            raise NotDirect(STATISTICS)
        latest = self.writer.followed.at_least(None if seen is None else seen.version)
        if latest is None:
            raise NotDirect(ALTERED)
        partitions = distinct(rows, self._table.partitions) if self._table.partitions else [{}]
        for partition in partitions:
            self._table.require_partition(partition)
        # Avoid a copy for a single partition.
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
            return self.writer.commit(commit, still_valid or _always)
        return self.writer.commit(commit, still_valid or _always, on=latest, read_at=seen.at)

    def small_rows(self, where: PartitionFilter, above: Mapping[str, int]) -> pa.Table | None:
        """Return the rows of the partitions that `where` names, if these are few and their files are small; else None.

        If `where` names all partitions with one value in their first column, and `above` has one bound, any number of
        partitions will do. Then only files that may hold rows above this bound are read. Returns None also if the table
        is altered, or its spec has no statistics.
        """
        latest = self.writer.followed.newest() if self._table.statistics else None
        files = None if latest is None else self._files_of(latest, where, above)
        if files is None or any(size >= SMALL for _, _, size in files):
            return None
        if sum(size for _, _, size in files) > MOST_SMALL:
            return None
        rows = [self.rows.of(partition, path) for partition, path, _ in files]
        return pa.concat_tables([self._table.nothing, *rows])

    def all_rows(self, where: PartitionFilter) -> pa.Table | None:
        """Return all rows that `where` names, however many; None: the table is altered, or its spec has no
        statistics."""
        latest = self.writer.followed.newest() if self._table.statistics else None
        if latest is None:
            return None
        named = latest.named(where, self._table.partitions)
        return pa.concat_tables([self._table.nothing, *(self.rows.of(*file) for file in named)])

    def _files_of(
        self, latest: Files, where: PartitionFilter, above: Mapping[str, int]
    ) -> list[tuple[Partition, str, int]] | None:
        """Return the files that `small_rows` reads, with their partitions and sizes.

        With one bound (see `small_rows`), returns None if the log's facts of the files are not known. Otherwise returns
        None if `where` has several alternatives, or does not name at most MOST_PARTITIONS partitions one by one.
        """
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
        """See DeltaTables."""
        latest = self.writer.followed.newest() if self._table.statistics else None
        if latest is None or latest.statistics is None:
            return None
        return {path: latest.of(at)[path] for at, path in latest.statistics.above(value, column, bound)}

    def require_same(self, snapshot: Snapshot) -> None:
        """Raise LogReplaced if the table's log is no longer the log that a snapshot was read from."""
        if snapshot.loaded is not None and not self.writer.followed.is_same(snapshot.loaded):
            self.writer.followed.forget()
            raise LogReplaced(f"{self._table.name} was replaced since version {snapshot.version}, which was read")

    def _plan_rewrite(self, partition: Mapping[str, Any], files: Iterable[str], edits: pa.Table) -> Rewrite:
        rows = {path: self.rows.of(_values_of(partition), path) for path in files}
        return plan_rewrite(rows, edits, self._table)


def _all_named_are_touched(named: Sequence[Partition] | None, touched: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether every named partition is touched (None: the names are not known). Then `merge` looks only for
    commits to touched partitions."""
    return named is not None and {_values_of(partition) for partition in touched}.issuperset(named)


def _values_of(partition: Mapping[str, Any]) -> Partition:
    return tuple(map(partition_text, partition.values()))
