"""File permissions of a ledger on a local path: sharing and checks."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ledger.delta_log.damage import LOST
from ledger.delta_log.failures import translating_errors
from ledger.delta_log.storage import LOG
from ledger.errors import InvalidParameterValue, LedgerDoesNotExist, StorageFailed
from ledger.place import locate_here, name_of_group, name_of_user, require_open_above
from ledger.rules.location import recorded
from ledger.rules.permissions import (
    ACCESS_ACL,
    DEFAULT_ACL,
    LocalEntry,
    can_enter,
    default_acl,
    find_missing_right,
    is_shared,
    shared_mode,
)
from ledger.store.delta.backup_permissions import read_acl
from ledger.store.delta.commit.locks import LOCKS
from ledger.store.delta.commit.storage_safety import PROBES
from ledger.store.delta.model.tables import TABLES

#: Errors where there are no ACLs.
_NO_ACLS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
#: Errors for a link, for a file that no longer exists, and for a socket.
_NO_FILE = (errno.ELOOP, errno.ENOENT, errno.ENXIO)
_OPENING = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
LOOK_ONLY = "A user who may only read opens the ledger by Ledger.open(root, read_only=True)."


@dataclass(frozen=True)
class SharedLedger:
    """The result of `Ledger.share`: the root, the group, whether everyone may read, and how many folders and files are
    shared.

    `is_inherited`: later files are shared as well, whatever the umask of their process. False if the file system has no
    ACLs, or the system is not Linux. `to_open`: the commands that let the group, or everyone, enter folders above the
    root, which they need in order to use the ledger.
    """

    root: str
    group: str
    everyone: bool
    folders: int
    files: int
    is_inherited: bool
    to_open: tuple[str, ...] = ()


def share_ledger(root: str, group: str, *, everyone: bool = False) -> SharedLedger:
    """See Ledger.share."""
    folder = _require_local(root)
    number = _group_number(group)
    if (closed := _find_closed(folder)) is not None:
        raise _make_sharing_error(folder, closed, group, number)
    if not any((folder / name / LOG).is_dir() for name in TABLES):
        raise LedgerDoesNotExist(root, f"it lacks {', '.join(TABLES)}", [*TABLES])
    folders = files = 0
    is_inherited = True
    for entry, descriptor in _open_entries(folder):
        try:
            if descriptor is None:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), entry.path)
            if entry.group != number:
                os.fchown(descriptor, -1, number)
            # A change of the group may clear the set-group-ID bit.
            mode = shared_mode(entry.mode, everyone=everyone, is_lock=entry.is_lock)
            if mode != stat.S_IMODE(entry.mode) or entry.group != number:
                os.fchmod(descriptor, mode)
            if entry.is_folder:
                is_inherited = _set_default_acl(descriptor, everyone=everyone) and is_inherited
        except PermissionError as error:
            raise _make_sharing_error(folder, entry, group, number) from error
        folders, files = folders + entry.is_folder, files + (not entry.is_folder)
    to_open = tuple(command for _, command in _find_closed_above(folder, number, everyone=everyone))
    return SharedLedger(str(folder), group, everyone, folders, files, is_inherited, to_open)


def _make_sharing_error(folder: Path, entry: LocalEntry, group: str, number: int) -> StorageFailed:
    """Return the error for an entry that this user may not share, with advice how to share all."""
    owners, me = {one.owner for one in (entry, *_entries(folder))}, name_of_user(os.geteuid())
    if owners == {os.geteuid()} and number not in (os.getegid(), *os.getgroups()):
        cause = f"{_describe(entry)}: {me} is not a member of the group {group}"
        advice = f"Run `sudo usermod -aG {group} {me}`, log in again, and repeat the call. Or call as root."
    else:
        cause = f"{_describe(entry)}: {me} may not share it"
        # Another user may own what is in a closed folder.
        is_hidden = _find_closed(Path(entry.path)) is not None
        advice = f"Call it again {'as root' if is_hidden else _sharer(owners, group)}."
    return StorageFailed(entry.path, cause).advised(f"{advice} Files that are shared already stay shared.")


def _sharer(owners: Iterable[int], group: str) -> str:
    users = sorted({*owners} - {0})
    if len({*owners}) == 1 and users:
        return f"as root, or as {name_of_user(users[0])} if a member of the group {group}"
    if len(users) < 2:
        return "as root"
    return f"as root: {' and '.join(map(name_of_user, users[:3]))} each own a part of it"


@dataclass(frozen=True)
class Permissions:
    """What keeps a shared ledger's group, or this user, from using the ledger.

    Each of `faults` names a file or folder, its owner, and what is wrong. Of a ledger that is not shared, only folders
    and locks are checked. `command` mends the faults (empty: there are none).
    """

    faults: tuple[str, ...]
    is_shared: bool
    command: str
    paths: frozenset[str]
    #: Folders above a shared ledger that are closed to its group, or to others if everyone may read it.
    closed_above: tuple[str, ...] = ()
    opening: str = ""


def look_over(root: str) -> Permissions | None:
    """Return a ledger's Permissions, or None if `root` is not local, is a link, or does not exist."""
    place = locate_here("root", root)
    folder = Path(place.text)
    about = _entry(folder) if place.is_local else None
    if about is None:
        return None
    closed = list[tuple[LocalEntry, str]]()
    if is_shared(about):
        others = ((entry, find_missing_right(about, entry)) for entry in _entries(folder) if entry.path != about.path)
        wrong = [(entry, why) for entry, why in others if why is not None]
        closed += _find_closed_above(folder, about.group, everyone=_is_for_everyone(about))
    else:
        wrong = [(entry, f"is not writable for {name_of_user(os.getuid())}") for entry in _find_refused(folder)]
    faults = tuple(f"{_describe(entry)} {why}" for entry, why in wrong)
    paths = frozenset(entry.path for entry, _ in wrong)
    opening = " and ".join(f"`{command}`" for _, command in closed)
    described = tuple(_describe(entry) for entry, _ in closed)
    # `_command` reads the owners of all files.
    command = _command(folder, about) if faults else ""
    return Permissions(faults, is_shared(about), command, paths, described, opening)


def _find_closed_above(folder: Path, group: int, *, everyone: bool) -> Iterator[tuple[LocalEntry, str]]:
    """Yield each folder above a ledger that its group may not enter, or with `everyone` others may not, and the command
    that opens it."""
    for above in reversed(Path(os.path.realpath(folder)).parents):
        about = _entry(above)
        if about is None:
            continue
        acl = read_acl(Path(above), ACCESS_ACL)
        whom = "" if can_enter(about, acl, group) else "g" if about.group == group else "o"
        whom += "o" if everyone and not about.mode & stat.S_IXOTH and whom != "o" else ""
        if "g" in whom and acl is not None:
            # With an ACL, `chmod g+x` changes the mask, and not the group's entry.
            entries = f"g:{name_of_group(group)}:x{',o::x' if 'o' in whom else ''}"
            yield about, f"setfacl -m {entries} {shlex.quote(about.path)}"
        elif whom:
            yield about, f"chmod {whom}+x {shlex.quote(about.path)}"


def _command(folder: Path, about: LocalEntry, *, everyone: bool = False) -> str:
    everyone = everyone or (is_shared(about) and _is_for_everyone(about))
    command = f"ledger share {shlex.quote(str(folder))} --group {_users_of(about)}{' --everyone' if everyone else ''}"
    return f"`{command}`, {_sharer({entry.owner for entry in _entries(folder)}, _users_of(about))}"


def _users_of(about: LocalEntry) -> str:
    return name_of_group(about.group) if is_shared(about) else "GROUP"


def _is_for_everyone(root: LocalEntry) -> bool:
    acl = read_acl(Path(root.path), DEFAULT_ACL)
    return bool(root.mode & stat.S_IROTH) if acl is None else acl == default_acl(everyone=True)


def require_reachable(root: Path) -> None:
    """Raise StorageFailed if this user may not enter a local ledger's folder, or one above it."""
    require_open_above(root)
    about = _entry(root)
    if about is not None and about.is_folder and not os.access(root, os.X_OK):
        cause = f"{_describe(about)}: {name_of_user(os.getuid())} may not enter this folder"
        raise StorageFailed(str(root), cause, is_closed=True).advised(_reading_advice(root, about))


def advise_denied(failed: StorageFailed) -> str:
    """Return the command that lets this user read a table, or "" for another failure."""
    place = recorded(failed.place)
    if not place.is_local or os.strerror(errno.EACCES) not in failed.cause:
        return ""
    root = Path(place.text).parent
    about = _entry(root)
    return "" if about is None else _reading_advice(root, about)


def _reading_advice(root: Path, about: LocalEntry) -> str:
    command = _command(root, about, everyone=True)
    return f"To let everyone read it, and the users of {_users_of(about)} write: {command}."


def require_writable(root: Path) -> None:
    """Raise StorageFailed if this user may not read and write a local ledger's folders and locks."""
    for entry in _find_refused(root):
        about = _entry(root)
        cause = f"{_describe(entry)}: {name_of_user(os.getuid())} may not write there"
        advice = "" if about is None else f"To give it to a group: {_command(root, about)}."
        raise StorageFailed(entry.path, cause).advised(f"{advice} {LOOK_ONLY}".strip())


def _find_refused(root: Path) -> Iterator[LocalEntry]:
    """Yield the folders and locks that this user may not read and write."""
    places = [*(root / name for name in TABLES), *(root / name / LOG for name in TABLES), root / LOCKS]
    locks = (root / LOCKS).glob("*") if os.access(root / LOCKS, os.R_OK | os.X_OK) else ()
    for place in (*places, *locks):
        entry = _entry(place)
        needed = os.W_OK | os.R_OK | (os.X_OK if entry is not None and entry.is_folder else 0)
        if entry is not None and not os.access(place, needed):
            yield entry


def _entries(root: Path) -> Iterator[LocalEntry]:
    """Yield the ledger's folder, and its own files and folders, except links and what closed folders have."""
    about = _entry(root)
    if about is not None:
        yield about
    for name in (*TABLES, LOCKS, PROBES, LOST):
        refusals: list[OSError] = []
        for folder, folders, files in os.walk(root / name, onerror=refusals.append):
            for path in (folder, *(os.path.join(folder, file) for file in files)):  # noqa: PTH118 - there are many
                entry = _entry(path, is_lock=name == LOCKS)
                if entry is not None:
                    yield entry
            folders.sort()
        yield from filter(None, (_entry(error.filename) for error in refusals))


def _open_entries(root: Path) -> Iterator[tuple[LocalEntry, int | None]]:
    """Yield the same as `_entries`, each with its descriptor, or None if this user may not open it.

    Without descriptors, root could give away the target of a link that replaced a file.
    """
    top = os.open(root, _OPENING | os.O_DIRECTORY)
    try:
        yield _make_entry(str(root), os.fstat(top)), top
        for name in (*TABLES, LOCKS, PROBES, LOST):
            if (closed := _find_closed(root / name)) is not None:
                yield closed, None
                continue
            if not (root / name).is_dir():
                continue
            for folder, folders, files, held in os.fwalk(name, dir_fd=top):
                yield _make_entry(str(root / folder), os.fstat(held)), held
                # The walk passes by closed folders without an error.
                yield from ((closed, None) for inner in folders if (closed := _find_closed(root / folder / inner)))
                for file in files:
                    yield from _open_file(str(root / folder / file), file, held, is_lock=name == LOCKS)
    finally:
        os.close(top)


def _find_closed(path: Path) -> LocalEntry | None:
    """Return a folder that this user may not open, or None."""
    about = _entry(path)
    is_open = about is None or not about.is_folder or os.access(path, os.R_OK | os.X_OK)
    return None if is_open else about


def _open_file(path: str, name: str, folder: int, *, is_lock: bool) -> Iterator[tuple[LocalEntry, int | None]]:
    try:
        descriptor = os.open(name, _OPENING | os.O_NONBLOCK, dir_fd=folder)
    except PermissionError:
        about = _entry(path, is_lock=is_lock)
        if about is not None:
            yield about, None
        return
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return
    try:
        yield _make_entry(path, os.fstat(descriptor), is_lock=is_lock), descriptor
    finally:
        os.close(descriptor)


def _entry(path: str | Path, *, is_lock: bool = False) -> LocalEntry | None:
    """Return the entry at a path; None for a link, if nothing is there, or if this user may not look."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    return None if stat.S_ISLNK(status.st_mode) else _make_entry(str(path), status, is_lock=is_lock)


def _make_entry(path: str, status: os.stat_result, *, is_lock: bool = False) -> LocalEntry:
    is_file = not stat.S_ISDIR(status.st_mode)
    return LocalEntry(path, status.st_mode, status.st_uid, status.st_gid, is_lock=is_lock and is_file)


def _set_default_acl(folder: int, *, everyone: bool) -> bool:
    """Share later files by a default ACL. Return False if the system has no ACLs."""
    wanted = default_acl(everyone=everyone)
    try:
        # Only the owner may set an ACL, even to the same value.
        with contextlib.suppress(OSError):
            if os.getxattr(folder, DEFAULT_ACL) == wanted:
                return True
        os.setxattr(folder, DEFAULT_ACL, wanted)
    except AttributeError:
        return False
    except OSError as error:
        if error.errno not in _NO_ACLS:
            raise
        return False
    return True


def _require_local(root: str) -> Path:
    place = locate_here("root", root)
    if not place.is_local:
        fix = "An object store grants rights by its own policies."
        raise InvalidParameterValue("root", root, "Must be a local path", fix)
    folder = Path(place.text)
    require_open_above(folder)
    with translating_errors(str(folder)):
        if folder.is_symlink():
            raise InvalidParameterValue("root", root, "It is a link", f"Name what it leads to, {folder.resolve()}.")
    return folder


def _group_number(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, TypeError):
        if isinstance(group, str) and group.isdecimal():
            return int(group)
        fix = "Name one that `getent group` lists. Nothing was changed."
        raise InvalidParameterValue("group", group, "There is no such group", fix) from None


def _describe(entry: LocalEntry) -> str:
    return f"{entry.path} ({name_of_user(entry.owner)}:{name_of_group(entry.group)}, {stat.filemode(entry.mode)})"
