"""The staging of a bulk send, and its race with upkeep.

Spark writes the files into a folder of this send alone, which nobody reads. Then one commit to the table `messages`
publishes the files where they lie.

That commit carries the folder's transaction id with the version PUBLISHED. Before upkeep removes a folder, it commits
the same id with the version FENCED. The later of the two commits finds the earlier one, and fails. So upkeep removes no
published files, and nobody publishes removed files.
"""

from __future__ import annotations

import re
import secrets

from ledger.rules.limits import MILLISECONDS

#: The folder of `messages` with the folders of sends. Vacuums would skip a name that begins with _ or a dot.
FOLDER = "sent"
#: After a committed version only the next number may be committed. Both versions are even, so only one of
#: them is ever committed.
PUBLISHED, FENCED = 2, 4
#: A send that writes for more seconds counts as dead. By default a vacuum keeps unneeded files for 7 days.
ABANDONED = 2 * 86_400
_NAME = re.compile(r"([0-9a-f]{12})-[0-9a-f]{16}")


def new_folder(now: int) -> str:
    """Return a new folder's name for a send that begins now. Each try gets another name."""
    return f"{now:012x}-{secrets.token_hex(8)}"


def is_abandoned(folder: str, now: int) -> bool:
    """Return whether a send's folder is older than ABANDONED; False for a folder of another kind."""
    named = _NAME.fullmatch(folder)
    return named is not None and now - int(named[1], 16) > ABANDONED * MILLISECONDS


def folder_of(path: str) -> str | None:
    """Return the send's folder in the path of a file of `messages`, or None."""
    first, _, rest = path.partition("/")
    return rest.partition("/")[0] if first == FOLDER and rest else None


def application(folder: str) -> str:
    return f"{FOLDER}/{folder}"
