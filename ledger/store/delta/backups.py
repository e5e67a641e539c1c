"""Backups: consistent copies of a ledger, and ledgers made from them.

**Which versions belong together.** Nothing is locked, so others commit while the tables' versions are taken in turn.
`visibility` comes first: a later version of `messages` has all messages that its rows are about, except finished
messages. Upkeep of the restored ledger drops the rows about these. If `messages` came first, upkeep could drop a
finished message and its rows in between, and the message would come back. `queues` and `tasks` come next: upkeep drops
the rows of a queue that was deleted meanwhile. `receipts` is filled, and comes last. Its rows about later versions of
`visibility` are removed from the copy.

**What a backup has.** TABLES_FOLDER has a Delta table for each table of the ledger: the data files of one version, and
a log that begins with its checkpoint. The manifest is written last. Until then, the file UNFINISHED shows that the
backup is incomplete. `Ledger.open` refuses a folder that has either file.

**What a restored ledger is.** Its tables have new ids. Their versions continue at the next multiple of a million,
beyond those of the backup and of the replaced tables. By this, processes that have the earlier ledger open notice the
replacement (see `delta_log.history`). It also lets the version of a claim only grow.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import secrets
import shlex
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ledger.backup_folder import (
    BACKUP_FORMAT,
    MANIFEST,
    TABLES_FOLDER,
    UNFINISHED,
    claimed_folder,
    not_empty,
    read_manifest,
)
from ledger.delta_log.data_files import commit_info
from ledger.delta_log.delta_rs_commits import opened
from ledger.delta_log.durability import sync_path
from ledger.delta_log.failures import translating_errors
from ledger.delta_log.history import CHECKPOINT, list_checkpoints
from ledger.delta_log.storage import AT_ONCE, LOG, log_entry, log_file, version_of
from ledger.errors import InvalidParameterValue, LedgerError, StorageFailed
from ledger.place import locate_here, require_open_above
from ledger.rules.limits import MILLISECONDS
from ledger.rules.location import recorded
from ledger.rules.upkeep import VERSIONS
from ledger.runtime.threads import map_at_once
from ledger.store.delta.backup_permissions import keep_permissions, privacy_of
from ledger.store.delta.commit.locks import LOCKS
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.engine import Engine
from ledger.store.delta.verbs.receipts import FILLS, fill_receipts

#: Arguments of Linux's renameat2.
AT_WORKING_FOLDER, EXCHANGE = -100, 2
ORDER = ("visibility", "messages", "queues", "tasks", "receipts")


@dataclass(frozen=True)
class BackupReport:
    """A backup's table versions, its number of files and bytes, and when it was taken (ISO 8601)."""

    versions: Mapping[str, int]
    files: int
    bytes: int
    taken_at: str


def back_up(engine: Engine, transactions: Transactions, dest: object, report: Callable[[str], None]) -> BackupReport:
    """Copy one consistent version of an open ledger into a folder that is empty or does not exist.

    A failed call removes what it wrote. A killed process leaves the folder, with the file UNFINISHED.

    Raises:
        InvalidParameterValue: The folder has content or lies in the ledger, or either is not on a local path.
        LedgerDamaged: Damage of the ledger makes the copy fail.
        StorageFailed: The storage failed.
    """
    places = {name: recorded(engine.place(name)) for name in ORDER}
    if not all(place.is_local for place in places.values()):
        bound = "Must be a path on this machine: backups are made of ledgers on local paths"
        raise InvalidParameterValue("root", places["queues"].text, bound, "Use the storage's own versions of objects.")
    locations = {name: Path(os.path.realpath(place.text)) for name, place in places.items()}
    root, folder = Path(os.path.realpath(Path(places["queues"].text).parent)), _require_local("dest", dest)
    if any(folder.is_relative_to(place) for place in (root, *locations.values())):
        raise InvalidParameterValue(
            "dest", str(folder), f"Must not lie in the ledger {root}", "Name a folder outside it."
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise not_empty(folder)
    taken_at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    tables: dict[str, DeltaTable] = {}
    with _naming_damage(engine), translating_errors(str(root), DeltaError):
        for name in ORDER:
            if name == "receipts":
                fill_receipts(engine, transactions)
            tables[name] = opened(str(locations[name]), None)
    with _naming_damage(engine), translating_errors(str(folder), DeltaError), claimed_folder(folder) as made:
        return _write_backup(root, folder, made, locations, tables, taken_at, report)


@contextlib.contextmanager
def _naming_damage(engine: Engine) -> Iterator[None]:
    try:
        yield
    except StorageFailed as error:
        damage = next((found for name in ORDER if (found := engine.damage(name)) is not None), None)
        if damage is None:
            raise
        raise damage from error


def _write_backup(
    root: Path,
    folder: Path,
    made: Sequence[Path],
    locations: Mapping[str, Path],
    tables: Mapping[str, DeltaTable],
    taken_at: str,
    report: Callable[[str], None],
) -> BackupReport:
    privacy = privacy_of(root, locations.values())
    sync_path(folder / UNFINISHED)
    (folder / TABLES_FOLDER).mkdir(mode=0o700)
    for name, table in tables.items():
        report(f"backup: {name}, version {table.version()}")
        _copy_table(locations[name], table, folder / TABLES_FOLDER / name)
    _forget_later_receipts(folder / TABLES_FOLDER / "receipts", tables["visibility"].version())
    files = {str(path.relative_to(folder)): path.stat().st_size for path in _files(folder / TABLES_FOLDER)}
    versions = {name: DeltaTable(str(folder / TABLES_FOLDER / name)).version() for name in ORDER}
    manifest = {"format": BACKUP_FORMAT, "taken_at": taken_at, "versions": versions, "files": files}
    _write(folder / f"{MANIFEST}.tmp", json.dumps(manifest).encode())
    inner = sorted((folder / TABLES_FOLDER).rglob("*"))
    limited = [privacy.limit(path) for path in (*inner, folder / f"{MANIFEST}.tmp", *({folder} & {*made}))]
    if not all(limited):
        report(f"backup: the file system of {folder} keeps no modes: others may read what the ledger keeps from them")
    with contextlib.suppress(OSError):
        (folder / TABLES_FOLDER).chmod((folder / TABLES_FOLDER / "queues").stat().st_mode & 0o7777)
    _sync_folders(folder / TABLES_FOLDER)
    (folder / f"{MANIFEST}.tmp").rename(folder / MANIFEST)
    (folder / UNFINISHED).unlink()
    for path in (folder, *(new_folder.parent for new_folder in made)):
        sync_path(path)
    return BackupReport(versions, len(files), sum(files.values()), taken_at)


def restore_backup(
    source: object, root: object, replace: bool, report: Callable[[str], None]
) -> tuple[BackupReport, Path | None]:
    """Make a ledger at `root` from a backup. It keeps the permissions of a folder that it replaces.

    Returns what the backup has, and where the earlier content of `root` was moved (None: there was none). With
    `replace`, a file or a folder with content at `root` is moved aside. An empty folder is always replaced.

    Raises:
        InvalidParameterValue: `source` is no complete backup, one path is in the other or not local, `root` is a mount,
            or without `replace`, anything but an empty folder is at `root`.
        LedgerTooNew: A newer release wrote the backup.
        StorageFailed: The storage failed.
    """
    backup, place = _require_local("source", source), _require_local("root", root)
    manifest = read_manifest(backup)
    if os.path.ismount(place):
        raise _make_mount_error(place)
    is_taken = place.exists() and (not place.is_dir() or any(place.iterdir()))
    if is_taken and not replace:
        raise InvalidParameterValue(
            "root",
            str(place),
            "There is something already",
            "Name a new folder, or give replace=True (--replace), which moves the present content aside.",
        )
    if backup.is_relative_to(place) or place.is_relative_to(backup):
        raise InvalidParameterValue("root", str(place), f"Must not lie in the backup {backup}, nor contain it")
    suffix = secrets.token_hex(4)
    made = place.with_name(f"{place.name}.restoring-{suffix}")
    missing = [parent for parent in place.parents if not parent.exists()]
    with translating_errors(str(place), DeltaError):
        try:
            if place.is_dir():
                made.mkdir(mode=0o700)
            for name in ORDER:
                report(f"restore: {name}")
                for path in _files(backup / TABLES_FOLDER / name):
                    _copy(path, made / name / path.relative_to(backup / TABLES_FOLDER / name))
                _give_identity(made / name, int(manifest["versions"][name]), _find_newest_version(place / name))
            # Processes of the earlier ledger make their lock files here.
            (made / LOCKS).mkdir()
            not_kept = keep_permissions(place, made)
            if not_kept:
                report(f"restore: {not_kept}")
            _sync_folders(made)
            aside = None
            if is_taken:
                aside = place.with_name(
                    f"{place.name}.replaced-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{suffix}"
                )
                _replace(made, place, aside)
            else:
                if place.exists():
                    place.rmdir()
                made.rename(place)
            for path in (place.parent, *(folder.parent for folder in missing)):
                sync_path(path)
        except OSError as error:
            # `ismount` does not recognize a mount from the same disk.
            if error.errno == errno.EBUSY:
                raise _make_mount_error(place) from error
            raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    sizes = manifest["files"].values()
    return BackupReport(manifest["versions"], len(sizes), sum(sizes), manifest["taken_at"]), aside


def _make_mount_error(place: Path) -> InvalidParameterValue:
    return InvalidParameterValue(
        "root",
        str(place),
        "Is a mount, which no ledger can replace",
        f"Name a folder in it, such as {place / 'ledger'}.",
    )


def _replace(made: Path, place: Path, aside: Path) -> None:
    """Move what is at `place` to `aside`, and `made` to `place`, in one step if the file system can.

    If it cannot, a process that opens `place` in between may make an empty ledger.
    """
    # The caller removes `made`: never let the earlier ledger be there.
    made.rename(aside)
    if _exchange(aside, place):
        return
    aside.rename(made)
    try:
        place.rename(aside)
        made.rename(place)
    except BaseException as error:
        if os.path.lexists(aside) and os.path.lexists(made):
            _move_back(aside, place, error)
        raise


def _move_back(aside: Path, place: Path, error: BaseException) -> None:
    try:
        aside.rename(place)
    except OSError as failure:
        why = str(error) or type(error).__name__
        message = f"The restore failed: {why}. The earlier content is at {aside}, and cannot go back: {failure}"
        advice = f"Once {place} is free, move it back: `mv {shlex.quote(str(aside))} {shlex.quote(str(place))}`."
        raise LedgerError(message, advice) from error


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step, or change nothing and return False."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    names = os.fsencode(first), os.fsencode(second)
    return call is not None and call(AT_WORKING_FOLDER, names[0], AT_WORKING_FOLDER, names[1], EXCHANGE) == 0


def _require_local(field: str, path: object) -> Path:
    place = locate_here(field, path)
    if not place.is_local:
        bound = "Must be a path on this machine: backups are made and restored on local paths"
        raise InvalidParameterValue(field, place.text, bound, "Copy a backup to and from other storage as it is.")
    require_open_above(Path(place.text))
    return Path(os.path.realpath(place.text))


def _copy_table(source: Path, table: DeltaTable, dest: Path) -> None:
    (dest / LOG).mkdir(parents=True)
    version = table.version()
    actions = pa.table(table.get_add_actions(flatten=True))
    sizes = dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist())) if actions.num_rows else {}

    def copy(path: str) -> None:
        copied = _copy(source / path, dest / path)
        if copied != sizes[path]:
            raise StorageFailed(str(source), f"{path} has {copied} bytes, and the log says {sizes[path]}", "backup")

    map_at_once(copy, sizes, AT_ONCE)
    numbered = [(int(file.name[:20]), file) for file in (source / LOG).iterdir() if file.name[:20].isdecimal()]
    checkpoints = [at for at in list_checkpoints([f"{LOG}/{file.name}" for _, file in numbered]) if at <= version]
    for number, path in numbered:
        if max(checkpoints, default=0) <= number <= version and path.suffix in (".json", ".parquet"):
            shutil.copyfile(path, dest / LOG / path.name)
    DeltaTable(str(dest), version).create_checkpoint()
    for path in sorted((dest / LOG).iterdir()):
        if path.name.partition(".")[0] != f"{version:020d}":
            path.unlink()
    _rewrite_checkpoint(dest, version, version, None)


def _give_identity(table: Path, version: int, replaced: int) -> None:
    """Give a table a new id and, as version, the next multiple of VERSIONS after `version` and `replaced`."""
    _rewrite_checkpoint(table, version, (max(version, replaced) // VERSIONS + 1) * VERSIONS, str(uuid.uuid4()))


def _find_newest_version(table: Path) -> int:
    log = table / LOG
    versions = [version_of(f"{LOG}/{file.name}") for file in log.iterdir()] if log.is_dir() else []
    return max((version for version in versions if version is not None), default=-1)


def _rewrite_checkpoint(table: Path, version: int, new: int, table_id: str | None) -> None:
    """Replace a log of one checkpoint by a checkpoint and an entry of the version `new`, with `table_id` if given."""
    folder = table / LOG
    (path,) = (file for file in folder.iterdir() if CHECKPOINT.fullmatch(f"{LOG}/{file.name}"))
    rows = pq.read_table(path)
    if "remove" in rows.column_names:
        rows = rows.filter(rows["remove"].is_null())
    if "txn" in rows.column_names:
        # A fill names the version that was filled last. The copy may have rows only up to an earlier version.
        fills = [
            transaction is not None and transaction["appId"].startswith(FILLS)
            for transaction in rows["txn"].to_pylist()
        ]
        rows = rows.filter(pa.array([not is_fill for is_fill in fills]))
    if table_id is not None:
        place = rows.schema.get_field_index("metaData")
        field = rows.schema.field(place)
        values = [action and {**action, "id": table_id} for action in rows["metaData"].to_pylist()]
        rows = rows.set_column(place, field, pa.array(values, field.type))
    for old in list(folder.iterdir()):
        old.unlink()
    pq.write_table(rows, folder / f"{new:020d}.checkpoint.parquet")
    sync_path(folder / f"{new:020d}.checkpoint.parquet")
    now = int(time.time() * MILLISECONDS)
    metadata = {"operation": secrets.token_hex(8), "verb": "backup", "queue": "", "at": now, "owner": "", "events": []}
    entry = commit_info("BACKUP", metadata, now)
    _write(table / log_file(new), log_entry([entry]))
    _write(folder / "_last_checkpoint", json.dumps({"version": new, "size": rows.num_rows}).encode())


def _forget_later_receipts(receipts: Path, version: int) -> None:
    """Remove rows about versions of `visibility` after `version`."""
    table = DeltaTable(str(receipts))
    if not table.delete(f"version > {version}")["num_deleted_rows"]:
        return
    kept = {Path(path) for path in (receipts / uri for uri in table.get_add_actions()["path"].to_pylist())}
    table.create_checkpoint()
    for path in _files(receipts):
        if path.suffix == ".parquet" and LOG not in path.parts and path not in kept:
            path.unlink()
    for path in (receipts / LOG).iterdir():
        if path.name.partition(".")[0] != f"{table.version():020d}":
            path.unlink()
    _rewrite_checkpoint(receipts, table.version(), table.version(), None)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _copy(source: Path, dest: Path) -> int:
    dest.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, dest)
    sync_path(dest)
    return dest.stat().st_size


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    sync_path(path)


def _sync_folders(folder: Path) -> None:
    for path in (folder, *(subfolder for subfolder in folder.rglob("*") if subfolder.is_dir())):
        sync_path(path)
