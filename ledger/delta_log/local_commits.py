"""Commits and checkpoints on a local path that are synced before others can see them.

delta-rs gives a commit, or a checkpoint, its name before its bytes are on the disk. So this module puts both into the
log. Only delta-rs can work out deletes, some appends, and MERGEs: it commits them to a copy of the log
(`commit_on_copy`). Then `_commit_next` (for a MERGE, `log.LogWriter.land`) puts the commit into the table's own log.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from ledger.delta_log.data_files import APPENDED, commit_info, txn_action
from ledger.delta_log.delta_rs_commits import (
    REBASES,
    catch_up,
    make_commit_arguments,
    make_copy_commit_arguments,
    metadata_action,
    read_demands,
    require_removable,
)
from ledger.delta_log.durability import mark_synced
from ledger.delta_log.history import LAST_CHECKPOINT, list_checkpoints
from ledger.delta_log.protocol import Conflict, LogReplaced, StagedFile, require_next
from ledger.delta_log.reading import PLAIN_PATH
from ledger.delta_log.storage import LOG, HeldLog, LocalFiles, LogEntries, TableStorage, log_entry, log_file
from ledger.rules.limits import MILLISECONDS
from ledger.rules.publishable import list_unapplied_demands
from ledger.runtime.threads import require_own

PREFIX = "ledger-commit-"
#: The age of a folder, in seconds, after which its process counts as dead.
ABANDONED = 86_400
#: More bytes than a file system stores beside a file's name.
PROBE = b"0" * 65_536
_swept: set[str] = set()


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """Return a context with a new folder below TMPDIR, removed at its end. Dead processes' folders are removed, too.

    If TMPDIR takes no file, an error in the context becomes an OSError that names TMPDIR.
    """
    place = tempfile.gettempdir()
    if place not in _swept:
        _swept.add(place)
        _sweep(Path(place))
    try:
        with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
            yield folder
    except (OSError, DeltaError) as error:
        full = _find_write_error(place)
        if full is None:
            raise
        problem = f"the folder for temporary files {place} (TMPDIR) takes no file: {full.strerror}"
        raise OSError(full.errno, problem) from error


def _sweep(place: Path) -> None:
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > ABANDONED:
                shutil.rmtree(folder)


def _find_write_error(place: str) -> OSError | None:
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix="ledger-probe-") as file:
            file.write(PROBE)
            file.flush()
        return None
    except OSError as error:
        return error


log = logging.getLogger("ledger.commits")
PARQUET = b"PAR1"
#: delta-rs's default, for a table whose properties do not set an interval.
COMMITS_A_CHECKPOINT = 100


def can_commit_here(loaded: DeltaTable, files: TableStorage) -> bool:
    return isinstance(files, LocalFiles) and not list_unapplied_demands(read_demands(loaded))


def commit_files(
    loaded: DeltaTable,
    files: LocalFiles,
    added: Iterable[StagedFile],
    metadata: Mapping[str, Any],
    transactions: Iterable[tuple[str, int]],
    still_valid: Callable[[DeltaTable], None],
    *,
    schema: str | None = None,
    cleans_log: bool = False,
) -> int:
    """Commit files that lie below a table, under transactions, and return the version.

    Args:
        loaded: The table as of its newest version. This call brings it to later versions.
        added: The files to add. If writes are synced, they are durable before the commit can be seen.
        still_valid: Looks at the newest version before each try. Raises Conflict if the commit may not follow it.
        schema: The columns that the table has from this commit on, as text of the log; None: as before.
        cleans_log: Whether a checkpoint also removes old entries of the log, if the table's properties allow this.

    Raises Conflict also if others changed the table's metadata or protocol, or committed REBASES times, and if the log
    was cut or replaced.
    """
    added_files = list(added)
    files.sync(file.path for file in added_files)

    def entry() -> bytes:
        now = int(time.time() * MILLISECONDS)
        actions = [
            commit_info("WRITE", metadata, now, APPENDED),
            *(txn_action(transaction, now) for transaction in transactions),
            *map(_make_add_action, added_files),
        ]
        if schema is not None:
            current = loaded.metadata()
            actions.append(metadata_action(loaded, schema, current.configuration, current.description))
        return _entry_of(files, actions)

    return _commit_next(loaded, files, entry, still_valid, cleans_log=cleans_log)


def _entry_of(files: LocalFiles, actions: Sequence[dict[str, Any]]) -> bytes:
    return log_entry(mark_synced(actions) if files.is_synced else actions)


def _commit_next(
    loaded: DeltaTable,
    files: LocalFiles,
    entry: Callable[[], bytes],
    still_valid: Callable[[DeltaTable], None],
    *,
    cleans_log: bool = False,
) -> int:
    """Commit an entry as the version after the one that `still_valid` has looked at. See `commit_files`."""
    looked_at = loaded.version()
    for _ in range(REBASES):
        still_valid(loaded)
        _require_unaltered(files, range(looked_at + 1, loaded.version() + 1))
        looked_at = loaded.version()
        version = loaded.version() + 1
        with files.held_log() as held:
            stamp_before = held.stamp(log_file(version - 1))
            is_first = put_next(held, version, entry())
        if files.stamp(log_file(version - 1)) != stamp_before:
            raise LogReplaced(f"{loaded.table_uri} was replaced during the commit of version {version}")
        catch_up(loaded, files)
        if is_first:
            _sum_up_when_due(loaded, files, version, cleans_log)
            return version
        if loaded.version() < version:
            raise Conflict(f"version {version} is there, and cannot be read")
    raise Conflict(f"others committed {REBASES} times in the meantime")


def _require_unaltered(files: LocalFiles, versions: range) -> None:
    for version in versions:
        actions = [json.loads(line) for line in (files.read(log_file(version)) or b"").splitlines()]
        if not actions or any(action.keys() & {"metaData", "protocol"} for action in actions):
            raise Conflict("others have changed the table's metadata or protocol in the meantime")


def put_next(log: LogEntries, version: int, entry: bytes) -> bool:
    """Make the entry of a version. Return False if the version is taken.

    Raises Conflict if the version before is gone, and removes the entry: nobody reads it without its predecessor. If
    the predecessor is back by then, others may have read the entry, so it is restored.
    """
    entry_file, previous_file = log_file(version), log_file(version - 1)
    try:
        if not log.put_new(entry_file, entry):
            return False
    except FileNotFoundError as gone:
        raise Conflict("the folder of the log was removed") from gone
    if log.has(previous_file):
        return True
    log.remove(entry_file)
    if log.has(previous_file):
        log.put_new(entry_file, entry)
    raise Conflict(f"the log has lost version {version - 1}, which was read")


def require_each_next(loaded: DeltaTable, transactions: Iterable[tuple[str, int]]) -> None:
    for transaction in transactions:
        require_next(transaction, loaded.transaction_version(transaction[0]))


def create(files: LocalFiles, make: Callable[[str], object]) -> None:
    """Make a table, if there is none: see `DeltaTables.create`."""
    with scratch_folder() as scratch:
        make(scratch)
        entry = Path(scratch, log_file(0)).read_bytes()
    files.make_log()
    files.put_new(log_file(0), entry)


def write_checkpoint(files: LocalFiles, version: int) -> None:
    """Make a checkpoint of a version from the files in the log's folder, and put it into that very folder.

    Raises OSError, also for delta-rs's errors, and if the version was removed with old entries. Raises ForkedProcess in
    a forked child whose parent has used delta-rs.
    """
    require_own("delta-rs")
    with files.held_log() as held, scratch_folder() as scratch:
        log = Path(scratch, LOG)
        log.mkdir()
        for name in _files_for(held, version):
            content = held.read(name)
            if content is None:
                raise FileNotFoundError(f"{files.absolute(LOG)}/{name} was removed meanwhile")
            (log / name).write_bytes(content)
        before = {file.name for file in log.iterdir()}
        try:
            DeltaTable(scratch).create_checkpoint()
        except DeltaError as error:
            raise OSError(f"delta-rs made no checkpoint of version {version}: {error}") from error
        for file in log.iterdir():
            if file.name not in before and f"{LOG}/{file.name}" != LAST_CHECKPOINT:
                held.replace(file.name, file.read_bytes())
        # Write this file last: readers take it as the sign that the checkpoint's files exist.
        held.replace(LAST_CHECKPOINT, Path(scratch, LAST_CHECKPOINT).read_bytes())


def _files_for(held: HeldLog, version: int) -> list[str]:
    names = held.names()
    for newest in reversed(list_checkpoints([f"{LOG}/{name}" for name in names])):
        parts = [name for name in names if name.startswith(f"{newest:020d}.checkpoint.")]
        if newest < version and all((held.read(name) or b"").endswith(PARQUET) for name in parts):
            break
    else:
        newest, parts = -1, []
    return [*parts, *(f"{entry:020d}.json" for entry in range(newest + 1, version + 1))]


def delete_rows(
    loaded: DeltaTable, files: TableStorage, predicate: str, metadata: Mapping[str, Any], independent_by: Sequence[str]
) -> None:
    """Delete the rows that a predicate names, by a query of delta-rs, in one commit; without such rows, do nothing.

    If `can_commit_here`, commits to partitions with other values in the columns `independent_by` do not conflict.
    Raises TableAltered if delta-rs cannot remove files of the table.
    """
    if not isinstance(files, LocalFiles) or not can_commit_here(loaded, files):
        require_removable(loaded)
        loaded.delete(predicate, **make_commit_arguments(metadata))
        files.make_durable(loaded.version())
        return

    def delete(copy: DeltaTable) -> None:
        copy.delete(predicate, **make_copy_commit_arguments(metadata))

    version, actions = commit_on_copy(files, delete)
    if not actions:
        return
    if not all(PLAIN_PATH.fullmatch(action["remove"]["path"]) for action in actions if "remove" in action):
        require_removable(loaded)
    touched, looked_at = {_partition_of(action, independent_by) for action in actions}, version - 1

    def require_unlike(newest: DeltaTable) -> None:
        nonlocal looked_at
        for following in range(looked_at + 1, newest.version() + 1):
            _require_unaltered(files, range(following, following + 1))
            other_actions = [json.loads(line) for line in (files.read(log_file(following)) or b"").splitlines()]
            if touched & {_partition_of(action, independent_by) for action in other_actions} - {None}:
                raise Conflict("others have committed to a partition of the delete in the meantime")
            looked_at = following

    catch_up(loaded, files)
    _commit_next(loaded, files, lambda: _entry_of(files, actions), require_unlike)


def append_rows(
    loaded: DeltaTable,
    files: LocalFiles,
    rows: pa.Table,
    metadata: Mapping[str, Any],
    transactions: Iterable[tuple[str, int]],
    still_valid: Callable[[DeltaTable], None],
) -> int:
    """Append rows, which have all columns of the table, through delta-rs. Return the version. See `commit_files`."""

    def append(copy: DeltaTable) -> None:
        write_deltalake(copy, rows, mode="append", **make_copy_commit_arguments(metadata, *transactions))

    still_valid(loaded)
    _, actions = commit_on_copy(files, append)
    return _commit_next(loaded, files, lambda: _entry_of(files, actions), still_valid)


def commit_on_copy(
    files: LocalFiles, commit: Callable[[DeltaTable], object], version: int | None = None
) -> tuple[int, list[dict[str, Any]]]:
    """Let delta-rs commit to a copy of a table's log, as of `version` (None: of the newest one).

    Returns the version in the copy, and the commit's actions, if any. The files that the commit adds are in the table,
    and durable if writes are synced.
    """
    with _copied_log(files, version) as scratch:
        for entry in os.scandir(files.absolute("")):
            if entry.name != LOG:
                Path(scratch, entry.name).symlink_to(entry.path)
        copy = DeltaTable(scratch, version)
        before = copy.version()
        commit(copy)
        committed = copy.version()
        if committed == before:
            return committed, []
        actions = [json.loads(line) for line in Path(scratch, log_file(committed)).read_bytes().splitlines()]
        added = [unquote(action["add"]["path"]) for action in actions if "add" in action]
        for path in added:
            if not files.absolute(path).exists():
                # The table had no folder for this file, so delta-rs wrote it into `scratch`. A copied file, unlike a
                # moved one, gets its new folder's group and permissions.
                files.absolute(path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(Path(scratch, path), files.absolute(path))
        files.sync(added)
    return committed, actions


def _partition_of(action: Mapping[str, Any], columns: Sequence[str]) -> tuple[str | None, ...] | None:
    fields = action.get("add") or action.get("remove")
    return None if fields is None else tuple((fields.get("partitionValues") or {}).get(name) for name in columns)


@contextmanager
def _copied_log(files: LocalFiles, version: int | None = None) -> Iterator[str]:
    with scratch_folder() as scratch:
        Path(scratch, LOG).mkdir()
        for path in _list_since_checkpoint(files, version):
            Path(scratch, path).symlink_to(files.absolute(path))
        yield scratch


def _list_since_checkpoint(files: LocalFiles, version: int | None) -> list[str]:
    """Return the paths of the newest checkpoint up to a version (None: of all checkpoints), and of all later files."""
    paths = [path for path in files.log_paths() if path.partition("/")[2][:20].isdecimal()]
    last = max(
        (checkpoint for checkpoint in list_checkpoints(paths) if version is None or checkpoint <= version), default=0
    )
    return [path for path in paths if path.partition("/")[2] >= f"{last:020d}"]


def _sum_up_when_due(loaded: DeltaTable, files: LocalFiles, version: int, cleans_log: bool) -> None:
    """Make a checkpoint if it is due. Log errors only: the commit has landed."""
    configuration = loaded.metadata().configuration
    interval = configuration.get("delta.checkpointInterval", "")
    if version % (int(interval) if interval.isdecimal() and int(interval) else COMMITS_A_CHECKPOINT):
        return
    try:
        write_checkpoint(files, version)
        if cleans_log and configuration.get("delta.enableExpiredLogCleanup", "true").lower() != "false":
            loaded.cleanup_metadata()
    except (DeltaError, OSError) as error:
        log.warning("No checkpoint of %s at version %d: %s", loaded.table_uri, version, error)


def _make_add_action(file: StagedFile) -> dict[str, Any]:
    return {
        "add": {
            "path": quote(file.path, safe="/=-_.~"),
            "partitionValues": dict(file.partition),
            "size": file.size,
            "modificationTime": file.modified_at,
            "dataChange": True,
            "stats": file.statistics,
        }
    }
