"""What delta-rs does for the client: tables that it has loaded, commits, and what a loaded table says of itself.

**The newest version.** delta-rs lists the log and takes a listing with a gap for a damaged log (see `history`). Where
others commit 25 times a second, each of seven listings in a row has had one. But what was there before a listing began
is in it. So the table is loaded as of the highest version that a listing of our own has shown, and a gap below that is
a real one.

**Loaded tables** are shared between threads: each is one thread's at a time.
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

from ledger.delta_log.actions import commit_info
from ledger.delta_log.history import Generations, checkpointed, hinted_checkpoint, is_gap, versions_in, without_gaps
from ledger.delta_log.protocol import Conflict, StagedFile
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
from ledger.runtime import forks
from ledger.runtime.threads import map_at_once

#: How delta-rs's errors of a lost race begin: the conflicts, too many of them, and a version that is taken.
LOST_RACES = ("Failed to commit transaction: ", "Tried committing existing table version")
#: Commits that touch other partitions are rebased by delta-rs this often before it gives up.
REBASES = 100


@contextmanager
def conflicts() -> Iterator[None]:
    """Turns delta-rs's errors of a lost race into Conflict: other writers were first, or commit so fast that the log
    could not be listed, before this commit or after it. What else keeps a commit from being written (a full disk) comes
    in the same classes."""
    try:
        yield
    except DeltaError as lost:
        if str(lost).startswith(LOST_RACES) or is_gap(lost):
            raise Conflict(str(lost)) from lost
        raise


def committing(metadata: Mapping[str, Any], *transactions: tuple[str, int] | None) -> dict[str, Any]:
    """How commits to the ledger's own tables are made.

    Old entries of the log are removed by upkeep: a commit that looks for them lists the whole log, which takes longer
    than all the rest once the log has thousands.
    """
    return {
        "commit_properties": properties(metadata, *transactions),
        "post_commithook_properties": PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
    }


def committing_aside(metadata: Mapping[str, Any], *transactions: tuple[str, int] | None) -> dict[str, Any]:
    """How commits to a copy of a log are made: the table's own log gets a checkpoint, and the copy none."""
    return {
        "commit_properties": properties(metadata, *transactions),
        "post_commithook_properties": PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
    }


def with_all_columns(loaded: DeltaTable, rows: pa.Table) -> pa.Table:
    """Rows with every column of a table, null where they have none: somebody may have added some."""
    for added in pa.schema(loaded.schema().to_arrow()):
        if added.name not in rows.column_names:
            rows = rows.append_column(added, pa.nulls(rows.num_rows, added.type))
    return rows


def commit_nothing(loaded: DeltaTable, said: CommitProperties) -> None:
    """Commits to any table what a commit says of itself, and no rows."""
    with conflicts():
        loaded.create_write_transaction(
            [],
            mode="append",
            schema=loaded.schema(),
            partition_by=loaded.metadata().partition_columns,
            commit_properties=said,
        )


def properties(
    metadata: Mapping[str, Any], *transactions: tuple[str, int] | None, rebases: int = REBASES
) -> CommitProperties:
    """What a commit to any table says of itself, and the transactions that it carries."""
    carried = [Transaction(*one) for one in transactions if one is not None]
    return CommitProperties(
        custom_metadata={"userMetadata": json.dumps(metadata)},
        max_commit_retries=rebases,
        app_transactions=carried or None,
    )


def opened(location: str, storage_options: Mapping[str, str] | None) -> DeltaTable:
    """A table as of a version that is no older than the newest one before this call. Raises what delta-rs does."""
    forks.require_own("delta-rs")
    options = dict(storage_options or {}) or None
    try:
        return DeltaTable(location, storage_options=options)
    except DeltaError as error:
        if not is_gap(error):
            past = _opened_past_checkpoint(location, options)
            if past is None:
                raise
            return past
    version = newest_listed(table_files(location, options))
    return without_gaps(partial(DeltaTable, location, version, storage_options=options))


def _opened_past_checkpoint(location: str, options: dict[str, str] | None) -> DeltaTable | None:
    """Return a table whose newest checkpoint is empty or gone, by the entries of its log; None where they cannot be
    read. delta-rs fails when it looks for the checkpoint that `_last_checkpoint` names; not on its way past it."""
    files = table_files(location, options)
    try:
        newest = max([0, hinted_checkpoint(files) or 0, *checkpointed(files.log_paths())])
        loaded = DeltaTable(location, max(0, newest - 1), storage_options=options)
        loaded.update_incremental()
    except (DeltaError, OSError):
        return None
    return loaded


def catch_up(loaded: DeltaTable, files: TableStorage) -> None:
    """Brings a loaded table, whose files these are, to such a version. Raises what delta-rs does."""
    try:
        loaded.update_incremental()
    except DeltaError as error:
        if not is_gap(error):
            raise
        version = newest_listed(files)
        if version is None:
            raise
        if version > loaded.version():
            without_gaps(partial(loaded.load_as_version, version))


def newest_listed(files: TableStorage) -> int | None:
    """None: there is none, and delta-rs says so better."""
    return max(versions_in(files.log_paths()), default=None)


#: So many loaded tables wait for their next use; more than one only where threads had the same one at the same time.
KEPT = 4
#: A table that followed so many commits is opened anew: each append that it followed makes it slower. Measured: to
#: follow one more takes 0.5 ms at first, 5 ms after 50, 20 ms after 200; to open it anew 7 ms.
MOST_FOLLOWED = 25
#: Whether there is a newer version is asked by its name, which costs the same however long the log is; but after so
#: many seconds the log is listed. A process that stood still until upkeep removed the next version sees the later ones.
LISTED_AFTER = 60.0


class LoadedTable(NamedTuple):
    """A loaded table, the version that it was opened at, when the log was last listed for it, in monotonic seconds, and
    the generation that it is of (see `history.Generations`)."""

    table: DeltaTable
    opened_at: int
    listed_at: float
    generation: int


class LoadedTables:
    """The loaded tables of one location. Their number is bounded by how many are in use at once, whatever threads come
    and go."""

    def __init__(
        self,
        open_table: Callable[[], DeltaTable],
        files: TableStorage,
        passing: Callable[[], float] = time.monotonic,
        check: Callable[[int], None] = lambda version: None,
        generations: Generations | None = None,
    ) -> None:
        """`check` raises LedgerDamaged where the log up to a version is not whole. `generations`: of the ledger."""
        self._open, self._files, self._passing, self._check = open_table, files, passing, check
        self._generations = generations or Generations()
        #: What was used last lies on top, and has least to catch up on.
        self._idle: deque[LoadedTable] = deque(maxlen=KEPT)
        #: What was listed by then is not used again.
        self._forgotten_at = -math.inf

    @contextmanager
    def using(self) -> Iterator[DeltaTable]:
        """The table as of the newest version, for one call. After an error it is not used again."""
        forks.require_own("delta-rs")
        opened = self._newest()
        yield opened.table
        self._idle.append(opened)

    def forget(self) -> None:
        """Opens the table anew for whoever comes next: what is loaded may be of another log."""
        self._forgotten_at = self._passing()

    def _newest(self) -> LoadedTable:
        try:
            opened = self._idle.pop()
        except IndexError:
            return self._anew()
        now = self._passing()
        if opened.listed_at <= self._forgotten_at or opened.generation != self._generations.current:
            return self._newest()
        if now - opened.listed_at <= LISTED_AFTER and not self._files.has(log_file(opened.table.version() + 1)):
            return opened
        # Where that version is there, it need not be followed first; it may have been removed with old ones.
        if self._files.has(log_file(opened.opened_at + MOST_FOLLOWED + 1)):
            return self._anew()
        catch_up(opened.table, self._files)
        self._check(opened.table.version())
        if opened.table.version() - opened.opened_at > MOST_FOLLOWED:
            return self._anew()
        return opened._replace(listed_at=now)

    def _anew(self) -> LoadedTable:
        now, generation, table = self._passing(), self._generations.current, self._open()
        self._check(table.version())
        return LoadedTable(table, table.version(), now, generation)


#: The property that names the columns of which Delta collects statistics.
STATISTICS = "delta.dataSkippingStatsColumns"
#: What Spark's writer of Parquet takes from a table's properties: row groups of 32 MB, as they are compressed. It looks
#: at the bytes that it holds from the first row on, where else it waits for 100 rows, which may be 100 MB.
BOUNDED = {
    "parquet.block.size": str(32 << 20),
    **{
        f"parquet.{part}.size.row.check.{bound}": rows
        for part in ("block", "page")
        for bound, rows in (("min", "1"), ("max", "100"))
    },
}


def require_staged(location: str, stored: Storage, files: Sequence[StagedFile]) -> None:
    """Raises StorageFailed where one of the files that are to be published at a location is gone: the table could not
    be read any more. A VACUUM removes them that keeps files for no longer than they are on their way, and whoever
    replaces the table."""
    found = map_at_once(stored.has, (one.path for one in files), AT_ONCE)
    if not all(found):
        gone = files[found.index(False)].path
        raise StorageFailed(
            location,
            f"{gone}, which was to be published, was removed, perhaps by VACUUM or with a table that was replaced",
            "write",
        )


def demands_of_staging(schema: pa.Schema, partitions: Sequence[str], statistics: Sequence[str]) -> Demands:
    """Return the demands of a table for files that are published later; what tables are by default in the session that
    writes it matters not. It has statistics of these columns, as far as it has them, and of its own first one."""
    told = [schema.names[0], *(name for name in statistics if name in schema.names)]
    properties = {STATISTICS: ",".join(told), **BOUNDED}
    return Demands(PROTOCOL_OF_NEW, Schema.from_arrow(schema).to_json(), tuple(partitions), properties)


def publish(loaded: DeltaTable, files: Iterable[StagedFile], partitions: Sequence[str], **commit: Any) -> None:
    """One commit that adds files to a table; `commit`: how it is made, see `committing`. Raises what delta-rs does, and
    TableAltered for a table that asks more of a row than to have its columns: whoever wrote the files knew of nothing.
    """
    require_plain(loaded)
    add_files(loaded, files, partitions, **commit)


def add_actions(files: Iterable[StagedFile]) -> list[Any]:
    """Return files as actions of a commit of delta-rs's."""
    return [AddAction(one.path, one.size, one.partition, one.modified_at, True, one.statistics) for one in files]


def add_files(loaded: DeltaTable, files: Iterable[StagedFile], partitions: Sequence[str], **commit: Any) -> None:
    """One commit that adds files which keep to all that a table asks for. Raises what delta-rs does."""
    loaded.create_write_transaction(add_actions(files), "append", loaded.schema(), list(partitions), **commit)


def demands_of(loaded: DeltaTable) -> list[str]:
    """What a table asks of its rows beyond their columns: its constraints, columns that may not be null or are made by
    Delta, by their names."""
    asked = [name for name in loaded.metadata().configuration if name.startswith("delta.constraints.")]
    for field in loaded.schema().fields:
        if not field.nullable or any(name.startswith("delta.") for name in field.metadata):
            asked.append(field.name)
    return asked


def read_demands(loaded: DeltaTable) -> Demands:
    """Return what a loaded table asks of its rows and files."""
    protocol, metadata = loaded.protocol(), loaded.metadata()
    known: dict[str, Any] = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
    }
    for name, features in (("readerFeatures", protocol.reader_features), ("writerFeatures", protocol.writer_features)):
        if features is not None:
            known[name] = sorted(features)
    return Demands(known, loaded.schema().to_json(), tuple(metadata.partition_columns), metadata.configuration)


def metadata_action(
    loaded: DeltaTable, schema: str, configuration: Mapping[str, str], description: str | None
) -> dict[str, Any]:
    """Return the action that gives a loaded table these columns, properties and description, and leaves all else."""
    known = loaded.metadata()
    changed = {
        "id": known.id,
        "name": known.name,
        "description": description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": known.partition_columns,
        "createdTime": known.created_time,
        "configuration": dict(configuration),
    }
    return {"metaData": changed}


def layout_entry(loaded: DeltaTable, properties: Mapping[str, str], metadata: Mapping[str, Any]) -> bytes:
    """Return the commit that gives a loaded table further properties."""
    now, known = int(time.time() * MILLISECONDS), loaded.metadata()
    changed = metadata_action(
        loaded, loaded.schema().to_json(), {**known.configuration, **properties}, known.description
    )
    parameters = {"properties": json.dumps(dict(properties))}
    return log_entry([commit_info("SET TBLPROPERTIES", metadata, now, parameters), changed])


#: What delta-rs leaves in a path as it is, beside letters, digits and "-._~".
AS_IS = "/!$&'()+,;=@"


def odd_path(loaded: DeltaTable) -> str | None:
    """Return the path of a file that delta-rs would encode in another way than the log does; None: there is none. What
    delta-rs removes of such files stays (docs/explanation/delta-rs-faults.md). Spark writes letters beyond ASCII so."""
    actions = pa.table(loaded.get_add_actions())
    paths: list[str] = actions["path"].to_pylist() if actions.num_rows else []
    return next((path for path in paths if quote(unquote(path), safe=AS_IS) != path), None)


def unremovable(table: str, path: str) -> tuple[str, str]:
    """Return in words that delta-rs cannot remove a file of a table, and what to do."""
    return (
        f"the log of the table {table} names a file {path}, which delta-rs cannot remove",
        'It would write the path in another way, and the rows would stay. Open the ledger with engine="spark"',
    )


def require_removable(loaded: DeltaTable) -> None:
    """Raises TableAltered for a table of which a statement of delta-rs's would remove files that stay."""
    path = odd_path(loaded)
    if path is not None:
        raise TableAltered(loaded.table_uri, *unremovable(loaded.table_uri.rstrip("/").rpartition("/")[2], path))


def require_plain(loaded: DeltaTable) -> None:
    """Raises TableAltered for a table with constraints, or with columns that may not be null or are made by Delta."""
    asked = demands_of(loaded)
    if asked:
        what = "somebody changed the table, and a bulk send cannot keep to what it asks of rows now"
        raise TableAltered(loaded.table_uri, f"{what}: {', '.join(asked)}", "Send a list, or take that back", "send")


def first_commit(demands: Demands, now: int) -> bytes:
    """The first commit of a table with these demands."""
    return _entry(demands.actions(str(uuid.uuid4()), now))


def begin_log(stored: TableStorage, demands: Demands, now: int, *, below: TableStorage | None = None) -> None:
    """Begin the log of such a table for Spark to commit to: the first commit, and what Delta's protocol calls its
    version's checksum, which says what a replay of the log would find. Without it Spark replays the log after the
    commit that it makes, in three jobs that take longer than a small write. Raises what the storage does: also where
    the table `below` which it is to lie is gone from a local path."""
    if isinstance(stored, LocalFiles):
        stored.make_log(below.absolute("") if isinstance(below, LocalFiles) else None)
    said = demands.actions(str(uuid.uuid4()), now)
    nothing = {"tableSizeBytes": 0, "numFiles": 0, "setTransactions": [], "domainMetadata": [], "allFiles": []}
    known = {"numMetadata": 1, "numProtocol": 1, "metadata": said["metaData"], "protocol": said["protocol"]}
    stored.write({log_file(0): _entry(said), f"{LOG}/{0:020d}.crc": json.dumps({**nothing, **known}).encode()})


def remove_log(stored: TableStorage) -> None:
    """Remove the log that `begin_log` began, and the one commit after it: VACUUM looks into no such folder."""
    if isinstance(stored, LocalFiles):
        shutil.rmtree(stored.absolute(LOG), ignore_errors=True)
        return
    for path in (log_file(0), f"{LOG}/{0:020d}.crc", log_file(1)):
        with suppress(StorageFailed):
            stored.remove(path)


def _entry(said: Mapping[str, Any]) -> bytes:
    return log_entry({action: about} for action, about in said.items())
