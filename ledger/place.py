"""Places as users name them, closed folders above a place, and the removal of folders that a failed write made."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shlex
import stat
from collections.abc import Sequence
from pathlib import Path

from ledger.errors import StorageFailed
from ledger.rules.location import Location, locate, recorded


def locate_here(field: str, value: object) -> Location:
    """Return the place that a user names: see `rules.location.locate`. Raises InvalidParameterValue for `field`.

    Relative paths begin at the process's working folder, and `~` is the home of its user.
    """
    home = os.path.expanduser("~")  # noqa: PTH111 - Path's raises for a user without a home
    place = locate(field, value, str(Path.cwd()), home)
    if place.is_local:
        # delta-rs follows a link, so the link's target must be a valid place, too.
        locate(field, os.path.realpath(place.text), "/", home)
    return place


def find_absent_folders(location: str) -> list[Path]:
    """Return the missing folders of a local path, the innermost first."""
    place = recorded(location)
    if not place.is_local:
        return []
    inner = Path(place.text)
    return [folder for folder in (inner, *inner.parents) if not folder.exists()]


def find_closed_above(path: Path) -> Path | None:
    """Return the outermost folder above a local path (or its link's target) that this user may not enter."""
    for place in (path, Path(os.path.realpath(path))):
        for folder in reversed(place.parents):
            if not folder.is_dir():
                break
            if not os.access(folder, os.X_OK):
                return folder
    return None


def require_open_above(path: Path) -> None:
    closed = find_closed_above(path)
    if closed is not None:
        status = closed.stat()
        owner, mode = name_of_user(status.st_uid), stat.filemode(status.st_mode)
        cause = f"{closed} ({owner}, {mode}): {name_of_user(os.geteuid())} may not enter this folder"
        raise StorageFailed(str(path), cause, is_closed=True).advised(f"To let users in: {describe_opening(closed)}.")


def describe_opening(folder: Path) -> str:
    """Return the command that opens a folder to this user, and who may run it if this user may not."""
    status = folder.stat()
    if status.st_uid == os.geteuid():
        return f"`chmod u+x {shlex.quote(str(folder))}`"
    whom = "g" if status.st_gid in (os.getegid(), *os.getgroups()) else "o"
    return f"`chmod {whom}+x {shlex.quote(str(folder))}`, as {name_of_user(status.st_uid, or_root=True)}"


def name_of_group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def name_of_user(number: int, *, or_root: bool = False) -> str:
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:
        name = f"user {number}"
    return f"{name} or root" if or_root and number != 0 else name


def remove_empty(folders: Sequence[Path]) -> None:
    """Remove these folders in their order, up to the first that cannot be removed, such as one with files."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
