"""Tables that delta-rs has loaded, shared between threads: each is lent to one at a time, and comes back by itself."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deltalake import DeltaTable

from ledger.store.delta.engines.log_gaps import without_gaps

#: So many loaded tables wait for their next use; more than one only where threads had the same one at the same time.
KEPT = 4
#: A table that followed so many commits is opened anew: each append that it followed makes it slower. Measured: to
#: follow one more takes 0.5 ms at first, 5 ms after 50, 20 ms after 200; to open it anew 7 ms.
MOST_FOLLOWED = 25


class Lent:
    """A loaded table as of one version, until this object is let go of. Nobody else moves it meanwhile."""

    def __init__(self, table: DeltaTable) -> None:
        self.table = table


class LoadedTables:
    """The loaded tables of one location. Their number is bounded by how many are in use at once, whatever threads come
    and go; what is lent lives as long as the decision that is made on it."""

    def __init__(self, open_table: Callable[[], DeltaTable]) -> None:
        self._open = open_table
        #: With the version that each was opened at; what was used last lies on top, and has least to catch up on.
        self._idle: deque[tuple[DeltaTable, int]] = deque(maxlen=KEPT)

    def lend(self) -> Lent:
        """The table as of the newest version."""
        table, opened_at = without_gaps(self._newest)
        lent = Lent(table)
        # Also when an error ends the decision; a deque takes it from whatever thread that happens in.
        weakref.finalize(lent, self._idle.append, (table, opened_at)).atexit = False
        return lent

    @contextmanager
    def using(self) -> Iterator[DeltaTable]:
        """The table as of the newest version, for one call. After an error it is not used again."""
        table, opened_at = without_gaps(self._newest)
        yield table
        self._idle.append((table, opened_at))

    def _newest(self) -> tuple[DeltaTable, int]:
        try:
            table, opened_at = self._idle.pop()
        except IndexError:
            table = self._open()
            return table, table.version()
        table.update_incremental()
        if table.version() - opened_at > MOST_FOLLOWED:
            table = self._open()
            opened_at = table.version()
        return table, opened_at
