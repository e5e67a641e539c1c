"""The permissions of a ledger's files and folders that a group shares, like git's core.sharedRepository.

The group reads and writes, and everybody else reads or has no access. A table's file is never written in place, so
the group needs only to read it. By its set-group-ID bit, a folder gives its group to later files. By its default ACL,
the folder gives later files their permissions, whatever the umask.
"""

from __future__ import annotations

import stat
import struct
from typing import NamedTuple

#: The extended attribute of a default ACL, and the version of its format. An entry has a tag, permissions and an id.
DEFAULT_ACL, _VERSION = "system.posix_acl_default", 2
_OWNER, _GROUP, _OTHERS, _NO_ID = 0x01, 0x04, 0x20, 0xFFFFFFFF
#: The extended attribute of a file's or folder's own ACL. _MASK bounds the ACL's entries of groups and named users.
ACCESS_ACL, _NAMED_GROUP, _MASK = "system.posix_acl_access", 0x08, 0x10
_NAMED_USER = 0x02
_READ, _WRITE, _ENTER = 4, 2, 1
_RIGHTS_OF_GROUP = {stat.S_IRGRP: "readable", stat.S_IWGRP: "writable", stat.S_IXGRP: "enterable"}


class LocalEntry(NamedTuple):
    path: str
    mode: int
    owner: int
    group: int
    is_lock: bool = False

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)


def shared_mode(mode: int, *, everyone: bool, is_lock: bool = False) -> int:
    """Return the permissions of a file or folder once it is shared.

    The group may read everything, and write folders, locks, and the files that their owner may write. If `everyone` is
    true, all others may read.
    """
    bits = stat.S_IMODE(mode)
    if stat.S_ISDIR(mode):
        bits |= stat.S_IRWXU | stat.S_IRWXG | stat.S_ISGID
        return bits | (stat.S_IROTH | stat.S_IXOTH if everyone else 0)
    bits |= stat.S_IRGRP | (stat.S_IWGRP if is_lock or bits & stat.S_IWUSR else 0)
    return bits | (stat.S_IROTH if everyone else 0)


def default_acl(*, everyone: bool) -> bytes:
    full = _READ | _WRITE | _ENTER
    others = _READ | _ENTER if everyone else 0
    return _acl_of([(_OWNER, full, _NO_ID), (_GROUP, full, _NO_ID), (_OTHERS, others, _NO_ID)])


def mode_of_acl(acl: bytes) -> int:
    """Return an ACL as the bits of a mode. As in a file's mode, a mask counts as the group's entry."""
    entries = {tag: permissions for tag, permissions, _ in _entries_of(acl) if tag in (_OWNER, _GROUP, _OTHERS, _MASK)}
    group = entries.get(_MASK, entries.get(_GROUP, 0))
    return entries.get(_OWNER, 0) << 6 | group << 3 | entries.get(_OTHERS, 0)


class AccessBits(NamedTuple):
    """What others than the owner may do, as bits of a mode (rwx). `named` is for an ACL's named users and groups."""

    group: int = 7
    others: int = 7
    named: int = 7

    def intersect(self, other: AccessBits) -> AccessBits:
        return AccessBits(self.group & other.group, self.others & other.others, self.named & other.named)

    def limit_mode(self, mode: int) -> int:
        return mode & ~0o077 | mode & (self.group << 3 | self.others)

    def limit_acl(self, acl: bytes) -> bytes:
        limits = {_GROUP: self.group, _OTHERS: self.others, _NAMED_USER: self.named, _NAMED_GROUP: self.named}
        return _acl_of([(tag, bits & limits.get(tag, 7), number) for tag, bits, number in _entries_of(acl)])


def access_bits(mode: int, acl: bytes | None) -> AccessBits:
    """Return what a file or folder lets others than its owner do. `mode` counts only without an ACL.

    In the mode of a file with an ACL, the group's bits are the mask, and the ACL has the group's own entry.
    """
    group, others = mode >> 3 & 7, mode & 7
    if acl is None:
        return AccessBits(group, others, group | others)
    entries = _entries_of(acl)
    mask = next((bits for tag, bits, _ in entries if tag == _MASK), 7)
    group = next((bits for tag, bits, _ in entries if tag == _GROUP), 0) & mask
    others = next((bits for tag, bits, _ in entries if tag == _OTHERS), 0)
    named = [bits & mask for tag, bits, _ in entries if tag in (_NAMED_USER, _NAMED_GROUP)]
    least = group | others if not named else 7
    for bits in named:
        least &= bits
    return AccessBits(group, others, least)


def acl_without_group(acl: bytes) -> bytes:
    """Return an ACL in which the group may do what others may, and that names nobody."""
    entries = {tag: bits for tag, bits, _ in _entries_of(acl)}
    others = entries.get(_OTHERS, 0)
    return _acl_of([(_OWNER, entries.get(_OWNER, 0), _NO_ID), (_GROUP, others, _NO_ID), (_OTHERS, others, _NO_ID)])


def _acl_of(entries: list[tuple[int, int, int]]) -> bytes:
    return struct.pack("<I", _VERSION) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def _entries_of(acl: bytes) -> list[tuple[int, int, int]]:
    return [struct.unpack_from("<HHI", acl, at) for at in range(4, len(acl) - 7, 8)]


def can_enter(folder: LocalEntry, acl: bytes | None, group: int) -> bool:
    """Return whether the users of a group may enter a folder, by its own ACL, or by its mode if it has none.

    As acl(5) says, one entry of the group that lets them in suffices. If the ACL has no entry of the group, others'
    entry counts.
    """
    if acl is None:
        return bool(folder.mode & (stat.S_IXGRP if folder.group == group else stat.S_IXOTH))
    entries = _entries_of(acl)
    mask = next((bits for tag, bits, _ in entries if tag == _MASK), _ENTER)
    of_group = [
        bits
        for tag, bits, number in entries
        if (tag == _GROUP and folder.group == group) or (tag == _NAMED_GROUP and number == group)
    ]
    if of_group:
        return any(bits & mask & _ENTER for bits in of_group)
    return any(bits & _ENTER for tag, bits, _ in entries if tag == _OTHERS)


def is_shared(root: LocalEntry) -> bool:
    return bool(root.mode & stat.S_ISGID and root.mode & stat.S_IWGRP)


def find_missing_right(root: LocalEntry, entry: LocalEntry) -> str | None:
    """Return, in words, what keeps the group from using a file or folder."""
    if entry.group != root.group:
        return "is of another group"
    needed = stat.S_IRWXG if entry.is_folder else stat.S_IRGRP | (stat.S_IWGRP if entry.is_lock else 0)
    lacking = [word for bit, word in _RIGHTS_OF_GROUP.items() if needed & ~entry.mode & bit]
    return f"is not {' or '.join(lacking)} for the group" if lacking else None
