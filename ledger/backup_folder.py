"""A backup's folder: its manifest, and the file that reserves the folder for one backup.

A backup writes the file MANIFEST last and in one step, so a folder with this file was a complete backup. The manifest
names each file of the tables with its size, so a reader notices files that were lost or cut later.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ledger.errors import InvalidParameterValue, LedgerDoesNotExist, LedgerTooNew

MANIFEST, UNFINISHED = "ledger_backup.json", "ledger_backup.unfinished"
TABLES_FOLDER = "tables"
BACKUP_FORMAT = 1
#: How often a backup tries to make its folder: another backup that fails may remove a folder that is still empty.
CLAIM_ATTEMPTS = 5
ANOTHER_BACKUP_ADVICE = "Take another backup (`ledger backup`)."


def read_manifest(backup: Path) -> dict[str, Any]:
    """Return the manifest of a complete backup.

    Raises:
        InvalidParameterValue: The folder is no complete backup, or a file is missing or has another size.
        LedgerTooNew: The backup has a format that this release does not know.
    """
    fix = "Name a folder that `ledger backup` has made."
    try:
        manifest = json.loads((backup / MANIFEST).read_bytes())
        version, files = manifest["format"], manifest["files"]
    except (FileNotFoundError, NotADirectoryError):
        bound = "The backup was never finished" if (backup / UNFINISHED).exists() else "There is no backup"
        raise InvalidParameterValue("source", str(backup), bound, fix) from None
    except OSError as error:
        bound = f"{MANIFEST} cannot be read: {error.strerror or error}"
        raise InvalidParameterValue("source", str(backup), bound, "Make it readable, and try again.") from error
    except (KeyError, TypeError, ValueError):
        bound = f"The backup is damaged: {MANIFEST} cannot be read"
        raise InvalidParameterValue("source", str(backup), bound, ANOTHER_BACKUP_ADVICE) from None
    if version != BACKUP_FORMAT:
        raise LedgerTooNew(
            f"The backup {backup} has format {version}; this version of the ledger knows {BACKUP_FORMAT}. Upgrade the "
            "package, or restore the backup by the version that made it"
        )
    for path, size in files.items():
        file = backup / path
        if not file.is_file() or file.stat().st_size != size:
            bound = f"The backup is damaged: {path} is missing, or has not {size} bytes"
            raise InvalidParameterValue("source", str(backup), bound, ANOTHER_BACKUP_ADVICE)
    return dict(manifest)


def require_no_backup(folder: Path) -> None:
    """Raise LedgerDoesNotExist if a folder is a backup or lies directly in one, complete or not."""
    for place in (folder, folder.parent):
        if (place / MANIFEST).exists():
            fix = f"`ledger restore-backup {shlex.quote(str(place))} ROOT` makes a ledger of it"
            raise LedgerDoesNotExist(str(folder), "it is a backup", fix=fix)
        if (place / UNFINISHED).exists():
            fix = f"Remove {place}, and take another backup (`ledger backup`)"
            raise LedgerDoesNotExist(str(folder), "it is a backup that was never finished", fix=fix)


def describe_backup(folder: Path) -> tuple[bool, str, str] | None:
    """Return whether a folder is a complete backup, what the folder has or lacks, and the remedy; None: no backup."""
    try:
        require_no_backup(folder)
    except LedgerDoesNotExist as error:
        place = folder if any((folder / name).exists() for name in (MANIFEST, UNFINISHED)) else folder.parent
        if not (place / MANIFEST).exists():
            return False, error.found, error.fix
        try:
            manifest = read_manifest(place)
        except InvalidParameterValue as damage:
            return False, f"it is a backup, and no ledger. {damage.bound}", damage.fix
        except LedgerTooNew as newer:
            return False, f"it is a backup, and no ledger. {newer.message}", ""
        files = f"{len(manifest['files']):,} files, which are all there with their sizes"
        contents = f"it is a backup of {manifest.get('taken_at')}, and no ledger: {files}"
        return place == folder, contents, error.fix
    return None


@contextlib.contextmanager
def claimed_folder(folder: Path) -> Iterator[list[Path]]:
    """Make a folder and its missing parents, reserve the folder for one backup, and yield the folders that were made.

    The file UNFINISHED, which only one process can make, reserves the folder. If the block raises, remove what a backup
    writes, UNFINISHED last, and then the made folders that are empty: others may have written to them. Raises
    InvalidParameterValue if the folder is not empty.
    """
    made: list[Path] = []
    is_own = False
    try:
        for attempt in range(CLAIM_ATTEMPTS):
            try:
                _make_folders(folder, made)
                with (folder / UNFINISHED).open("xb"):
                    is_own = True
                break
            except FileExistsError:
                raise not_empty(folder) from None
            except FileNotFoundError:
                # Another backup failed, and removed the empty folders that it had made.
                if attempt == CLAIM_ATTEMPTS - 1:
                    raise
        if any(path.name != UNFINISHED for path in folder.iterdir()):
            (folder / UNFINISHED).unlink()
            is_own = False
            raise not_empty(folder)
        yield made
    except BaseException:
        if is_own:
            shutil.rmtree(folder / TABLES_FOLDER, ignore_errors=True)
            for name in (f"{MANIFEST}.tmp", MANIFEST, UNFINISHED):
                with contextlib.suppress(OSError):
                    (folder / name).unlink(missing_ok=True)
        for path in sorted(made, reverse=True):
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


def _make_folders(folder: Path, made: list[Path]) -> None:
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                made.append(path)


def not_empty(folder: Path) -> InvalidParameterValue:
    return InvalidParameterValue("dest", str(folder), "Must be an empty folder, or not exist", "Name a new folder.")
