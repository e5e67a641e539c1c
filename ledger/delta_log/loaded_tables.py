"""Tables that delta-rs has loaded, shared between threads: each is one thread's at a time."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from deltalake import DeltaTable

from ledger import forks
from ledger.delta_log.log_identity import Generations
from ledger.delta_log.newest_version import catch_up
from ledger.delta_log.table_files import TableFiles, log_file

#: So many loaded tables wait for their next use; more than one only where threads had the same one at the same time.
KEPT = 4
#: A table that followed so many commits is opened anew: each append that it followed makes it slower. Measured: to
#: follow one more takes 0.5 ms at first, 5 ms after 50, 20 ms after 200; to open it anew 7 ms.
MOST_FOLLOWED = 25
#: Whether there is a newer version is asked by its name, which costs the same however long the log is; but after so
#: many seconds the log is listed. A process that stood still until upkeep removed the next version sees the later ones.
LISTED_AFTER = 60.0


class Opened(NamedTuple):
    """A loaded table, the version that it was opened at, when the log was last listed for it, in monotonic seconds, and
    the generation that it is of (see `log_identity`)."""

    table: DeltaTable
    opened_at: int
    listed_at: float
    generation: int


class LoadedTables:
    """The loaded tables of one location. Their number is bounded by how many are in use at once, whatever threads come
    and go."""

    def __init__(
        self,
        open_table: Callable[[], DeltaTable],
        files: TableFiles,
        passing: Callable[[], float] = time.monotonic,
        check: Callable[[int], None] = lambda version: None,
        generations: Generations | None = None,
    ) -> None:
        """`check` raises LedgerDamaged where the log up to a version is not whole. `generations`: of the ledger."""
        self._open, self._files, self._passing, self._check = open_table, files, passing, check
        self._generations = generations or Generations()
        #: What was used last lies on top, and has least to catch up on.
        self._idle: deque[Opened] = deque(maxlen=KEPT)
        #: What was listed by then is not used again.
        self._forgotten_at = -math.inf

    @contextmanager
    def using(self) -> Iterator[DeltaTable]:
        """The table as of the newest version, for one call. After an error it is not used again."""
        forks.require_own("delta-rs")
        opened = self._newest()
        yield opened.table
        self._idle.append(opened)

    def forget(self) -> None:
        """Opens the table anew for whoever comes next: what is loaded may be of another log."""
        self._forgotten_at = self._passing()

    def _newest(self) -> Opened:
        try:
            opened = self._idle.pop()
        except IndexError:
            return self._anew()
        now = self._passing()
        if opened.listed_at <= self._forgotten_at or opened.generation != self._generations.current:
            return self._newest()
        if now - opened.listed_at <= LISTED_AFTER and not self._files.has(log_file(opened.table.version() + 1)):
            return opened
        # Where that version is there, it need not be followed first; it may have been removed with old ones.
        if self._files.has(log_file(opened.opened_at + MOST_FOLLOWED + 1)):
            return self._anew()
        catch_up(opened.table, self._files)
        self._check(opened.table.version())
        if opened.table.version() - opened.opened_at > MOST_FOLLOWED:
            return self._anew()
        return opened._replace(listed_at=now)

    def _anew(self) -> Opened:
        now, generation, table = self._passing(), self._generations.current, self._open()
        self._check(table.version())
        return Opened(table, table.version(), now, generation)
