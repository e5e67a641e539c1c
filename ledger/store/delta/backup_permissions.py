"""Permissions of backups, and of ledgers that are restored in the place of others, on a local path.

**A backup is as private as its ledger.** On the files of a backup, its group and all others get no more rights than
they have on the ledger's folders. A folder above the ledger that they may not enter counts as well: it protects the
ledger, but not a backup on another disk. If the backup has another group than the ledger, this group gets what others
have.

**A restored ledger keeps the permissions of what it replaces**: the group, the modes and the ACLs, and if root
restores, the owner. Each table's folder, its log and the locks take those of the folder that was at their place. Later
partitions and files in them take those of the folder that they are in. A group that this user cannot give away is not
kept. Then the new group gets no more than others have.
"""

from __future__ import annotations

import contextlib
import grp
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ledger.delta_log.storage import LOG
from ledger.rules.permissions import ACCESS_ACL, DEFAULT_ACL, mode_of_acl
from ledger.store.delta.commit.file_locks import LOCKS
from ledger.store.delta.model.tables import TABLES

_OPENING = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderRights(NamedTuple):
    """The owner, group, mode and ACLs of a folder."""

    owner: int
    group: int
    mode: int
    acl: bytes | None
    default_acl: bytes | None


class Kept(NamedTuple):
    """Whether a restored file or folder has the group that it should have, and is closed to all others who should not
    read or write it."""

    group: bool
    privacy: bool


def keep_permissions(replaced: Path, made: Path) -> str:
    """Give a restored ledger, in the folder `made`, the permissions of the folder `replaced`.

    Returns what could not be kept, and what to do, in words; "" if all is kept. Files are changed by descriptors, and
    the folder `made` itself comes last, so nobody else can put a link in a file's place meanwhile.
    """
    top = _rights_of(replaced)
    if top is None:
        return ""
    rights = {".": top}
    for name in (*TABLES, LOCKS):
        rights[name] = _rights_of(replaced / name) or top
        rights[f"{name}/{LOG}"] = _rights_of(replaced / name / LOG) or rights[name]
    kept: set[Kept] = set()
    for folder, _, files, descriptor in os.fwalk(made, topdown=False):
        parts = Path(folder).relative_to(made).parts
        of_folder = rights.get("/".join(parts[:2])) or rights["/".join(parts[:1]) or "."]
        for file in files:
            opened = os.open(file, _OPENING, dir_fd=descriptor)
            try:
                kept.add(_give(opened, of_folder, is_folder=False))
            finally:
                os.close(opened)
        kept.add(_give(descriptor, of_folder, is_folder=True))
    not_kept = []
    if not all(one.group for one in kept):
        group = _name_of_group(top.group)
        not_kept.append(
            f"the group {group} of what was there is not kept, as only root or a member of it can: "
            f"run `ledger share {replaced} --group {group}` as root"
        )
    if not all(one.privacy for one in kept):
        not_kept.append(
            f"the file system of {replaced} keeps no modes: others may read or write what was closed to them"
        )
    return "; ".join(not_kept)


def _rights_of(folder: Path) -> FolderRights | None:
    """Return the rights of a folder; None for a link, a file, or if nothing is there."""
    try:
        status = folder.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return None
    mode = stat.S_IMODE(status.st_mode)
    return FolderRights(status.st_uid, status.st_gid, mode, _acl(folder, ACCESS_ACL), _acl(folder, DEFAULT_ACL))


def _acl(folder: Path, name: str) -> bytes | None:
    try:
        return os.getxattr(folder, name, follow_symlinks=False)
    except (AttributeError, OSError):
        return None


def _give(descriptor: int, rights: FolderRights, *, is_folder: bool) -> Kept:
    """Give an open folder these rights, or an open file those of later files in such a folder. Return what is so."""
    status = os.fstat(descriptor)
    owner = rights.owner if os.geteuid() == 0 else status.st_uid
    has_group = True
    if (status.st_uid, status.st_gid) != (owner, rights.group):
        try:
            os.fchown(descriptor, owner, rights.group)
        except OSError:
            has_group = False
    mode, acl = rights.mode, rights.acl
    if not is_folder:
        acl = rights.default_acl
        mode = (mode if acl is None else mode_of_acl(acl)) & 0o666
    if has_group:
        _set_acl(descriptor, ACCESS_ACL, acl)
        if is_folder:
            _set_acl(descriptor, DEFAULT_ACL, rights.default_acl)
    else:
        mode &= ~stat.S_ISGID & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3
    # A file system without modes, such as vfat, may refuse the call.
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, mode)
    os.fsync(descriptor)
    open_to = stat.S_IMODE(os.fstat(descriptor).st_mode) & (0o077 if is_folder else 0o066)
    return Kept(has_group, not open_to & ~mode)


def _set_acl(descriptor: int, name: str, acl: bytes | None) -> None:
    # A file system without ACLs has none to keep, and none that a folder above has handed down.
    with contextlib.suppress(AttributeError, OSError):
        if acl is None:
            os.removexattr(descriptor, name)
        else:
            os.setxattr(descriptor, name, acl)


def _name_of_group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


class Privacy(NamedTuple):
    """What a ledger's group, and all others, may do at most in a folder of the ledger, as bits of a mode (rwx)."""

    group: int
    of_group: int
    of_others: int

    def limit(self, path: Path) -> bool:
        """Take rights beyond these from a file or folder. Return whether the file system lets this be done."""
        status = path.stat()
        of_group = self.of_group if status.st_gid == self.group else self.of_others
        mode = stat.S_IMODE(status.st_mode)
        limited = mode & (stat.S_ISGID | stat.S_IRWXU | of_group << 3 | self.of_others)
        if limited == mode:
            return True
        try:
            path.chmod(limited)
        except OSError:
            return False
        return stat.S_IMODE(path.stat().st_mode) & 0o077 == limited & 0o077


def privacy_of(root: Path, tables: Iterable[Path]) -> Privacy:
    """Return what the group of a ledger's folder, and all others, may do in each folder of the ledger.

    The folders of `tables` may lie elsewhere, if there are links to them in `root`.
    """
    group, tables = root.stat().st_gid, [*tables]
    of_group = of_others = 0o7
    for mode, folder_group in _modes_of((root, *tables, *(table / LOG for table in tables))):
        of_others &= mode
        of_group &= mode >> 3 if folder_group == group else mode
    for above in {above for place in (root, *tables) for above in place.parents}:
        status = above.stat()
        of_others = of_others if status.st_mode & stat.S_IXOTH else 0
        enters = stat.S_IXGRP if status.st_gid == group else stat.S_IXOTH
        of_group = of_group if status.st_mode & enters else 0
    return Privacy(group, of_group, of_others)


def _modes_of(folders: Iterable[Path]) -> Iterator[tuple[int, int]]:
    """Yield the mode and the group of each folder, and what the folder gives to later files."""
    for folder in folders:
        status = folder.stat()
        yield status.st_mode, status.st_gid
        default = _acl(folder, DEFAULT_ACL)
        if default is not None:
            yield mode_of_acl(default), status.st_gid
