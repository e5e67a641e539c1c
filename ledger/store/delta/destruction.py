"""Removal of a ledger for good: its tables, locks and repair leftovers, nothing else.

On a local path the tables are first moved into one folder, under all locks, so no process commits to a table that is
being removed. The next call finishes the work of a call that was stopped.

On an object store the table `queues` goes first: without it, only a process that may make missing tables opens the
ledger. A table's log, which shows whose it is, goes last.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from ledger.backup_folder import require_no_backup
from ledger.delta_log.damage import LOST
from ledger.delta_log.durability import durability_of
from ledger.delta_log.failures import translating_errors
from ledger.delta_log.history import CHECKPOINT
from ledger.delta_log.object_store import STORES, ObjectStore
from ledger.delta_log.storage import LOG, TableStorage, table_files, version_of
from ledger.errors import InvalidParameterValue, LedgerDoesNotExist, LedgerError
from ledger.place import locate_here, remove_empty, require_open_above
from ledger.store.delta.commit.locks import LOCKS, all_locked
from ledger.store.delta.commit.storage_safety import PROBES
from ledger.store.delta.model.tables import NEEDED, TABLES

#: Begins the name of the folder to which the tables are moved.
DOOMED = "_ledger_destroyed-"
#: Locks, checks of the storage, and what repairs took out.
BESIDE = (LOCKS, PROBES, LOST)
ORDER = ("queues", *(name for name in TABLES if name != "queues"))


@dataclass(frozen=True)
class Destroyed:
    """What was removed, or would be: the number of `files` and their `bytes`.

    `stays`: other names in the ledger's folder (the first hundred). If there are none, the folder is removed, too, and
    the links that led from the root to it. `links`: those of these links that this user may not remove, and that lead
    nowhere now.
    """

    root: str
    files: int
    bytes: int
    stays: tuple[str, ...]
    links: tuple[str, ...] = ()


def destroy_ledger(root: str, storage_options: Mapping[str, str] | None = None, *, dry_run: bool = False) -> Destroyed:
    """Remove a ledger, and report what was removed. With `dry_run` remove nothing.

    Raises:
        LedgerDoesNotExist: There is no ledger, or a local folder is a backup.
        LedgerError: Nothing is removed: others hold a table's lock, a table's folder is a link, or nothing shows that a
            table is a ledger's.
        InvalidParameterValue: Only Spark reaches the files of this storage.
        StorageFailed: The storage failed.
    """
    place = locate_here("root", root)
    if place.is_local:
        require_open_above(Path(place.text))
        return _destroy_root(Path(place.text), dry_run=dry_run)
    if place.scheme not in STORES:
        fix = f"Remove the folders {', '.join(TABLES)} with the storage's own tools."
        raise InvalidParameterValue("root", root, "Must be a local path or an object store", fix)
    return _destroy_objects(place.text, storage_options, dry_run=dry_run)


def _destroy_root(root: Path, *, dry_run: bool) -> Destroyed:
    """Remove the ledger where links lead, and then the links that this user may remove."""
    links: list[Path] = []
    place = root
    while place.is_symlink() and place not in links:
        links.append(place)
        place = Path(os.path.realpath(place.parent)) / place.readlink()
    if not links:
        return _destroy_folder(root, dry_run=dry_run)
    folder = Path(os.path.realpath(root))
    report = _destroy_folder(folder, dry_run=dry_run)
    if dry_run or folder.exists():
        return report
    left = []
    for link in links:
        try:
            link.unlink()
        except OSError:
            left.append(str(link))
    return replace(report, links=tuple(left))


def _destroy_folder(folder: Path, *, dry_run: bool) -> Destroyed:
    require_no_backup(folder)
    doomed = [path for path in folder.glob(f"{DOOMED}*") if _is_doomed(path)]
    existing = [name for name in ORDER if (folder / name / LOG).is_dir()]
    if not doomed:
        _require_any(str(folder), existing)
    for name in existing:
        _require_own(folder / name, table_files(str(folder / name), None))
    own_paths = [*(folder / name for name in (*existing, *BESIDE)), *doomed]
    names = {path.name for path in own_paths}
    files = [path.lstat().st_size for own_path in own_paths for path in own_path.rglob("*") if not path.is_dir()]
    stays = sorted(path.name for path in folder.iterdir() if path.name not in names)
    report = Destroyed(str(folder), len(files), sum(files), tuple(stays[:100]))
    if dry_run:
        return report
    with translating_errors(str(folder)):
        aside = folder / f"{DOOMED}{secrets.token_hex(4)}"
        with all_locked(folder, TABLES):
            aside.mkdir()
            for name in existing:
                (folder / name).rename(aside / name)
            durability_of(folder).sync_folders([str(folder)])
        for path in (*doomed, aside, *(folder / name for name in BESIDE)):
            if path.is_symlink():
                path.unlink()
            elif path.exists():
                shutil.rmtree(path)
        remove_empty([folder])
    return report


def _is_doomed(path: Path) -> bool:
    is_named = re.fullmatch(rf"{DOOMED}[0-9a-f]{{8}}", path.name) is not None
    return is_named and path.is_dir() and not path.is_symlink() and {entry.name for entry in path.iterdir()} <= {*ORDER}


def _destroy_objects(root: str, options: Mapping[str, str] | None, *, dry_run: bool) -> Destroyed:
    objects, files_by_name, others = ObjectStore(root, options), dict.fromkeys((*ORDER, *BESIDE), 0), dict[str, None]()
    files, size = 0, 0
    for path, length in objects.sizes():
        name = path.partition("/")[0]
        if name in files_by_name:
            files_by_name[name], files, size = files_by_name[name] + 1, files + 1, size + length
        else:
            others[name] = None
    existing = [name for name in ORDER if files_by_name[name]]
    _require_any(root, existing)
    for name in existing:
        _require_own(name, table_files(f"{root.rstrip('/')}/{name}", options))
    for name in (*existing, *BESIDE) if not dry_run else ():
        objects.remove_all([path for path in objects.paths(name) if not path.startswith(f"{name}/{LOG}/")])
        objects.remove_folder(name)
    return Destroyed(root, files, size, tuple(sorted(others)[:100]))


def _require_any(root: str, existing: Sequence[str]) -> None:
    if not existing:
        raise LedgerDoesNotExist(root, f"it lacks {', '.join(TABLES)}", [*TABLES])


def _require_own(place: Path | str, files: TableStorage) -> None:
    """Raise LedgerError for a link, or if nothing shows that the table is a ledger's, and not another with its name."""
    if isinstance(place, Path) and place.is_symlink():
        advice = f"Remove what it leads to, {place.resolve()}, and the link. Nothing was removed."
        raise LedgerError(f"{place} is a link", advice)
    if not any(_names_ledger(files, path) for path in sorted(files.log_paths())):
        advice = (
            f"Is it another table? Every table of a ledger says {NEEDED!r} in its description. Nothing was removed."
        )
        raise LedgerError(f"Nothing shows that {place} is a table of a ledger", advice)


def _names_ledger(files: TableStorage, path: str) -> bool:
    if version_of(path) is not None:
        return f'"description":"{NEEDED} ' in (files.read(path) or b"").decode(errors="replace").replace('": "', '":"')
    if not CHECKPOINT.fullmatch(path):
        return False
    with contextlib.suppress(OSError, pa.ArrowException, KeyError), files.open(path) as file:
        table_metadata = file.read(["metaData"])["metaData"].to_pylist()
        return any(
            metadata is not None and str(metadata["description"]).startswith(NEEDED) for metadata in table_metadata
        )
    return False
