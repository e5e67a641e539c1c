"""`rules.location` for this process: relative paths begin at its working folder, `~` is its user's home."""

from __future__ import annotations

import os.path
from pathlib import Path

from ledger.rules.location import Location, locate


def here(field: str, given: object) -> Location:
    """The place that a user names; raises InvalidParameterValue, naming `field`. See `rules.location.locate`."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path's raises where a user has no home, who may not name one
    found = locate(field, given, str(Path.cwd()), home)
    if found.is_local:
        # delta-rs goes to where a link leads, and has to be able to.
        locate(field, os.path.realpath(found.text), "/", home)
    return found
