"""Where a ledger's root is, and whether several processes may write to the storage there."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from ledger.errors import InvalidParameterValue
from ledger.place import here
from ledger.rules.location import SCHEMA_PREFIX
from ledger.rules.storage import OBJECT_STORES, S3, SAFE_FOR_SPARK, unknown
from ledger.runtime.causes import DENIED, explain, may_only_read

# On these, one machine does not always see the file locks of another.
_SHARED_FILE_SYSTEMS = ("nfs", "cifs", "smb", "fuse.", "9p", "ceph", "lustre", "glusterfs", "beegfs", "gpfs")
_BLOCK = 4_096


def local_path(root: str) -> Path | None:
    try:
        place = here("root", root)
    except InvalidParameterValue:
        return None
    return Path(place.text) if place.is_local else None


def is_s3(root: str) -> bool:
    return root.partition("://")[0].lower() in S3


def object_store(root: str) -> str | None:
    try:
        place = here("root", root)
    except InvalidParameterValue:
        return None
    return place.text if place.scheme in OBJECT_STORES else None


def check_storage(root: str) -> tuple[str, str, str, str]:
    """Return (outcome, subject, found, advice) for `root`. The outcome is OK, WARN or FAIL.

    On this machine, the call writes and removes one small file in the nearest existing folder. Elsewhere only the
    scheme of the URI counts: `ledger.store.delta.commit.storage_report` tries an object store.
    """
    if root.startswith(SCHEMA_PREFIX):
        return "WARN", "storage", f"{root} lies where Spark's catalog says", "give the doctor that path"
    try:
        place = here("root", root)
    except InvalidParameterValue as error:
        return "FAIL", "storage", error.bound, error.fix or "name a path or a URI"
    if place.is_local:
        return _check_local(Path(place.text))
    if place.scheme in OBJECT_STORES:
        return "OK", "storage", f"{place.scheme}: delta-rs commits there by conditional puts", ""
    if place.scheme in SAFE_FOR_SPARK:
        return "OK", "storage", f"{place.scheme}: is safe for several drivers that commit through Spark", ""
    found, advice = unknown(place.scheme)
    return "WARN", "storage", found, advice


def _check_local(path: Path) -> tuple[str, str, str, str]:
    existing = path
    # `os.path.exists` is False where this user may not look, and Path.exists raises there on some Pythons.
    while not os.path.exists(existing) and existing != existing.parent:  # noqa: PTH110
        existing = existing.parent
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".ledger-doctor-") as first:
            # On a full disk a file can be made, but no block can be written.
            first.write(bytes(_BLOCK))
            first.flush()
            if not _locks_exclude_each_other(Path(first.name)):
                return (
                    "FAIL", "storage", f"{existing} does not support file locks (flock)",
                    "put the ledger on a local disk: two processes could lose each other's commits here",
                )  # fmt: skip
    except OSError as error:
        if error.errno in DENIED and may_only_read(path):
            return "OK", "storage", f"{path} can be read; this user may not write there, so no lock was tried", ""
        found, advice = explain(error, existing) or (f"cannot be written ({error})", "choose a folder you may write")
        return "FAIL", "storage", f"{existing} cannot be written: {found}", advice
    file_system = _file_system(existing)
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


def _file_system(folder: Path) -> str:
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return ""
    rows = [line.split() for line in mounts.read_text().splitlines()]
    whole = folder.resolve()
    holding = [row for row in rows if whole.is_relative_to(row[1].replace("\\040", " "))]
    return max(holding, key=lambda row: len(row[1]))[2] if holding else ""
