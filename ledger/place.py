"""`rules.location` for this process: relative paths begin at its working folder, `~` is its user's home. And
the folders that a write has made for nothing."""

from __future__ import annotations

import contextlib
import os.path
from collections.abc import Sequence
from pathlib import Path

from ledger.rules.location import Location, locate, recorded


def here(field: str, given: object) -> Location:
    """The place that a user names; raises InvalidParameterValue, naming `field`. See `rules.location.locate`."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path's raises where a user has no home, who may not name one
    found = locate(field, given, str(Path.cwd()), home)
    if found.is_local:
        # delta-rs goes to where a link leads, and has to be able to.
        locate(field, os.path.realpath(found.text), "/", home)
    return found


def absent_folders(location: str) -> list[Path]:
    """Return of a local folder and those that it lies in the ones that are not there, the innermost first; none of
    other places, which have no folders of their own."""
    place = recorded(location)
    if not place.is_local:
        return []
    inner = Path(place.text)
    return [folder for folder in (inner, *inner.parents) if not folder.exists()]


def remove_empty(folders: Sequence[Path]) -> None:
    """Remove folders that a write has made, the innermost first, as far as nobody has put anything into them."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
