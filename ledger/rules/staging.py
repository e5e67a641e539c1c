"""The staging of a bulk send, and its race with upkeep.

Spark writes the files into a folder of this send alone, which nobody reads. Then one commit to the table `messages`
publishes the files where they lie.

That commit carries a transaction: the folder's id and the version PUBLISHED. Before upkeep removes a folder, it commits
a transaction of the same id with the version FENCED. The later of these two commits finds the earlier one, and fails.
So upkeep removes no folder of published files, and nobody publishes files of a removed folder, however long the sender
pauses.

Writes to output tables name their folders by this module, too (see `outputs.staging`).
"""

from __future__ import annotations

import re
import secrets

from ledger.rules.limits import MILLISECONDS

#: The folder of `messages` that holds the folders of sends. Its name must not begin with _ or a dot, because the
#: vacuums of both engines skip such folders.
FOLDER = "sent"
#: The versions of a folder's transaction in `messages`. After a committed version, only the next number may be
#: committed. Both versions are even, so only one of them is ever committed.
PUBLISHED, FENCED = 2, 4
#: How long a send may take to write its files, in seconds, before upkeep takes the send for dead. By default a vacuum
#: keeps unneeded files for longer (7 days).
ABANDONED = 2 * 86_400
_NAME = re.compile(r"([0-9a-f]{12})-[0-9a-f]{16}")


def new_folder(now: int) -> str:
    """Return a new folder's name for a send that begins now. Each try gets another name."""
    return f"{now:012x}-{secrets.token_hex(8)}"


def is_abandoned(folder: str, now: int) -> bool:
    """Return whether a folder's send began more than ABANDONED seconds ago; False for a folder of another kind."""
    named = _NAME.fullmatch(folder)
    return named is not None and now - int(named[1], 16) > ABANDONED * MILLISECONDS


def folder_of(path: str) -> str | None:
    """Return the name of the send's folder in a file's path in `messages`; None if the path has no such folder."""
    first, _, rest = path.partition("/")
    return rest.partition("/")[0] if first == FOLDER and rest else None


def application(folder: str) -> str:
    """Return the transaction id (Delta's application id) of a folder."""
    return f"{FOLDER}/{folder}"
