"""Tables that delta-rs has loaded: opening, catching up, commits, checks before a commit, and first entries of logs.

delta-rs takes a listing with a gap for a damaged log (see `history`). After such an error, the client loads the highest
version in a listing of its own: an entry that existed before a listing began is in the listing.
"""

from __future__ import annotations

import json
import math
import shutil
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from ledger.delta_log.data_files import commit_info
from ledger.delta_log.history import (
    Generations,
    is_gap,
    list_checkpoints,
    read_hinted_checkpoint,
    retry_while_gap,
    versions_in,
)
from ledger.delta_log.protocol import EXPECTED_REVISION, Conflict, StagedFile
from ledger.delta_log.statements import SOURCE, TARGET, Merge
from ledger.delta_log.storage import (
    AT_ONCE,
    LOG,
    LocalFiles,
    Storage,
    TableStorage,
    log_entry,
    log_file,
    table_files,
)
from ledger.errors import StorageFailed, TableAltered
from ledger.rules.limits import MILLISECONDS
from ledger.rules.publishable import PROTOCOL_OF_NEW, Demands
from ledger.runtime import threads
from ledger.runtime.threads import map_at_once

LOST_RACES = ("Failed to commit transaction: ", "Tried committing existing table version")
#: How often, at most, a commit is tried while other writers are faster.
REBASES = 100


@contextmanager
def conflicts() -> Iterator[None]:
    """Turn delta-rs's errors of a lost race, and of gaps in its listings, into Conflict.

    A gap shows that others commit fast. If delta-rs met the gap after its own commit, the commit exists.
    """
    try:
        yield
    except DeltaError as lost:
        if str(lost).startswith(LOST_RACES) or is_gap(lost):
            raise Conflict(str(lost)) from lost
        raise


def make_commit_arguments(metadata: Mapping[str, Any], *transactions: tuple[str, int] | None) -> dict[str, Any]:
    """Return the arguments of delta-rs for commits to the ledger's own tables.

    Commits leave old entries to upkeep: to list the whole log takes longer than a commit.
    """
    return {
        "commit_properties": properties(metadata, *transactions),
        "post_commithook_properties": PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
    }


def make_copy_commit_arguments(metadata: Mapping[str, Any], *transactions: tuple[str, int] | None) -> dict[str, Any]:
    return {
        "commit_properties": properties(metadata, *transactions),
        "post_commithook_properties": PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
    }


def add_missing_columns(loaded: DeltaTable, rows: pa.Table) -> pa.Table:
    for added in pa.schema(loaded.schema().to_arrow()):
        if added.name not in rows.column_names:
            rows = rows.append_column(added, pa.nulls(rows.num_rows, added.type))
    return rows


def commit_nothing(loaded: DeltaTable, commit_properties: CommitProperties) -> None:
    with conflicts():
        loaded.create_write_transaction(
            [],
            mode="append",
            schema=loaded.schema(),
            partition_by=loaded.metadata().partition_columns,
            commit_properties=commit_properties,
        )


def properties(
    metadata: Mapping[str, Any], *transactions: tuple[str, int] | None, rebases: int = REBASES
) -> CommitProperties:
    carried = [Transaction(*transaction) for transaction in transactions if transaction is not None]
    return CommitProperties(
        custom_metadata={"userMetadata": json.dumps(metadata)},
        max_commit_retries=rebases,
        app_transactions=carried or None,
    )


def opened(location: str, storage_options: Mapping[str, str] | None) -> DeltaTable:
    """Return a table as of a version no older than the newest one before this call. Raises what delta-rs raises."""
    threads.require_own("delta-rs")
    options = dict(storage_options or {}) or None
    try:
        return DeltaTable(location, storage_options=options)
    except DeltaError as error:
        if not is_gap(error):
            past = _open_past_checkpoint(location, options)
            if past is None:
                raise
            return past
    version = list_newest_version(table_files(location, options))
    return retry_while_gap(partial(DeltaTable, location, version, storage_options=options))


def _open_past_checkpoint(location: str, options: dict[str, str] | None) -> DeltaTable | None:
    """Return a table whose newest checkpoint is empty or gone; None: the log's entries cannot be read.

    delta-rs can load the version before, and follow the log from there.
    """
    files = table_files(location, options)
    try:
        newest = max([0, read_hinted_checkpoint(files) or 0, *list_checkpoints(files.log_paths())])
        loaded = DeltaTable(location, max(0, newest - 1), storage_options=options)
        loaded.update_incremental()
    except (DeltaError, OSError):
        return None
    return loaded


def catch_up(loaded: DeltaTable, files: TableStorage) -> None:
    """Bring a loaded table to a version no older than the newest one before this call."""
    try:
        loaded.update_incremental()
    except DeltaError as error:
        if not is_gap(error):
            raise
        version = list_newest_version(files)
        if version is None:
            raise
        if version > loaded.version():
            retry_while_gap(partial(loaded.load_as_version, version))


def list_newest_version(files: TableStorage) -> int | None:
    return max(versions_in(files.log_paths()), default=None)


KEPT = 4
#: After this many followed commits a table is opened anew, which takes 7 ms. Following one more append takes 0.5 ms at
#: first, 5 ms after 50, 20 ms after 200 (measured).
MOST_FOLLOWED = 25
#: The seconds after which the log is listed again. Until then, the client only looks for the next version's file.
#: Upkeep may have removed that file, if the process stood still.
LISTED_AFTER = 60.0


class LoadedTable(NamedTuple):
    """`listed_at` is in monotonic seconds."""

    table: DeltaTable
    opened_at: int
    listed_at: float
    generation: int


class LoadedTables:
    """The loaded tables of one location. Each belongs to one thread at a time."""

    def __init__(
        self,
        open_table: Callable[[], DeltaTable],
        files: TableStorage,
        clock: Callable[[], float] = time.monotonic,
        check: Callable[[int], None] = lambda version: None,
        generations: Generations | None = None,
    ) -> None:
        """`check` raises LedgerDamaged if the log up to a version is not whole."""
        self._open, self._files, self._passing, self._check = open_table, files, clock, check
        self._generations = generations or Generations()
        #: The table that was used last has the least to catch up on.
        self._idle: deque[LoadedTable] = deque(maxlen=KEPT)
        self._forgotten_at = -math.inf

    @contextmanager
    def using(self) -> Iterator[DeltaTable]:
        """Return a context with the table as of the newest version. After an error the table is not used again."""
        threads.require_own("delta-rs")
        opened = self._take_newest()
        yield opened.table
        self._idle.append(opened)

    def forget(self) -> None:
        self._forgotten_at = self._passing()

    def _take_newest(self) -> LoadedTable:
        try:
            opened = self._idle.pop()
        except IndexError:
            return self._open_anew()
        now = self._passing()
        if opened.listed_at <= self._forgotten_at or opened.generation != self._generations.current:
            return self._take_newest()
        if now - opened.listed_at <= LISTED_AFTER and not self._files.has(log_file(opened.table.version() + 1)):
            return opened
        # If this entry exists, there is too much to follow. Upkeep may have removed it: count again below.
        if self._files.has(log_file(opened.opened_at + MOST_FOLLOWED + 1)):
            return self._open_anew()
        catch_up(opened.table, self._files)
        self._check(opened.table.version())
        if opened.table.version() - opened.opened_at > MOST_FOLLOWED:
            return self._open_anew()
        return opened._replace(listed_at=now)

    def _open_anew(self) -> LoadedTable:
        now, generation, table = self._passing(), self._generations.current, self._open()
        self._check(table.version())
        return LoadedTable(table, table.version(), now, generation)


STATISTICS = "delta.dataSkippingStatsColumns"
#: Spark's Parquet writer ends a row group at about 32 MB after compression. By default it first waits for 100 rows,
#: which may be 100 MB.
BOUNDED = {
    "parquet.block.size": str(32 << 20),
    **{
        f"parquet.{part}.size.row.check.{bound}": rows
        for part in ("block", "page")
        for bound, rows in (("min", "1"), ("max", "100"))
    },
}


def require_staged(location: str, stored: Storage, files: Sequence[StagedFile]) -> None:
    """Raise StorageFailed if a file is gone: its publication would make the table unreadable."""
    exist = map_at_once(stored.has, (file.path for file in files), AT_ONCE)
    if not all(exist):
        gone = files[exist.index(False)].path
        raise StorageFailed(
            location,
            f"{gone}, which was to be published, was removed, perhaps by VACUUM or with a table that was replaced",
            "write",
        )


def demands_of_staging(schema: pa.Schema, partitions: Sequence[str], statistics: Sequence[str]) -> Demands:
    """Return the demands (`rules.publishable`) of a table for files that are published later.

    The demands do not depend on the Spark session's defaults.
    """
    columns_with_statistics = [schema.names[0], *(name for name in statistics if name in schema.names)]
    properties = {STATISTICS: ",".join(columns_with_statistics), **BOUNDED}
    return Demands(PROTOCOL_OF_NEW, Schema.from_arrow(schema).to_json(), tuple(partitions), properties)


def publish(loaded: DeltaTable, files: Iterable[StagedFile], partitions: Sequence[str], **commit: Any) -> None:
    """Add files to a table in one commit, with the arguments that `make_commit_arguments` returns.

    Raises what delta-rs and `require_plain` raise: the files' writer did not check the table's demands.
    """
    require_plain(loaded)
    add_files(loaded, files, partitions, **commit)


def add_actions(files: Iterable[StagedFile]) -> list[Any]:
    return [AddAction(file.path, file.size, file.partition, file.modified_at, True, file.statistics) for file in files]


def add_files(loaded: DeltaTable, files: Iterable[StagedFile], partitions: Sequence[str], **commit: Any) -> None:
    """Add files that meet all demands of a table, in one commit."""
    loaded.create_write_transaction(add_actions(files), "append", loaded.schema(), list(partitions), **commit)


def list_constraints(loaded: DeltaTable) -> list[str]:
    """Return the names of a table's constraints, and of columns that may not be null or have metadata of Delta."""
    constraints = [name for name in loaded.metadata().configuration if name.startswith("delta.constraints.")]
    for field in loaded.schema().fields:
        if not field.nullable or any(name.startswith("delta.") for name in field.metadata):
            constraints.append(field.name)
    return constraints


def read_demands(loaded: DeltaTable) -> Demands:
    protocol, metadata = loaded.protocol(), loaded.metadata()
    versions: dict[str, Any] = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
    }
    for name, features in (("readerFeatures", protocol.reader_features), ("writerFeatures", protocol.writer_features)):
        if features is not None:
            versions[name] = sorted(features)
    return Demands(versions, loaded.schema().to_json(), tuple(metadata.partition_columns), metadata.configuration)


def metadata_action(
    loaded: DeltaTable, schema: str, configuration: Mapping[str, str], description: str | None
) -> dict[str, Any]:
    current = loaded.metadata()
    changed = {
        "id": current.id,
        "name": current.name,
        "description": description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": current.partition_columns,
        "createdTime": current.created_time,
        "configuration": dict(configuration),
    }
    return {"metaData": changed}


def layout_entry(loaded: DeltaTable, properties: Mapping[str, str], metadata: Mapping[str, Any]) -> bytes:
    now, current = int(time.time() * MILLISECONDS), loaded.metadata()
    changed = metadata_action(
        loaded, loaded.schema().to_json(), {**current.configuration, **properties}, current.description
    )
    parameters = {"properties": json.dumps(dict(properties))}
    return log_entry([commit_info("SET TBLPROPERTIES", metadata, now, parameters), changed])


#: The characters, apart from letters, digits and "-._~", that delta-rs does not escape in a path.
AS_IS = "/!$&'()+,;=@"


def find_odd_path(loaded: DeltaTable) -> str | None:
    """Return the path of a file that delta-rs cannot remove; None: there is none.

    delta-rs encodes the path in another way than the log does (docs/explanation/delta-rs-faults.md). Spark writes such
    paths for letters beyond ASCII.
    """
    actions = pa.table(loaded.get_add_actions())
    paths: list[str] = actions["path"].to_pylist() if actions.num_rows else []
    return next((path for path in paths if quote(unquote(path), safe=AS_IS) != path), None)


def describe_unremovable(table: str, path: str) -> tuple[str, str]:
    return (
        f"the log of the table {table} names a file {path}, which delta-rs cannot remove",
        'It would write the path in another way, and the rows would stay. Open the ledger with engine="spark"',
    )


def require_removable(loaded: DeltaTable) -> None:
    path = find_odd_path(loaded)
    if path is not None:
        raise TableAltered(
            loaded.table_uri, *describe_unremovable(loaded.table_uri.rstrip("/").rpartition("/")[2], path)
        )


def require_plain(loaded: DeltaTable) -> None:
    demands = list_constraints(loaded)
    if demands:
        what = "somebody gave the table demands on its rows, which a bulk send does not check"
        raise TableAltered(loaded.table_uri, f"{what}: {', '.join(demands)}", "Send a list, or undo the change", "send")


def make_first_commit(demands: Demands, now: int) -> bytes:
    return _entry(demands.actions(str(uuid.uuid4()), now))


def begin_log(stored: TableStorage, demands: Demands, now: int, *, below: TableStorage | None = None) -> None:
    """Begin a log with these demands, for Spark to commit to: the first commit, and its version's checksum.

    Without the checksum Spark replays the log after its commit, in three jobs that take longer than a small write.
    Raises FileNotFoundError if the table `below`, which has the new log's folder, is gone from a local path.
    """
    if isinstance(stored, LocalFiles):
        stored.make_log(below.absolute("") if isinstance(below, LocalFiles) else None)
    actions = demands.actions(str(uuid.uuid4()), now)
    nothing = {"tableSizeBytes": 0, "numFiles": 0, "setTransactions": [], "domainMetadata": [], "allFiles": []}
    checksum = {"numMetadata": 1, "numProtocol": 1, "metadata": actions["metaData"], "protocol": actions["protocol"]}
    stored.write({log_file(0): _entry(actions), f"{LOG}/{0:020d}.crc": json.dumps({**nothing, **checksum}).encode()})


def remove_log(stored: TableStorage) -> None:
    """Try to remove the log that `begin_log` began, with one later commit: VACUUM skips a log's folder."""
    if isinstance(stored, LocalFiles):
        shutil.rmtree(stored.absolute(LOG), ignore_errors=True)
        return
    for path in (log_file(0), f"{LOG}/{0:020d}.crc", log_file(1)):
        with suppress(StorageFailed):
            stored.remove(path)


def _entry(actions: Mapping[str, Any]) -> bytes:
    return log_entry({action: about} for action, about in actions.items())


def run_merge(loaded: DeltaTable, merge: Merge, edits: pa.Table, commit: Mapping[str, Any]) -> None:
    require_removable(loaded)
    merger = loaded.merge(
        edits.drop_columns([EXPECTED_REVISION]),
        merge.on,
        source_alias=SOURCE,
        target_alias=TARGET,
        **commit,
    )
    for clause in merge.clauses:
        if clause.action == "DELETE":
            merger = merger.when_matched_delete(clause.condition)
        elif clause.action == "UPDATE":
            merger = merger.when_matched_update(dict(clause.values), predicate=clause.condition)
        else:
            merger = merger.when_not_matched_insert(dict(clause.values), predicate=clause.condition)
    merger.execute()
