"""The permissions of a ledger's files and folders that a group shares.

The permissions follow git's core.sharedRepository, on a local path. The group reads and writes, and everybody else
reads or has no access. No file of a table is written again in place, so for such a file only the right to read counts.
Every user of the ledger writes locks. By its set-group-ID bit, a folder gives its group to files that are made later.
By its default ACL, a folder gives such files their permissions, whatever the umask.
"""

from __future__ import annotations

import stat
import struct
from typing import NamedTuple

#: The kernel's format of a default ACL: the name of its extended attribute, and its version. An entry has a tag, bits
#: of permissions, and an id (_NO_ID: none).
DEFAULT_ACL, _VERSION = "system.posix_acl_default", 2
_OWNER, _GROUP, _OTHERS, _NO_ID = 0x01, 0x04, 0x20, 0xFFFFFFFF
_READ, _WRITE, _ENTER = 4, 2, 1


class LocalEntry(NamedTuple):
    """A file or a folder, as the file system describes it. `is_lock` marks a lock, which every user writes."""

    path: str
    mode: int
    owner: int
    group: int
    is_lock: bool = False

    @property
    def is_folder(self) -> bool:
        """Whether the entry is a folder."""
        return stat.S_ISDIR(self.mode)


def shared_mode(mode: int, *, everyone: bool, is_lock: bool = False) -> int:
    """Return the permissions of a file or folder once it is shared.

    In a folder, the owner and the group may do everything. For a file, the owner's permissions stay, and the group may
    read. The group may also write a lock, and any file that the file's owner may write. If `everyone` is true, all
    others may read.
    """
    bits = stat.S_IMODE(mode)
    if stat.S_ISDIR(mode):
        bits |= stat.S_IRWXU | stat.S_IRWXG | stat.S_ISGID
        return bits | (stat.S_IROTH | stat.S_IXOTH if everyone else 0)
    bits |= stat.S_IRGRP | (stat.S_IWGRP if is_lock or bits & stat.S_IWUSR else 0)
    return bits | (stat.S_IROTH if everyone else 0)


def default_acl(*, everyone: bool) -> bytes:
    """Return the default ACL that a shared folder gives to later files, as the kernel stores it."""
    full = _READ | _WRITE | _ENTER
    entries = [(_OWNER, full), (_GROUP, full), (_OTHERS, _READ | _ENTER if everyone else 0)]
    packed = (struct.pack("<HHI", tag, permissions, _NO_ID) for tag, permissions in entries)
    return struct.pack("<I", _VERSION) + b"".join(packed)


def is_shared(root: LocalEntry) -> bool:
    """Return whether a ledger is shared with its group, by the permissions of its folder."""
    return bool(root.mode & stat.S_ISGID and root.mode & stat.S_IWGRP)


def lacking(root: LocalEntry, entry: LocalEntry) -> str | None:
    """Return, in words, what keeps the group from using a file or folder of a shared ledger; None if nothing does."""
    if entry.group != root.group:
        return "is of another group"
    needed = stat.S_IRWXG if entry.is_folder else stat.S_IRGRP | (stat.S_IWGRP if entry.is_lock else 0)
    if entry.mode & needed == needed:
        return None
    return "is not writable for the group" if entry.is_folder or entry.is_lock else "is not readable for the group"
