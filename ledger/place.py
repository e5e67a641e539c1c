"""Places as users name them, and the removal of folders that a failed write made."""

from __future__ import annotations

import contextlib
import os.path
from collections.abc import Sequence
from pathlib import Path

from ledger.rules.location import Location, locate, recorded


def here(field: str, value: object) -> Location:
    """Return the place that a user names: see `rules.location.locate`. Raises InvalidParameterValue for `field`.

    Relative paths begin at the process's working folder, and `~` is the home of its user.
    """
    home = os.path.expanduser("~")  # noqa: PTH111 - Path's raises where a user has no home, who may not name one
    place = locate(field, value, str(Path.cwd()), home)
    if place.is_local:
        # delta-rs follows a link. So the link's target must be a valid place, too.
        locate(field, os.path.realpath(place.text), "/", home)
    return place


def absent_folders(location: str) -> list[Path]:
    """Return the missing folders of a local path, the innermost first; none for other places."""
    place = recorded(location)
    if not place.is_local:
        return []
    inner = Path(place.text)
    return [folder for folder in (inner, *inner.parents) if not folder.exists()]


def remove_empty(folders: Sequence[Path]) -> None:
    """Remove these folders in their order, and stop at the first that cannot be removed, such as one with files."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
