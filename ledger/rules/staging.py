"""How a bulk send's files get into the table `messages`: staged first, in a folder of their own, then published.

Spark writes the files, as a Delta table of this one send, which nobody reads: a single writer needs no lock, whatever
the storage. Then one commit to `messages` names them where they lie. That commit carries a transaction of the folder's,
and so does the one by which upkeep gives a folder up before it removes it. Whoever commits second finds the other: so
what was published is never removed, and what was removed is never published, however long its sender stood still.
"""

from __future__ import annotations

import re
import secrets

from ledger.rules.limits import MILLISECONDS

#: The folder of `messages` that the folders of sends lie in. Its name begins with no _ or dot: vacuum, of either
#: engine, looks for files that are no longer needed in none that does.
FOLDER = "sent"
#: The versions of a folder's transaction in `messages`. Even ones: so none follows another.
PUBLISHED, FENCED = 2, 4
#: So long a send may take to write its files, in seconds, before upkeep takes it for dead. Less than the time for which
#: files that no version needs are kept: a vacuum meets none that may yet be published.
ABANDONED = 2 * 86_400
_NAME = re.compile(r"([0-9a-f]{12})-[0-9a-f]{16}")


def new_folder(now: int) -> str:
    """The name of a folder for a send that begins now: another one for every try."""
    return f"{now:012x}-{secrets.token_hex(8)}"


def is_abandoned(folder: str, now: int) -> bool:
    """Whether its send began so long ago that it is dead, or has published what is in it; never of other folders."""
    named = _NAME.fullmatch(folder)
    return named is not None and now - int(named[1], 16) > ABANDONED * MILLISECONDS


def folder_of(path: str) -> str | None:
    """The folder of a file of `messages`, by its path there; None: it is in none."""
    first, _, rest = path.partition("/")
    return rest.partition("/")[0] if first == FOLDER and rest else None


def application(folder: str) -> str:
    """The transaction id (Delta's application id) of a folder."""
    return f"{FOLDER}/{folder}"
