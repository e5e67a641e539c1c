"""Permissions of backups, and of ledgers that are restored in the place of others, on a local path.

**A backup is as private as its ledger.** Its group and all others get at most the rights that they have on every folder
and file of the ledger's tables. If they cannot enter a folder above the ledger, they get no rights: that folder would
not protect a backup that lies elsewhere. If the backup has another group than the ledger, this group and all others get
only the rights that the ledger's group and its others both have. A user or group that an ACL names may belong to the
ledger's group or to the others. A right that one of these named ones lacks is therefore given to no group and no
others.

**A restored ledger keeps the permissions of what it replaces**: the group, the modes and the ACLs, and if root
restores, the owner. Each folder takes the permissions of the folder at its place. A new partition takes those of its
table, limited to what each replaced partition let its group and others do. A file takes those that a new file in its
folder gets, limited by each replaced file in the same way. If this user cannot give a file or folder the old group, the
file or folder keeps its new group, which gets only the rights of the others. A folder's default ACL limits its group in
the same way for later files.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ledger.delta_log import durability
from ledger.delta_log.storage import LOG
from ledger.place import name_of_group
from ledger.rules.permissions import (
    ACCESS_ACL,
    DEFAULT_ACL,
    AccessBits,
    access_bits,
    acl_without_group,
    mode_of_acl,
)
from ledger.store.delta.commit.locks import LOCKS
from ledger.store.delta.model.tables import TABLES

_OPENING = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderRights(NamedTuple):
    owner: int
    group: int
    mode: int
    acl: bytes | None
    default_acl: bytes | None

    def limited(self, bits: AccessBits) -> FolderRights:
        acl, default = (one and bits.limit_acl(one) for one in (self.acl, self.default_acl))
        # In the mode of a folder with an ACL, the group's bits are the ACL's mask.
        limit = bits if acl is None else bits._replace(group=7)
        return self._replace(mode=limit.limit_mode(self.mode), acl=acl, default_acl=default)

    def limit_for_files(self, bits: AccessBits) -> FolderRights:
        """Return the rights for new files in such a folder, limited to `bits`."""
        acl = self.default_acl and bits.limit_acl(self.default_acl)
        # Without a default ACL, the group of a new file gets the rights of the folder's group. In the mode of a folder
        # with an ACL, the group's bits are the ACL's mask, so they do not show these rights.
        mode = mode_of_acl(acl) if acl else bits.intersect(access_bits(self.mode, self.acl)).limit_mode(self.mode)
        return self._replace(mode=mode & 0o666, acl=acl, default_acl=None)


class KeptRights(NamedTuple):
    """Whether a restored file or folder has its group, and is closed to others as it should be."""

    group: bool
    privacy: bool


def keep_permissions(replaced: Path, made: Path) -> str:
    """Give the restored ledger `made` the permissions of `replaced`. Return in words what could not be kept.

    Changes go by descriptors, and `made` comes last, so nobody can put a link in a file's place meanwhile.
    """
    top = _rights_of(replaced)
    if top is None:
        return ""
    rights, limits = {".": top}, dict[str, AccessBits]()
    for name in (*TABLES, LOCKS):
        # If a table's folder is a link, its target is the limit.
        linked = _bits_at(replaced / name, top.group) if (replaced / name).is_symlink() else AccessBits()
        rights[name] = _rights_of(replaced / name) or top.limited(linked)
        rights[f"{name}/{LOG}"] = _rights_of(replaced / name / LOG) or rights[name]
        limits |= _limits_within(replaced, name, top.group)
    kept: set[KeptRights] = set()
    for folder, _, files, descriptor in os.fwalk(made, topdown=False):
        path = Path(folder).relative_to(made)
        of_folder = rights.get(str(path)) or _rights_of(replaced / path)
        if of_folder is None:
            of_folder = rights[path.parts[0]].limited(limits[f"{path.parts[0]}/"])
        in_log = path.parts[1:2] == (LOG,)
        of_files = of_folder.limit_for_files(limits.get("/".join(path.parts[: 1 + in_log]), AccessBits()))
        for file in files:
            opened = os.open(file, _OPENING, dir_fd=descriptor)
            try:
                kept.add(_give(opened, of_files, is_folder=False))
            finally:
                os.close(opened)
        kept.add(_give(descriptor, of_folder, is_folder=True))
    not_kept = []
    if not all(one.group for one in kept):
        group = name_of_group(top.group)
        not_kept.append(
            f"the group {group} of what was there is not kept, as only root or its members can keep it: "
            f"run `ledger share {shlex.quote(str(replaced))} --group {group}` as root"
        )
    if not all(one.privacy for one in kept):
        not_kept.append(
            f"the file system of {replaced} keeps no modes: others may read or write what was closed to them"
        )
    return "; ".join(not_kept)


def _limits_within(replaced: Path, name: str, group: int) -> dict[str, AccessBits]:
    """Return what a replaced table lets a group and others do with its files (key: the table's name), files of its log
    (the log's path), and partitions (the name and "/")."""
    log = f"{name}/{LOG}"
    limits = dict.fromkeys((name, log, f"{name}/"), AccessBits())
    for folder, folders, files in os.walk(replaced / name):
        in_log = Path(folder).is_relative_to(replaced / log)
        for key, paths in ((log if in_log else name, files), (f"{name}/", () if in_log else {*folders} - {LOG})):
            for path in paths:
                limits[key] = limits[key].intersect(_bits_of(Path(folder, path), group))
    return limits


def _rights_of(folder: Path) -> FolderRights | None:
    try:
        status = folder.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return None
    mode = stat.S_IMODE(status.st_mode)
    return FolderRights(status.st_uid, status.st_gid, mode, read_acl(folder, ACCESS_ACL), read_acl(folder, DEFAULT_ACL))


def read_acl(path: Path, name: str) -> bytes | None:
    """Return an ACL (ACCESS_ACL or DEFAULT_ACL) as the kernel stores it, or None. Follow no link."""
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except (AttributeError, OSError):
        return None


def _give(descriptor: int, rights: FolderRights, *, is_folder: bool) -> KeptRights:
    """Give an open file or folder these rights, and return which it has."""
    status = os.fstat(descriptor)
    owner = rights.owner if os.geteuid() == 0 else status.st_uid
    has_group = True
    if (status.st_uid, status.st_gid) != (owner, rights.group):
        try:
            os.fchown(descriptor, owner, rights.group)
        except OSError:
            has_group = False
    mode, acl, default_acl = rights.mode, rights.acl, rights.default_acl
    if not has_group:
        acl, default_acl = None, default_acl and acl_without_group(default_acl)
    _set_acl(descriptor, ACCESS_ACL, acl)
    if is_folder:
        _set_acl(descriptor, DEFAULT_ACL, default_acl)
    if not has_group:
        mode &= ~stat.S_ISGID & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3
    # vfat may refuse the call.
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, mode)
    if is_folder:
        durability.sync_open_folder(descriptor)
    else:
        durability.sync(descriptor)
    open_to = stat.S_IMODE(os.fstat(descriptor).st_mode) & (0o077 if is_folder else 0o066)
    return KeptRights(has_group, not open_to & ~mode)


def _set_acl(descriptor: int, name: str, acl: bytes | None) -> None:
    # A file system without ACLs has none to keep or to inherit.
    with contextlib.suppress(AttributeError, OSError):
        if acl is None:
            os.removexattr(descriptor, name)
        else:
            os.setxattr(descriptor, name, acl)


class Privacy(NamedTuple):
    """The most that a group may do with a ledger, and the most that all others may do."""

    group: int
    bits: AccessBits

    def limit(self, path: Path) -> bool:
        """Take from a file or folder the rights that exceed these. Return whether the file system allows it."""
        status, bits = path.stat(), self.bits
        if status.st_gid != self.group:
            # Members of the ledger's group are among the others here.
            least = bits.group & bits.others
            bits = AccessBits(least, least)
        mode = stat.S_IMODE(status.st_mode)
        limited = bits.limit_mode(mode)
        if limited == mode:
            return True
        try:
            path.chmod(limited)
        except OSError:
            return False
        return stat.S_IMODE(path.stat().st_mode) & 0o077 == limited & 0o077


def privacy_of(root: Path, tables: Iterable[Path]) -> Privacy:
    """Return what a ledger's group, and all others, may do with every folder and file."""
    group = root.stat().st_gid
    bits = _bits_at(root, group)
    for table in tables:
        bits = bits.intersect(_bits_at(table, group))
        for folder, folders, files in os.walk(table):
            for name in (*folders, *files):
                bits = bits.intersect(_bits_of(Path(folder, name), group))
    of_group, of_others, of_named = bits
    return Privacy(group, AccessBits(of_group & of_named, of_others & of_named))


def _bits_at(path: Path, group: int) -> AccessBits:
    """Return what a folder lets a group and all others do: nothing if a folder above it is closed to them."""
    bits = _bits_of(path, group)
    for above in Path(os.path.realpath(path)).parents:
        entering = _bits_of(above, group, has_content=False)
        bits = AccessBits(*(most if enter & 1 else 0 for most, enter in zip(bits, entering)))
    return bits


def _bits_of(path: Path, group: int, *, has_content: bool = True) -> AccessBits:
    """Return what a file, or a folder (with `has_content`, also its later files), lets a group and all others do.

    For a file, the bit to read also sets the bit to execute here: a file without this bit would take from a folder, in
    the intersection of their bits, the right to enter.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return AccessBits()
    except OSError:
        return AccessBits(0, 0, 0)
    bits = access_bits(status.st_mode, read_acl(path, ACCESS_ACL))
    if status.st_gid != group:
        bits = bits._replace(group=bits.others)
    if not stat.S_ISDIR(status.st_mode):
        return AccessBits(*(one | one >> 2 for one in bits))
    default = read_acl(path, DEFAULT_ACL) if has_content else None
    return bits if default is None else bits.intersect(access_bits(0, default))
