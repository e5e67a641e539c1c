"""Commits that are written out: a file of the log, made for the version after the one that is known, or not at all.

`LogWriter.land` has the one loop in which such a commit is made. `DirectTable` reads rows, and commits edits and
appends through it: files of the touched partitions give way to new ones. The commit of an engine's query says the same.
But delta-rs plans and runs a query for it: 40 ms for one row where this takes 4, and 12 ms for an append where this
takes 3, or 30 once the table has some hundred files (2 busy cores, a commit). It reads rows once more that the decision
has read already, and on an object store it makes some ten requests where this makes 2.

A commit is a file of the log that must be new: it is made for the version after the one that was read, or not at all.
When other writers were first, it is made for the next one if they left the touched partitions as they were: the same
files, whose names nobody uses twice. A partition without files proves nothing: rows may have come and gone meanwhile.
There a statement of the engine decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.actions import APPENDED, Action, add_action, commit_info, remove_action, txn_action
from ledger.delta_log.data_files import FILE, Encoded, in_parts, new_path
from ledger.delta_log.delta_rs_commits import LISTED_AFTER, REBASES
from ledger.delta_log.durability import with_mark
from ledger.delta_log.history import MISSING, Generations, damaged
from ledger.delta_log.maintenance import is_due
from ledger.delta_log.paths import ALTERED, LARGE, NEW_PARTITION, REASONS, REWRITTEN, SETTING, STATISTICS, WIDER
from ledger.delta_log.protocol import (
    Conflict,
    LogReplaced,
    NotDirect,
    Snapshot,
    require_next,
)
from ledger.delta_log.replay import Files, LogFollower, Replay
from ledger.delta_log.rewrite import Rewrite, distinct, plan_rewrite
from ledger.delta_log.spec import Partition, PartitionFilter, TableSpec
from ledger.delta_log.storage import SMALL, FileRows, Storage, log_entry, log_file
from ledger.delta_log.values import partition_text
from ledger.errors import ForkedProcess
from ledger.rules.limits import MILLISECONDS

log = logging.getLogger("ledger.commits")
#: Where an edit would write more rows than these, a statement is quicker: it leaves files alone that no edit is about.
MOST_ROWS = 100_000
#: Files that are SMALL are kept, and asked for up to so many bytes in all.
MOST_SMALL = 8 * SMALL
#: Rows of so many partitions are looked for among the small files.
MOST_PARTITIONS = 16


class AddedFile(NamedTuple):
    """Rows that become a file of a partition."""

    path: str
    partition: Mapping[str, Any]
    rows: pa.Table


class RemovedFile(NamedTuple):
    """A file of a partition that is no longer the table's."""

    path: str
    size: int
    partition: Mapping[str, Any]


class NewCommit(NamedTuple):
    """What a commit does, and what it says of itself. `is_change`: rows come or go, and not only files.
    `with_statistics`: the log tells the smallest and the greatest value of the table's columns in each file."""

    operation: str
    metadata: Mapping[str, Any]
    adds: Sequence[AddedFile] = ()
    removes: Sequence[RemovedFile] = ()
    #: Those that are committed only as the next of their applications, and those that go with them, whatever was
    #: before.
    transactions: Sequence[tuple[str, int]] = ()
    beside: Sequence[tuple[str, int]] = ()
    is_change: bool = True
    with_statistics: bool = False


class WrittenByEngine(Mapping[str, bytes]):
    """The paths of files that an engine has written. They cannot be made once more."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)

    def __getitem__(self, path: str) -> bytes:
        raise Conflict(f"{path}, which a statement wrote, was removed before a commit named it")

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


class WrittenFiles(NamedTuple):
    """Files, by their paths, when they were made, in monotonic seconds, and in which generation of the tables."""

    files: Mapping[str, bytes]
    at: float
    generation: int


class LogWriter:
    """The log of a table that is followed, and new entries of it."""

    def __init__(
        self,
        table: TableSpec,
        replay: Replay,
        stored: Storage,
        *failures: type[Exception],
        generations: Generations | None = None,
    ) -> None:
        """`failures`: what the engine raises. `generations`: of the ledger that the table is one of."""
        self._table, self.replay, self._stored = table, replay, stored
        self._failures: tuple[type[Exception], ...] = (*failures, OSError, ForkedProcess)
        self.followed = LogFollower(table, replay, stored, generations=generations)
        self.rows = FileRows(table.schema, table.partitions, stored)

    def newest(self, *, listing: bool = False) -> Files:
        """The files of the newest version. Raises Conflict where the table is not as the ledger makes it any more."""
        return self._require_plain(self.followed.newest(listing=listing))

    def _require_plain(self, files: Files | None) -> Files:
        if files is None:
            raise Conflict(f"{self._table.name} was altered since it was read")
        return files

    def transaction_version(self, application: str) -> int | None:
        """The newest version committed under an application id."""
        return self._last_of(application)[1]

    def newest_before(self, transaction: tuple[str, int]) -> Files:
        """The files of the newest version, where a transaction may be committed as the next one; else Conflict, and
        where the table is not as the ledger makes it any more."""
        files, committed = self._last_of(transaction[0])
        require_next(transaction, committed)
        return self._require_plain(files)

    def _newest_before_each(self, transactions: Sequence[tuple[str, int]]) -> Files:
        """See `newest_before`, of one version for all of them."""
        while True:
            newest = [self.newest_before(one) for one in transactions]
            if len({files.version for files in newest}) == 1:
                return newest[0]

    def _last_of(self, application: str) -> tuple[Files | None, int | None]:
        """The files of the newest version, if they can be told, and what is committed of an application's by then."""
        latest = self.followed.newest()
        while latest is not None:
            last = latest.transactions.last(application, latest.version, self.replay.transaction)
            if last.table_version == latest.version:
                return latest, last.committed
            latest = self.followed.newest()
            if latest is not None and latest.version < last.table_version:
                # What lies in between was removed with old entries of the log.
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
        """Commit what the caller decided, and return the version.

        The commit becomes the version after the one that `still_valid` has looked at, or nothing. So what holds of that
        version holds of the table. Where another writer is first, `still_valid` looks at the version after it.

        Args:
            commit: What is added and removed, and what the commit says of itself. Each of its transactions is
                committed only as the first one of its application, or directly after the version before.
            still_valid: Raises where the commit may not follow a version: mostly Conflict.
            on: The version that the decision was made on, if the commit may follow it; else it follows the newest one.
            read_at: When that was read, in monotonic seconds. A process that stood still since lists the log: the next
                version may have come, and gone with old ones.

        Raises:
            Conflict: The transaction was committed, or others committed REBASES times meanwhile.
            LogReplaced: The log is another one than was read.
            What `still_valid` and the storage raise.
        """
        generation, at = self.followed.generation(), time.monotonic()
        files = self._write(commit)
        if read_at is not None and time.monotonic() - read_at > LISTED_AFTER:
            on = self.newest(listing=True)
        # As late as can be: from this time on the files that go are kept for the versions that have them.
        actions = self._actions(commit, files.sizes, int(time.time() * MILLISECONDS))
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
        """Commit actions, which name what was written, and return the version. Each of the `transactions` may be
        committed next, or there is Conflict. The other arguments, and what it raises, are those of `commit`."""
        for _ in range(REBASES):
            if on is None:
                on = self._newest_before_each(transactions) if transactions else self.newest()
            if on.generation != written.generation:
                # What was written lies where the table was before.
                raise LogReplaced(f"{self._table.name} was replaced since the rows of a commit were written")
            still_valid(on)
            version = self._try_commit(on, actions, written)
            if version is not None:
                return version
            on = None
        raise Conflict(f"others committed to {self._table.name} {REBASES} times in the meantime")

    def _actions(self, commit: NewCommit, sizes: Mapping[str, int], now: int) -> list[Action]:
        parameters = APPENDED if commit.operation == "WRITE" else REWRITTEN
        actions = [commit_info(commit.operation, commit.metadata, now, parameters)]
        actions += [txn_action(one, now) for one in (*commit.transactions, *commit.beside)]
        named = self._table.statistics if commit.with_statistics else ()
        for path, size, partition in commit.removes:
            actions.append(remove_action(path, size, partition, now, is_change=commit.is_change))
        for path, partition, rows in commit.adds:
            actions.append(add_action(path, sizes[path], rows, partition, now, named, is_change=commit.is_change))
        return actions

    def _write(self, commit: NewCommit) -> Encoded:
        """Make the files that a commit is to name."""
        files = Encoded({one.path: one.rows for one in commit.adds}, self._table.partitions)
        self._stored.write(files)
        for path, _, rows in commit.adds:
            self.rows.keep(path, rows)
        return files

    def _try_commit(self, latest: Files, actions: Sequence[Action], written: WrittenFiles) -> int | None:
        """Commits actions, which name what was `written`, as the version after `latest`, and returns it; None, and
        nothing has happened, when another writer was first. Raises LogReplaced where the log is not the one that was
        read any more.
        """
        self._require_there(written)
        version = latest.version + 1
        entry = log_entry(with_mark(actions) if self._stored.is_synced else actions)
        try:
            with self._stored.held_log() as held:
                # Where this costs no request. On a local path the commit follows this very version, or is none.
                if not self.followed.may_be_same(latest, held):
                    raise self._replaced(latest)
                # Of an object store's answer that was lost: made once more, it would bring back files that were joined.
                if not held.put_new(log_file(version), entry) and held.read(log_file(version)) != entry:
                    return None
        except FileNotFoundError as gone:
            raise self._replaced(latest) from gone
        self._verify_reachable(latest, entry, written)
        self._require_there(written)
        self.followed.committed(latest, actions, entry)
        # Each verb replaces the file of a lane: kept rows of replaced files would fill the memory that is for others.
        self.rows.forget(action["remove"]["path"] for action in actions if "remove" in action)
        if version % latest.checkpoints == 0 and is_due(self._stored, version):
            self._checkpoint(version)
        return version

    def _require_there(self, written: WrittenFiles) -> None:
        """Writes files again that are gone, for who stood still: of what no commit names yet, Spark's VACUUM removes
        what is older than the table's deletedFileRetentionDuration."""
        if time.monotonic() - written.at > LISTED_AFTER:
            gone = {path: written.files[path] for path in written.files if not self._stored.has(path)}
            self._stored.write(gone)
            self._stored.sync(gone)

    def _verify_reachable(self, latest: Files, entry: bytes, written: WrittenFiles) -> None:
        """Raises LogReplaced where the version before a commit is not the one that was read, and nothing that was
        `written` is in the table: the table was removed, or replaced, or its log was cut below what others committed
        meanwhile. The commit is taken back."""
        if self.followed.is_same(latest):
            return
        before, mine = log_file(latest.version), log_file(latest.version + 1)
        if self._stored.has(before):
            # Others may have read the commit by now, and followed it: it has to stay where it is.
            self.followed.forget()
            raise LogReplaced(
                f"{self._table.name} was replaced in the moment of a commit, which is version {latest.version + 1} of "
                "the new log: whether it belongs there was not decided"
            )
        newest = self._listed_anew()
        there = {path for files in newest.by_partition.values() for path in files} if newest is not None else set()
        if not there.isdisjoint(written.files):
            # The log was cut after the commit had joined it.
            return
        goes_on = newest is not None and newest.generation == latest.generation and newest.version >= latest.version
        if goes_on or self._stored.read(mine) != entry:
            # Others may have taken out the files of the commit. Whoever looks for it finds that the log was cut.
            raise Conflict(f"the log of {self._table.name} was cut after version {latest.version}")
        self._stored.remove(mine)
        # Nobody follows a version whose predecessor is missing. If that one came before the removal, others may have
        # followed this commit; then it is theirs, and comes back as it was.
        if self._stored.has(before):
            self._stored.put_new(mine, entry)
        raise self._replaced(latest)

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """A context for one commit that the engine makes by itself. It begins with what is the newest version; raises
        LogReplaced where the log is another one after the commit."""
        before = self.followed.newest()
        yield
        if before is None or self.followed.is_same(before):
            return
        following, known = log_file(before.version + 1), log_file(before.version)
        if self._stored.has(known) or not self._stored.has(following):
            raise self._replaced(before)

    def _replaced(self, latest: Files) -> LogReplaced:
        """Return the error of a log that has lost a version. Raises LedgerDamaged where that is its newest one, which a
        checkpoint alone has: nothing can follow it."""
        self.followed.forget()
        if latest.entry is None:
            newest = self.followed.newest()
            if newest is not None and newest.version == latest.version and newest.entry is None:
                raise damaged(self._table.name, latest.version, MISSING)
        return LogReplaced(f"the log of {self._table.name} has lost version {latest.version}, which was read")

    def _listed_anew(self) -> Files | None:
        """The files of the newest version, by a new listing; None where the table cannot be read."""
        self.followed.forget()
        try:
            return self.followed.newest()
        except self._failures:
            return None

    def _checkpoint(self, version: int) -> None:
        """Makes a checkpoint. The commit has landed, whatever comes of it."""
        try:
            self.replay.checkpoint(version)
        except self._failures as error:
            # A forked child leaves it to the next process that can make one.
            level = logging.INFO if isinstance(error, ForkedProcess) else logging.WARNING
            log.log(level, "No checkpoint of %s at version %d: %s", self._table.name, version, error)


def _always(files: Files) -> None:
    """The append supposes nothing of the table."""


class DirectTable:
    """Reads of a table whose log is followed, and commits to it without a statement of an engine: edits and appends.
    What only an engine can do is not done here."""

    def __init__(
        self,
        table: TableSpec,
        replay: Replay,
        stored: Storage,
        *failures: type[Exception],
        generations: Generations | None = None,
        by_statement: bool = False,
    ) -> None:
        """`failures`: what the engine raises that replays the log. `generations`: of the table's ledger.
        `by_statement`: the user wants rows to be committed by statements alone."""
        self._table, self._by_statement = table, by_statement
        #: Other commits to this table need the same one.
        self.writer = LogWriter(table, replay, stored, *failures, generations=generations)
        self.rows = self.writer.rows

    def is_known(self) -> bool:
        """Whether rows are committed here, as far as that is known without asking the storage."""
        return not self._by_statement and self.writer.followed.seen() is not None

    def why_not(self) -> tuple[str, str] | None:
        """The reason why no row is committed here, and what it is in words; None: rows are. Looks at the newest
        version."""
        if self._by_statement:
            return SETTING, REASONS[SETTING]
        if self.writer.followed.newest() is None:
            return ALTERED, self.writer.followed.altered()
        return None

    def load(self, where: PartitionFilter) -> Snapshot | None:
        """The rows of the partitions that are named; None where the table is not as the ledger makes it."""
        known = self.writer.followed.newest()
        if known is None:
            return None
        rows = [self.rows.of(partition, path) for partition, path in known.named(where, self._table.partitions)]
        return Snapshot(known.version, where, pa.concat_tables([self._table.nothing, *rows]), known)

    def merge(self, snapshot: Snapshot, where: PartitionFilter, edits: pa.Table, metadata: Mapping[str, Any]) -> int:
        """Commits edits that suppose the snapshot's rows as they are (see `require_expected`); returns the version
        committed.

        Raises NotDirect where only a statement can do it, Conflict when others have changed the partitions of `where`,
        and what the storage does.
        """
        if self._by_statement:
            raise NotDirect(SETTING)
        if snapshot.loaded is None:
            raise NotDirect(ALTERED)
        columns = list(self._table.partitions)
        touched = distinct(edits, columns) if columns else [{}]
        if columns and not _names_no_more(where.partitions(columns), touched):
            raise NotDirect(WIDER)
        read = snapshot.loaded
        before = [read.of(_values_of(one)) for one in touched]
        mine = [edits] if len(touched) == 1 else [of_partitions(edits, [one]) for one in touched]
        after = [self._regrouped(*one) for one in zip(touched, before, mine)]
        if sum(rows.num_rows for one in after for rows in one.written) > MOST_ROWS:
            raise NotDirect(LARGE)
        adds, removes = list[AddedFile](), list[RemovedFile]()
        for partition, files, one in zip(touched, before, after):
            adds += [AddedFile(new_path(partition), partition, rows) for rows in one.written]
            removes += [RemovedFile(path, files[path], partition) for path in one.gone]

        def still_valid(latest: Files) -> None:
            self._require_generation(latest, snapshot)
            if latest.version > snapshot.version:
                if not all(before):
                    raise NotDirect(NEW_PARTITION, f"a partition of {self._table.name} had no files")
                if [latest.of(_values_of(one)) for one in touched] != before:
                    raise Conflict(f"others have committed to {self._table.name} since version {snapshot.version}")

        commit = NewCommit("MERGE", metadata, adds, removes)
        return self.writer.commit(commit, still_valid, on=read, read_at=snapshot.read_at)

    def land_statement(
        self, snapshot: Snapshot, where: PartitionFilter, actions: Sequence[Action], tried: int, began: float
    ) -> int:
        """Commit what a MERGE came to that an engine ran beside the log; return the version.

        Args:
            snapshot: What the edits were decided on, of a table that is as its user makes it.
            where: The partitions that the MERGE relies on.
            actions: What it came to.
            tried: The version that the engine made of it. It has looked for conflicts with all before that.
            began: When it was begun, in monotonic seconds.

        Raises Conflict when others have changed these partitions, and what `LogWriter.commit` does.
        """
        read, columns = snapshot.loaded, self._table.partitions
        named = where.partitions(columns) if columns else [()]

        def still_valid(latest: Files) -> None:
            self._require_generation(latest, snapshot)
            if named is not None and any(latest.of(one) != read.of(one) for one in named):
                raise Conflict(f"others have committed to {self._table.name} since version {snapshot.version}")
            # Of a partition without files nobody knows whether some came and went.
            if latest.version >= tried and (named is None or not all(map(read.of, named))):
                raise Conflict(f"others have committed to {self._table.name} while a statement was run")

        written = WrittenByEngine(one["add"]["path"] for one in actions if "add" in one)
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
    ) -> int:
        """Commit rows under transactions, see `DeltaTables.add_rows`, and return the version.

        Raises NotDirect where only a statement can do it; ValueError for a row without a partition; else what
        `LogWriter.commit` does.
        """
        if self._by_statement:
            raise NotDirect(SETTING)
        if not self._table.statistics:
            raise NotDirect(STATISTICS)
        if self.writer.followed.newest() is None:
            raise NotDirect(ALTERED)
        partitions = distinct(rows, self._table.partitions) if self._table.partitions else [{}]
        for one in partitions:
            self._table.require_partition(one)
        # Of a single one without a copy.
        of_partition = [(one, of_partitions(rows, [one]) if len(partitions) > 1 else rows) for one in partitions]
        adds = [AddedFile(new_path(one), one, part) for one, mine in of_partition for part in in_parts(mine, FILE)]
        commit = NewCommit("WRITE", metadata, adds, (), transactions, beside, with_statistics=True)
        return self.writer.commit(commit, still_valid or _always)

    def small_rows(self, where: PartitionFilter, above: Mapping[str, int]) -> pa.Table | None:
        """The rows of the partitions that are named, all of them; or, of all with one value in their first column,
        those of the files that may hold some `above` a bound. None where they are not few, or their files not small.

        Small files are kept, mostly, and the log is followed, so that nothing is opened.
        """
        latest = self.writer.followed.newest() if self._table.statistics else None
        found = None if latest is None else self._files_of(latest, where, above)
        if found is None or any(size >= SMALL for _, _, size in found):
            return None
        if sum(size for _, _, size in found) > MOST_SMALL:
            return None
        rows = [self.rows.of(partition, path) for partition, path, _ in found]
        return pa.concat_tables([self._table.nothing, *rows])

    def all_rows(self, where: PartitionFilter) -> pa.Table | None:
        """As `small_rows`, of whatever is named and however much that is."""
        latest = self.writer.followed.newest() if self._table.statistics else None
        if latest is None:
            return None
        named = latest.named(where, self._table.partitions)
        return pa.concat_tables([self._table.nothing, *(self.rows.of(*one) for one in named)])

    def _files_of(
        self, latest: Files, where: PartitionFilter, above: Mapping[str, int]
    ) -> list[tuple[Partition, str, int]] | None:
        """The files of what is named, with their partitions and sizes; None where the log would have to be searched."""
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
        return [(one, path, size) for one in named for path, size in latest.of(one).items()]

    def require_same(self, snapshot: Snapshot) -> None:
        """Raises LogReplaced where the table's log is not the one any more that a snapshot was read from."""
        if snapshot.loaded is not None and not self.writer.followed.is_same(snapshot.loaded):
            self.writer.followed.forget()
            raise LogReplaced(f"{self._table.name} was replaced since version {snapshot.version}, which was read")

    def _regrouped(self, partition: Mapping[str, Any], files: Iterable[str], edits: pa.Table) -> Rewrite:
        rows = {path: self.rows.of(_values_of(partition), path) for path in files}
        return plan_rewrite(rows, edits, self._table)


def of_partitions(rows: pa.Table, partitions: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows of some partitions."""
    mine = [reduce(pc.and_, [pc.equal(rows[name], value) for name, value in one.items()]) for one in partitions if one]
    return rows.filter(reduce(pc.or_, mine)) if mine else rows


def _names_no_more(named: Sequence[Partition] | None, touched: Sequence[Mapping[str, Any]]) -> bool:
    """Whether whoever commits to a partition that is named commits to one that is touched."""
    return named is not None and {_values_of(one) for one in touched}.issuperset(named)


def _values_of(partition: Mapping[str, Any]) -> Partition:
    return tuple(map(partition_text, partition.values()))
