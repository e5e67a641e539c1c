"""Which version of an application's transactions was committed last, as a log that is followed tells.

Only an engine that loads the table can tell it, which takes longer the more was committed since: it was most of the
time of a send to a FIFO queue. But whatever a commit carries is seen where commits are followed. So the engine is asked
for an application once, and again only when the log was listed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Last(NamedTuple):
    """The version of an application's that was committed last (None: none was), as of a version of the table."""

    table_version: int
    committed: int | None


class TransactionsSeen:
    """What was seen in the commits between a listing of the log and one version. It never changes; what the engine has
    told since that listing is shared with the versions behind, and goes with it."""

    def __init__(self, listed: int = 0) -> None:
        """`listed`: the version of the listing."""
        self._listed = listed
        self._seen: Mapping[str, int] = {}
        self._told: dict[str, Last] = {}

    def after(self, carried: Mapping[str, int]) -> TransactionsSeen:
        """Of the next version, whose commit carries these versions, by their applications."""
        if not carried:
            return self
        following = TransactionsSeen(self._listed)
        following._seen, following._told = {**self._seen, **carried}, self._told
        return following

    def last(self, application: str, version: int, ask: Callable[[str], tuple[int, int | None]]) -> Last:
        """As of the `version` that this is of. As of another one where the engine, when it was asked, had reached a
        later one, or not yet the listing: then that has to be seen first. Raises what `ask` does."""
        if application in self._seen:
            return Last(version, self._seen[application])
        told = self._told.get(application)
        if told is None:
            told = Last(*ask(application))
            if told.table_version < self._listed:
                return told
            self._told[application] = told
        # Of what was committed between, nothing is the application's: it would have been seen.
        return told if told.table_version > version else told._replace(table_version=version)
