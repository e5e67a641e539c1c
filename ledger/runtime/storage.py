"""Where a ledger's root is, whether this user and several processes may write there, and causes of storage errors."""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ledger.errors import InvalidParameterValue
from ledger.place import describe_opening, find_closed_above, locate_here
from ledger.rules.location import OBJECT_STORES, S3, SAFE_FOR_SPARK, SCHEMA_PREFIX, explain_unknown_scheme

FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
DENIED_ERRNOS = (errno.EACCES, errno.EPERM)
GONE_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
#: The forms of an errno in the texts of delta-rs and Arrow.
_ERRNO = re.compile(r"\(os error (\d+)\)|\[errno (\d+)\]", re.IGNORECASE)


def explain(error: BaseException, place: Path) -> tuple[str, str] | None:
    """Return what a storage error means, and what to do. Return None for an error without an errno."""
    number = _number_of(error)
    if number is None:
        return None
    at, quoted = _path_of(error) or place, shlex.quote(str(place))
    system_text = os.strerror(number)
    if number in FULL_ERRNOS:
        return (
            f"the disk of {place} is full ({system_text})",
            f"free space there (`df -h {quoted}`, `df -i {quoted}`), then run `ledger upkeep`",
        )
    if number in DENIED_ERRNOS:
        closed = find_closed_above(place) if at.is_relative_to(place) else None
        if closed is not None:
            return describe_closed(closed)
        # If a file could not be made, the nearest existing folder above it denies the access.
        at = next(Path(path) for path in (at, *at.parents) if os.path.exists(path))  # noqa: PTH110 - never raises
        owner, me = _owner_of(at), _name_of(os.geteuid())
        return f"{at} belongs to {owner}, and this is {me} ({system_text})", access_advice(place, owner)
    if number == errno.EROFS:
        return (
            f"the file system of {place} is read-only ({system_text})",
            "see `dmesg`: Linux mounts a broken disk read-only. Repair the disk, or mount it for writing",
        )
    if number in GONE_ERRNOS:
        return f"{at} is gone ({system_text})", f"is the disk mounted (`findmnt -T {quoted}`)? Or restore a backup"
    return f"{at}: {system_text}", "see the system's log (`dmesg`): the disk or its connection may be broken"


def describe_closed(folder: Path) -> tuple[str, str]:
    owner, me = owner_and_user(folder)
    return f"{folder} belongs to {owner}, and {me} may not enter it", f"let users in: {describe_opening(folder)}"


def is_denied(error: BaseException) -> bool:
    return _number_of(error) in DENIED_ERRNOS


def may_only_read(folder: Path) -> bool:
    """Return whether a folder has a ledger's tables, and this user may write neither in the folder nor in a table."""
    tables = [log.parent for log in folder.glob("*/_delta_log")]
    is_writer = any(os.access(place, os.W_OK) for place in (folder, *tables))
    return bool(tables) and not is_writer


def find_unusable_paths(root: Path) -> set[str]:
    needed = os.R_OK | os.X_OK | (0 if may_only_read(root) else os.W_OK)
    return {str(path) for log in root.glob("*/_delta_log") for path in _find_denied(log.parent, needed)}


def find_unusable(folder: Path, most: int, *, is_reader: bool = False) -> tuple[int, list[Path]]:
    """Return how many paths, of a folder and all below it, this user cannot use, and the first `most` of them.

    Every file must be readable. Folders must also be enterable and, unless `is_reader`, writable.
    """
    count, first = 0, list[Path]()
    for path in _find_denied(folder, os.R_OK | os.X_OK | (0 if is_reader else os.W_OK)):
        count += 1
        if len(first) < most:
            first.append(path)
    return count, first


def owner_and_user(path: Path) -> tuple[str, str]:
    return _owner_of(path), _name_of(os.geteuid())


def access_advice(place: Path, owner: str) -> str:
    """Return the commands that let this user work at a place.

    Only the owner of the place is told to take the files of `owner`.
    """
    (whose, me), quoted = owner_and_user(place), shlex.quote(str(place))
    if whose == me:
        return f"`sudo chown -R {me} {quoted}`, or run this as {owner} (`sudo -u {owner} ledger doctor {quoted}`)"
    run = f"run this as {whose} (`sudo -u {whose} ledger doctor {quoted}`)"
    give = f"give it to a group of both, as root: `ledger share {quoted} --group GROUP`"
    return f"{run}, or {give} (with --everyone, all others may read it)"


def _find_denied(folder: Path, needed_of_folders: int) -> Iterator[Path]:
    folders = [folder]
    while folders:
        current = folders.pop()
        if not os.access(current, needed_of_folders):
            yield current
        try:
            with os.scandir(current) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    elif not os.access(entry.path, os.R_OK) and os.path.lexists(entry.path):
                        yield Path(entry.path)
        except OSError:
            # This user may not list the folder (it was yielded above), or another process has removed it.
            continue


def _number_of(error: BaseException) -> int | None:
    """Return the errno that an error has or its text names, or else that of the nearest of its causes."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno:
            return seen.errno
        match = _ERRNO.search(str(seen))
        if match is not None:
            return int(match[1] or match[2])
        seen = seen.__cause__
    return None


def _path_of(error: BaseException) -> Path | None:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and isinstance(seen.filename, str):
            return Path(seen.filename)
        seen = seen.__cause__
    return None


def _owner_of(path: Path) -> str:
    for ancestor in (path, *path.parents):
        try:
            return _name_of(ancestor.stat().st_uid)
        except OSError:
            continue
    return "another user"


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


# On these file systems, one machine does not always see the file locks of another.
_SHARED_FILE_SYSTEMS = ("nfs", "cifs", "smb", "fuse.", "9p", "ceph", "lustre", "glusterfs", "beegfs", "gpfs")
_BLOCK_BYTES = 4_096


def local_path(root: str) -> Path | None:
    try:
        place = locate_here("root", root)
    except InvalidParameterValue:
        return None
    return Path(place.text) if place.is_local else None


def is_s3(root: str) -> bool:
    return root.partition("://")[0].lower() in S3


def find_object_store(root: str) -> str | None:
    try:
        place = locate_here("root", root)
    except InvalidParameterValue:
        return None
    return place.text if place.scheme in OBJECT_STORES else None


def check_storage(root: str) -> tuple[str, str, str, str]:
    """Return (outcome, subject, found, advice) for `root`. The outcome is OK, WARN or FAIL.

    For a local root, the call writes and removes one small file in the nearest existing folder. Of a URI only the
    scheme counts: `ledger.store.delta.commit.readiness` tries an object store.
    """
    if root.startswith(SCHEMA_PREFIX):
        return "WARN", "storage", f"{root} lies where Spark's catalog says", "give the doctor that path"
    try:
        place = locate_here("root", root)
    except InvalidParameterValue as error:
        return "FAIL", "storage", error.bound, error.fix or "name a path or a URI"
    if place.is_local:
        return _check_local(Path(place.text))
    if place.scheme in OBJECT_STORES:
        return "OK", "storage", f"{place.scheme}: delta-rs commits there by conditional puts", ""
    if place.scheme in SAFE_FOR_SPARK:
        return "OK", "storage", f"{place.scheme}: is safe for several drivers that commit through Spark", ""
    found, advice = explain_unknown_scheme(place.scheme)
    return "WARN", "storage", found, advice


def _check_local(path: Path) -> tuple[str, str, str, str]:
    existing = path
    # `os.path.exists` is False where this user may not look, and Path.exists raises there on some Pythons.
    while not os.path.exists(existing) and existing != existing.parent:  # noqa: PTH110
        existing = existing.parent
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".ledger-doctor-") as first:
            # On a full disk a file can be made, but no block can be written.
            first.write(bytes(_BLOCK_BYTES))
            first.flush()
            if not _locks_exclude_each_other(Path(first.name)):
                return (
                    "FAIL", "storage", f"{existing} does not support file locks (flock)",
                    "put the ledger on a local disk: two processes could lose each other's commits here",
                )  # fmt: skip
    except OSError as error:
        if error.errno in DENIED_ERRNOS and may_only_read(path):
            return "OK", "storage", f"{path} can be read; this user may not write there, so no lock was tried", ""
        found, advice = explain(error, existing) or (f"cannot be written ({error})", "choose a folder you may write")
        return "FAIL", "storage", f"{existing} cannot be written: {found}", advice
    file_system = _find_file_system(existing)
    if file_system.startswith(_SHARED_FILE_SYSTEMS):
        return (
            "WARN", "storage", f"{path} is on {file_system}, whose locks other machines may not see",
            "write to it from one machine only",
        )  # fmt: skip
    where = f"{path} can" if existing == path else f"{path} is not there; {existing} can"
    return "OK", "storage", f"{where} be written and locked", ""


def _locks_exclude_each_other(file: Path) -> bool:
    with file.open("rb+") as first, file.open("rb+") as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _find_file_system(folder: Path) -> str:
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return ""
    rows = [line.split() for line in mounts.read_text().splitlines()]
    whole = folder.resolve()
    holding = [row for row in rows if whole.is_relative_to(row[1].replace("\\040", " "))]
    return max(holding, key=lambda row: len(row[1]))[2] if holding else ""
