"""Removing a ledger for good: its tables, its locks and what a repair has put aside, and nothing else that lies there.

On a local path the tables are moved into one folder first, under their locks, so that no process finds half a ledger,
and none commits to a table that is on its way out. Then the folder is removed. What is stopped in between is carried on
by the next call. On an object store the table `queues` goes first, without which nobody opens a ledger.

Processes that have the ledger open find no table any more; no verb makes one again.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ledger.backup_folder import require_no_backup
from ledger.delta_log.damage import LOST
from ledger.delta_log.durability import durability_of
from ledger.delta_log.failures import naming
from ledger.delta_log.object_store import STORES, ObjectStore
from ledger.errors import InvalidParameterValue, LedgerDoesNotExist
from ledger.place import here, remove_empty
from ledger.store.delta.commit.file_locks import LOCKS, all_locked
from ledger.store.delta.commit.storage_safety import PROBES
from ledger.store.delta.model.tables import TABLES

#: Where a local ledger's tables are moved before they are removed.
DOOMED = "_ledger_destroyed-"
#: What the ledger has put beside its tables.
BESIDE = (LOCKS, PROBES, LOST)
#: In this order: without the first nobody opens a ledger.
ORDER = ("queues", *(name for name in TABLES if name != "queues"))


@dataclass(frozen=True)
class Destroyed:
    """What was removed, or would be: `files` and their `bytes`; and what lies in the ledger's folder beside it, and
    `stays` (the first hundred names; a folder that was empty then is removed, too)."""

    root: str
    files: int
    bytes: int
    stays: tuple[str, ...]


def destroy_ledger(root: str, storage_options: Mapping[str, str] | None = None, *, dry_run: bool = False) -> Destroyed:
    """Remove a ledger, and return what that was; with `dry_run` only look.

    Raises LedgerDoesNotExist; LedgerError while another process holds a table's lock, and then nothing is removed;
    InvalidParameterValue for a storage where only Spark reaches the files; StorageFailed.
    """
    place = here("root", root)
    if place.is_local:
        return _destroy_folder(Path(place.text), dry_run=dry_run)
    if place.scheme not in STORES:
        fix = f"Remove the folders {', '.join(TABLES)} with the storage's own tools."
        raise InvalidParameterValue("root", root, "Must be a local path or an object store", fix)
    return _destroy_objects(place.text, ObjectStore(place.text, storage_options), dry_run=dry_run)


def _destroy_folder(folder: Path, *, dry_run: bool) -> Destroyed:
    require_no_backup(folder)
    doomed = [*folder.glob(f"{DOOMED}*")]
    _require_whole(str(folder), lambda name: (folder / name / "_delta_log").is_dir(), is_begun=bool(doomed))
    mine = [*(folder / name for name in (*ORDER, *BESIDE)), *doomed]
    names = {path.name for path in mine}
    files = [path.stat().st_size for one in mine for path in one.rglob("*") if path.is_file()]
    stays = sorted(path.name for path in folder.iterdir() if path.name not in names)
    found = Destroyed(str(folder), len(files), sum(files), tuple(stays[:100]))
    if dry_run:
        return found
    with naming(str(folder)):
        aside = folder / f"{DOOMED}{secrets.token_hex(4)}"
        with all_locked(folder, TABLES):
            aside.mkdir()
            for name in ORDER:
                with contextlib.suppress(FileNotFoundError):
                    (folder / name).rename(aside / name)
            durability_of(folder).sync_folders([str(folder)])
        for one in (*doomed, aside, *(folder / name for name in BESIDE)):
            if one.exists():
                shutil.rmtree(one)
        remove_empty([folder])
    return found


def _destroy_objects(root: str, objects: ObjectStore, *, dry_run: bool) -> Destroyed:
    mine = dict.fromkeys((*ORDER, *BESIDE), 0)
    files, size, others = 0, 0, dict[str, None]()
    for path, bytes_ in objects.sizes():
        name = path.partition("/")[0]
        if name in mine:
            mine[name], files, size = mine[name] + 1, files + 1, size + bytes_
        else:
            others[name] = None
    _require_whole(root, lambda name: bool(mine[name]), is_begun=False)
    if not dry_run:
        for name in mine:
            if mine[name]:
                objects.remove(name)
    return Destroyed(root, files, size, tuple(sorted(others)[:100]))


def _require_whole(root: str, is_there: Callable[[str], bool], *, is_begun: bool) -> None:
    missing = [name for name in TABLES if not is_there(name)]
    if missing and not is_begun:
        raise LedgerDoesNotExist(root, f"it lacks {', '.join(missing)}", missing)
