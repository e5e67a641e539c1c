"""The files of a table, by partition, as its log lists them.

The engine (delta-rs or Spark) replays the log at first, and again at times. Meanwhile the client reads each new entry
itself, which takes 0.1 ms. A replay by delta-rs takes 5 ms and more. A replay begins with a listing of the log, so it
is also called a *listing*.

**Transactions.** Only an engine that loads the table finds the version that an application (see `protocol`) committed
last, and each further commit makes this slower. So the client notes the transactions in the entries that it reads, and
remembers the engine's answers.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from deltalake import DeltaTable

from ledger.delta_log.alterations import APPEND_ONLY, list_alterations
from ledger.delta_log.data_files import FileStatistics
from ledger.delta_log.delta_rs_commits import LISTED_AFTER, LoadedTables, list_constraints
from ledger.delta_log.history import Generations, LogEntry, identify_entry, read_entry, require_whole
from ledger.delta_log.local_commits import write_checkpoint
from ledger.delta_log.protocol import CHECKPOINT_INTERVAL, Partition, PartitionFilter, TableSpec
from ledger.delta_log.reading import PLAIN_PATH
from ledger.delta_log.storage import LocalFiles, LogEntries, Stamp, Storage, log_file
from ledger.errors import ForkedProcess
from ledger.runtime.threads import map_at_once, renew_in_child


class Last(NamedTuple):
    """The version that an application committed last (None: none), as of a version of the table."""

    table_version: int
    committed: int | None


class TransactionsSeen:
    """The transactions in the commits after a listing, up to one version. Objects of one listing share the engine's
    answers."""

    def __init__(self, listed: int = 0) -> None:
        self._listed = listed
        self._seen: Mapping[str, int] = {}
        self._answers: dict[str, Last] = {}

    def after(self, carried: Mapping[str, int]) -> TransactionsSeen:
        if not carried:
            return self
        following = TransactionsSeen(self._listed)
        following._seen, following._answers = {**self._seen, **carried}, self._answers
        return following

    def last(self, application: str, version: int, ask: Callable[[str], tuple[int, int | None]]) -> Last:
        """Return what an application committed last, as of the `version` that the caller has read.

        If the answer has another version, the caller has to ask again.
        """
        if application in self._seen:
            return Last(version, self._seen[application])
        last = self._answers.get(application)
        if last is None:
            last = Last(*ask(application))
            if last.table_version < self._listed:
                return last
            self._answers[application] = last
        # If the engine was at an earlier version, the application has committed nothing since: `_seen` would have it.
        return last if last.table_version > version else last._replace(table_version=version)


log = logging.getLogger("ledger.commits")
PROTOCOL = (1, 2)
#: What `Files.after` raises for a commit that the client does not understand.
NOT_UNDERSTOOD = (AttributeError, KeyError, TypeError, ValueError)
_KNOWN = {"add", "remove", "commitInfo", "txn"}


@dataclass(frozen=True)
class Files:
    """The files of one version.

    Attributes:
        by_partition: By partition, the sizes of its files by path.
        checkpoints: After how many commits the table wants a checkpoint.
        statistics: The facts of the files; None: the table has no facts.
        entry: The identity of the version's own entry in the log; None: it is not known.
        generation: The generation of the log, see `history.Generations`.
    """

    version: int
    by_partition: Mapping[Partition, Mapping[str, int]]
    checkpoints: int
    statistics: FileStatistics | None = field(default=None, compare=False)
    transactions: TransactionsSeen = field(default_factory=TransactionsSeen, compare=False)
    entry: LogEntry | None = field(default=None, compare=False)
    table_id: str = field(default="", compare=False)
    generation: int = field(default=0, compare=False)

    def of(self, partition: Partition) -> Mapping[str, int]:
        return self.by_partition.get(partition, {})

    def named(self, where: PartitionFilter, columns: Sequence[str]) -> Iterator[tuple[Partition, str]]:
        for partition in self.partitions(where, columns):
            for path in self.of(partition):
                yield partition, path

    def partitions(self, where: PartitionFilter, columns: Sequence[str]) -> Iterable[Partition]:
        if not columns:
            return self.by_partition
        named = where.partitions(columns)
        return named if named is not None else [values for values in self.by_partition if where.covers(*values)]

    def after(
        self, actions: Iterable[Mapping[str, Any]], columns: Iterable[str], entry: LogEntry | None = None
    ) -> Files:
        """Return the files of the next version. Raises an error of NOT_UNDERSTOOD if the engine has to replay the
        log."""
        partitions = dict(self.by_partition)
        touched: dict[Partition, dict[str, int]] = {}
        added, removed, carried = [], [], {}
        for action in actions:
            (kind, fields), *more = action.items()
            if more or kind not in _KNOWN or fields.get("deletionVector"):
                raise KeyError(kind)
            if kind == "txn":
                carried[str(fields["appId"])] = int(fields["version"])
            if kind not in ("add", "remove"):
                continue
            if not PLAIN_PATH.fullmatch(fields["path"]):
                raise KeyError(fields["path"])
            values = fields["partitionValues"]
            partition = tuple(values[name] for name in columns)
            files = touched.setdefault(partition, dict(self.of(partition)))
            if kind == "add":
                if fields["path"] in files:
                    # ANALYZE TABLE writes such an action: it gives a file other statistics.
                    raise KeyError(fields["path"])
                files[fields["path"]] = fields["size"]
                added.append(fields)
            else:
                del files[fields["path"]]
                removed.append(fields["path"])
        partitions.update(touched)
        for emptied in [key for key, files in touched.items() if not files]:
            del partitions[emptied]
        return Files(
            self.version + 1,
            partitions,
            self.checkpoints,
            self.statistics and self.statistics.after(added, removed),
            self.transactions.after(carried),
            entry,
            self.table_id,
            self.generation,
        )


class Altered(Exception):
    """A table differs from its spec. The message names its alterations."""


@dataclass(frozen=True)
class _SeenLog:
    """The files that were seen last, and when the log was listed. `altered` names a table's alterations."""

    files: Files | None = None
    listed_at: float = -math.inf
    altered: str = ""


class Replay(Protocol):
    def files(self) -> Files:
        """Return the files of the newest version. Raises Altered for an altered table."""

    def transaction(self, application: str) -> tuple[int, int | None]:
        """Return the newest version, and the version that an application has committed by then."""

    def checkpoint(self, version: int) -> None:
        """Make a checkpoint of a version, or of a later one. Raises what the engine raises, and OSError."""


class DeltaRsReplay:
    def __init__(
        self,
        table: TableSpec,
        loaded: LoadedTables,
        stored: Storage,
    ) -> None:
        self._table, self._loaded, self._stored = table, loaded, stored

    def files(self) -> Files:
        self._loaded.forget()
        with self._loaded.using() as loaded:
            return read_files(loaded, self._table)

    def transaction(self, application: str) -> tuple[int, int | None]:
        with self._loaded.using() as loaded:
            return loaded.version(), loaded.transaction_version(application)

    def checkpoint(self, version: int) -> None:
        if isinstance(self._stored, LocalFiles):
            write_checkpoint(self._stored, version)
            return
        with self._loaded.using() as loaded:
            loaded.create_checkpoint()


class LogFollower:
    """Follows the newest files of one table. Threads share it."""

    def __init__(
        self,
        table: TableSpec,
        replay: Replay,
        stored: Storage,
        clock: Callable[[], float] = time.monotonic,
        generations: Generations | None = None,
    ) -> None:
        self._table, self._replay, self._stored, self._passing = table, replay, stored, clock
        self._generations = generations or Generations()
        self._seen, self._alteration_is_logged = _SeenLog(), False
        self._lock = threading.Lock()
        renew_in_child(self, LogFollower._renew)

    def generation(self) -> int:
        return self._generations.current

    def seen(self) -> int | None:
        """Return the version of the current log that was seen last, however long ago; None: none was seen."""
        files = self._seen.files
        return None if files is None or files.generation != self._generations.current else files.version

    def altered(self) -> str:
        return self._seen.altered

    def newest(self, *, listing: bool = False) -> Files | None:
        """Return the files of the newest version; None: the table is altered.

        If files have stamps (see `Storage.stamp`), the version existed unchanged during this call, unless its entry is
        unknown.
        """
        while True:
            seen = self._seen
            if listing or self._is_due(seen):
                seen, listing = self._remember(seen, self._list_or_keep(seen)), False
            files = seen.files
            if files is None:
                return None
            following = log_file(files.version + 1)
            stamp = self._stored.stamp(following)
            content = None if stamp is None else self._stored.read(following)
            # Check the seen version only after the next one was read: then the next version follows the seen version.
            still_seen = self._keep_if_unchanged(seen)
            if still_seen is None:
                listing = self._seen is seen
            elif content is None:
                return still_seen.files
            else:
                self._remember(still_seen, self._follow_entry(still_seen, content, stamp))

    def at_least(self, version: int | None) -> Files | None:
        """Return the files of a version that a caller has just read, or of a newer one; None: the table is altered.

        If memory has such a version, and no listing is due, the call makes no request.
        """
        seen = self._seen
        if version is None or seen.files is None or self._is_due(seen) or seen.files.version < version:
            return self.newest()
        return seen.files

    def is_same(self, before: Files, log: LogEntries | None = None) -> bool:
        """Return whether a log (by default the table's) still has the entry of a version that was read.

        If the identity of that entry is unknown, any entry of this version counts.
        """
        entries = log or self._stored
        stamp = entries.stamp(log_file(before.version))
        if stamp and before.entry is not None and stamp == before.entry.stamp:
            return True
        content = None if stamp is None else entries.read(log_file(before.version))
        if before.entry is None:
            return content is not None
        return content is not None and identify_entry(content).digest == before.entry.digest

    def may_be_same(self, before: Files, log: LogEntries) -> bool:
        """Return what `is_same` returns, or True without a request if files have no stamps."""
        return log.stamp(log_file(before.version)) == () or self.is_same(before, log)

    def committed(self, before: Files, actions: Iterable[Mapping[str, Any]], content: bytes) -> None:
        """Note a commit that this process made after `before`, unless another thread has followed the log meanwhile."""
        seen = self._seen
        if seen.files is before:
            # Keep no stamp: another file may have the name by now. If an engine's actions are not understood, a replay
            # follows.
            with suppress(*NOT_UNDERSTOOD):
                files = before.after(actions, self._table.partitions, identify_entry(content))
                self._remember(seen, replace(seen, files=files))

    def _is_due(self, seen: _SeenLog) -> bool:
        return (
            seen.files is None
            or seen.files.generation != self._generations.current
            or self._passing() - seen.listed_at > LISTED_AFTER
        )

    def _keep_if_unchanged(self, seen: _SeenLog) -> _SeenLog | None:
        """Return what was seen, if its version exists unchanged or cannot be checked; else None."""
        files = seen.files
        if files is None or files.entry is None:
            return seen
        stamp = self._stored.stamp(log_file(files.version))
        if stamp is None:
            return None
        if stamp in (files.entry.stamp, ()):
            return seen
        if not self.is_same(files):
            return None
        # This process wrote the file, or it was copied.
        return self._remember(seen, replace(seen, files=replace(files, entry=replace(files.entry, stamp=stamp))))

    def forget(self) -> None:
        """Let the next caller list the log, because what was seen may be of another log."""
        seen = self._seen
        self._remember(seen, replace(seen, listed_at=-math.inf))

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def _remember(self, before: _SeenLog, after: _SeenLog) -> _SeenLog:
        with self._lock:
            if self._seen is before:
                self._seen = after
        return after

    def _follow_entry(self, seen: _SeenLog, content: bytes, stamp: Stamp | None) -> _SeenLog:
        assert seen.files is not None
        actions = require_whole(self._table.name, seen.files.version + 1, content, self._stored)
        if actions is None:
            return self._listed(seen)
        try:
            entry, columns = identify_entry(content, stamp), self._table.partitions
            return replace(seen, files=seen.files.after(actions, columns, entry))
        except NOT_UNDERSTOOD:
            return self._listed(seen)

    def _list_or_keep(self, seen: _SeenLog) -> _SeenLog:
        """Return what a listing shows. A forked child that cannot list follows the log from the version that was
        seen."""
        try:
            return self._listed(seen)
        except ForkedProcess:
            before = seen.files
            if before is None or before.generation != self._generations.current or not self.is_same(before):
                raise
            return replace(seen, listed_at=self._passing())

    def _listed(self, seen: _SeenLog) -> _SeenLog:
        now, generation, before = self._passing(), self._generations.current, seen.files
        try:
            files = self._replay.files()
        except Altered as altered:
            self._log_alteration_once(str(altered))
            return _SeenLog(None, now, str(altered))
        files_listed = replace(
            files, transactions=TransactionsSeen(files.version), entry=read_entry(self._stored, files.version)
        )
        if before is not None and before.generation == generation and not self._is_same_log(before, files_listed):
            log.warning(
                "%s: the log that this process had read, up to version %d, was replaced: the table was removed and "
                "made anew, or a backup took its place. This process loads the ledger anew",
                self._table.name,
                before.version,
            )
            self._generations.end(generation)
            generation = self._generations.current
        return _SeenLog(replace(files_listed, generation=generation), now)

    def _log_alteration_once(self, what: str) -> None:
        if not self._alteration_is_logged:
            self._alteration_is_logged = True
            log.warning(
                "the table %s is not as the ledger makes it: somebody gave it %s. Only the engine's own statements may "
                "read and write it, and they take longer",
                self._table.name,
                what,
            )

    def _is_same_log(self, before: Files, listed: Files) -> bool:
        if listed.table_id != before.table_id or listed.version < before.version:
            return False
        # Upkeep may have removed the entry that this process knows from the same log.
        return self.is_same(before) or not self._stored.has(log_file(before.version))


def read_files(loaded: DeltaTable, table: TableSpec) -> Files:
    """Return the files of a loaded table. Raises Altered also for a file whose path needs escapes."""
    metadata, protocol = loaded.metadata(), loaded.protocol()
    require_plain(
        table,
        (protocol.min_reader_version, protocol.min_writer_version),
        {*(protocol.reader_features or ()), *(protocol.writer_features or ())},
        {field.name for field in loaded.schema().fields},
        [*list_constraints(loaded), *(field.name for field in loaded.schema().fields if field.metadata)],
        metadata.configuration,
    )
    actions = pa.table(loaded.get_add_actions(flatten=True))
    by_partition: dict[Partition, dict[str, int]] = {}
    if actions.num_rows:
        values = [actions[f"partition.{name}"].cast(pa.string()).to_pylist() for name in table.partitions]
        partitions = zip(*values) if values else [()] * actions.num_rows
        for partition, path, size in zip(partitions, actions["path"].to_pylist(), actions["size_bytes"].to_pylist()):
            if not PLAIN_PATH.fullmatch(path):
                raise Altered(ESCAPED)
            by_partition.setdefault(partition, {})[path] = size
    statistics = FileStatistics.listed(actions, table) if table.facts else None
    checkpoints = read_checkpoint_interval(metadata.configuration, table)
    return Files(loaded.version(), by_partition, checkpoints, statistics, table_id=str(metadata.id))


def read_checkpoint_interval(properties: Mapping[str, str], table: TableSpec) -> int:
    interval = properties.get(CHECKPOINT_INTERVAL, "")
    return int(interval) if interval.isdecimal() and int(interval) else int(table.properties[CHECKPOINT_INTERVAL])


ESCAPED = "a file whose name needs escapes"


def require_plain(
    table: TableSpec,
    protocol: tuple[int, int],
    features: Iterable[str],
    columns: Collection[str],
    demanding: Iterable[str],
    properties: Mapping[str, str],
) -> None:
    """Raise Altered if a table differs from its spec `table`. The other arguments are the table's.

    `demanding` has the names of constraints, and of columns with metadata or demands on their values.
    """
    altered = [name for name in list_alterations(features, properties) if name != APPEND_ONLY]
    if protocol != PROTOCOL and not altered:
        altered.append(f"the protocol {protocol[0]}, {protocol[1]}")
    altered += [f"the column {name}" for name in sorted({*columns} - {*table.schema.names})]
    altered += [f"no column {name}" for name in sorted({*table.schema.names} - {*columns})]
    altered += [
        name if name.startswith("delta.") else f"demands of the column {name}" for name in dict.fromkeys(demanding)
    ]
    if properties.get(APPEND_ONLY, "false") != "false":
        altered.append(APPEND_ONLY)
    if altered:
        raise Altered(", ".join(altered))


class LatestVersions:
    def __init__(
        self, files: Mapping[str, Storage], logs: Mapping[str, LogFollower], first: Callable[[str], int], at_once: bool
    ) -> None:
        """`first` finds a table's newest version if no older one is known. `at_once`: make the tables' requests
        together."""
        self._files, self._logs, self._first, self._at_once = files, logs, first, at_once
        #: A version that existed, by table and generation. An older one only makes the search longer.
        self._known: dict[tuple[str, int], int] = {}

    def of(self, tables: Sequence[str]) -> dict[str, int]:
        """Return a version of each table, by name, no older than the newest one before this call."""
        if not self._at_once or len(tables) < 2:
            return {table: self._end(table) for table in tables}
        return dict(zip(tables, map_at_once(self._end, tables, len(tables))))

    def make_durable(self, table: str | None, version: int) -> None:
        seen_by_table = {name: log.seen() for name, log in self._logs.items()} if table is None else {table: version}
        for name, seen in seen_by_table.items():
            if seen is not None:
                self._files[name].make_durable(seen)

    def _end(self, table: str) -> int:
        key = table, self._logs[table].generation()
        seen = self._known.get(key, self._logs[table].seen())
        newest = None if seen is None else self._files[table].find_newest_from(seen)
        self._known[key] = self._first(table) if newest is None else newest
        return self._known[key]
